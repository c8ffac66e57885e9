//! A scripted origin server: records what it receives, byte by byte and per connection, and answers by a closure.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustls::StreamOwned;

use crate::message::{BodyReader, Head, Request, invalid, take_head};
use crate::port::{self, Port};
use crate::stream::Stream;
use crate::tls::{Acceptor, Seen};
use crate::wait::{self, SOON};

/// The reply that most cases use.
pub const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// How long a conversation may take before its origin gives up, so that no thread outlives a failed test for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server on a port of 127.0.0.1, running until dropped.
#[derive(Debug)]
pub struct Origin {
    port: Port,
    address: String,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl Origin {
    /// Starts a server that runs `script` once per accepted connection. When the script returns, the connection is
    /// closed; an error in it ends that connection only.
    pub fn start(
        script: impl Fn(&mut Conversation) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::on(Port::take(), script)
    }

    /// The same on a port that the test already holds.
    pub fn on(
        port: Port,
        script: impl Fn(&mut Conversation) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let address = port.address();
        Self::listen(port, address, None, Arc::new(script))
    }

    /// The same with TLS: the script begins when the handshake is done, and does not run when that fails.
    pub fn secure(
        acceptor: &Acceptor,
        script: impl Fn(&mut Conversation) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::secure_on(Port::take(), acceptor, script)
    }

    /// The same on a port that the test already holds.
    pub fn secure_on(
        port: Port,
        acceptor: &Acceptor,
        script: impl Fn(&mut Conversation) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let address = port.address();
        Self::listen(port, address, Some(acceptor.clone()), Arc::new(script))
    }

    /// With TLS, 200 with the body `ok` to every request, connection kept.
    pub fn secure_ok(acceptor: &Acceptor) -> Self {
        Self::secure(acceptor, |conversation| {
            conversation.answer_all(|_| OK.to_vec())
        })
    }

    /// The same at another address of this host, on the port of an origin that is there already.
    pub fn beside(
        other: &Self,
        ip: &str,
        script: impl Fn(&mut Conversation) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let address = format!("{ip}:{}", other.port());
        Self::listen(Port::take(), address, None, Arc::new(script))
    }

    fn listen(
        port: Port,
        address: String,
        acceptor: Option<Acceptor>,
        script: Arc<Script>,
    ) -> Self {
        let listener = port::listen(&address);
        let shared = Arc::new(Shared::default());
        let accepting = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared, acceptor.as_ref(), &script)
        });
        Self {
            port,
            address,
            shared,
            accepting: Some(accepting),
        }
    }

    /// `echo-ok`: 200 with the body `ok` to every request, connection kept.
    pub fn ok() -> Self {
        Self::replying(OK.to_vec())
    }

    /// Answers every request with these bytes, connection kept.
    pub fn replying(reply: impl Into<Vec<u8>>) -> Self {
        let reply = reply.into();
        Self::start(move |conversation| conversation.answer_all(|_| reply.clone()))
    }

    /// Answers every request with 200 and this body.
    pub fn named(name: &str) -> Self {
        Self::replying(response(200, name.as_bytes()))
    }

    /// The same, closing after each response.
    pub fn named_once(name: &str) -> Self {
        Self::named_once_on(Port::take(), name)
    }

    /// The same on a port that the test already holds.
    pub fn named_once_on(port: Port, name: &str) -> Self {
        let body = name.to_owned();
        Self::on(port, move |conversation| {
            conversation.request()?;
            let length = body.len();
            conversation.send(format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            ))
        })
    }

    /// Answers every request with the head it saw, as the body.
    pub fn mirror() -> Self {
        Self::start(|conversation| {
            conversation.answer_all(|request| {
                let fields = request
                    .head
                    .fields
                    .iter()
                    .map(|(name, value)| format!("{name}: {value}\r\n"));
                let text = format!("{}\r\n{}", request.head.line, fields.collect::<String>());
                response(200, text.as_bytes())
            })
        })
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        self.address.clone()
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// What the TLS handshakes agreed upon, in the order in which they ended.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.lock().seen.clone()
    }

    /// How many TLS handshakes failed.
    pub fn failed_handshakes(&self) -> usize {
        self.shared.lock().failed
    }

    /// How many connections were accepted.
    pub fn connections(&self) -> usize {
        self.shared.lock().raw.len()
    }

    /// How many accepted connections are still open.
    pub fn open_connections(&self) -> usize {
        self.shared
            .lock()
            .streams
            .iter()
            .filter(|stream| stream.is_some())
            .count()
    }

    /// The bytes received, per accepted connection.
    pub fn raw(&self) -> Vec<Vec<u8>> {
        self.shared.lock().raw.clone()
    }

    /// All bytes received, connections one after the other.
    pub fn raw_text(&self) -> String {
        String::from_utf8_lossy(&self.raw().concat()).into_owned()
    }

    /// How many bytes were received over all connections.
    pub fn received(&self) -> usize {
        self.shared.lock().raw.iter().map(Vec::len).sum()
    }

    /// The complete requests, in the order in which they were complete.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.lock().requests.clone()
    }

    /// The targets of the complete requests.
    pub fn targets(&self) -> Vec<String> {
        self.requests()
            .iter()
            .map(|request| request.target().to_owned())
            .collect()
    }

    /// The last complete request; fails the test when there is none.
    pub fn last(&self) -> Request {
        self.requests()
            .pop()
            .expect("the origin received a request")
    }

    /// When the script of any connection last called [`Conversation::note`].
    pub fn noted(&self) -> Vec<Instant> {
        self.shared.lock().notes.clone()
    }

    /// Waits until `count` complete requests have come.
    pub fn wait_requests(&self, count: usize) {
        wait::until(SOON, &format!("{count} requests at an origin"), || {
            self.shared.lock().requests.len() >= count
        });
    }

    /// Waits until no accepted connection is open.
    pub fn wait_all_closed(&self, limit: Duration) {
        wait::until(limit, "an origin's connections to end", || {
            self.open_connections() == 0
        });
    }

    /// Forgets what was recorded of requests and bytes.
    pub fn forget(&self) {
        let mut record = self.shared.lock();
        record.requests.clear();
        record.raw.iter_mut().for_each(Vec::clear);
    }

    /// Stops listening, ends all connections, and gives the port back.
    pub fn stop(mut self) -> Port {
        self.end();
        std::mem::replace(&mut self.port, Port::take())
    }

    fn end(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // The accepting thread is woken by a last connection to itself.
        let _ = TcpStream::connect(&self.address);
        for stream in self.shared.lock().streams.iter().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.end();
    }
}

