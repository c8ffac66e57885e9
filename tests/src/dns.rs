//! A scripted name server: answers by a table that the test changes while it runs, over UDP and TCP, and notes every
//! query. What it sends is written here by hand (RFC 1035 §4), so that kp's reader is not judged by its own writer.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What is asked for.
pub const A: u16 = 1;
/// What is asked for.
pub const AAAA: u16 = 28;
/// What is asked for.
pub const SRV: u16 = 33;
const CNAME: u16 = 5;

/// Codes of answers.
pub const SERVFAIL: u8 = 2;
/// There is no such name.
pub const NXDOMAIN: u8 = 3;

/// One record of an answer about the name that was asked for.
#[derive(Debug, Clone)]
enum Data {
    Address(IpAddr),
    Alias(String),
    Service {
        priority: u16,
        weight: u16,
        port: u16,
        host: String,
    },
}

/// What a query is answered with.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    code: u8,
    ttl: u32,
    records: Vec<Data>,
    silent: bool,
    only_tcp: bool,
    forged: Option<IpAddr>,
    spoofed: Option<IpAddr>,
    copies: usize,
    bytewise: bool,
    hangs: bool,
    delay: Duration,
}

impl Reply {
    /// Nothing but a code; 0 is an empty answer.
    pub fn code(code: u8) -> Self {
        Self {
            code,
            ..Self::default()
        }
    }

    /// No answer at all.
    pub fn silence() -> Self {
        Self {
            silent: true,
            ..Self::default()
        }
    }

    /// These addresses, for one second.
    pub fn addresses(addresses: &[&str]) -> Self {
        let parse = |text: &&str| Data::Address(text.parse().expect("an address"));
        Self {
            ttl: 1,
            records: addresses.iter().map(parse).collect(),
            ..Self::default()
        }
    }

    /// Hosts of a service: priority, weight, port, name.
    pub fn service(hosts: &[(u16, u16, u16, &str)]) -> Self {
        let data = |(priority, weight, port, host): &(u16, u16, u16, &str)| Data::Service {
            priority: *priority,
            weight: *weight,
            port: *port,
            host: (*host).to_owned(),
        };
        Self {
            ttl: 1,
            records: hosts.iter().map(data).collect(),
            ..Self::default()
        }
    }

    /// The name is another name of this one, which the answer says nothing more about.
    pub fn alias(target: &str) -> Self {
        Self {
            ttl: 1,
            records: vec![Data::Alias(target.to_owned())],
            ..Self::default()
        }
    }

    /// It holds for so many seconds.
    pub fn ttl(self, ttl: u32) -> Self {
        Self { ttl, ..self }
    }

    /// Over UDP it is said not to fit.
    pub fn only_tcp(self) -> Self {
        Self {
            only_tcp: true,
            ..self
        }
    }

    /// Before it come forgeries with this address: wrong ids, wrong names, half messages, garbage.
    pub fn after_forgeries(self, address: &str) -> Self {
        Self {
            forged: Some(address.parse().expect("an address")),
            ..self
        }
    }

    /// Before it come answers with this address that are right in every way, but from other ports and addresses.
    pub fn after_spoofed(self, address: &str) -> Self {
        Self {
            spoofed: Some(address.parse().expect("an address")),
            ..self
        }
    }

    /// It comes so many times more.
    pub fn copies(self, copies: usize) -> Self {
        Self { copies, ..self }
    }

    /// Over TCP it comes byte by byte.
    pub fn bytewise(self) -> Self {
        Self {
            bytewise: true,
            ..self
        }
    }

    /// Over TCP its beginning comes and then nothing, while the connection stays.
    pub fn hangs(self) -> Self {
        Self {
            hangs: true,
            ..self
        }
    }

    /// It comes so much later.
    pub fn late(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }
}

/// A query that came.
#[derive(Debug, Clone)]
pub struct Query {
    /// When.
    pub at: Instant,
    /// The name, in lower case.
    pub name: String,
    /// What was asked for.
    pub kind: u16,
    /// Its id.
    pub id: u16,
    /// Where it came from.
    pub from: SocketAddr,
    /// Over TCP.
    pub tcp: bool,
}

#[derive(Debug, Default)]
struct State {
    replies: HashMap<(String, u16), Reply>,
    queries: Vec<Query>,
}

/// A name server on a port of 127.0.0.1, running until dropped. What it does not know does not exist.
#[derive(Debug)]
pub struct Dns {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Dns {
    /// Starts one.
    pub fn start() -> Self {
        Self::serve(sockets())
    }

