//! Every case of the matrix against one kp per kind of request, many at a time.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use kp_tests::tls::{Acceptor, Authority};
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, End, Kp, Origin, Port, Setup, process};

use crate::peer::{BadPeer, HeadCame, LIMIT, is_tls};
use crate::rules::{self, Ask, At, Case, Fault, Peer};

/// Cases that run at the same time, and those with a large body: who waits for others may look like who hangs.
const THREADS: usize = 48;
const THREADS_LARGE: usize = 12;
const LARGE: usize = 1_000_000;

const CONFIGURATION: &str = r#"
%MAIN%
http {
    log_format faults "$uri|$status|$kp_reason|$upstream_status|$upstream_addr";
    access_log faults.log faults;
    keepalive_requests 100000;
    client_max_body_size 2m;
    proxy_connect_timeout %LIMIT%;
    proxy_send_timeout %LIMIT%;
    proxy_read_timeout %LIMIT%;
    proxy_ssl_verify on;
    proxy_ssl_trusted_certificate %DIR%/trusted.pem;
    proxy_ssl_name peer.test;
    %GROUPS%
    server {
        listen %LISTEN%;
        %LOCATIONS%
    }
}
"#;

/// Who answers with TLS what.
struct Certificates {
    trusted: Acceptor,
    untrusted: Acceptor,
    authority: Authority,
}

impl Certificates {
    fn new() -> Self {
        let authority = Authority::default();
        Self {
            trusted: Acceptor::new(&authority.issue(&["peer.test"])),
            untrusted: Acceptor::new(&Authority::new("nobody").issue(&["peer.test"])),
            authority,
        }
    }
}

/// Groups and locations of all cases: `/N/` is answered by `cN`. Every peer takes one request at a time, so that one that
/// was never given back is missed by the next request.
fn setup(cases: &[Case], ports: &[Port], plain: &Origin, secure: &Origin, pem: &str) -> Setup {
    let (mut groups, mut locations) = (String::new(), String::new());
    for (n, (case, port)) in cases.iter().zip(ports).enumerate() {
        let tls = is_tls(case.rule.fault);
        let healthy = if tls { secure } else { plain };
        let second = format!("server {} backup max_conns=1;", healthy.address());
        let second = if case.second { second.as_str() } else { "" };
        let address = port.address();
        let _ = writeln!(
            groups,
            "upstream c{n} {{ server {address} max_conns=1 max_fails=1 fail_timeout=100s; {second} keepalive 2; }}"
        );
        let scheme = if tls { "https" } else { "http" };
        let collected = case.ask == Ask::PutCollected;
        let buffering = if collected {
            "proxy_request_buffering on;"
        } else {
            ""
        };
        let _ = writeln!(
            locations,
            "location /{n}/ {{ proxy_pass {scheme}://c{n}; {buffering} }}"
        );
    }
    Setup::new(CONFIGURATION)
        .with("GROUPS", groups)
        .with("LOCATIONS", locations)
        .with("LIMIT", format!("{}ms", LIMIT.as_millis()))
        .file("trusted.pem", pem)
}

/// What the client saw.
#[derive(Debug, Default)]
struct Saw {
    status: u16,
    whole: bool,
    /// The status of the request after it, on the same connection where that is possible.
    then: u16,
}

/// What is seen of a case besides the log.
#[derive(Debug)]
struct Outcome {
    saw: Saw,
    /// Connections that the bad peer accepted.
    connections: usize,
    /// Bodies of the complete requests under the case's own target, at either peer.
    bodies: Vec<Vec<u8>>,
}

fn request(n: usize, case: &Case) -> (String, String) {
    let (method, framing, body) = match case.ask {
        Ask::Get => ("GET", String::new(), ""),
        Ask::PostSmall => ("POST", "Content-Length: 5\r\n".to_owned(), "hello"),
        Ask::PutSmall => ("PUT", "Content-Length: 5\r\n".to_owned(), "hello"),
        Ask::PostStreamed => (
            "POST",
            "Transfer-Encoding: chunked\r\n".to_owned(),
            "5\r\nhello\r\n",
        ),
        Ask::PostLarge => ("POST", format!("Content-Length: {LARGE}\r\n"), large()),
        Ask::PutCollected => ("PUT", format!("Content-Length: {LARGE}\r\n"), large()),
    };
    let last = if case.ask == Ask::PostStreamed {
        "0\r\n\r\n"
    } else {
        ""
    };
    let first = format!("{method} /{n}/main HTTP/1.1\r\nHost: t\r\n{framing}\r\n{body}");
    (first, last.to_owned())
}

