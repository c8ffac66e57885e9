//! Whatever sizes, framings and speeds meet: the bytes that arrive are the bytes that were sent.

use std::time::Duration;

use kp_tests::origin::response;
use kp_tests::{Client, Conversation, Origin, Setup};
use sha2::{Digest, Sha256};

const SECOND: Duration = Duration::from_secs(1);

/// A small generator of numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % below as u64).expect("a small number")
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count)
            .map(|_| u8::try_from(self.next(256)).expect("a byte"))
            .collect()
    }
}

/// The bytes in chunks of changing sizes.
fn chunked(numbers: &mut Numbers, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let size = (1 + numbers.next(40_000)).min(rest.len());
        out.extend(format!("{size:X};x=y\r\n").bytes());
        out.extend(&rest[..size]);
        out.extend(b"\r\n");
        rest = &rest[size..];
    }
    out.extend(b"0\r\n\r\n");
    out
}

/// Sends in pieces of changing sizes.
fn scattered(numbers: &mut Numbers, bytes: &[u8], mut send: impl FnMut(&[u8])) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let size = (1 + numbers.next(30_000)).min(rest.len());
        send(&rest[..size]);
        rest = &rest[size..];
    }
}

/// Answers with the digest of the body in a field, and with the same body, framed in another way for each request.
fn mirror(conversation: &mut Conversation) -> std::io::Result<()> {
    let mut numbers = Numbers(7 + conversation.index as u64);
    loop {
        let request = conversation.request()?;
        let digest = digest(&request.body);
        let close = request.target() == "/close";
        let framed = if close {
            [
                b"HTTP/1.1 200 OK\r\nX-Digest: ",
                digest.as_bytes(),
                b"\r\nConnection: close\r\n\r\n",
                &request.body,
            ]
            .concat()
        } else if request.target() == "/chunked" {
            let head = format!(
                "HTTP/1.1 200 OK\r\nX-Digest: {digest}\r\nTransfer-Encoding: chunked\r\n\r\n"
            );
            [head.into_bytes(), chunked(&mut numbers, &request.body)].concat()
        } else {
            let length = request.body.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\nX-Digest: {digest}\r\nContent-Length: {length}\r\n\r\n"
            );
            [head.into_bytes(), request.body].concat()
        };
        let mut failed = Ok(());
        scattered(&mut numbers, &framed, |piece| {
            if failed.is_ok() {
                failed = conversation.send(piece);
            }
        });
        failed?;
        if close {
            return Ok(());
        }
    }
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn bodies_arrive(settings: &str) {
    let origin = Origin::start(mirror);
    let kp = Setup::base(&origin)
        .server("client_max_body_size 0;")
        .location(settings)
        .start();
    let workers: Vec<_> = (0..4)
        .map(|seed| {
            let address = kp.address();
            std::thread::spawn(move || {
                let mut numbers = Numbers(1000 + seed);
                let mut client = Client::connect(&address);
                for round in 0..24 {
                    let size =
                        [0, 1, 1000, 16_384, 16_385, 70_000, 400_000, 1_500_000][numbers.next(8)];
                    let body = numbers.bytes(size);
                    let path = ["/length", "/chunked", "/close"][numbers.next(3)];
                    let request = if numbers.next(2) == 0 {
                        let head = format!(
                            "POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {size}\r\n\r\n"
                        );
                        [head.as_bytes(), &body].concat()
                    } else {
                        let head = format!(
                            "POST {path} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
                        );
                        [head.into_bytes(), chunked(&mut numbers, &body)].concat()
                    };
                    scattered(&mut numbers, &request, |piece| client.send(piece));
                    let answer = client.response();
                    let what = format!("round {round} of {seed}: {size} bytes to {path}");
                    assert_eq!(answer.status(), 200, "{what}");
                    assert!(answer.whole, "{what}");
                    assert_eq!(
                        answer.field("x-digest"),
                        Some(digest(&body).as_str()),
                        "{what}"
                    );
                    assert!(
                        answer.body == body,
                        "{what}: {} bytes came back",
                        answer.body.len()
                    );
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("a client");
    }
}

#[test]
fn bodies_arrive_as_they_were_sent() {
    bodies_arrive("");
}

#[test]
fn bodies_arrive_when_requests_are_taken_whole() {
    bodies_arrive("proxy_request_buffering on; client_body_buffer_size 8k;");
}

#[test]
fn bodies_arrive_without_buffering() {
    bodies_arrive("proxy_request_buffering off; proxy_buffering off;");
}

#[test]
fn bodies_arrive_through_files() {
    bodies_arrive(
        "proxy_request_buffering on; proxy_max_temp_file_size 1024m; proxy_buffers 2 4k; proxy_busy_buffers_size 4k;",
    );
}

#[test]
fn a_slow_reader_gets_every_byte() {
    let body = Numbers(99).bytes(3_000_000);
    let origin = Origin::replying(response(200, &body));
    for settings in [
        "",
        "proxy_buffering off;",
        "proxy_max_temp_file_size 1024m;",
    ] {
        let kp = Setup::base(&origin).location(settings).start();
        let mut client = Client::connect_narrow(&kp.address(), 4096);
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        // Nothing is read for a while, so that everything that can fill up is full.
        kp_tests::wait::pause(Duration::from_millis(300));
        let answer = client.try_response("GET", SECOND * 20).expect("an answer");
        assert!(
            answer.whole && answer.body == body,
            "{settings:?}: {} bytes",
            answer.body.len()
        );
    }
}

#[test]
fn many_clients_get_their_own_answers() {
    let origin = Origin::start(|conversation| {
        conversation.answer_all(|request| response(200, request.target().as_bytes()))
    });
    let kp = Setup::base(&origin).main("worker_processes 2;").start();
    let mut clients: Vec<Client> = (0..100).map(|_| kp.client()).collect();
    for round in 0..10 {
        for (n, client) in clients.iter_mut().enumerate() {
            client.send(format!("GET /{n}/{round} HTTP/1.1\r\nHost: t\r\n\r\n"));
        }
        for (n, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.response().text(), format!("/{n}/{round}"));
        }
    }
    // 100 requests at a time need 100 connections; a pool keeps some of them.
    assert!(
        origin.connections() < 1000,
        "{} connections for 1000 requests",
        origin.connections()
    );
}
