//! How full zones are: what the metrics, the status page's JSON and its problems say of it, over a reload, another size and
//! the death of a worker.

use kp_tests::{Client, Kp, Metrics, Origin, Port, Setup, ask, process, wait};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// At this rate a request counts for a minute.
const TEXT: &str = "%MAIN%
http {
    limit_req_zone $arg_k zone=req:%SIZE% rate=1r/m;
    limit_conn_zone $arg_c zone=conn:32k;
    limit_accept zone=accept:64k rate=1r/m burst=60000;
    upstream u { zone u 64k; server %U1%; server 127.0.0.2:1 backup; sticky learn create=$arg_s lookup=$arg_s zone=learn:96k timeout=1h; }
    server {
        listen %LISTEN%;
        location / { limit_conn conn 100; proxy_pass http://u; }
        location /many { limit_req zone=req burst=100 nodelay; root .; }
    }
    server { listen %PAGES%; limit_accept off; location /metrics { metrics; } location /status { status; } }
}
";

struct Site {
    kp: Kp,
    pages: String,
}

fn setup(pages: &str, origin: &Origin, size: &str) -> Setup {
    Setup::new(TEXT)
        .with("PAGES", pages)
        .with("U1", origin.address())
        .with("SIZE", size)
        .allow("exited on signal 9")
}

impl Site {
    fn metrics(&self) -> Metrics {
        Metrics::of(&self.pages, "/metrics")
    }

    /// Entries, those that fit, overflows, bytes.
    fn zone(&self, name: &str, directive: &str) -> [f64; 4] {
        let page = self.metrics();
        ["entries", "max_entries", "overflows_total", "size_bytes"].map(|part| {
            let labels = format!("{{zone=\"{name}\",directive=\"{directive}\"}}");
            page.value(&format!("kp_zone_{part}{labels}"))
        })
    }

    /// The same in the JSON.
    fn json(&self, list: &str) -> Value {
        let picture = ask::status(&self.pages, "/status?format=json");
        let zone = &picture["limits"][list][0];
        let parts = ["entries", "max_entries", "overflows", "size_bytes"];
        json!(parts.map(|part| zone[part].clone()))
    }

    fn problems(&self) -> Vec<Value> {
        let picture = ask::status(&self.pages, "/status?format=json");
        let problems = picture["problems"].as_array().expect("problems").iter();
        let of_limits = problems.filter(|problem| problem["about"] == "limit");
        of_limits.cloned().collect()
    }

    fn wait_entries(&self, name: &str, directive: &str, entries: f64) {
        wait::until(LIMIT, name, || self.zone(name, directive)[0] == entries);
    }
}

fn hold(kp: &Kp, key: &str) -> Client {
    let mut client = kp.client();
    client.send(format!("GET /hold?c={key} HTTP/1.1\r\nHost: t\r\n\r\n"));
    client
}

#[test]
fn zones_tell_how_full_they_are() {
    let origin = Origin::start(|conversation| {
        let request = conversation.request()?;
        if request.head.line.contains("/hold") {
            conversation.stall();
            return Ok(());
        }
        conversation.send(kp_tests::origin::OK)
    });
    let pages = Port::take().address();
    let setup = |size: &str| setup(&pages, &origin, size);
    let kp = setup("32k").start();
    let mut site = Site {
        kp,
        pages: pages.clone(),
    };
    assert_eq!(site.zone("req", "limit_req_zone"), [0., 4096., 0., 32768.]);
    assert_eq!(
        site.zone("conn", "limit_conn_zone"),
        [0., 4096., 0., 32768.]
    );
    assert_eq!(site.zone("learn", "sticky"), [0., 4096., 0., 98304.]);

    let mut client = site.kp.client();
    // Ten each: they count for ten minutes.
    for key in ["a", "b", "c"].repeat(10) {
        let asked = client.ask(format!("GET /many?k={key} HTTP/1.1\r\nHost: t\r\n\r\n"));
        assert_eq!(asked.status(), 404);
    }
    for session in ["x", "y", "x"] {
        assert_eq!(site.kp.get(&format!("/?s={session}")).status(), 200);
    }
    let held = [
        hold(&site.kp, "1"),
        hold(&site.kp, "2"),
        hold(&site.kp, "2"),
    ];
    origin.wait_requests(6);
    assert_eq!(site.zone("req", "limit_req_zone"), [3., 4096., 0., 32768.]);
    assert_eq!(
        site.zone("conn", "limit_conn_zone"),
        [2., 4096., 0., 32768.]
    );
    assert_eq!(site.zone("accept", "limit_accept"), [1., 8192., 0., 65536.]);
    site.wait_entries("learn", "sticky", 2.);
    let page = site.metrics();
    let of_peers =
        |part: &str| page.value(&format!("kp_zone_{part}{{zone=\"u\",directive=\"zone\"}}"));
    assert_eq!((of_peers("entries"), of_peers("max_entries")), (2., 128.));
    for (list, expected) in [
        ("connection_zones", json!([2, 4096, 0, 32768])),
        ("session_zones", json!([2, 4096, 0, 98304])),
        ("upstream_zones", json!([2, 128, 0, 65536])),
    ] {
        assert_eq!(site.json(list), expected, "{list}");
    }

    // Who held the places is killed: nobody has them any more. What was charged stays, over a reload, too.
    let worker = site.kp.worker_pid();
    process::signal(worker, Signal::SIGKILL);
    site.kp.wait_new_workers(&[worker]);
    site.wait_entries("conn", "limit_conn_zone", 0.);
    drop(held);
    site.kp.reload();
    assert_eq!(site.zone("req", "limit_req_zone")[0], 3.);
    assert_eq!(site.problems(), Vec::<Value>::new());

    // More keys than there is room for, then a zone of another size, which begins empty.
    fill(&mut site, 6000);
    let [entries, most, overflows, _] = site.zone("req", "limit_req_zone");
    assert!(entries > most * 0.75 && entries <= most, "{entries}");
    assert!(
        overflows > 0. && entries + overflows <= 6003.,
        "{overflows}"
    );
    let problems = site.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0]["name"], json!("zone req"));
    site.kp.configure(&setup("64k"));
    site.kp.reload();
    assert_eq!(site.zone("req", "limit_req_zone"), [0., 8192., 0., 65536.]);
    assert_eq!(site.problems(), Vec::<Value>::new());
}