/// A body in which no part looks like another one. Made once, since making it takes longer than sending it.
fn large() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mut text = String::with_capacity(LARGE);
        for number in 0..LARGE / 8 {
            let _ = write!(text, "{number:08}");
        }
        text
    });
    &TEXT
}

fn body(ask: Ask) -> &'static [u8] {
    match ask {
        Ask::Get => b"",
        Ask::PostSmall | Ask::PutSmall | Ask::PostStreamed => b"hello",
        Ask::PostLarge | Ask::PutCollected => large().as_bytes(),
    }
}

fn run(n: usize, case: &Case, kp: &Kp, port: Port, tls: &Certificates) -> (Outcome, Origin) {
    let fault = case.rule.fault;
    let head_came: HeadCame = Arc::new(AtomicBool::new(false));
    let peer = BadPeer::start(fault, case.pooled, port, &tls.untrusted, &head_came);
    if case.pooled {
        assert_eq!(kp.get(&format!("/{n}/warm")).status(), 200);
    }
    let (mut saw, client) = ask(n, case, kp, &head_came);
    let origin = peer.recover(fault, &tls.trusted);
    let again = format!("GET /{n}/then HTTP/1.1\r\nHost: t\r\n\r\n");
    let mut client = client.unwrap_or_else(|| kp.client());
    client.send(again);
    saw.then = client
        .try_response("GET", SOON)
        .map_or(0, |response| response.status());
    let target = format!("/{n}/main");
    let requests = origin.requests().into_iter();
    let outcome = Outcome {
        saw,
        connections: origin.connections(),
        bodies: requests
            .filter(|request| request.target() == target)
            .map(|request| request.body)
            .collect(),
    };
    (outcome, origin)
}

/// Sends the request of the case; the connection comes back where another request may follow on it.
fn ask(n: usize, case: &Case, kp: &Kp, head_came: &HeadCame) -> (Saw, Option<Client>) {
    let (first, last) = request(n, case);
    let mut client = kp.client();
    client.send(first);
    if !case.held_back() {
        client.send(last);
    }
    let Ok(head) = client.head(SOON) else {
        return (Saw::default(), None);
    };
    head_came.store(true, Ordering::SeqCst);
    let status = head.status();
    if case.expected().client == rules::Client::Aborted {
        let (rest, end) = client.read_to_end(SOON);
        let promised = head
            .field("Content-Length")
            .map_or(0, |text| text.parse().unwrap());
        let whole = if promised > 0 {
            rest.len() >= promised
        } else {
            rest.ends_with(b"0\r\n\r\n")
        };
        assert_ne!(
            end,
            End::Deadline,
            "{n} {case:?}: the connection does not end"
        );
        return (
            Saw {
                status,
                whole,
                then: 0,
            },
            None,
        );
    }
    let length: usize = match head.field("Content-Length") {
        Some(text) => text.parse().expect("a length"),
        // Chunked, or up to the end of the connection.
        None => 0,
    };
    let whole = if length > 0 {
        client.read_exactly(length, SOON).len() == length
    } else {
        assert_eq!(
            head.field("Transfer-Encoding"),
            Some("chunked"),
            "{n} {case:?}"
        );
        read_chunked(&mut client)
    };
    let kept = head.field("Connection") != Some("close");
    // Who has not said everything cannot be told apart from the next request.
    let may_go = case.held_back() || case.ask.is_large();
    assert!(kept || may_go, "{n} {case:?}: the client's connection ends");
    let saw = Saw {
        status,
        whole,
        then: 0,
    };
    (saw, (kept && !may_go).then_some(client))
}

/// Reads a chunked body byte by byte up to its end.
fn read_chunked(client: &mut Client) -> bool {
    let mut came = Vec::new();
    while !came.ends_with(b"0\r\n\r\n") {
        let next = client.read_exactly(1, SOON);
        if next.is_empty() {
            return false;
        }
        came.extend(next);
    }
    true
}

/// What the log says of a case's requests, by their URI.
type Lines = HashMap<String, Vec<String>>;

/// A line that is missing is missed by its case.
fn lines(kp: &Kp, count: usize) -> Lines {
    let split = |line: &str| {
        let mut words = line.split('|').map(str::to_owned);
        let uri = words.next().unwrap();
        (uri, words.collect())
    };
    wait::happens(SOON, || {
        kp.text("faults.log").matches('\n').count() >= count
    });
    kp.text("faults.log").lines().map(split).collect()
}

