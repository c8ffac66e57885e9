//! The Grafana board and the alerts of `etc/` ask for metrics and labels that kp has, in PromQL that Prometheus reads, and
//! the alerts come when they should.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests panic to fail"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use kp_tests::{source, tool};
use serde_json::Value;

const BOARD: &str = "etc/grafana/kp.json";
const RULES: &str = "etc/prometheus/kp-rules.yml";

/// What Prometheus adds to every series.
const ADDED: [&str; 2] = ["job", "instance"];

/// Metrics with the labels of their samples, as `docs/metrics.md` lists them, which is written from the tables of the code.
fn metrics() -> BTreeMap<String, BTreeSet<String>> {
    let mut metrics = BTreeMap::new();
    for line in source::read(Path::new("docs/metrics.md")).lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, kind, labels, ..] = cells.as_slice() else {
            continue;
        };
        let Some(name) = ticked(name).pop().filter(|name| name.starts_with("kp_")) else {
            continue;
        };
        let labels: BTreeSet<String> = ticked(labels).into_iter().collect();
        if *kind == "histogram" {
            for ending in ["sum", "count"] {
                metrics.insert(format!("{name}_{ending}"), labels.clone());
            }
            let bucket = labels.iter().cloned().chain(["le".to_owned()]);
            metrics.insert(format!("{name}_bucket"), bucket.collect());
        } else {
            metrics.insert(name, labels);
        }
    }
    metrics
}

/// What stands between backticks.
fn ticked(text: &str) -> Vec<String> {
    let parts = text.split('`').skip(1).step_by(2);
    parts.map(str::to_owned).collect()
}

/// Every expression of the board with its panel: of panels, of variables, of annotations.
fn board() -> Vec<(String, String)> {
    let board: Value = serde_json::from_str(&source::read(Path::new(BOARD))).expect("JSON");
    let mut found = Vec::new();
    for panel in board["panels"].as_array().expect("panels") {
        let title = panel["title"].as_str().expect("a title");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().expect("an expression");
            found.push((title.to_owned(), expression.to_owned()));
        }
    }
    for variable in board["templating"]["list"].as_array().expect("variables") {
        // `label_values(SELECTOR, LABEL)` is Grafana's; a sum by the label asks for the same names.
        let query = variable["query"]["query"].as_str();
        let arguments = query.and_then(|query| query.strip_prefix("label_values("));
        let Some(arguments) = arguments.and_then(|rest| rest.strip_suffix(')')) else {
            continue;
        };
        let (selector, label) = arguments.rsplit_once(',').expect("two arguments");
        let name = variable["name"].as_str().expect("a name");
        found.push((name.to_owned(), format!("sum by ({label}) ({selector})")));
    }
    for annotation in board["annotations"]["list"].as_array().expect("a list") {
        let expression = annotation["expr"].as_str().expect("an expression");
        found.push(("an annotation".to_owned(), expression.to_owned()));
    }
    found
}