fn fill(site: &mut Site, keys: usize) {
    let mut client = site.kp.client();
    for key in 0..keys {
        let asked = client.ask(format!("GET /many?k=many{key} HTTP/1.1\r\nHost: t\r\n\r\n"));
        if asked.field("connection") == Some("close") {
            client = site.kp.client();
        }
    }
}

/// A zone is as large as it may become; what nobody has used of it is not there.
#[test]
fn a_large_zone_costs_what_is_used_of_it() {
    let kp = Setup::new(
        "http { limit_req_zone $arg_k zone=large:512m rate=1r/m;
            server { listen %LISTEN%; location / { limit_req zone=large burst=9 nodelay; root .; }
                location /metrics { metrics; } } }",
    )
    .start();
    for key in 0..10 {
        assert_eq!(kp.get(&format!("/none?k={key}")).status(), 404);
    }
    let page = Metrics::of(&kp.address(), "/metrics");
    let worker = page.sum("kp_worker_resident_memory_bytes", &[]);
    let master = page.value("kp_master_resident_memory_bytes");
    // A part of it is looked at for the page.
    assert!(worker < 150e6 && master < 150e6, "{worker}, {master}");
    let labels = "{zone=\"large\",directive=\"limit_req_zone\"}";
    let most = page.value(&format!("kp_zone_max_entries{labels}"));
    assert_eq!(most, f64::from(512 << 17));
}

/// More than the shared memory holds: each worker has a zone of its own, and nobody knows how full they are.
#[test]
fn a_zone_that_is_not_shared_has_its_size_only() {
    let kp = Setup::new(
        "http { limit_conn_zone $arg_k zone=huge:2000m;
            server { listen %LISTEN%; location /metrics { metrics; } location /status { status; } } }",
    )
    .start();
    kp.wait_error("no shared memory is left for a zone of 2097152000 bytes");
    let page = Metrics::of(&kp.address(), "/metrics");
    page.assert_well_formed();
    let labels = "{zone=\"huge\",directive=\"limit_conn_zone\"}";
    assert_eq!(
        page.value(&format!("kp_zone_size_bytes{labels}")),
        2097152000.
    );
    for part in ["entries", "max_entries", "overflows_total"] {
        assert!(!page.has(&format!("kp_zone_{part}{labels}")), "{part}");
    }
    let picture = ask::status(&kp.address(), "/status?format=json");
    let zone = &picture["limits"]["connection_zones"][0];
    assert_eq!(zone["size_bytes"], json!(2097152000_u64));
    assert_eq!(
        (&zone["entries"], &zone["overflows"]),
        (&Value::Null, &Value::Null)
    );
}
