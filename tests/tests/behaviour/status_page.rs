//! `status`: the page as a browser shows it, and the JSON behind it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kp_tests::ask::{ctl_text, entry, peer};
use kp_tests::browser::{Browser, Screen, Tab};
use kp_tests::client;
use kp_tests::metrics::Metrics;
use kp_tests::origin::OK;
use kp_tests::process;
use kp_tests::wait::{self, SOON};
use kp_tests::{Kp, Origin, Port, Setup};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const PAGE: &str = "%MAIN%
http {
    %HTTP%
    upstream app { zone app 64k; server %U1% max_fails=1 fail_timeout=60s; %UPSTREAM% }
    server {
        listen %LISTEN%;
        server_name www.example.org;
        %SERVER%
        location / { proxy_pass http://app; }
        location /status { status; %LOCATION% }
    }
}
";

/// A peer that is there, and whatever `upstream` adds.
fn setup(origin: &Origin) -> Setup {
    Setup::new(PAGE).with("U1", origin.address())
}

/// How long a browser on a busy machine may take to show something.
const LONG: Duration = Duration::from_secs(60);

fn page(kp: &Kp) -> String {
    format!("http://{}/status", kp.address())
}

fn data(kp: &Kp, query: &str) -> Value {
    let answer = kp.get(&format!("/status.json{query}"));
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert_eq!(answer.field("content-type"), Some("application/json"));
    serde_json::from_str(&answer.text()).expect("JSON")
}

/// The row of a peer.
fn row(peer: &str) -> String {
    format!("document.querySelector('tr[data-upstream=\"app\"][data-peer=\"{peer}\"]')")
}

/// Nothing went wrong, and nobody else was asked for anything.
fn assert_clean(tab: &Tab<'_>, kp: &Kp) {
    let complaints = tab.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
    let home = format!("http://{}/status", kp.address());
    for url in tab.requests() {
        assert!(url.starts_with(&home) || url.starts_with("data:"), "{url}");
    }
}

/// Shows: status
#[test]
fn the_page_shows_peers_and_that_one_goes_down_by_itself() {
    let (origin, second) = (Origin::ok(), Origin::ok());
    let peer = second.address();
    let peers = format!("server {peer} max_fails=1 fail_timeout=60s;");
    let kp = setup(&origin).upstream(&peers).start();
    let browser = Browser::start();
    let tab = browser.open(&page(&kp), Screen::DESK);
    tab.until("document.body.dataset.verdict == 'good'");
    tab.until(&format!("{}.dataset.state == 'up'", row(&peer)));
    assert_eq!(
        tab.value("document.querySelector('#verdict').innerText"),
        json!("All is well")
    );

    drop(second.stop());
    // Both are asked in turn; the one that is gone costs nobody an answer.
    for _ in 0..4 {
        assert_eq!(kp.get("/").status(), 200);
    }
    tab.until_within(LONG, &format!("{}.dataset.state == 'resting'", row(&peer)));
    tab.until(&format!(
        "{}.innerText.includes('connect_failed')",
        row(&peer)
    ));
    tab.until("document.body.dataset.verdict == 'warning'");
    tab.until("document.querySelector('#problems').innerText.includes('1 resting of 2 peers')");
    tab.until("document.title.startsWith('(1)')");
    assert_clean(&tab, &kp);
}

#[test]
fn the_page_says_that_it_is_stale_and_goes_on_with_other_workers() {
    let origin = Origin::ok();
    let mut kp = setup(&origin).start();
    let browser = Browser::start();
    let tab = browser.open(&page(&kp), Screen::DESK);
    tab.until("document.querySelector('#fresh').className == 'fresh live'");
    let worker = |pid: u32| format!("document.querySelector('tr[data-worker=\"{pid}\"]')");
    let first = kp.worker_pid();
    tab.until(&worker(first));

    // Its connection goes with the worker; the page finds the next one.
    let before = kp.worker_pids();
    kp.reload();
    kp.wait_new_workers(&before);
    tab.until(&worker(kp.worker_pid()));
    tab.until("document.querySelector('#facts').innerText.includes('1 worked')");
    tab.until("document.querySelector('#stale').hidden");

    kp.signal(Signal::SIGTERM);
    kp.wait_exit(SOON);
    tab.until("document.querySelector('#stale').innerText.includes('kp cannot be reached')");
    assert_eq!(
        tab.value("document.querySelector('#fresh').className"),
        json!("fresh late")
    );
    kp.start_again();
    tab.until("document.querySelector('#stale').hidden");
    tab.until(&worker(kp.worker_pid()));
}

#[test]
fn the_page_can_be_paused() {
    let kp = setup(&Origin::ok()).start();
    let browser = Browser::start();
    let tab = browser.open(&page(&kp), Screen::DESK);
    tab.until("document.querySelector('#fresh').className == 'fresh live'");
    tab.value("document.querySelector('#pause').click()");
    tab.until("document.querySelector('#fresh').innerText.startsWith('paused')");
    // Whatever was under way when it was pressed has come by now.
    tab.until("!state.asking");
    let asked = tab.requests().len();
    tab.value("new Promise((done) => setTimeout(done, 2500))");
    assert_eq!(tab.requests().len(), asked);
    tab.value("document.querySelector('#pause').click()");
    wait::until(LONG, "another request", || tab.requests().len() > asked);
}

/// What can be checked by a program: names, landmarks, headers of tables, no colour without a word.
#[test]
fn the_page_can_be_read_aloud() {
    let dead = Port::take();
    let peers = format!(
        "server {} backup down; server 127.0.0.9:9 down;",
        dead.address()
    );
    let kp = setup(&Origin::ok()).upstream(&peers).start();
    let browser = Browser::start();
    let tab = browser.open(&page(&kp), Screen::DESK);
    tab.until("document.body.dataset.verdict");
    let all = |expression: &str| {
        let found = tab.value(expression);
        assert_eq!(found, json!([]), "{expression}");
    };
    let count =
        |selector: &str| tab.value(&format!("document.querySelectorAll('{selector}').length"));
    assert_eq!(tab.value("document.documentElement.lang"), json!("en"));
    for landmark in ["main", "header", "nav", "footer", "h1"] {
        assert_eq!(count(landmark), json!(1), "{landmark}");
    }
    all(
        "[...document.querySelectorAll('table')].filter((t) => !t.caption || !t.caption.textContent.trim()).map((t) => t.outerHTML)",
    );
    all(
        "[...document.querySelectorAll('th')].filter((th) => !['row', 'col'].includes(th.scope)).map((t) => t.outerHTML)",
    );
    all(
        "[...document.querySelectorAll('tbody tr')].filter((tr) => tr.querySelectorAll('th').length != 1).map((t) => t.outerHTML)",
    );
    all(
        "[...document.querySelectorAll('input')].filter((i) => !i.labels.length || !i.labels[0].textContent.trim()).map((t) => t.outerHTML)",
    );
    all(
        "[...document.querySelectorAll('button, a, summary')].filter((i) => !i.textContent.trim()).map((t) => t.outerHTML)",
    );
    all(
        "[...document.querySelectorAll('section')].filter((s) => !document.getElementById(s.getAttribute('aria-labelledby'))).map((t) => t.outerHTML)",
    );
    all(
        "[...document.querySelectorAll('svg')].filter((s) => s.getAttribute('aria-hidden') != 'true' && !(s.getAttribute('role') == 'img' && s.ariaLabel)).map((t) => t.outerHTML)",
    );
    all(
        "[...document.querySelectorAll('.level')].filter((l) => l.className != 'level' && !l.textContent.trim()).map((t) => t.outerHTML)",
    );
    all(
        "[...document.querySelectorAll('[id]')].map((n) => n.id).filter((id, at, ids) => ids.indexOf(id) != at)",
    );
    // Headings go down one step at a time.
    all(
        "[...document.querySelectorAll('h1, h2, h3')].map((h) => +h.tagName[1]).filter((step, at, steps) => at > 0 && step > steps[at - 1] + 1)",
    );
    // Only the verdict and the alarm speak up.
    let live = "[...document.querySelectorAll('[aria-live], [role=status], [role=alert]')].map((n) => n.id)";
    assert_eq!(tab.value(live), json!(["stale", "verdict"]));
    assert_eq!(count("[tabindex]:not([tabindex=\"-1\"])"), json!(0));
}

/// Text stands out against what it stands on, in both schemes (WCAG 2.2, 1.4.3: 4.5 to 1).
const CONTRASTS: &str = "(() => {
    const light = (colour) => {
        const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
        const [r, g, b] = parts.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (node) => {
        for (; node; node = node.parentElement) {
            const colour = getComputedStyle(node).backgroundColor;
            if (colour != 'rgba(0, 0, 0, 0)') return colour;
        }
        return 'rgb(255, 255, 255)';
    };
    const found = new Set();
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const node = texts.currentNode.parentElement;
        if (!texts.currentNode.data.trim() || ['SCRIPT', 'STYLE', 'NOSCRIPT'].includes(node.tagName)) continue;
        if (!node.checkVisibility()) continue;
        const style = getComputedStyle(node);
        const [one, two] = [light(node.namespaceURI.endsWith('svg') ? style.fill : style.color), light(ground(node))];
        const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
        if (ratio < 4.5) found.add(`${node.tagName} ${node.className.baseVal ?? node.className} ${style.color} ${ratio.toFixed(2)}`);
    }
    return [...found];
})()";

