//! Reloads under load (case R02): nothing is lost whatever a reload changes, and nothing is left behind.

use kp_tests::wait::{self, SOON};
use kp_tests::{Kind, Kp, LoadOrigin, Mix, Setup};

/// One server before the origin of a load; `%LISTEN%` and further addresses.
fn before(origin: &LoadOrigin) -> Setup {
    Setup::new(
        "%MAIN%
http {
    %HTTP%
    upstream u { server %U1%; keepalive 64; }
    server {
        listen %LISTEN%; %SERVER%
        add_header X-Worker $pid always;
        client_max_body_size 100m;
        keepalive_requests 100000;
        location / { proxy_pass http://u; }
        location /websocket {
            proxy_pass http://u;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection upgrade;
        }
    }
}
",
    )
    .with("U1", origin.address())
}

/// All children of the master that are no longer serving.
fn draining(kp: &Kp) -> usize {
    kp.all_pids().len() - kp.worker_pids().len()
}

#[test]
fn r02_reloads_lose_nothing_of_a_full_mix() {
    let origin = LoadOrigin::start();
    let kp = before(&origin)
        .main("worker_processes 2;")
        .server("listen unix:%DIR%/kp.listen;")
        .start();
    kp.wait_workers(2);
    let load = Mix::full(&kp.address(), Some(&kp.path("kp.listen"))).start();
    for _ in 0..20 {
        load.wait_answers(200);
        kp.reload();
    }
    load.wait_answers(200);
    let report = load.stop();
    report.assert_nothing_lost();
    for kind in Kind::ALL {
        assert!(report.of(kind) > 0, "{kind:?}: {report}");
    }
    assert!(origin.twice().is_empty(), "a POST was sent twice");
    wait::until(SOON * 3, "the old generations to leave", || {
        draining(&kp) == 0
    });
}
