//! `make scale`: many idle connections, then a request on each. Prints what one of them costs; ends with 1 when one of
//! them was lost.
//!
//! Argument: how many connections (60000). A process may hold only so many descriptors, so processes of their own hold
//! them, each from an address of its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for developers: it panics to fail, prints what it measures and reads the clock"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use kp_tests::{Setup, process};
use socket2::{Domain, Socket, Type};

const WORKERS: u64 = 4;
/// Connections of one process, of whichever side: what its limit of descriptors leaves.
const EACH_MAX: u64 = 15_000;
const PATIENCE: Duration = Duration::from_secs(60);
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: t\r\n\r\n";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, source, target, count] = arguments.as_slice()
        && role == "hold"
    {
        hold(source, target, count.parse().expect("a number"));
        return ExitCode::SUCCESS;
    }
    let count = arguments.first().map_or(60_000, |text| {
        text.parse().expect("a number of connections")
    });
    scale(count)
}

fn scale(count: u64) -> ExitCode {
    let kp = Setup::new(
        "worker_processes 4; worker_rlimit_nofile 20000; events { worker_connections 19900; }
         http { access_log off; keepalive_timeout 600s; keepalive_requests 100;
         server { listen %LISTEN% backlog=4096; return 200 ok; } }",
    )
    .start();
    kp.wait_workers(WORKERS as usize);
    let own = || -> u64 {
        let pids = kp.worker_pids();
        pids.iter().map(|pid| process::pss_kib(*pid)).sum()
    };
    let before = (own(), kernel_kib());
    let holders = count.div_ceil(EACH_MAX);
    let mut children: Vec<(Child, BufReader<_>)> = (0..holders)
        .map(|number| {
            let part = count / holders + u64::from(number < count % holders);
            holder(&format!("127.0.0.{}", number + 2), &kp.address(), part)
        })
        .collect();
    let open = told(&mut children);
    let after = (own(), kernel_kib());
    let status = kp.command(&["status"]).stdout;
    println!("{open} connections on {WORKERS} workers, all idle:\n{status}");
    let each = |now: u64, then: u64| now.saturating_sub(then) as f64 / open as f64;
    println!(
        "each costs {:.2} KiB in kp and {:.2} KiB in the kernel, both ends included",
        each(after.0, before.0),
        each(after.1, before.1)
    );
    let began = Instant::now();
    for (child, _) in &mut children {
        let stdin = child.stdin.as_mut().expect("a pipe");
        stdin.write_all(b"ask\n").expect("asking");
    }
    let answered = told(&mut children);
    println!(
        "{answered} of {open} answered one more request, {} were lost, in {:.1} s",
        open - answered,
        began.elapsed().as_secs_f64()
    );
    for (child, _) in &mut children {
        child.wait().expect("waiting");
    }
    if answered == count {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// What all processes that hold connections count.
fn told(children: &mut [(Child, BufReader<std::process::ChildStdout>)]) -> u64 {
    let read = |(_, out): &mut (Child, BufReader<std::process::ChildStdout>)| {
        let mut line = String::new();
        out.read_line(&mut line).expect("reading");
        line.trim().parse::<u64>().expect("a number")
    };
    children.iter_mut().map(read).sum()
}

fn holder(source: &str, target: &str, count: u64) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["hold", source, target, &count.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starting this program");
    let out = child.stdout.take().expect("a pipe");
    (child, BufReader::new(out))
}

/// Opens connections and asks on each; says how many stand; on a line asks again on each and says how many answered.
fn hold(source: &str, target: &str, count: usize) {
    let from = SocketAddr::new(source.parse().expect("an address"), 0);
    let to: SocketAddr = target.parse().expect("an address and port");
    // Each asks at once: who asks nothing for long is closed.
    let mut all: Vec<TcpStream> = (0..count)
        .filter_map(|_| {
            let mut stream = open(from, to)?;
            ask(&mut stream).map(|()| stream)
        })
        .collect();
    println!("{}", all.len());
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
    let good = all.iter_mut().filter_map(ask).count();
    println!("{good}");
}

fn open(from: SocketAddr, to: SocketAddr) -> Option<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
    socket.bind(&from.into()).ok()?;
    socket.connect_timeout(&to.into(), PATIENCE).ok()?;
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    Some(socket.into())
}

fn ask(stream: &mut TcpStream) -> Option<()> {
    stream.write_all(GET).ok()?;
    let mut answer = [0; 4096];
    let count = stream.read(&mut answer).ok()?;
    answer[..count].starts_with(b"HTTP/1.1 200").then_some(())
}

/// What the kernel uses for its own objects, sockets and files among them.
fn kernel_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").expect("the table");
    let value = |name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name));
        let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        number.expect("a number of KiB")
    };
    value("Slab:")
}
