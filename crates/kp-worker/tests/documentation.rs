//! `docs/metrics.md` is written from the list of metrics: `UPDATE=1 cargo test -p kp-worker --test documentation`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use kp_worker::pages::{Family, families};
use std::fmt::Write;
use std::path::Path;

const INTRODUCTION: &str = "\
# Metrics

The list below is written from the tables of what is counted (`crates/kp-shm/src/counters.rs`, `series/cells.rs`) and
`crates/kp-worker/src/pages/families.rs`; a test keeps it current.

## Scraping

`metrics;` in a location answers with Prometheus' text format, version 0.0.4:

```
server {
    listen 127.0.0.1:9100;
    access_log off;
    location = /metrics { metrics; }
}
```

```yaml
# prometheus.yml
scrape_configs:
  - job_name: kp
    static_configs: [{targets: [\"127.0.0.1:9100\"]}]
```

`etc/examples/metrics.conf` and `.yaml` have the other pages, too. Only clients on this machine (loopback addresses and unix
sockets) may read the page, unless `allow` and `deny` in force in its location say who may. It is the client that counts,
as `set_real_ip_from` finds it; where another proxy on the same machine passes requests on without saying for whom, everybody
looks like a client on this machine: let `deny` and `allow` decide there, or give the page an address of its own.

A kp has about 200 samples, and 24 more for each virtual host, 44 for each group, 43 for each peer, 3 for each worker, 4 for each
zone. Whatever format is asked for (Prometheus asks for OpenMetrics, too) and whatever compression, the answer is plain text of
this version. Scrapes are no failures, and count as requests of their virtual host. A worker that hangs keeps those scrapes that
come to it, as it keeps other requests: then `up` is 0 now and again.

## What the numbers are

- Whichever worker answers, numbers are of all workers of all generations together. A **counter** only grows: it goes on over
  reloads, and over workers that crash; a restart of kp, or an upgrade to another binary, begins at 0 (while both serve, either
  may answer).
- A **gauge** is what is held now by the workers that live.
- A **histogram** has cumulative buckets with upper ends in seconds; `NAME_count` is how many there were.
- A request is counted when it is over, at its access log line. One whose worker was killed meanwhile is not counted.
- `server` is the first `server_name` of the virtual host, `_` where it has none, and never a port; the same name at
  several addresses is one series. `peer` is `$upstream_addr`. There is room for 1024 virtual hosts, 512 groups and 4096 peers;
  the rest counts in series whose labels are `other`, and `kp_series_without_room` says so. What is not configured any more is
  told of for five to ten minutes, or for one or two where more than half of the room is taken, and then it is gone.
- The counts of what is gone are gone with it, as Prometheus expects: moved to another series they would look like a burst
  there. So a sum over labels may become less when something is taken out of the configuration, while a rate, taken before the
  sum as above, does not; what is counted for kp as a whole never goes back.
- Some facts are told twice: for kp as a whole, which never goes back and is there with `metrics off`, too, and by group or
  peer. The sums are equal as long as all upstreams are groups (a `proxy_pass` with variables may name an address that is in
  none) and none is gone:

  | as a whole | in detail |
  |---|---|
  | `kp_upstream_no_live_peers_total` | `kp_upstream_unserved_requests_total` |
  | `kp_upstream_retries_total` | `kp_upstream_repeated_attempts_total` |
  | `kp_retries_refused_total` | `kp_upstream_refused_retries_total` |
  | `kp_queue_waits_total` | `kp_upstream_queued_requests_total` |
  | `kp_queue_overflows_total` | `kp_upstream_queue_overflows_total` |
  | `kp_queue_timeouts_total` | `kp_upstream_queue_timeouts_total` |
  | `kp_upstream_peers_disabled_total` | `kp_upstream_rests_total` |
  | `kp_upstream_peers_ejected_total` | `kp_upstream_ejections_total` |
  | `kp_upstream_peers_returned_total` | `kp_upstream_returns_total` |
  | `kp_upstream_connects_total` | `kp_peer_connects_total` |
  | `kp_upstream_connect_failures_total` | `kp_peer_connect_failures_total` |
  | `kp_upstream_reuses_total` | `kp_peer_reuses_total` |
  | `kp_upstream_stale_reuses_total` | `kp_peer_stale_reuses_total` |
  | `kp_upstream_connections_idle` | `kp_peer_idle_connections` |

- What a zone holds is looked up when the page is made. An entry of `limit_req_zone` and `limit_accept` counts until its key
  was quiet for so long that its rate allows everything again, so an idle kp has none. Of zones that are together larger than
  32 MiB a sample is read, and `kp_zone_entries` is an estimate. A zone for which there was no shared memory has its size only.
  With another size, key or rate it is another zone, whose `kp_zone_overflows_total` begins at 0.
- What ends is told by the directive that names the file: kp's own certificates (`ssl_certificate`, `proxy_ssl_certificate`),
  authorities (of a file with several the first to end, which in a large bundle is nothing to worry about), and lists of what
  was revoked. Files that variables name, and the system's own authorities, are left out.
- `metrics off;` in `http` turns everything off that has the labels `server`, `upstream` or `peer`, and the zones of upstreams. A proxied request takes about 27,000 instructions and
  with `metrics on` 80 more, less than half a hundredth (`make cost` measures it).

With it one can ask:

| question | PromQL |
|---|---|
| errors of each virtual host | `sum by (server) (rate(kp_http_requests_total{status=\"5xx\"}[5m])) / sum by (server) (rate(kp_http_requests_total[5m]))` |
| the time within which 99 % of requests are answered | `histogram_quantile(0.99, sum by (le) (rate(kp_http_request_duration_seconds_bucket[5m])))` |
| why requests fail | `topk(5, rate(kp_failures_total[5m]))` |
| how busy the event loops are | `rate(kp_loop_busy_seconds_total[1m]) / (rate(kp_loop_busy_seconds_total[1m]) + rate(kp_loop_waiting_seconds_total[1m]))` |
| days until a certificate ends | `(kp_certificate_expiry_timestamp_seconds{directive=~\"ssl_certificate\\|proxy_ssl_certificate\"} - time()) / 86400` |
| how full zones are | `kp_zone_entries / kp_zone_max_entries` |

`stub_status;` has nginx's few numbers for what reads them already, and `health;` says whether requests should come here at
all: 200 `ok`, or 503 with `draining` (kp ends; not so in a reload, since the new workers serve), `memory` (the worker that
answers has used up its `worker_memory`), or with `health upstream=NAME` also `no usable peer in upstream \"NAME\"`: all are
`down`, draining, kept out by a check, ejected, or rest after failures. Full ones (`max_conns`) count as usable.

## A board and alerts

`etc/grafana/kp.json` is a Grafana board (import it, choose the Prometheus data source): whether all is well, clients, reasons,
upstreams, kp itself; job, instance, virtual host and upstream can be chosen. `etc/prometheus/kp-rules.yml` has alerts
(`rule_files` in `prometheus.yml`); their thresholds are beginnings. An installed kp has both in its `examples`. A test sees to
it that they ask for nothing that kp does not have, and that the alerts come when they should.

## All metrics

| name | type | labels | unit | meaning |
|---|---|---|---|---|
";

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for family in families() {
        let Family {
            name,
            kind,
            labels,
            unit,
            help,
            ..
        } = &family;
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let (kind, labels) = (kind.word(), labels.join(", "));
        writeln!(page, "| `{name}` | {kind} | {labels} | {unit} | {help} |").unwrap();
    }
    page
}

#[test]
fn the_page_of_metrics_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written, page(), "run with UPDATE=1 to write it anew");
}
