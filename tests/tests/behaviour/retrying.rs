//! How often and how soon a failed attempt is repeated: `retry_budget`, `proxy_retry_backoff`, `proxy_try_timeout`.

use std::time::{Duration, Instant};

use kp_tests::origin::response;
use kp_tests::{Kp, Origin, Port, Setup};

const REASON: &str = "log_format reason '$status $kp_reason'; access_log reason.log reason;";

/// Origins that take a while and fail.
fn dying(count: usize, pause_ms: u64, answer: &'static [u8]) -> Vec<Origin> {
    (0..count)
        .map(|_| {
            Origin::start(move |conversation| {
                while conversation.request().is_ok() {
                    conversation.pause(Duration::from_millis(pause_ms));
                    if answer.is_empty() {
                        return Ok(());
                    }
                    conversation.send(response(500, answer))?;
                }
                Ok(())
            })
        })
        .collect()
}

fn group(origins: &[Origin], upstream: &str, location: &str) -> Kp {
    let servers: String = origins
        .iter()
        .map(|origin| format!("server {} max_fails=0; ", origin.address()))
        .collect();
    let text = "http { %HTTP% upstream u { %UPSTREAM% %SERVERS% }
        server { listen %LISTEN%; location / { proxy_pass http://u; %LOCATION% } } }";
    Setup::new(text)
        .http(REASON)
        .upstream(upstream)
        .location(location)
        .with("SERVERS", servers)
        .start()
}

fn requests(origins: &[Origin]) -> usize {
    origins.iter().map(|origin| origin.requests().len()).sum()
}

/// So many clients, each asking so often, one request after the other; every body.
fn load(kp: &Kp, clients: usize, each: usize) -> Vec<(u16, String)> {
    let address = kp.address();
    std::thread::scope(|scope| {
        let ask = |_| {
            let address = &address;
            scope.spawn(move || {
                let mut client = kp_tests::client::Client::connect(address);
                (0..each)
                    .map(|_| {
                        let answer = client.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
                        (answer.status(), answer.text())
                    })
                    .collect::<Vec<_>>()
            })
        };
        let threads: Vec<_> = (0..clients).map(ask).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("a client"))
            .collect()
    })
}

/// Shows: retry_budget
#[test]
fn a_dying_group_gets_hardly_more_than_its_load() {
    let origins = dying(3, 10, b"");
    let kp = group(&origins, "retry_budget percent=20 min=2;", "");
    let answers = load(&kp, 20, 20);
    assert!(answers.iter().all(|(status, _)| *status == 502));
    let (asked, load) = (requests(&origins), answers.len());
    assert!(asked > load, "some retries are made: {asked} for {load}");
    assert!(
        asked * 100 <= load * 120,
        "{asked} attempts for {load} requests"
    );
    kp.wait_error("retry budget is used up, no other server is tried");
    let warnings = kp.error_log().matches("[warn]").count();
    assert!(
        (1..100).contains(&warnings),
        "told once for each shortage: {warnings}"
    );
}

/// Shows: retry_budget
#[test]
fn without_a_budget_every_request_is_repeated() {
    let origins = dying(3, 1, b"");
    let kp = group(&origins, "retry_budget off;", "proxy_retry_backoff off;");
    assert_eq!(load(&kp, 10, 2).len(), 20);
    assert_eq!(requests(&origins), 60);
}

#[test]
fn the_default_budget_leaves_a_quiet_group_alone() {
    let origins = dying(2, 1, b"");
    let kp = group(&origins, "", "");
    assert_eq!(load(&kp, 5, 4).len(), 20);
    assert_eq!(requests(&origins), 40, "five at once are within min=10");
}

#[test]
fn a_refused_retry_passes_the_real_answer_on() {
    let origins = dying(2, 1, b"the real one");
    let kp = group(
        &origins,
        "retry_budget percent=0 min=0;",
        "proxy_next_upstream http_500;",
    );
    let answers = load(&kp, 2, 3);
    assert_eq!(requests(&origins), 6);
    for (status, text) in answers {
        assert_eq!((status, text.as_str()), (500, "the real one"));
    }
}

#[test]
fn what_never_reached_a_peer_needs_no_budget() {
    let living = Origin::named("alive");
    let dead = Port::take();
    let kp = Setup::base(&living)
        .upstream(&format!(
            "retry_budget percent=0 min=0; server 127.0.0.1:{} max_fails=0;",
            dead.number()
        ))
        .start();
    for _ in 0..10 {
        assert_eq!(kp.get("/").text(), "alive");
    }
}

/// Shows: proxy_try_timeout
#[test]
fn a_try_has_its_own_time() {
    let silent = Origin::start(|conversation| {
        conversation.request()?;
        conversation.stall();
        Ok(())
    });
    let living = Origin::named("alive");
    let kp = Setup::base(&silent)
        .http(REASON)
        .upstream(&format!("server {} backup;", living.address()))
        .location("proxy_try_timeout 1s;")
        .start();
    assert_eq!(kp.get("/").text(), "alive");
    kp.wait_error("upstream timed out (110: Connection timed out) while reading response header");
    let kp = Setup::base(&silent)
        .http(REASON)
        .location("proxy_try_timeout 150ms;")
        .start();
    assert_eq!(kp.get("/").status(), 504);
    assert_eq!(kp.lines("reason.log", 1), ["504 try_timeout"]);
}

#[test]
fn the_time_of_a_try_ends_with_the_head() {
    let slow = Origin::start(|conversation| {
        conversation.request()?;
        conversation.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")?;
        conversation.pause(Duration::from_millis(1500));
        conversation.send("slow")
    });
    let kp = Setup::base(&slow).location("proxy_try_timeout 1s;").start();
    assert_eq!(kp.get("/").text(), "slow");
}

/// Shows: proxy_retry_backoff
#[test]
fn further_attempts_pause() {
    let slowest = |backoff: &str| {
        let origins = dying(4, 0, b"");
        let kp = group(&origins, "retry_budget off;", backoff);
        let began = Instant::now();
        for _ in 0..8 {
            assert_eq!(kp.get("/").status(), 502);
        }
        assert_eq!(requests(&origins), 32);
        began.elapsed()
    };
    // Sixteen pauses of up to 400 ms: a sum below 400 ms has a chance of less than one in 10^13.
    let paused = slowest("proxy_retry_backoff base=400ms max=400ms;");
    assert!(paused >= Duration::from_millis(400), "{paused:?}");
    let prompt = slowest("proxy_retry_backoff off;");
    assert!(prompt < paused, "{prompt:?} {paused:?}");
}
