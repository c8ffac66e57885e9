//! What a worker may use: memory, connections, descriptors. When one of them is used up, others than the idle are not
//! harmed, and new requests are told so.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kp_tests::origin::response;
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, Kp, Origin, Port, Setup, process};
use socket2::{Domain, Socket, Type};

const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
const SECOND: Duration = Duration::from_secs(1);

fn narrow(kp: &Kp, target: &str) -> Client {
    let mut client = Client::connect_narrow(&kp.address(), 4096);
    client.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n"));
    client
}

/// Shows: worker_memory
#[test]
fn without_memory_new_requests_are_refused_and_running_ones_finish() {
    let big = Arc::new(response(200, &vec![b'x'; 2_000_000]));
    let origin = Origin::start(move |conversation| conversation.answer_all(|_| big.to_vec()));
    let kp = Setup::base(&origin)
        .main("worker_memory 16m; events { worker_connections 4096; }")
        .server("location = /small { return 200 small; }")
        .start();
    assert_eq!(kp.get("/small").status(), 200);
    let mut slow: Vec<Client> = Vec::new();
    let refused = wait::until_some(SOON, "a refusal", || {
        slow.extend((0..10).map(|_| narrow(&kp, "/")));
        let answer = kp.get("/small");
        (answer.status() != 200).then_some(answer)
    });
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert!(slow.len() < 400, "{} readers are in 16m", slow.len());
    kp.wait_error("worker_memory is not enough");
    assert_eq!(slow[0].response().body.len(), 2_000_000, "it finishes");
    drop(slow);
    wait::until(SOON, "room for requests", || {
        kp.get("/small").status() == 200
    });
}

/// Memory that a burst took goes back to the system.
#[test]
fn memory_goes_back_after_a_burst() {
    let big = Arc::new(response(200, &vec![b'x'; 800_000]));
    let origin = Origin::start(move |conversation| conversation.answer_all(|_| big.to_vec()));
    let kp = Setup::base(&origin)
        .main("events { worker_connections 4096; }")
        .start();
    let worker = kp.worker_pid();
    let before = process::rss_kib(worker);
    let slow: Vec<Client> = (0..100).map(|_| narrow(&kp, "/")).collect();
    wait::until(SOON, "answers to be held", || {
        process::rss_kib(worker) > before + 60 * 1024
    });
    let shown = kp.command(&["status"]).stdout;
    let memory = shown.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mib = words
            .get(2)
            .filter(|word| **word == "serving")
            .and(words.get(4))?;
        mib.strip_suffix('M')?.parse::<u64>().ok()
    });
    assert!(memory.is_some_and(|mib| mib > 50), "{shown}");
    drop(slow);
    wait::until(SOON, "memory to go back", || {
        process::rss_kib(worker) < before + 12 * 1024
    });
}

/// An upstream that one thread serves to thousands: it sends long answers as fast as they are taken, and reads no bodies.
struct Crowd {
    port: Port,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Crowd {
    fn start(answer: Vec<u8>) -> Self {
        let port = Port::take();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_send_buffer_size(64 * 1024).expect("a buffer");
        let address: std::net::SocketAddr = port.address().parse().expect("an address");
        socket.set_reuse_address(true).expect("an option");
        socket.bind(&address.into()).expect("binding");
        socket.listen(4096).expect("listening");
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true).expect("a mode");
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || Self::serve(&listener, &answer, &stop)
        });
        Self {
            port,
            stop,
            thread: Some(thread),
        }
    }

    fn serve(listener: &TcpListener, answer: &[u8], stop: &AtomicBool) {
        let mut all: Vec<(TcpStream, Vec<u8>, Option<usize>)> = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(true).expect("a mode");
                all.push((stream, Vec::new(), None));
            }
            all.retain_mut(|(stream, head, sent)| {
                let moved = match sent {
                    Some(sent) if *sent < answer.len() => {
                        stream.write(&answer[*sent..]).map(|count| *sent += count)
                    }
                    Some(_) => Ok(()),
                    None => {
                        let mut piece = [0; 1024];
                        stream.read(&mut piece).map(|count| {
                            head.extend_from_slice(&piece[..count]);
                            if head.windows(4).any(|end| end == b"\r\n\r\n") {
                                let get = head.starts_with(b"GET");
                                *sent = Some(if get { 0 } else { answer.len() });
                            }
                        })
                    }
                };
                moved.is_ok_and(|()| true)
                    || stream
                        .peek(&mut [0])
                        .is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
                    || sent.is_some_and(|sent| sent == answer.len())
            });
            std::thread::sleep(Duration::from_millis(3));
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the kernel holds for all TCP sockets of the machine, bytes.
fn kernel_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/net/sockstat").expect("the table");
    let line = text.lines().find(|line| line.starts_with("TCP:"));
    let pages = line.and_then(|line| line.split_whitespace().last()?.parse::<u64>().ok());
    pages.expect("a number of pages") * 4096
}

