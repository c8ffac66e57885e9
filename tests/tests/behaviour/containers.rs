//! Life in a container: the meaning of SIGTERM, process 1, logs on the container's own streams, no root.

use std::time::{Duration, Instant};

use kp_tests::client;
use kp_tests::origin::response;
use kp_tests::wait::{self, SOON};
use kp_tests::{Origin, Setup};
use nix::sys::signal::Signal;

const SECOND: Duration = Duration::from_secs(1);

/// An origin that answers after that time.
fn late(after: Duration) -> Origin {
    Origin::start(move |conversation| {
        conversation.request()?;
        conversation.pause(after);
        conversation.send(response(200, b"late"))
    })
}

/// Shows: stop_signal
#[test]
fn sigterm_can_let_requests_finish() {
    for more in ["", "master_process off;"] {
        let origin = late(SECOND);
        let setup = Setup::base(&origin)
            .main("stop_signal graceful;")
            .main(more);
        let mut kp = if more.is_empty() {
            setup
        } else {
            setup.single()
        }
        .start();
        let mut busy = kp.client();
        busy.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        origin.wait_requests(1);
        kp.signal(Signal::SIGTERM);
        wait::until(SECOND, "new connections to be refused", || {
            client::Client::try_connect(&kp.address()).is_err()
        });
        assert_eq!(busy.response().text(), "late");
        assert_eq!(kp.wait_exit(SECOND * 2), 0);
    }
}

/// Shows: stop_signal
#[test]
fn what_ends_a_graceful_stop_at_once() {
    type End = fn(&mut kp_tests::Kp);
    let ends: [(&str, End); 3] = [
        ("a second SIGTERM", |kp| {
            kp.signal(Signal::SIGTERM);
            wait::until(SOON, "the stop to begin", || kp.worker_pids().is_empty());
            kp.signal(Signal::SIGTERM);
        }),
        ("SIGINT", |kp| kp.signal(Signal::SIGINT)),
        ("-s stop", |kp| {
            assert_eq!(kp.command(&["-s", "stop"]).code, 0);
        }),
    ];
    for (what, end) in ends {
        let origin = late(SECOND * 20);
        let mut kp = Setup::base(&origin).main("stop_signal graceful;").start();
        let mut busy = kp.client();
        busy.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        origin.wait_requests(1);
        end(&mut kp);
        let start = Instant::now();
        assert_eq!(kp.wait_exit(SECOND * 3), 0, "{what}");
        assert!(start.elapsed() <= SECOND, "{what}: {:?}", start.elapsed());
    }
}
