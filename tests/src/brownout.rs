//! A brown-out: a group of which one server is slow and one refuses, and a group of which nobody is well.
//!
//! Runs a steady load against the server under test ([`Setup`]), which may be another one of nginx's language, and counts
//! at both ends: what clients saw, and what reached the servers behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::{Client, Kp, Origin, Port, Setup, origin, wait};

/// How long a healthy server takes.
const QUICK: Duration = Duration::from_millis(5);
/// Ten times that.
const SLOW: Duration = Duration::from_millis(50);
/// Clients of the first part, each with a request every [`PACE`].
const CLIENTS: usize = 20;
const PACE: Duration = Duration::from_millis(50);
/// Clients of the second part, each with its next request as soon as it has its answer.
const CROWD: usize = 100;
/// Longer than any answer of this takes.
const PATIENCE: Duration = Duration::from_secs(20);

const CONFIGURATION: &str = r#"
%MAIN%
http {
    access_log off;
    keepalive_requests 1000000;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_next_upstream error timeout http_503;
    upstream brown { %OWN% server %SLOW%; server %REFUSING%; server %HEALTHY%; keepalive 64; keepalive_requests 1000000; }
    upstream dying {
        server %ILL1% max_fails=0; server %ILL2% max_fails=0; server %ILL3% max_fails=0;
        keepalive 128; keepalive_requests 1000000;
    }
    server {
        listen %LISTEN%;
        location /brown { proxy_pass http://brown; }
        location /dying { proxy_pass http://dying; }
    }
}
"#;

/// What was counted.
#[derive(Debug)]
pub struct Figures {
    /// Requests of clients to the group with a slow and a refusing server.
    pub requests: usize,
    /// Those of them that were answered with 200, whole.
    pub answered: usize,
    /// Percentiles of their times: 50, 95, 99.
    pub times: [Duration; 3],
    /// How many of them the slow server got.
    pub slow_share: usize,
    /// How many requests the servers of that group got, together.
    pub upstream_requests: usize,
    /// Requests of clients to the group that is ill as a whole, and how many its servers got for them.
    pub dying: (usize, usize),
}

impl Figures {
    /// Answered requests of a thousand.
    pub fn success(&self) -> f64 {
        share(self.answered, self.requests)
    }

    /// Requests that reached a server, for one of a client, in the first group.
    pub fn load(&self) -> f64 {
        share(self.upstream_requests, self.requests)
    }

    /// The same in the second group.
    pub fn dying_load(&self) -> f64 {
        share(self.dying.1, self.dying.0)
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of requests are small")]
fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// A server that answers after `delay`, and the number of its requests.
fn server(delay: Duration, status: u16) -> (Origin, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let server = Origin::start(move |conversation| {
        let answer = origin::response(status, b"ok");
        loop {
            conversation.request()?;
            counted.fetch_add(1, Ordering::Relaxed);
            conversation.pause(delay);
            conversation.send(&answer)?;
        }
    });
    (server, count)
}

/// Runs both parts, each for `duration`; `own` are further directives of the first group.
pub fn run(own: &str, duration: Duration) -> Figures {
    let (slow, slow_count) = server(SLOW, 200);
    let (healthy, healthy_count) = server(QUICK, 200);
    let refusing = Port::take();
    let ill = [(); 3].map(|()| server(QUICK * 4, 503));
    let mut setup = Setup::new(CONFIGURATION)
        .with("OWN", own)
        .with("SLOW", slow.address())
        .with("REFUSING", refusing.address())
        .with("HEALTHY", healthy.address());
    for (place, (server, _)) in ["ILL1", "ILL2", "ILL3"].into_iter().zip(&ill) {
        setup = setup.with(place, server.address());
    }
    let kp = setup.start();

    let first = load(&kp, "/brown", CLIENTS, Some(PACE), duration);
    let second = load(&kp, "/dying", CROWD, None, duration);
    let mut times: Vec<Duration> = first.iter().map(|sample| sample.took).collect();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    Figures {
        requests: first.len(),
        answered: first.iter().filter(|sample| sample.well).count(),
        times: [at(50), at(95), at(99)],
        slow_share: count(&slow_count),
        upstream_requests: count(&slow_count) + count(&healthy_count),
        dying: (
            second.len(),
            ill.iter().map(|(_, counter)| count(counter)).sum(),
        ),
    }
}

struct Sample {
    took: Duration,
    well: bool,
}

/// Clients on kept connections; each request is one sample, answered or not.
fn load(
    kp: &Kp,
    path: &str,
    clients: usize,
    pace: Option<Duration>,
    duration: Duration,
) -> Vec<Sample> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n");
    let end = Instant::now() + duration;
    let client = || {
        let mut samples = Vec::new();
        let mut connection = kp.client();
        let mut due = Instant::now();
        while due < end && Instant::now() < end {
            let began = Instant::now();
            let well = asked(&mut connection, &request);
            if well.is_none() {
                connection = kp.client();
            }
            samples.push(Sample {
                took: began.elapsed(),
                well: well == Some(200),
            });
            due = pace.map_or(began, |pace| due.max(began) + pace);
            wait::pause(due.saturating_duration_since(Instant::now()));
        }
        samples
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        let samples = threads.into_iter().map(|thread| thread.join());
        samples
            .flat_map(|samples| samples.expect("a client"))
            .collect()
    })
}

/// The status of the answer; `None` when it is not whole.
fn asked(connection: &mut Client, request: &str) -> Option<u16> {
    connection.send(request);
    let response = connection.try_response("GET", PATIENCE).ok()?;
    let stays = response.field("Connection") != Some("close");
    (response.whole && stays).then(|| response.status())
}