/// What differs from what was expected; empty when all is well.
#[derive(Default)]
struct Differences(String);

impl Differences {
    fn check(&mut self, what: &str, right: bool, found: impl std::fmt::Display) {
        if !right {
            let _ = write!(self.0, "\n    {what}: {found}");
        }
    }
}

/// Compares a case with what was expected of it.
fn compare(n: usize, case: &Case, outcome: &Outcome, lines: &Lines, names: &Names) -> String {
    let expected = case.expected();
    let mut wrong = Differences::default();
    let saw = &outcome.saw;
    wrong.check(
        "status at the client",
        saw.status == expected.status,
        saw.status,
    );
    let whole = expected.client == rules::Client::Whole;
    wrong.check("a whole response", saw.whole == whole, saw.whole);
    wrong.check("the next request", saw.then == 200, saw.then);
    compare_lines(n, case, lines, names, &mut wrong);
    let connections = outcome.connections;
    if case.rule.kept && expected.then == Peer::Faulty {
        wrong.check("one connection", connections == 1, connections);
    }
    if case.rule.fault == Fault::Extra {
        wrong.check("a new connection", connections == 2, connections);
    }
    let right = body(case.ask);
    wrong.check(
        "bodies",
        outcome.bodies.iter().all(|body| *body == right),
        format_args!("{} came", outcome.bodies.len()),
    );
    wrong.0
}

/// Compares what the access log says of a case.
fn compare_lines(n: usize, case: &Case, lines: &Lines, names: &Names, wrong: &mut Differences) {
    let expected = case.expected();
    let line_of = |which: &str| {
        let line = lines.get(&format!("/{n}/{which}"));
        line.cloned().unwrap_or_default()
    };
    let line = line_of("main");
    let [status, reason, statuses, addresses] = line.as_slice() else {
        return wrong.check("a log line", false, format_args!("{line:?}"));
    };
    wrong.check(
        "status in the log",
        *status == expected.status.to_string(),
        status,
    );
    wrong.check(
        "reason",
        expected.reasons.contains(&reason.as_str()),
        reason,
    );
    let tries = expected.tries.iter();
    let tried: Vec<String> = tries.map(|(_, status)| status.to_string()).collect();
    wrong.check("upstream_status", *statuses == tried.join(", "), statuses);
    let tries = expected.tries.iter();
    let asked: Vec<&str> = tries.map(|(who, _)| names.of(n, *who)).collect();
    wrong.check("upstream_addr", *addresses == asked.join(", "), addresses);
    let then = line_of("then");
    let follows = names.of(n, expected.then);
    wrong.check(
        "who is asked then",
        // A connection that was ended just now may be found stale first: the same peer twice.
        then.get(3)
            .is_some_and(|all| all.split(", ").all(|one| one == follows)),
        format_args!("{then:?}"),
    );
}

/// The addresses of the peers.
struct Names {
    faulty: Vec<String>,
    healthy: Vec<String>,
}

impl Names {
    fn of(&self, n: usize, who: Peer) -> &str {
        match who {
            Peer::Faulty => &self.faulty[n],
            Peer::Healthy => &self.healthy[n],
        }
    }
}

/// What came of each case, many at a time.
fn run_all(
    cases: &[Case],
    ports: Vec<Port>,
    kp: &Kp,
    tls: &Certificates,
) -> Vec<(usize, Outcome, Origin)> {
    let ports: Vec<Mutex<Option<Port>>> = ports
        .into_iter()
        .map(|port| Mutex::new(Some(port)))
        .collect();
    let found: Mutex<Vec<(usize, Outcome, Origin)>> = Mutex::default();
    let next = AtomicUsize::new(0);
    let large = cases.first().is_some_and(|case| case.ask.is_large());
    let threads = if large { THREADS_LARGE } else { THREADS };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::SeqCst);
                    let Some(case) = cases.get(n) else { return };
                    let port = ports[n].lock().unwrap().take().unwrap();
                    let (outcome, origin) = run(n, case, kp, port, tls);
                    found.lock().unwrap().push((n, outcome, origin));
                }
            });
        }
    });
    found.into_inner().unwrap()
}