/// A response of that status with a length and this body, connection kept.
pub fn response(status: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "HTTP/1.1 {status} Reason\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// Trailer fields, in order.
pub type Trailers = Vec<(String, String)>;

/// One accepted connection, as its script sees it.
#[derive(Debug)]
pub struct Conversation {
    /// Which accepted connection this is, from 0.
    pub index: usize,
    stream: Stream,
    input: Vec<u8>,
    shared: Arc<Shared>,
}

impl Conversation {
    /// The address of the other side, without its port.
    pub fn peer_ip(&self) -> String {
        self.stream
            .socket()
            .peer_addr()
            .map(|address| address.ip().to_string())
            .unwrap_or_default()
    }

    /// Reads the next request whole. An error when the connection ends first.
    pub fn request(&mut self) -> io::Result<Request> {
        let head = self.head()?;
        let (body, trailers) = self.body(&head)?;
        let request = Request {
            head,
            body,
            trailers,
            connection: self.index,
        };
        self.shared.lock().requests.push(request.clone());
        Ok(request)
    }

    /// Reads the next request's head only.
    pub fn head(&mut self) -> io::Result<Head> {
        loop {
            if let Some(bytes) = take_head(&mut self.input) {
                return Head::parse(&bytes);
            }
            self.fill()?;
        }
    }

    /// Reads the body that belongs to the head, and its trailers.
    pub fn body(&mut self, head: &Head) -> io::Result<(Vec<u8>, Trailers)> {
        let mut reader = BodyReader::new(head.framing(false)?);
        let mut body = Vec::new();
        loop {
            reader.take(&mut self.input, &mut body)?;
            if reader.done() {
                return Ok((body, reader.trailers));
            }
            self.fill()?;
        }
    }

    /// Reads raw bytes until at least `count` have come that nothing else has taken; returns all of them.
    pub fn read_at_least(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.input.len() < count {
            self.fill()?;
        }
        Ok(std::mem::take(&mut self.input))
    }

    /// Reads until the other side ends its direction; returns what came.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        while self.fill().is_ok() {}
        std::mem::take(&mut self.input)
    }

    /// Answers every further request on the connection.
    pub fn answer_all(&mut self, mut answer: impl FnMut(&Request) -> Vec<u8>) -> io::Result<()> {
        loop {
            let request = self.request()?;
            self.send(answer(&request))?;
        }
    }

    /// Writes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())?;
        self.stream.flush()
    }

    /// Writes each byte by itself.
    pub fn send_bytes(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        bytes
            .as_ref()
            .iter()
            .try_for_each(|byte| self.stream.write_all(&[*byte]))
    }

    /// Lets time pass before the next step; shorter when the origin is stopped.
    pub fn pause(&self, duration: Duration) {
        wait::happens(duration, || self.shared.stopping.load(Ordering::SeqCst));
    }

    /// Does nothing more, connection open, until the other side ends it or the origin is stopped. Unread bytes stay
    /// unread.
    pub fn stall(&self) {
        let ended = || {
            let mut byte = [0];
            let socket = self.stream.socket();
            let _ = socket.set_nonblocking(true);
            let gone = match socket.peek(&mut byte) {
                Ok(count) => count == 0,
                Err(error) => error.kind() != io::ErrorKind::WouldBlock,
            };
            let _ = socket.set_nonblocking(false);
            gone
        };
        wait::happens(PATIENCE, || {
            self.shared.stopping.load(Ordering::SeqCst) || ended()
        });
    }

    /// Waits until bytes have come, and leaves them unread.
    pub fn wait_unread(&self) -> io::Result<()> {
        match self.stream.socket().peek(&mut [0])? {
            0 => Err(invalid("the connection ended")),
            _ => Ok(()),
        }
    }

    /// Notes the time, for [`Origin::noted`].
    pub fn note(&self) {
        self.shared.lock().notes.push(Instant::now());
    }

    /// What the TLS handshake agreed upon; `None` without TLS.
    pub fn seen(&self) -> Option<Seen> {
        self.stream.seen()
    }

    /// Ends its own direction: with TLS a close_notify, then a FIN.
    pub fn half_close(&mut self) -> io::Result<()> {
        self.stream.half_close()
    }

    /// Changes the keys (TLS 1.3).
    pub fn change_keys(&mut self) -> io::Result<()> {
        self.stream.change_keys()
    }

    /// Says close_notify, without a FIN.
    pub fn close_notify(&mut self) -> io::Result<()> {
        self.stream.close_notify()
    }

    /// Ends its own direction with a FIN and, with TLS, without a close_notify. (So does a script that just returns.)
    pub fn cut(&self) -> io::Result<()> {
        self.stream.cut()
    }

    /// Makes the end of the connection a reset instead of a FIN.
    pub fn reset(&self) -> io::Result<()> {
        self.stream.reset()
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut buffer = [0; 65_536];
        let count = self.stream.read(&mut buffer)?;
        if count == 0 {
            return Err(invalid("the connection ended"));
        }
        self.input.extend_from_slice(&buffer[..count]);
        self.shared.lock().raw[self.index].extend_from_slice(&buffer[..count]);
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Shared {
    record: Mutex<Record>,
    stopping: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record
            .lock()
            .expect("no script panics while it holds the record")
    }
}

