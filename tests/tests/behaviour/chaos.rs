//! Many clients and an upstream that do everything wrong at once: nobody gets another's answer, and nothing stays behind.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kp_tests::message::Head;
use kp_tests::origin::response;
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, Conversation, Kp, Origin, Setup, process};
use nix::sys::signal::Signal;

const CLIENTS: u64 = 12;
const MILLI: Duration = Duration::from_millis(1);

/// What the upstream does, named in the target.
const DEEDS: [&str; 16] = [
    "plain", "plain", "chunked", "close", "early", "reset", "cut", "cutchunk", "hints", "big",
    "busy", "same", "garbage", "slow", "silent", "half",
];
/// Locations with different ways of passing things on.
const WAYS: [&str; 6] = [
    "default",
    "unbuffered",
    "spooled",
    "intercepted",
    "patient",
    "once",
];

struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % count
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// The body of an answer: the request's own number, over and over.
fn body(number: &str, deed: &str) -> Vec<u8> {
    let count = if deed == "big" { 40_000 } else { 40 };
    format!("<{number}>").repeat(count).into_bytes()
}

/// One connection of the upstream.
fn misbehave(conversation: &mut Conversation) -> io::Result<()> {
    loop {
        let head = conversation.head()?;
        let target = head.line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut parts = target.split('/').skip(2);
        let (deed, number) = (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        );
        if !matches!(deed, "early" | "reset") {
            conversation.body(&head)?;
        }
        answer(conversation, &head, deed, &body(number, deed))?;
        if matches!(deed, "early" | "close") {
            return Ok(());
        }
    }
}

fn answer(conversation: &mut Conversation, head: &Head, deed: &str, body: &[u8]) -> io::Result<()> {
    let started = |length| format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let bare = head.line.starts_with("HEAD");
    match deed {
        "reset" => conversation
            .reset()
            .and(Err(io::ErrorKind::ConnectionReset.into())),
        "garbage" => conversation.send("NOPE\r\n\r\n"),
        "silent" => {
            conversation.pause(MILLI * 600);
            Err(io::ErrorKind::TimedOut.into())
        }
        "same" => conversation.send("HTTP/1.1 304 Not Modified\r\n\r\n"),
        _ if bare => conversation.send(started(body.len())),
        "chunked" => {
            conversation.send(chunks)?;
            for piece in body.chunks(37) {
                conversation.send(chunk(piece))?;
            }
            conversation.send("0\r\n\r\n")
        }
        "close" => {
            conversation.send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
            conversation.send(body)
        }
        "cut" | "cutchunk" => {
            let start = if deed == "cut" {
                started(body.len())
            } else {
                chunks.to_owned()
            };
            conversation.send(start)?;
            conversation.send(&body[..body.len() / 2])?;
            Err(io::ErrorKind::ConnectionAborted.into())
        }
        "hints" => {
            for _ in 0..5 {
                conversation.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")?;
            }
            conversation.send([started(body.len()).as_bytes(), body].concat())
        }
        "busy" => conversation.send(response(503, body)),
        "slow" => {
            conversation.send(started(body.len()))?;
            for piece in body.chunks(body.len() / 3) {
                conversation.pause(MILLI * 15);
                conversation.send(piece)?;
            }
            Ok(())
        }
        "half" => {
            conversation.send([started(body.len()).as_bytes(), body].concat())?;
            conversation.half_close()
        }
        _ => conversation.send([started(body.len()).as_bytes(), body].concat()),
    }
}

/// A request and the number its answer must have.
fn request(random: &mut Random, number: &str) -> (&'static str, Vec<u8>) {
    let method = random.pick(&["GET", "GET", "HEAD", "POST", "PUT"]);
    let (way, deed) = (random.pick(&WAYS), random.pick(&DEEDS));
    let length = [0, 10, 20_000, 300_000][random.below(4)];
    let content = vec![b'b'; length];
    let start = format!("{method} /{way}/{deed}/{number} HTTP/1.1\r\nHost: t\r\n");
    let rest = match (method, random.below(2)) {
        ("GET" | "HEAD", _) => b"\r\n".to_vec(),
        (_, 0) => [
            format!("Content-Length: {length}\r\n\r\n").as_bytes(),
            &content,
        ]
        .concat(),
        _ if length == 0 => b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_vec(),
        _ => [
            &b"Transfer-Encoding: chunked\r\n\r\n"[..],
            &chunk(&content),
            b"0\r\n\r\n",
        ]
        .concat(),
    };
    (method, [start.as_bytes(), &rest].concat())
}

/// One connection with a few requests, well behaved or not.
fn visit(kp: &Kp, random: &mut Random, name: &str, served: &AtomicUsize) {
    let mut client = if random.below(4) == 0 {
        Client::connect_narrow(&kp.address(), 4096)
    } else {
        kp.client()
    };
    for n in 0..1 + random.below(4) {
        let number = format!("{name}.{n}");
        let (method, bytes) = request(random, &number);
        match random.below(10) {
            0 => {
                client.send(&bytes[..random.below(bytes.len())]);
                return client.reset();
            }
            1 => {
                client.send(&bytes[..random.below(bytes.len())]);
                client.half_close();
            }
            2 => {
                client.send(&bytes);
                client.read_some(MILLI * 20);
                if random.below(2) == 0 {
                    client.reset();
                }
                return;
            }
            _ => client.send(&bytes),
        }
        let Ok(answer) = client.try_response(method, SOON) else {
            return;
        };
        let text = answer.text();
        if answer.status() == 200 && method != "HEAD" {
            let own = format!("<{number}>");
            served.fetch_add(1, Ordering::Relaxed);
            let all = text.as_bytes().chunks(own.len());
            assert!(
                all.clone().all(|piece| own.as_bytes().starts_with(piece)),
                "{number} got {:?}",
                &text[..text.len().min(100)]
            );
        }
        if !answer.whole {
            return;
        }
    }
}