#[test]
fn the_page_fits_a_phone_and_the_dark() {
    let long = format!(
        "server 127.0.0.1:9 down; server unix:/{} down;",
        "a-long-name/".repeat(8)
    );
    let origin = Origin::ok();
    let kp = setup(&origin)
        .upstream(&long)
        .http("limit_req_zone $binary_remote_addr zone=perip:1m rate=1r/m;")
        .server("location /slow { limit_req zone=perip; proxy_pass http://app; }")
        .start();
    for _ in 0..3 {
        kp.get("/slow");
    }
    let browser = Browser::start();
    let tab = browser.open(&page(&kp), Screen::PHONE);
    tab.until("document.querySelector('tr[data-reason=\"rate_limited\"]')");
    tab.value("document.querySelectorAll('details').forEach((d) => { d.open = true; })");
    let colour = "getComputedStyle(document.body).backgroundColor";
    let mut colours = BTreeSet::new();
    for width in [320, 375, 768, 1280] {
        for dark in [false, true] {
            tab.show_on(Screen {
                width,
                height: 760,
                dark,
            });
            let widths = tab.value("[document.documentElement.scrollWidth, innerWidth]");
            assert!(
                widths[0].as_u64() <= Some(width.into()),
                "{width}: {widths}"
            );
            assert_eq!(widths[1], json!(width));
            assert_eq!(tab.value(CONTRASTS), json!([]), "{width} {dark}");
            colours.insert(tab.value(colour).to_string());
        }
    }
    assert_eq!(colours.len(), 2, "{colours:?}");
    assert_clean(&tab, &kp);
}