/// A thousand that read slowly an answer of 10 MiB and a thousand that upload slowly, over two workers.
#[test]
fn two_thousand_slow_clients_stay_inside_the_budget() {
    const EACH: usize = 1000;
    const BUDGET: u64 = 512 << 20;
    let origin = Crowd::start(response(200, &vec![b'x'; 10 << 20]));
    let kp = Setup::new(
        "worker_processes 2; worker_rlimit_nofile 8192; events { worker_connections 8000; }
         http { client_max_body_size 0; server { listen %LISTEN%;
         location / { proxy_pass http://%UP%; } location = /small { return 200 small; } } }",
    )
    .with("UP", origin.port.address())
    .start();
    kp.wait_workers(2);
    let before = kernel_bytes();
    let mut clients: Vec<Client> = (0..EACH).map(|_| narrow(&kp, "/")).collect();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{}",
        10 << 20,
        "x".repeat(20_000)
    );
    clients.extend((0..EACH).map(|_| {
        let mut client = kp.client();
        client.send(&head);
        client
    }));
    let began = Instant::now();
    let mut most = 0;
    while began.elapsed() < SECOND * 3 {
        let piece = vec![b'x'; 4000];
        for client in &mut clients[EACH..] {
            client.send_for(&piece, Duration::from_millis(1));
        }
        let workers = kp.worker_pids();
        assert_eq!(workers.len(), 2);
        let own: Vec<u64> = workers
            .iter()
            .map(|pid| process::pss_kib(*pid) << 10)
            .collect();
        let sum = own.iter().sum::<u64>() + kernel_bytes().saturating_sub(before);
        assert!(own.iter().all(|bytes| *bytes < BUDGET), "{own:?}");
        most = most.max(sum);
        let asked = Instant::now();
        let status = kp.command(&["status"]).stdout;
        assert_eq!(
            kp.get("/small").status(),
            200,
            "{} MiB, {status}",
            sum >> 20
        );
        assert!(asked.elapsed() < SECOND, "{:?}", asked.elapsed());
    }
    assert!(most < 2 * BUDGET, "{} MiB with the kernel's", most >> 20);
}

/// The one that has been idle longest makes room first.
/// Shows: worker_connections
#[test]
fn idle_connections_make_room_the_oldest_first() {
    let kp = Setup::new(
        "events { worker_connections 300; } http { server { listen %LISTEN%; return 200 ok; } }",
    )
    .start();
    let mut kept: Vec<Client> = (0..300)
        .map(|_| {
            let mut client = kp.client();
            assert_eq!(client.ask(GET).status(), 200);
            client
        })
        .collect();
    // The first one is idle for a shorter time than the others from now on.
    assert_eq!(kept[0].ask(GET).status(), 200);
    let mut new: Vec<Client> = (0..20).map(|_| kp.client()).collect();
    for client in &mut new {
        assert_eq!(client.ask(GET).status(), 200);
    }
    for client in &mut kept[1..21] {
        assert!(client.closes_within(SECOND), "an older one is still there");
    }
    assert_eq!(kept[0].ask(GET).status(), 200);
    for client in &mut kept[21..] {
        assert_eq!(client.ask(GET).status(), 200);
    }
    kp.wait_error("300 worker_connections are not enough, reusing connections");
}

#[test]
fn heads_that_do_not_come_make_room_then() {
    let kp = Setup::new(
        "events { worker_connections 100; } http { server { listen %LISTEN%; return 200 ok; } }",
    )
    .start();
    let mut busy = kp.client();
    assert_eq!(busy.ask(GET).status(), 200);
    let mut slow: Vec<Client> = (0..99)
        .map(|number| {
            let mut client = kp.client();
            client.send(["GET / HT", ""][usize::from(number % 2 == 1)]);
            client
        })
        .collect();
    wait::pause(Duration::from_millis(600));
    slow.extend((0..10).map(|_| {
        let mut client = kp.client();
        client.send("GET / HT");
        client
    }));
    assert_eq!(kp.get("/").status(), 200);
    assert!(busy.closes_within(SECOND), "an idle one goes first");
    assert!(
        slow[0].closes_within(SECOND),
        "then the oldest without a head"
    );
    slow[98].send("TP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(slow[98].response().status(), 200, "the youngest stay");
}

/// Who waits for an answer is not cut for a newcomer, who is told to come back.
#[test]
fn where_everybody_is_busy_a_newcomer_is_told_so() {
    let origin = Origin::start(|conversation| {
        conversation.request()?;
        conversation.stall();
        Ok(())
    });
    let kp = Setup::base(&origin)
        .main("events { worker_connections 20; }")
        .start();
    let busy: Vec<Client> = (0..10)
        .map(|_| {
            let mut client = kp.client();
            client.send(GET);
            client
        })
        .collect();
    origin.wait_requests(10);
    let answer = kp.get("/");
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.field("retry-after"), Some("1"));
    assert_eq!(origin.open_connections(), busy.len());
}

/// The kernel says that it is out of something: nobody spins, and service goes on as soon as it is there again.
#[test]
fn accept_that_fails_is_tried_again() {
    for error in ["ENFILE", "ENOBUFS", "ENOMEM"] {
        let inject = format!("inject=accept4:error={error}:when=1..50");
        let strace = [
            "strace",
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=accept4",
            "-e",
            &inject,
        ];
        let kp = Setup::new("http { server { listen %LISTEN%; return 200 ok; } }")
            .below(&strace)
            .allow("control socket")
            .start();
        let worker = kp.worker_pid();
        let before = process::cpu_ticks(worker);
        let began = Instant::now();
        wait::until(SOON * 2, "service", || {
            let mut client = kp.client();
            client.send(GET);
            client
                .try_response("GET", SECOND)
                .is_ok_and(|answer| answer.status() == 200)
        });
        assert!(
            began.elapsed() > Duration::from_millis(500),
            "{error} did not happen"
        );
        let used = process::cpu_ticks(worker) - before;
        assert!(used <= 50, "{error}: {used} ticks of 10 ms");
        kp.wait_error("accept4() failed");
    }
}

/// No descriptor is left for a connection to the upstream: that is not the upstream's fault.
#[test]
fn without_descriptors_no_peer_is_blamed() {
    let origin = Origin::start(|conversation| {
        conversation.request()?;
        conversation.stall();
        Ok(())
    });
    let kp = Setup::base(&origin)
        .main("worker_rlimit_nofile 48;")
        .start();
    // Half of the descriptors and a few are clients that wait for an answer; the rest of them get none for an upstream.
    let mut clients: Vec<Client> = (0..24).map(|_| kp.client()).collect();
    for client in &mut clients {
        client.send(GET);
    }
    let mut held = Vec::new();
    let mut refused = 0;
    for mut client in clients {
        match client.try_response("GET", Duration::from_millis(200)) {
            Ok(answer) => {
                assert_eq!(answer.status(), 503);
                assert_eq!(answer.field("retry-after"), Some("1"));
                refused += 1;
            }
            Err(_) => held.push(client),
        }
    }
    assert!(refused > 0 && !held.is_empty(), "{refused} were refused");
    let log = kp.error_log();
    assert!(!log.contains("temporarily disabled"), "{log}");
    assert!(log.contains("Too many open files"), "{log}");
    let asked = origin.requests().len();
    drop(held);
    wait::until(SOON, "the next request to reach the upstream", || {
        kp.client().send(GET);
        origin.requests().len() > asked
    });
}
