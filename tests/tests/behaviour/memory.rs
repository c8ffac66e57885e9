//! Memory stays bounded however slow the other side is.

use std::sync::Arc;
use std::time::Duration;

use kp_tests::origin::{OK, response};
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, Origin, Setup, process};

const CLIENTS: usize = 200;
const SIZE: usize = 10 << 20;
const KIB_EACH_MAX: u64 = 128;

/// Memory of the worker once it has not grown for a while.
fn settled(worker: u32) -> u64 {
    let mut last = process::pss_kib(worker);
    for _ in 0..20 {
        wait::pause(Duration::from_millis(100));
        let now = process::pss_kib(worker);
        if now <= last + 16 {
            return now;
        }
        last = now;
    }
    last
}

#[test]
fn stalled_readers_cost_little() {
    let big = Arc::new(response(200, &vec![b'x'; SIZE]));
    let origin = Origin::start(move |conversation| {
        loop {
            let request = conversation.request()?;
            let reply: &[u8] = if request.target() == "/big" { &big } else { OK };
            conversation.send(reply)?;
        }
    });
    let kp = Setup::base(&origin).start();
    assert_eq!(kp.get("/").status(), 200);
    let worker = kp.worker_pid();
    let before = settled(worker);
    let _clients: Vec<Client> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::connect_narrow(&kp.address(), 8192);
            client.send("GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
            client
        })
        .collect();
    wait::until(SOON, "all requests", || origin.requests().len() > CLIENTS);
    let grown = settled(worker).saturating_sub(before);
    assert!(
        grown <= KIB_EACH_MAX * CLIENTS as u64,
        "{} KiB for each reader",
        grown / CLIENTS as u64
    );
    assert_eq!(kp.get("/").status(), 200, "others are served");
}

#[test]
fn stalled_uploads_cost_little() {
    let origin = Origin::start(|conversation| {
        let head = conversation.head()?;
        if head.line.starts_with("GET") {
            return conversation.send(OK);
        }
        conversation.note();
        conversation.stall();
        Ok(())
    });
    let kp = Setup::base(&origin)
        .server("client_max_body_size 0;")
        .start();
    assert_eq!(kp.get("/").status(), 200);
    let worker = kp.worker_pid();
    let before = settled(worker);
    let piece = vec![b'x'; SIZE];
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| kp.client()).collect();
    for client in &mut clients {
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {SIZE}\r\n\r\n"
        ));
        client.send_for(&piece, Duration::from_millis(5));
    }
    wait::until(SOON, "all uploads", || origin.noted().len() == CLIENTS);
    let grown = settled(worker).saturating_sub(before);
    assert!(
        grown <= KIB_EACH_MAX * CLIENTS as u64,
        "{} KiB for each upload",
        grown / CLIENTS as u64
    );
    assert_eq!(kp.get("/").status(), 200, "others are served");
}

#[test]
fn a_worker_with_idle_clients_does_not_use_the_processor() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin).start();
    let mut clients: Vec<Client> = (0..100).map(|_| kp.client()).collect();
    for client in &mut clients {
        assert_eq!(
            client.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").status(),
            200
        );
    }
    let before = process::cpu_ticks(kp.worker_pid());
    wait::pause(Duration::from_millis(1000));
    let used = process::cpu_ticks(kp.worker_pid()) - before;
    assert!(used <= 3, "{used} ticks of 10 ms in a second of idleness");
}

#[test]
fn a_client_that_breaks_off_in_a_chunk_line_costs_nothing_more() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin).start();
    let mut client = kp.client();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n4\r");
    client.half_close();
    client.read_to_end(SOON);
    origin.wait_all_closed(SOON);
    let before = process::cpu_ticks(kp.worker_pid());
    wait::pause(Duration::from_millis(500));
    assert!(
        process::cpu_ticks(kp.worker_pid()) - before <= 3,
        "the worker spins"
    );
    assert!(origin.requests().is_empty());
    let status = kp.access_lines(1).remove(0);
    assert!(status.contains("\" 400 "), "{status}");
}