/// Runs all cases of a kind of request.
fn matrix(ask: Ask) {
    let cases = Case::all(ask);
    let tls = Certificates::new();
    let (plain, secure) = (Origin::ok(), Origin::secure_ok(&tls.trusted));
    let ports: Vec<Port> = cases.iter().map(|_| Port::take()).collect();
    let pem = tls.authority.pem();
    let kp = setup(&cases, &ports, &plain, &secure, &pem).start();
    let healthy = |case: &Case| {
        let origin = if is_tls(case.rule.fault) {
            &secure
        } else {
            &plain
        };
        origin.address()
    };
    let names = Names {
        faulty: ports.iter().map(Port::address).collect(),
        healthy: cases.iter().map(healthy).collect(),
    };
    wait_settled(&kp);
    let worker = kp.worker_pid();
    let before = process::descriptors(worker).len();

    let found = run_all(&cases, ports, &kp, &tls);
    let warm = cases.iter().filter(|case| case.pooled).count();
    let lines = lines(&kp, 2 * cases.len() + warm);
    let mut wrong = String::new();
    for (n, outcome, _) in &found {
        let case = &cases[*n];
        let differs = compare(*n, case, outcome, &lines, &names);
        if !differs.is_empty() {
            let (fault, pooled, second) = (case.rule.fault, case.pooled, case.second);
            let expected = case.expected();
            let _ = write!(
                wrong,
                "\n  /{n}/ {fault:?} pooled: {pooled} second: {second}, expected {expected:?}{differs}"
            );
        }
    }
    assert!(wrong.is_empty(), "{ask:?}:{wrong}");
    replays_are_exact(&cases, &plain, ask);
    let marked = |case: &&Case| case.expected().then == Peer::Healthy;
    let marked = cases.iter().filter(marked).count();
    let said = kp
        .error_log()
        .matches("upstream server temporarily disabled")
        .count();
    assert_eq!(said, marked, "one line for every peer that is left alone");

    // Nothing is left behind: with its peers gone, the worker holds what it held before.
    drop((found, plain, secure));
    wait_settled(&kp);
    wait::until(SOON, "the worker's descriptors of before", || {
        process::descriptors(worker).len() == before
    });
    assert_eq!(kp.worker_pid(), worker, "the worker is still the same");
}

/// What a healthy second peer got: the whole body, once for each case that went on to it.
fn replays_are_exact(cases: &[Case], healthy: &Origin, ask: Ask) {
    let right = body(ask);
    let moved = |case: &&Case| {
        let tries = case.expected().tries;
        !is_tls(case.rule.fault) && tries.last().is_some_and(|(who, _)| *who == Peer::Healthy)
    };
    let requests = healthy.requests();
    let came: Vec<_> = requests
        .iter()
        .filter(|one| one.target().ends_with("/main"))
        .collect();
    assert_eq!(came.len(), cases.iter().filter(moved).count());
    assert!(
        came.iter().all(|one| one.body == right),
        "{ask:?}: a body was changed"
    );
}

/// No client connection, no request, no tunnel, as `kp status` counts them.
fn wait_settled(kp: &Kp) {
    wait::until(SOON, "the gauges to be back at 0", || {
        let said = kp.command(&["status"]).stdout;
        let rows = said
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut rows =
            rows.filter(|row| row.first().is_some_and(|slot| slot.parse::<u32>().is_ok()));
        rows.any(|row| row.ends_with(&["0", "0", "0", "0", "0"]))
    });
}

#[test]
fn get() {
    matrix(Ask::Get);
}

#[test]
fn post_of_five_bytes() {
    matrix(Ask::PostSmall);
}

#[test]
fn post_that_is_streamed() {
    matrix(Ask::PostStreamed);
}

#[test]
fn post_of_a_million_bytes() {
    matrix(Ask::PostLarge);
}

#[test]
fn put_of_five_bytes() {
    matrix(Ask::PutSmall);
}

#[test]
fn put_of_a_million_bytes_that_is_collected() {
    matrix(Ask::PutCollected);
}

/// The table is whole: every phase that a connection has is there for an end, a reset and silence.
#[test]
fn no_phase_is_missing() {
    let has = |fault: Fault| rules::RULES.iter().any(|rule| rule.fault == fault);
    for at in [
        At::Unread,
        At::InRequest,
        At::BeforeHead,
        At::InHead,
        At::BeforeBody,
        At::InBody,
        At::InChunk,
    ] {
        assert!(
            has(Fault::Fin(at)) && has(Fault::Reset(at)) && has(Fault::Hang(at)),
            "{at:?}"
        );
    }
}