    /// Starts one where another one was.
    pub fn start_at(address: &str) -> Self {
        let bind = || {
            Some((
                UdpSocket::bind(address).ok()?,
                TcpListener::bind(address).ok()?,
            ))
        };
        Self::serve(crate::wait::until_some(crate::wait::SOON, "its port", bind))
    }

    fn serve((udp, tcp): (UdpSocket, TcpListener)) -> Self {
        let address = udp.local_addr().expect("the address of a bound socket");
        let state = Arc::new(Mutex::new(State::default()));
        let stopping = Arc::new(AtomicBool::new(false));
        let datagrams = std::thread::spawn({
            let (state, stopping) = (Arc::clone(&state), Arc::clone(&stopping));
            move || serve_datagrams(&Arc::new(udp), &state, &stopping)
        });
        let connections = std::thread::spawn({
            let (state, stopping) = (Arc::clone(&state), Arc::clone(&stopping));
            move || serve_connections(&tcp, &state, &stopping)
        });
        Self {
            address,
            state,
            stopping,
            threads: vec![datagrams, connections],
        }
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Answers queries for this name from now on.
    pub fn set(&self, name: &str, kind: u16, reply: Reply) {
        let mut state = lock(&self.state);
        state.replies.insert((name.to_owned(), kind), reply);
    }

    /// The same for a name with IPv4 addresses only.
    pub fn set_a(&self, name: &str, addresses: &[&str]) {
        self.set(name, A, Reply::addresses(addresses));
        self.set(name, AAAA, Reply::code(0));
    }

    /// Answers all queries for addresses of this name so.
    pub fn set_all(&self, name: &str, reply: &Reply) {
        self.set(name, A, reply.clone());
        self.set(name, AAAA, reply.clone());
    }

    /// The queries that came so far.
    pub fn queries(&self) -> Vec<Query> {
        lock(&self.state).queries.clone()
    }

    /// How many came for this.
    pub fn count(&self, name: &str, kind: u16) -> usize {
        let state = lock(&self.state);
        let mine = |query: &&Query| query.name == name && query.kind == kind;
        state.queries.iter().filter(mine).count()
    }

    /// The most that came for this within one second.
    pub fn densest(&self, name: &str, kind: u16) -> usize {
        let queries = self.queries();
        let times: Vec<Instant> = queries
            .iter()
            .filter(|query| query.name == name && query.kind == kind)
            .map(|query| query.at)
            .collect();
        let within = |start: &Instant| {
            let end = *start + Duration::from_secs(1);
            times.iter().filter(|at| *at >= start && **at < end).count()
        };
        times.iter().map(within).max().unwrap_or(0)
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Both threads are woken by something that comes.
        let _ = TcpStream::connect(self.address);
        if let Ok(socket) = UdpSocket::bind("127.0.0.1:0") {
            let _ = socket.send_to(b"", self.address);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A UDP and a TCP socket with the same port.
fn sockets() -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a UDP socket");
        let address = udp.local_addr().expect("the address of a bound socket");
        if let Ok(tcp) = TcpListener::bind(address) {
            return (udp, tcp);
        }
    }
    panic!("no port for a name server");
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn serve_datagrams(socket: &Arc<UdpSocket>, state: &Mutex<State>, stopping: &AtomicBool) {
    let mut buffer = [0; 2048];
    let mut late = Vec::new();
    while let Ok((count, from)) = socket.recv_from(&mut buffer) {
        if stopping.load(Ordering::SeqCst) {
            break;
        }
        let query = buffer.get(..count).unwrap_or_default().to_vec();
        let Some(reply) = take(&query, from, false, state).filter(|reply| !reply.silent) else {
            continue;
        };
        let socket = Arc::clone(socket);
        let at_once = reply.delay.is_zero();
        let send = move || {
            std::thread::sleep(reply.delay);
            spoof(&query, &reply, from);
            for forgery in forgeries(&query, &reply) {
                let _ = socket.send_to(&forgery, from);
            }
            let bytes = if reply.only_tcp {
                message(&query, &Reply::default(), true)
            } else {
                message(&query, &reply, false)
            };
            for _ in 0..=reply.copies {
                let _ = socket.send_to(&bytes, from);
            }
        };
        if at_once {
            send();
        } else {
            late.push(std::thread::spawn(send));
        }
    }
    for thread in late {
        let _ = thread.join();
    }
}

fn serve_connections(listener: &TcpListener, state: &Mutex<State>, stopping: &AtomicBool) {
    let mut hanging = Vec::new();
    while let Ok((mut stream, from)) = listener.accept() {
        if stopping.load(Ordering::SeqCst) {
            return;
        }
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let mut length = [0; 2];
        if stream.read_exact(&mut length).is_err() {
            continue;
        }
        let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
        if stream.read_exact(&mut query).is_err() {
            continue;
        }
        let Some(reply) = take(&query, from, true, state).filter(|reply| !reply.silent) else {
            continue;
        };
        let bytes = message(&query, &reply, false);
        let length = u16::try_from(bytes.len()).expect("a short message");
        if reply.bytewise {
            let _ = stream.set_nodelay(true);
            let whole = [&length.to_be_bytes(), bytes.as_slice()].concat();
            let _ = whole.iter().try_for_each(|byte| stream.write_all(&[*byte]));
            continue;
        }
        // In two parts, as a network may cut it.
        let _ = stream.write_all(&length.to_be_bytes());
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        let _ = stream.write_all(first);
        if reply.hangs {
            hanging.push(stream);
            continue;
        }
        let _ = stream.write_all(rest);
    }
}

/// Notes a query and finds its reply.
fn take(query: &[u8], from: SocketAddr, tcp: bool, state: &Mutex<State>) -> Option<Reply> {
    let (name, end) = name_at(query, 12)?;
    let kind = u16::from_be_bytes([*query.get(end)?, *query.get(end + 1)?]);
    let mut state = lock(state);
    state.queries.push(Query {
        at: Instant::now(),
        name: name.clone(),
        kind,
        id: u16::from_be_bytes([*query.first()?, *query.get(1)?]),
        from,
        tcp,
    });
    let reply = state.replies.get(&(name, kind)).cloned();
    Some(reply.unwrap_or_else(|| Reply::code(NXDOMAIN)))
}

fn name_at(bytes: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        let label = bytes.get(at..at + length)?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += length;
    }
}

fn name_bytes(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(u8::try_from(label.len()).expect("a short label"));
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// An answer: the query's head and question, then records whose owner is a pointer to the question.
fn message(query: &[u8], reply: &Reply, truncated: bool) -> Vec<u8> {
    let end = name_at(query, 12).map_or(query.len(), |(_, end)| end + 4);
    let count = u16::try_from(reply.records.len()).expect("few records");
    let mut out = query.get(..2).unwrap_or_default().to_vec();
    out.extend_from_slice(&[0x81 | u8::from(truncated) << 1, 0x80 | reply.code, 0, 1]);
    out.extend_from_slice(&count.to_be_bytes());
    out.extend_from_slice(&[0, 0, 0, 0]);
    out.extend_from_slice(query.get(12..end).unwrap_or_default());
    for data in &reply.records {
        out.extend_from_slice(&[0xc0, 12]);
        let (kind, data) = match data {
            Data::Address(IpAddr::V4(address)) => (A, address.octets().to_vec()),
            Data::Address(IpAddr::V6(address)) => (AAAA, address.octets().to_vec()),
            Data::Alias(target) => (CNAME, name_bytes(target)),
            Data::Service {
                priority,
                weight,
                port,
                host,
            } => {
                let numbers = [priority, weight, port].map(|number| number.to_be_bytes());
                (SRV, [numbers.concat(), name_bytes(host)].concat())
            }
        };
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&[0, 1]);
        out.extend_from_slice(&reply.ttl.to_be_bytes());
        out.extend_from_slice(&u16::try_from(data.len()).expect("short data").to_be_bytes());
        out.extend_from_slice(&data);
    }
    out
}

/// What somebody sends who sees everything but is somewhere else.
fn spoof(query: &[u8], reply: &Reply, to: SocketAddr) {
    let Some(address) = reply.spoofed else {
        return;
    };
    let lie = Reply {
        ttl: 600,
        records: vec![Data::Address(address)],
        ..Reply::default()
    };
    for from in ["127.0.0.1:0", "127.0.0.2:0"] {
        let socket = UdpSocket::bind(from).expect("a UDP socket");
        let _ = socket.send_to(&message(query, &lie, false), to);
    }
}

/// What somebody sends who cannot see the query but its port.
fn forgeries(query: &[u8], reply: &Reply) -> Vec<Vec<u8>> {
    let Some(address) = reply.forged else {
        return Vec::new();
    };
    let lie = Reply {
        ttl: 600,
        records: vec![Data::Address(address)],
        ..Reply::default()
    };
    let mut wrong_id = message(query, &lie, false);
    if let Some(byte) = wrong_id.get_mut(1) {
        *byte ^= 1;
    }
    let mut wrong_name = message(query, &lie, false);
    if let Some(byte) = wrong_name.get_mut(13) {
        *byte ^= 3;
    }
    let whole = message(query, &lie, false);
    let half = whole.get(..whole.len() - 2).unwrap_or_default().to_vec();
    vec![
        wrong_id,
        wrong_name,
        half,
        query.to_vec(),
        b"\0".to_vec(),
        vec![0xff; 600],
        Vec::new(),
    ]
}