#[test]
fn data_is_text_in_the_page_whatever_it_is() {
    let origin = Origin::ok();
    let port = Port::take();
    let http = format!(
        "upstream '<img src=x onerror=alert(1)>' {{ server 127.0.0.1:9 down; }}
        server {{ listen {}; server_name '</script><b>x</b>'; location / {{ return 204; }} }}",
        port.address()
    );
    let kp = setup(&origin).http(&http).start();
    assert_eq!(client::get(&port.address(), "/").status(), 204);
    let browser = Browser::start();
    let tab = browser.open(&page(&kp), Screen::DESK);
    let says = |section: &str, text: &str| {
        tab.until(&format!(
            "document.querySelector('{section}').innerText.includes('{text}')"
        ));
    };
    says("#groups", "<img src=x onerror=alert(1)>");
    says("#problems", "<img src=x onerror=alert(1)>");
    says("#servers", "</script><b>x</b>");
    assert_eq!(
        tab.value("document.querySelectorAll('img').length"),
        json!(0)
    );
    assert_clean(&tab, &kp);
}

/// A thousand peers: those that need attention first, the others on demand, and found by a filter.
#[test]
fn a_thousand_peers_do_not_freeze_the_page() {
    let peers = (1..=1000).map(|n| {
        let down = if n == 777 { "down" } else { "" };
        format!("server 127.0.{}.{}:9 {down};", n / 250 + 1, n % 250 + 1)
    });
    let kp = setup(&Origin::ok())
        .upstream(&peers.collect::<String>())
        .start();
    let browser = Browser::start();
    let tab = browser.open(&page(&kp), Screen::DESK);
    let rows = "document.querySelectorAll('tr[data-upstream=\"app\"]').length";
    tab.until("document.body.dataset.verdict");
    assert_eq!(tab.value(rows), json!(0), "closed");
    tab.value("document.querySelector('details[data-upstream=\"app\"]').open = true");
    tab.until(&format!("{rows} == 50"));
    tab.until("document.querySelector('tr[data-upstream=\"app\"]').dataset.state == 'down'");
    let find = "(find = document.querySelector('#find')).value";
    tab.value(&format!(
        "{find} = '127.0.3.200:9'; find.dispatchEvent(new Event('input'))"
    ));
    tab.until(&format!("{rows} == 1"));
    tab.value(&format!(
        "{find} = ''; find.dispatchEvent(new Event('input'))"
    ));
    tab.value("document.querySelector('details[data-upstream=\"app\"] button').click()");
    tab.until(&format!("{rows} == 1001"));
    let took_ms = tab.value(
        "(() => { const begun = performance.now(); show(); return performance.now() - begun; })()",
    );
    assert!(took_ms.as_f64() < Some(1000.0), "{took_ms} ms");
    assert_clean(&tab, &kp);
}