/// The names that begin with `kp_`, each with the labels that its selector names.
fn selectors(expression: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(at) = rest.find("kp_") {
        rest = &rest[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
        let inside = after
            .strip_prefix('{')
            .map(|inside| inside.split_once('}').expect("a closed selector").0);
        let labels = inside.into_iter().flat_map(|inside| inside.split(','));
        let labels = labels.map(|label| {
            let end = label.find(['=', '!']).expect("a matcher");
            label[..end].trim().to_owned()
        });
        found.push((name.to_owned(), labels.collect()));
        rest = after;
    }
    found
}

/// The labels in `by (…)`, `on (…)` and `without (…)`.
fn grouped(expression: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in ["by (", "on (", "without ("] {
        for part in expression.split(word).skip(1) {
            let inside = part.split_once(')').expect("a closed list").0;
            found.extend(inside.split(',').map(|label| label.trim().to_owned()));
        }
    }
    found
}

fn assert_known(place: &str, expression: &str, metrics: &BTreeMap<String, BTreeSet<String>>) {
    let mut all: BTreeSet<&str> = ADDED.into_iter().collect();
    let selectors = selectors(expression);
    assert!(!selectors.is_empty(), "{place}: no metric in {expression}");
    for (name, used) in &selectors {
        let labels = metrics
            .get(name)
            .unwrap_or_else(|| panic!("{place}: kp has no metric {name}"));
        for label in used {
            assert!(
                labels.contains(label) || ADDED.contains(&label.as_str()),
                "{place}: {name} has no label {label}"
            );
        }
        all.extend(labels.iter().map(String::as_str));
    }
    for label in grouped(expression) {
        assert!(all.contains(label.as_str()), "{place}: no label {label}");
    }
}

fn promtool(arguments: &[&str]) {
    let told = tool::run(&source::root(), "promtool", arguments, b"");
    assert_eq!(told.code, 0, "promtool {arguments:?}: {}", told.all());
}

#[test]
fn the_board_asks_for_what_there_is() {
    let metrics = metrics();
    assert!(metrics.len() > 100, "where are the metrics?");
    let expressions = board();
    assert!(expressions.len() > 40, "where are the panels?");
    let directory = tempfile::tempdir().expect("a directory");
    let mut rules = String::from("groups:\n  - name: board\n    rules:\n");
    for (place, expression) in &expressions {
        assert_known(place, expression, &metrics);
        // Grafana's own variables are put in their places.
        let expression = expression
            .replace("$__rate_interval", "5m")
            .replace("$__range", "1h");
        let quoted = expression.replace('\'', "''");
        rules += &format!("      - record: board:expression\n        expr: '{quoted}'\n");
        rules += &format!(
            "        labels: {{number: '{}'}}\n",
            rules.matches("record").count()
        );
    }
    let path = directory.path().join("board.yml");
    fs::write(&path, rules).expect("writing");
    promtool(&["check", "rules", path.to_str().expect("a path")]);
}

#[test]
fn the_alerts_ask_for_what_there_is() {
    let metrics = metrics();
    let text = source::read(Path::new(RULES));
    let mut expressions = 0;
    for rule in text.split("- alert: ").skip(1) {
        let name = rule.lines().next().expect("a name");
        let expression = rule.split_once("expr: ").expect("an expression").1;
        let expression = expression.split_once("for: ").expect("a time").0;
        assert_known(name, expression, &metrics);
        expressions += 1;
    }
    assert!(expressions > 10, "where are the alerts?");
    let path = source::root().join(RULES);
    promtool(&["check", "rules", path.to_str().expect("a path")]);
}

/// Series as they would be scraped, one sample a minute, and which alert they must or must not bring.
const INCIDENTS: &str = r#"
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'kp_http_requests_total{instance="a",server="bad",status="2xx"}', values: '0+900x20'}
      - {series: 'kp_http_requests_total{instance="a",server="bad",status="5xx"}', values: '0+100x20'}
      - {series: 'kp_http_requests_total{instance="a",server="good",status="2xx"}', values: '0+990x20'}
      - {series: 'kp_http_requests_total{instance="a",server="good",status="5xx"}', values: '0+10x20'}
    alert_rule_test:
      - eval_time: 4m
        alertname: KpManyServerErrors
      - eval_time: 15m
        alertname: KpManyServerErrors
        exp_alerts:
          - exp_labels: {severity: critical, instance: a, server: bad}
            exp_annotations:
              summary: '10% of the requests to bad are answered with a 5xx status'
              description: 'kp_failures_total says which kp answered itself and why; the others are of the upstreams (kp_peer_attempts_total). Limits answer 503 unless limit_req_status and limit_conn_status say otherwise (429): reasons rate_limited and connections_limited.'
  - interval: 1m
    input_series:
      - {series: 'kp_peer_up{instance="a",upstream="u",peer="10.0.0.1:80"}', values: '0x20'}
      - {series: 'kp_peer_up{instance="a",upstream="u",peer="10.0.0.2:80"}', values: '0x20'}
      - {series: 'kp_peer_up{instance="a",upstream="v",peer="10.0.0.3:80"}', values: '1x20'}
      - {series: 'kp_peer_state{instance="a",upstream="u",peer="10.0.0.1:80",state="down"}', values: '1x20'}
      - {series: 'kp_peer_state{instance="a",upstream="u",peer="10.0.0.2:80",state="down"}', values: '0x20'}
      - {series: 'kp_peer_state{instance="a",upstream="u",peer="10.0.0.2:80",state="unhealthy"}', values: '1x20'}
    alert_rule_test:
      - eval_time: 10m
        alertname: KpNoPeerUp
        exp_alerts:
          - exp_labels: {severity: critical, instance: a, upstream: u}
            exp_annotations:
              summary: 'No peer of the upstream u gets requests'
              description: 'kp_peer_state says what keeps each away. An upstream without any has names that are not resolved.'
      - eval_time: 10m
        alertname: KpPeerNotUp
        exp_alerts:
          - exp_labels: {severity: warning, instance: a, upstream: u, peer: '10.0.0.2:80'}
            exp_annotations:
              summary: 'The peer 10.0.0.2:80 of u was kept out for most of the last 5 minutes'
              description: 'Nobody took it out: a check, its failures or an ejection did (kp_peer_state).'
  # One peer is tried again and again, one was gone for a moment, one hangs, one is slow; a group has no peer at all.
  - interval: 1m
    input_series:
      - {series: 'kp_peer_up{instance="a",upstream="w",peer="flaps"}', values: '0 0 1 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 1 0 0'}
      - {series: 'kp_peer_up{instance="a",upstream="w",peer="blinked"}', values: '1x5 0x0 1x14'}
      - {series: 'kp_peer_up{instance="a",upstream="w",peer="hangs"}', values: '1x20'}
      - {series: 'kp_peer_attempts_total{instance="a",upstream="w",peer="flaps",status="none"}', values: '0+60x20'}
      - {series: 'kp_peer_attempts_total{instance="a",upstream="w",peer="flaps",status="2xx"}', values: '0+180x20'}
      - {series: 'kp_peer_attempts_total{instance="a",upstream="w",peer="blinked",status="2xx"}', values: '0+180x20'}
      - {series: 'kp_peer_attempts_total{instance="a",upstream="w",peer="hangs",status="2xx"}', values: '0+60x5 300x14'}
      - {series: 'kp_peer_requests_overdue{instance="a",upstream="w",peer="hangs"}', values: '0x5 20x14'}
      - {series: 'kp_peer_requests_overdue{instance="a",upstream="w",peer="blinked"}', values: '7x20'}
      - {series: 'kp_upstream_unserved_requests_total{instance="a",upstream="w"}', values: '0+60x20'}
      - {series: 'kp_upstream_unserved_requests_total{instance="a",upstream="x"}', values: '0+60x20'}
      - {series: 'kp_workers{instance="a",state="stuck"}', values: '0x5 1x14'}
    alert_rule_test:
      - eval_time: 5m
        alertname: KpWorkerStuck
      - eval_time: 8m
        alertname: KpWorkerStuck
        exp_alerts:
          - exp_labels: {severity: critical, instance: a}
            exp_annotations:
              summary: 'The event loop of 1 workers does not turn: their connections get no answer'
              description: 'kp status says which process it is; it was stopped, or something holds it up.'
      - eval_time: 12m
        alertname: KpPeerNotUp
        exp_alerts:
          - exp_labels: {severity: warning, instance: a, upstream: w, peer: flaps}
            exp_annotations:
              summary: 'The peer flaps of w was kept out for most of the last 5 minutes'
              description: 'Nobody took it out: a check, its failures or an ejection did (kp_peer_state).'
      - eval_time: 12m
        alertname: KpPeerFails
        exp_alerts:
          - exp_labels: {severity: warning, instance: a, upstream: w, peer: flaps}
            exp_annotations:
              summary: '25% of the attempts at flaps of w end with 5xx or without an answer'
              description: 'Retries may hide it from clients. kp_failures_total and the status page say why.'
      - eval_time: 5m
        alertname: KpPeerHangs
      - eval_time: 12m
        alertname: KpPeerHangs
        exp_alerts:
          - exp_labels: {severity: critical, instance: a, upstream: w, peer: hangs}
            exp_annotations:
              summary: 'The peer hangs of w answers nothing, and 20 requests wait for it'
              description: 'kp ctl requests says which; proxy_read_timeout ends the wait.'
      - eval_time: 12m
        alertname: KpNoPeerUp
        exp_alerts:
          - exp_labels: {severity: critical, instance: a, upstream: x}
            exp_annotations:
              summary: 'No peer of the upstream x gets requests'
              description: 'kp_peer_state says what keeps each away. An upstream without any has names that are not resolved.'
  - interval: 1m
    input_series:
      - {series: 'kp_certificate_expiry_timestamp_seconds{instance="a",file="x.pem",directive="ssl_certificate"}', values: '864000x200'}
      - {series: 'kp_certificate_expiry_timestamp_seconds{instance="a",file="y.pem",directive="proxy_ssl_certificate"}', values: '8640000x200'}
      - {series: 'kp_certificate_expiry_timestamp_seconds{instance="a",file="z.pem",directive="ssl_client_certificate"}', values: '864000x200'}
      - {series: 'kp_certificate_expiry_timestamp_seconds{instance="a",file="old.pem",directive="ssl_client_certificate"}', values: '60x200'}
      - {series: 'kp_crl_next_update_timestamp_seconds{instance="a",file="c.crl",directive="ssl_crl"}', values: '9000x200'}
      - {series: 'kp_zone_overflows_total{instance="a",zone="z",directive="limit_req_zone"}', values: '0x50 0+10x150'}
      - {series: 'kp_worker_open_fds{instance="a",generation="1",slot="0"}', values: '100x50 950x150'}
      - {series: 'kp_worker_max_fds{instance="a",generation="1",slot="0"}', values: '1000x200'}
      - {series: 'kp_last_reload_successful{instance="a"}', values: '1x5 0x195'}
      - {series: 'kp_workers{instance="a",state="draining"}', values: '0x10 2x190'}
    alert_rule_test:
      - eval_time: 100m
        alertname: KpCertificateEnds
        exp_alerts:
          - exp_labels: {severity: warning, instance: a, file: x.pem, directive: ssl_certificate}
            exp_annotations:
              summary: 'The certificate x.pem ends in 9d 22h 20m 0s'
              description: 'Clients (ssl_certificate) or upstreams (proxy_ssl_certificate) refuse it from then on.'
      - eval_time: 100m
        alertname: KpAuthorityEnds
        exp_alerts:
          - exp_labels: {severity: warning, instance: a, file: z.pem, directive: ssl_client_certificate}
            exp_annotations:
              summary: 'An authority in z.pem (ssl_client_certificate) ends in 9d 22h 20m 0s'
              description: 'Whom it has signed for is refused from then on. One that ended stays in many files, so this ends with it.'
      - eval_time: 60m
        alertname: KpRevocationListOld
      - eval_time: 100m
        alertname: KpRevocationListOld
        exp_alerts:
          - exp_labels: {severity: critical, instance: a, file: c.crl, directive: ssl_crl}
            exp_annotations:
              summary: 'The list c.crl (ssl_crl) is out of date, or will be within an hour'
              description: 'Certificates that it is about are refused from then on: put the next list there and reload.'
      - eval_time: 40m
        alertname: KpZoneFull
      - eval_time: 70m
        alertname: KpZoneFull
        exp_alerts:
          - exp_labels: {severity: warning, instance: a, zone: z, directive: limit_req_zone}
            exp_annotations:
              summary: 'The zone z (limit_req_zone) has no room'
              description: 'Keys or sessions are forgotten, or requests not counted: kp_zone_entries of kp_zone_max_entries. Make it larger.'
      - eval_time: 40m
        alertname: KpDescriptorsRunOut
      - eval_time: 70m
        alertname: KpDescriptorsRunOut
        exp_alerts:
          - exp_labels: {severity: warning, instance: a, generation: '1', slot: '0'}
            exp_annotations:
              summary: 'Worker 1.0 has 95% of its descriptors open'
              description: 'Without any it turns clients away: raise worker_rlimit_nofile, or look for what holds them (kp ctl connections).'
      - eval_time: 4m
        alertname: KpReloadFailed
      - eval_time: 20m
        alertname: KpReloadFailed
        exp_alerts:
          - exp_labels: {severity: warning, instance: a}
            exp_annotations:
              summary: 'The last reload failed: kp serves the configuration of before'
              description: 'kp -t shows what is wrong with the file, kp status and the error log what was.'
      - eval_time: 60m
        alertname: KpOldWorkersStay
      - eval_time: 80m
        alertname: KpOldWorkersStay
        exp_alerts:
          - exp_labels: {severity: warning, instance: a}
            exp_annotations:
              summary: '2 workers of earlier configurations have been draining for an hour'
              description: 'kp status says what they wait for; worker_shutdown_timeout limits it.'
"#;

#[test]
fn the_alerts_come_when_they_should() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("incidents.yml");
    let rules = source::root().join(RULES);
    let text = format!("rule_files: ['{}']\n{INCIDENTS}", rules.display());
    fs::write(&path, text).expect("writing");
    promtool(&["test", "rules", path.to_str().expect("a path")]);
}