#[derive(Debug, Default)]
struct Record {
    raw: Vec<Vec<u8>>,
    requests: Vec<Request>,
    notes: Vec<Instant>,
    seen: Vec<Seen>,
    failed: usize,
    /// A handle per open connection, taken away when it ends.
    streams: Vec<Option<TcpStream>>,
}

type Script = dyn Fn(&mut Conversation) -> io::Result<()> + Send + Sync;

fn accept(
    listener: &TcpListener,
    shared: &Arc<Shared>,
    acceptor: Option<&Acceptor>,
    script: &Arc<Script>,
) {
    let mut conversations = Vec::new();
    while let Ok((socket, _)) = listener.accept() {
        if shared.stopping.load(Ordering::SeqCst) {
            break;
        }
        let _ = socket.set_nodelay(true);
        let _ = socket.set_read_timeout(Some(PATIENCE));
        let _ = socket.set_write_timeout(Some(PATIENCE));
        let index = {
            let mut record = shared.lock();
            record.raw.push(Vec::new());
            record.streams.push(socket.try_clone().ok());
            record.raw.len() - 1
        };
        let (shared, script) = (Arc::clone(shared), Arc::clone(script));
        let acceptor = acceptor.cloned();
        conversations.push(std::thread::spawn(move || {
            if let Some(stream) = begin(socket, acceptor.as_ref(), &shared) {
                let mut conversation = Conversation {
                    index,
                    stream,
                    input: Vec::new(),
                    shared: Arc::clone(&shared),
                };
                let _ = script(&mut conversation);
            }
            shared.lock().streams[index] = None;
        }));
    }
    for conversation in conversations {
        let _ = conversation.join();
    }
}

/// The handshake, where there is one; `None` when it fails.
fn begin(socket: TcpStream, acceptor: Option<&Acceptor>, shared: &Shared) -> Option<Stream> {
    let Some(acceptor) = acceptor else {
        return Some(Stream::Plain(socket));
    };
    let mut stream = StreamOwned::new(acceptor.connection(), socket);
    while stream.conn.is_handshaking() {
        if stream.conn.complete_io(&mut stream.sock).is_err() {
            shared.lock().failed += 1;
            return None;
        }
    }
    let stream = Stream::Server(Box::new(stream));
    shared.lock().seen.extend(stream.seen());
    Some(stream)
}