#[test]
fn json_is_told_apart_by_its_name_or_by_an_argument() {
    let kp = setup(&Origin::ok()).start();
    let document = kp.get("/status");
    assert_eq!(
        document.field("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(document.field("cache-control"), Some("no-store"));
    let policy = document.field("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    assert!(document.text().starts_with("<!doctype html>"));
    let by_argument = kp.get("/status?format=json");
    assert_eq!(by_argument.field("content-type"), Some("application/json"));
    let picture = data(&kp, "");
    assert_eq!(picture["format"], json!(1));
    assert!(picture.get("history").is_none());
    assert_eq!(
        kp.client()
            .ask("POST /status HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            .status(),
        405
    );
}

#[test]
fn json_tells_what_happened() {
    let origin = Origin::ok();
    let dead = Port::take();
    let peers = format!(
        "server {} max_fails=1 fail_timeout=60s; server 127.0.0.1:9 down weight=7 backup;",
        dead.address()
    );
    let kp = setup(&origin).upstream(&peers).start();
    for _ in 0..6 {
        assert_eq!(kp.get("/").status(), 200);
    }
    let picture = data(&kp, "");
    let app = &picture["upstreams"][0];
    assert_eq!(
        (&app["upstream"], &app["zone"], &app["usable"]),
        (&json!("app"), &json!("app"), &json!(1))
    );
    assert_eq!(app["retries"], json!(1));
    let peer = |address: &str| {
        let peers = app["peers"].as_array().expect("peers");
        peers
            .iter()
            .find(|peer| peer["peer"] == address)
            .expect(address)
            .clone()
    };
    let well = peer(&origin.address());
    assert_eq!(
        (&well["state"], &well["attempts"]["2xx"], &well["in_flight"]),
        (&json!("up"), &json!(6), &json!(0))
    );
    assert_eq!(
        (&well["weight"], &well["effective_weight"]),
        (&json!(1), &json!(1.0))
    );
    assert_eq!(well["head_time"]["count"], json!(6));
    let gone = peer(&dead.address());
    assert_eq!(
        (&gone["state"], &gone["usable"], &gone["attempts"]["none"]),
        (&json!("resting"), &json!(false), &json!(1))
    );
    assert_eq!(gone["last_failure"]["reason"], json!("connect_failed"));
    assert!(
        gone["detail"]
            .as_str()
            .is_some_and(|detail| detail.ends_with(" s left")),
        "{gone}"
    );
    let down = peer("127.0.0.1:9");
    assert_eq!(
        (&down["state"], &down["weight"], &down["backup"]),
        (&json!("down"), &json!(7), &json!(true))
    );
    let server = picture["servers"].as_array().expect("servers").iter();
    let server = server
        .clone()
        .find(|server| server["server"] == "www.example.org")
        .expect("the server");
    assert_eq!(server["responses"]["2xx"], json!(6));
    assert_eq!(server["latency"]["count"], json!(6));
    let problem = json!({"level": "warning", "about": "upstream", "name": "app", "text": "1 resting of 3 peers"});
    assert_eq!(picture["problems"], json!([problem]));
    assert_eq!(picture["workers"][0]["pid"], json!(kp.worker_pid()));
    assert_eq!(picture["workers"][0]["state"], json!("serving"));
}

/// Without a zone each worker has its own view, and the page tells of both.
#[test]
fn workers_that_disagree_are_told_of() {
    let dead = Port::take();
    let text = format!(
        "worker_processes 2; %MAIN% http {{ upstream app {{ server %U1%; server {} max_fails=1 fail_timeout=60s; }}
        server {{ listen %LISTEN%; location / {{ proxy_pass http://app; }} location /status {{ status; }} }} }}",
        dead.address()
    );
    let kp = Setup::new(&text).with("U1", Origin::ok().address()).start();
    // One connection, so one worker.
    let mut client = kp.client();
    for _ in 0..3 {
        client.ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    wait::until(SOON, "a peer that rests in one worker", || {
        let peers = data(&kp, "")["upstreams"][0]["peers"].clone();
        let peer = peers.as_array().and_then(|peers| {
            peers
                .iter()
                .find(|peer| peer["peer"] == dead.address())
                .cloned()
        });
        peer.is_some_and(|peer| {
            let detail = peer["detail"].as_str().unwrap_or_default();
            peer["state"] == "resting"
                && detail.starts_with("in 1 of 2 workers")
                && peer["usable"] == true
        })
    });
}

/// What hangs ends no attempt, so nothing is counted: it is told of all the same, long before a timeout ends the wait.
#[test]
fn a_peer_that_hangs_is_told_of() {
    let origin = Origin::start(|conversation| {
        while conversation.request()?.target() != "/hang" {
            conversation.send(OK)?;
        }
        conversation.stall();
        Ok(())
    });
    let kp = setup(&origin)
        .server("location = /metrics { metrics; }")
        .start();
    assert_eq!(kp.get("/").status(), 200);
    let browser = Browser::start();
    let tab = browser.open(&page(&kp), Screen::DESK);
    tab.until("document.body.dataset.verdict == 'good'");
    let mut waiting = [kp.client(), kp.client()];
    for client in &mut waiting {
        client.send("GET /hang HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    let address = origin.address();
    let overdue = || peer(&data(&kp, ""), "app", &address)["overdue"].clone();
    wait::until(LONG, "requests that are overdue", || overdue() == json!(2));
    let sample = format!("kp_peer_requests_overdue{{upstream=\"app\",peer=\"{address}\"}}");
    assert_eq!(Metrics::of(&kp.address(), "/metrics").value(&sample), 2.0);
    let shown = ctl_text(&kp, &["upstream", "show", "app"]);
    assert!(
        shown.contains("2 in flight (2 of them have waited"),
        "{shown}"
    );
    tab.until(
        "document.querySelector('#problems').innerText.match(/answered nothing in the last .* while 2 requests waited/)",
    );
    tab.until(&format!(
        "{}.innerText.includes('2 for 5 s')",
        row(&address)
    ));

    drop(waiting);
    wait::until(LONG, "nobody who waits", || overdue() == json!(0));
    tab.until("document.body.dataset.verdict == 'good'");
    assert_clean(&tab, &kp);
}

/// Answers to long polls come late as a rule, so that there is none for a while is nothing to be told of.
#[test]
fn a_peer_of_long_polls_does_not_hang() {
    let news = Arc::new(AtomicBool::new(false));
    let came = Arc::clone(&news);
    let origin = Origin::start(move |conversation| {
        if conversation.request()?.target() == "/first" {
            wait::happens(LONG, || came.load(Ordering::SeqCst));
            return conversation.send(OK);
        }
        conversation.stall();
        Ok(())
    });
    let kp = setup(&origin).server("proxy_read_timeout 300s;").start();
    let address = origin.address();
    let overdue = || peer(&data(&kp, ""), "app", &address)["overdue"].clone();
    let mut client = kp.client();
    client.send("GET /first HTTP/1.1\r\nHost: x\r\n\r\n");
    wait::until(LONG, "a poll that is overdue", || overdue() == json!(1));
    news.store(true, Ordering::SeqCst);
    assert_eq!(client.response().status(), 200);
    wait::until(LONG, "no poll", || overdue() == json!(0));

    client.send("GET /second HTTP/1.1\r\nHost: x\r\n\r\n");
    let browser = Browser::start();
    let tab = browser.open(&page(&kp), Screen::DESK);
    // By what the page itself knows, it has answered nothing for long while somebody waits.
    tab.until(
        "seconds() >= SILENT_S && state.doc.upstreams.some((group) => group.peers.some((peer) =>
            peer.overdue === 1 && answered(peer.attempts) === answered(earlierPeer(group, peer).attempts)))
            && (window.verdict = document.body.dataset.verdict)",
    );
    assert_eq!(tab.value("window.verdict"), json!("good"));
    assert_clean(&tab, &kp);
}

/// A worker that was stopped answers nobody, its connections and those that the system gives it included.
#[test]
fn a_worker_that_stands_still_is_told_of() {
    let text =
        "worker_processes 2; %MAIN% http { keepalive_requests 1000000; server { listen %LISTEN%;
        location /status { status; } location = /metrics { metrics; } } }";
    let kp = Setup::new(text).start();
    // One connection, so always the same worker.
    let mut client = kp.client();
    let mut ask = |target: &str| {
        let answer = client.ask(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert_eq!(answer.status(), 200, "{answer:?}");
        answer.text()
    };
    let mut look = || -> Value { serde_json::from_str(&ask("/status.json")).expect("JSON") };
    let answers = look()["pid"].clone();
    let pids = kp.worker_pids();
    let other = pids.iter().find(|pid| json!(pid) != answers);
    let other = *other.expect("another worker");
    let state = |picture: &Value| {
        let workers = picture["workers"].as_array().into_iter().flatten();
        let found = workers.clone().find(|worker| worker["pid"] == json!(other));
        found.expect("the worker")["state"].clone()
    };
    process::signal(other, Signal::SIGSTOP);
    let picture = wait::until_some(LONG, "a worker that is stuck", || {
        Some(look()).filter(|picture| state(picture) == "stuck")
    });
    let problem = entry(&picture["problems"], "name", &format!("pid {other}"));
    assert_eq!(
        (&problem["level"], &problem["about"]),
        (&json!("critical"), &json!("worker"))
    );
    let status = kp.command(&["status"]).stdout;
    assert!(status.contains("  stuck  "), "{status}");
    process::signal(other, Signal::SIGCONT);
    wait::until(LONG, "a worker that serves", || state(&look()) == "serving");
    let metrics = ask("/metrics");
    assert!(
        metrics.contains("kp_workers{state=\"stuck\"} 0\n"),
        "{metrics}"
    );
}

/// The master takes samples while there is a page for them.
#[test]
fn the_last_hour_is_remembered() {
    let origin = Origin::ok();
    let kp = setup(&origin).start();
    assert_eq!(data(&kp, "?since=0")["history"]["interval_ms"], json!(5000));
    let history = wait::until_some(LONG, "a sample with requests", || {
        assert_eq!(kp.get("/").status(), 200);
        let history = data(&kp, "?since=0")["history"].clone();
        let rates = history["requests_per_s"].as_array()?;
        rates
            .iter()
            .any(|rate| rate.as_f64() > Some(0.0))
            .then_some(history.clone())
    });
    let times = history["unix_ms"].as_array().expect("times");
    for (name, column) in history.as_object().expect("columns") {
        if name != "interval_ms" {
            assert_eq!(column.as_array().map(Vec::len), Some(times.len()), "{name}");
        }
    }
    assert!(
        history["p50_ms"]
            .as_array()
            .expect("a column")
            .iter()
            .any(Value::is_number)
    );
    let last = times.last().and_then(Value::as_u64).expect("a time");
    let later = data(&kp, &format!("?since={last}"))["history"]["unix_ms"].clone();
    assert!(
        later
            .as_array()
            .expect("times")
            .iter()
            .all(|time| time.as_u64() > Some(last))
    );
}

#[test]
fn strangers_are_refused() {
    let kp = setup(&Origin::ok())
        .http("set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP;")
        .start();
    let mut client = kp.client();
    for (from, status) in [("192.0.2.1", 403), ("127.0.0.3", 200), ("::1", 200)] {
        let answer = client.ask(format!(
            "GET /status.json HTTP/1.1\r\nHost: x\r\nX-Real-IP: {from}\r\n\r\n"
        ));
        assert_eq!(answer.status(), status, "{from}");
    }
}

/// With `master_process off` the one worker writes down the last hour, and takes back the series of what is gone.
#[test]
fn without_a_master_the_last_hour_is_remembered_too() {
    let origin = Origin::ok();
    let kp = setup(&origin).main("master_process off;").single().start();
    wait::until(LONG, "a sample with requests", || {
        assert_eq!(kp.get("/").status(), 200);
        let history = data(&kp, "?since=0")["history"].clone();
        let rates = history["requests_per_s"].as_array().expect("rates");
        rates.iter().any(|rate| rate.as_f64() > Some(0.0))
    });
}