fn chaotic(origin: &Origin) -> Setup {
    chaotic_with(origin, "", "", "")
}

fn chaotic_with(origin: &Origin, parameters: &str, upstream: &str, location: &str) -> Setup {
    let common = format!("proxy_pass http://u; proxy_read_timeout 300ms; {location}");
    let server = format!("server %U1% max_fails=0 {parameters};").repeat(2);
    Setup::new(&format!("%MAIN% http {{ %HTTP% upstream u {{ {server} keepalive 8; {upstream} }}
        server {{ listen %LISTEN%; early_hints 1; client_max_body_size 0; %SERVER% }} }}"))
        .with("U1", origin.address())
        .server(&format!("location /default/ {{ {common} }}"))
        .server(&format!("location /unbuffered/ {{ {common} proxy_request_buffering off; proxy_buffering off; }}"))
        .server(&format!("location /spooled/ {{ {common} proxy_request_buffering on; proxy_max_temp_file_size 1m; client_body_buffer_size 1k; }}"))
        .server(&format!("location /intercepted/ {{ {common} proxy_intercept_errors on; error_page 502 503 504 = @other; }}"))
        .server(&format!("location @other {{ {common} proxy_request_buffering off; }}"))
        .server(&format!("location /patient/ {{ {common} proxy_ignore_client_abort on; proxy_next_upstream error timeout invalid_header http_503 non_idempotent; }}"))
        .server(&format!("location /once/ {{ {common} proxy_next_upstream off; proxy_http_version 1.0; }}"))
        .server("location / { return 200 ok; }")
}

/// The crowd, each client for some rounds; meanwhile something else may happen.
fn crowd(kp: &Kp, rounds: usize, meanwhile: impl Fn()) {
    let served = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let served = &served;
            scope.spawn(move || {
                let mut random = Random(0x1234_5678_9abc_def1 ^ (client << 40));
                for round in 0..rounds {
                    visit(kp, &mut random, &format!("{client}-{round}"), served);
                }
            });
        }
        meanwhile();
    });
    assert!(served.into_inner() > 3 * rounds, "most of it should work");
}

#[test]
fn nothing_is_mixed_up_and_nothing_stays_behind() {
    let origin = Origin::start(misbehave);
    let mut kp = chaotic(&origin).start();
    crowd(&kp, 60, || {});
    let worker = kp.worker_pid();
    assert_eq!(kp.get("/").status(), 200, "it serves");
    wait::until(SOON, "only idle upstream connections", || {
        origin.open_connections() <= 8
    });
    let before = process::cpu_ticks(worker);
    wait::pause(MILLI * 500);
    let used = process::cpu_ticks(worker) - before;
    assert!(
        used <= 2,
        "{used} ticks of 10 ms in half a second of idleness"
    );
    kp.signal(Signal::SIGQUIT);
    assert_eq!(kp.wait_exit(SOON), 0, "nothing is waited for in vain");
    origin.wait_all_closed(SOON);
}

/// The same where places are few: who waits for one, pauses between attempts or is refused a retry comes to an end, too,
/// and every place is free afterwards.
#[test]
fn whoever_waits_finds_an_end() {
    let origin = Origin::start(misbehave);
    let upstream = "queue 5 timeout=150ms; retry_budget percent=20 min=1; sticky cookie s;";
    let location = "proxy_retry_backoff base=20ms; proxy_try_timeout 200ms;";
    let mut kp = chaotic_with(&origin, "max_conns=2", upstream, location)
        .http("log_format reason $kp_reason; access_log reason.log reason;")
        .start();
    // What comes of whom depends on who is how fast.
    wait::until(SOON, "each way to end", || {
        crowd(&kp, 60, || {});
        let reasons = kp.text("reason.log");
        ["queue_full", "queue_timeout", "try_timeout", "client_gone"]
            .iter()
            .all(|expected| reasons.contains(expected))
    });
    // The longest that an attempt may still take for a client that left.
    wait::pause(MILLI * 700);
    origin.forget();
    let mut clients: Vec<Client> = (0..4).map(|_| kp.client()).collect();
    for client in &mut clients {
        client.send("GET /once/silent/1 HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    // Who stands in line is sent away before a place becomes free again.
    wait::until(SOON, "every place to be free", || {
        origin.raw_text().matches("GET /once/silent/1").count() == 4
    });
    drop(clients);
    kp.signal(Signal::SIGQUIT);
    assert_eq!(kp.wait_exit(SOON), 0);
    origin.wait_all_closed(SOON);
}

/// The same while generations come and go: every worker of an old one finds its end.
#[test]
fn generations_end_in_the_middle_of_it() {
    let origin = Origin::start(misbehave);
    let kp = chaotic(&origin).start();
    crowd(&kp, 40, || {
        for _ in 0..6 {
            kp.reload();
            wait::pause(MILLI * 250);
        }
    });
    assert_eq!(kp.get("/").status(), 200, "it serves");
    wait::until(SOON, "the old workers to end", || kp.all_pids().len() == 1);
    wait::until(SOON, "only idle upstream connections", || {
        origin.open_connections() <= 8
    });
}
