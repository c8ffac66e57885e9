//! A client that writes exactly the bytes it is told to, in the pieces it is told to, and reads by deadline.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustls::StreamOwned;
use socket2::{Domain, Socket, Type};

use crate::message::{BodyReader, End, Framing, Head, Response, take_head};
use crate::stream::Stream;
use crate::tls::{Connector, Seen};
use crate::wait::SOON;

/// In which pieces bytes are written. A parser must not see a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writing {
    /// One write.
    Whole,
    /// One write per byte.
    Bytes,
    /// One write per line, split after each CRLF.
    Lines,
}

impl Writing {
    /// All three ways.
    pub const ALL: [Self; 3] = [Self::Whole, Self::Bytes, Self::Lines];
}

/// One client connection.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    input: Vec<u8>,
    ended: Option<End>,
}

impl Client {
    /// Connects to `127.0.0.1:PORT`, fails the test if it cannot.
    pub fn connect(address: &str) -> Self {
        Self::try_connect(address)
            .unwrap_or_else(|error| panic!("connecting to {address}: {error}"))
    }

    /// Connects.
    pub fn try_connect(address: &str) -> io::Result<Self> {
        let address: SocketAddr = address.parse().expect("an address and port");
        let stream = TcpStream::connect_timeout(&address, SOON)?;
        stream.set_nodelay(true)?;
        Ok(Self::over(Stream::Plain(stream)))
    }

    /// Connects with TLS, fails the test if it cannot.
    pub fn secure(address: &str, connector: &Connector) -> Self {
        Self::try_secure(address, connector)
            .unwrap_or_else(|error| panic!("connecting to {address} with TLS: {error}"))
    }

    /// Connects with TLS. An error of TLS is the inner error of the `io::Error`, a [`rustls::Error`].
    pub fn try_secure(address: &str, connector: &Connector) -> io::Result<Self> {
        Self::try_connect(address)?.upgrade(connector)
    }

    /// Begins TLS on the connection.
    pub fn upgrade(self, connector: &Connector) -> io::Result<Self> {
        self.upgrade_in_two(connector, 0, || {})
    }

    /// The same, with something done after so many bytes of the first flight.
    pub fn upgrade_in_two(
        self,
        connector: &Connector,
        first: usize,
        between: impl FnOnce(),
    ) -> io::Result<Self> {
        self.begin(connector, |socket, hello| {
            let (before, after) = hello.split_at(first);
            socket.write_all(before)?;
            between();
            socket.write_all(after)
        })
    }

    /// The same, with the first flight changed into pieces that are written one by one.
    pub fn upgrade_in_pieces(
        self,
        connector: &Connector,
        cut: impl FnOnce(&[u8]) -> Vec<Vec<u8>>,
    ) -> io::Result<Self> {
        self.begin(connector, |socket, hello| {
            cut(hello)
                .iter()
                .try_for_each(|piece| socket.write_all(piece))
        })
    }

    fn begin(
        self,
        connector: &Connector,
        write_hello: impl FnOnce(&mut TcpStream, &[u8]) -> io::Result<()>,
    ) -> io::Result<Self> {
        let Stream::Plain(socket) = self.stream else {
            panic!("the connection speaks TLS already");
        };
        let mut stream = StreamOwned::new(connector.connection(), socket);
        stream.sock.set_read_timeout(Some(SOON))?;
        let mut hello = Vec::new();
        stream.conn.write_tls(&mut hello)?;
        write_hello(&mut stream.sock, &hello)?;
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        // The last flight of a TLS 1.3 client is left to be written.
        stream.flush()?;
        Ok(Self::over(Stream::Client(Box::new(stream))))
    }

    /// What the TLS handshake agreed upon; fails the test where there was none.
    pub fn seen(&self) -> Seen {
        self.stream.seen().expect("a connection with TLS")
    }

    fn over(stream: Stream) -> Self {
        Self {
            stream,
            input: Vec::new(),
            ended: None,
        }
    }

    /// Connects with a small receive buffer, to be a slow reader of little memory.
    pub fn connect_narrow(address: &str, receive_bytes: usize) -> Self {
        let address: SocketAddr = address.parse().expect("an address and port");
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket
            .set_recv_buffer_size(receive_bytes)
            .expect("setting the receive buffer");
        socket.connect(&address.into()).expect("connecting");
        Self::over(Stream::Plain(socket.into()))
    }

    /// Its own address.
    pub fn local_address(&self) -> SocketAddr {
        self.stream
            .socket()
            .local_addr()
            .expect("a connected socket")
    }

    /// Writes everything at once. A peer that has closed is no error here; what it answered can still be read.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.send_as(Writing::Whole, bytes);
    }

    /// Writes in pieces.
    pub fn send_as(&mut self, writing: Writing, bytes: impl AsRef<[u8]>) {
        for piece in pieces(writing, bytes.as_ref()) {
            if self.stream.write_all(piece).is_err() {
                return;
            }
        }
    }

    /// Writes what the other side takes within `limit`; returns how much that was.
    pub fn send_for(&mut self, bytes: &[u8], limit: Duration) -> usize {
        self.stream
            .socket()
            .set_write_timeout(Some(limit))
            .expect("setting a timeout");
        let mut sent = 0;
        while sent < bytes.len() {
            match self.stream.write(&bytes[sent..]) {
                Ok(0) | Err(_) => break,
                Ok(count) => sent += count,
            }
        }
        self.stream
            .socket()
            .set_write_timeout(None)
            .expect("setting a timeout");
        sent
    }

    /// Ends its own direction: with TLS a close_notify, then a FIN.
    pub fn half_close(&mut self) {
        let _ = self.stream.half_close();
    }

    /// Changes the keys (TLS 1.3).
    pub fn change_keys(&mut self) {
        self.stream.change_keys().expect("changing keys");
    }

    /// Says close_notify, without a FIN.
    pub fn close_notify(&mut self) {
        let _ = self.stream.close_notify();
    }

    /// Ends its own direction with a FIN and, with TLS, without a close_notify.
    pub fn cut(&self) {
        let _ = self.stream.cut();
    }

    /// Sends bytes past TLS, as something between the two sides could.
    pub fn send_past_tls(&self, bytes: &[u8]) {
        let _ = self.stream.socket().write_all(bytes);
    }

    /// Closes with a reset.
    pub fn reset(self) {
        let _ = self.stream.reset();
    }

    /// Reads the next final response to a request that was not HEAD; fails the test when there is none.
    pub fn response(&mut self) -> Response {
        self.response_to("GET")
    }

    /// Reads the next final response to a request of that method; fails the test when there is none.
    pub fn response_to(&mut self, method: &str) -> Response {
        self.try_response(method, SOON)
            .unwrap_or_else(|end| panic!("no response but {end:?}, {}", self.left()))
    }

    /// Reads the next final response within `limit`; `Err` says how the connection ended before a whole head came.
    pub fn try_response(&mut self, method: &str, limit: Duration) -> Result<Response, End> {
        let deadline = Instant::now() + limit;
        let mut interim = Vec::new();
        let head = loop {
            let head = self.head_by(deadline)?;
            if (100..200).contains(&head.status()) && head.status() != 101 {
                interim.push(head);
                continue;
            }
            break head;
        };
        let bodiless = method == "HEAD" || matches!(head.status(), 101 | 204 | 304);
        let framing = match head.framing(true) {
            _ if bodiless => Framing::Length(0),
            Ok(framing) => framing,
            Err(error) => panic!("{error} in {head:?}"),
        };
        let mut reader = BodyReader::new(framing);
        let mut body = Vec::new();
        let end = self.body_by(deadline, &mut reader, &mut body);
        let whole = end == End::Complete || (reader.until_close() && end == End::Closed);
        Ok(Response {
            interim,
            head,
            body,
            trailers: reader.trailers,
            end,
            whole,
        })
    }

    /// Reads one head, interim or final, and nothing of what follows.
    pub fn head(&mut self, limit: Duration) -> Result<Head, End> {
        self.head_by(Instant::now() + limit)
    }

    /// Sends a request and reads its response.
    pub fn ask(&mut self, request: impl AsRef<[u8]>) -> Response {
        let request = request.as_ref();
        let method = request
            .split(|&byte| byte == b' ')
            .next()
            .unwrap_or_default();
        let method = String::from_utf8_lossy(method).into_owned();
        self.send(request);
        self.response_to(&method)
    }

    /// Reads exactly `count` bytes, raw; fewer if the connection ends or `limit` passes.
    pub fn read_exactly(&mut self, count: usize, limit: Duration) -> Vec<u8> {
        let deadline = Instant::now() + limit;
        while self.input.len() < count && self.fill(deadline).is_ok() {}
        let count = count.min(self.input.len());
        self.input.drain(..count).collect()
    }

    /// Whether bytes of the other side, or its end, are there now. Reads nothing.
    pub fn has_heard(&self) -> bool {
        let socket = self.stream.socket();
        socket.set_nonblocking(true).expect("setting a mode");
        let peeked = socket.peek(&mut [0]);
        socket.set_nonblocking(false).expect("setting a mode");
        !self.input.is_empty() || peeked.is_ok()
    }

    /// Reads what one read gives: the bytes of the next arrival. Empty at the end or after `limit`.
    pub fn read_some(&mut self, limit: Duration) -> Vec<u8> {
        if self.input.is_empty() {
            let _ = self.fill(Instant::now() + limit);
        }
        std::mem::take(&mut self.input)
    }

    /// Reads everything up to the end of the connection.
    pub fn read_to_end(&mut self, limit: Duration) -> (Vec<u8>, End) {
        let deadline = Instant::now() + limit;
        let end = loop {
            if let Err(end) = self.fill(deadline) {
                break end;
            }
        };
        (std::mem::take(&mut self.input), end)
    }

    /// Waits for the end of the connection. `Complete` means that more bytes came instead.
    pub fn end_within(&mut self, limit: Duration) -> End {
        if !self.input.is_empty() {
            return End::Complete;
        }
        match self.fill(Instant::now() + limit) {
            Ok(()) => End::Complete,
            Err(end) => end,
        }
    }

    /// Whether the other side ends the connection within `limit`, with no further byte.
    pub fn closes_within(&mut self, limit: Duration) -> bool {
        matches!(self.end_within(limit), End::Closed | End::Cut | End::Reset)
    }

    fn left(&self) -> String {
        format!("unread bytes: {:?}", String::from_utf8_lossy(&self.input))
    }

    fn head_by(&mut self, deadline: Instant) -> Result<Head, End> {
        loop {
            if let Some(bytes) = take_head(&mut self.input) {
                let head = Head::parse(&bytes)
                    .unwrap_or_else(|error| panic!("{error} in a response head"));
                assert!(head.status() != 0, "not a status line: {:?}", head.line);
                return Ok(head);
            }
            self.fill(deadline)?;
        }
    }

    fn body_by(&mut self, deadline: Instant, reader: &mut BodyReader, body: &mut Vec<u8>) -> End {
        loop {
            reader
                .take(&mut self.input, body)
                .unwrap_or_else(|error| panic!("{error} in a response body"));
            if reader.done() {
                return End::Complete;
            }
            if let Err(end) = self.fill(deadline) {
                return end;
            }
        }
    }

    /// One read into the input; `Err` says why there was none.
    fn fill(&mut self, deadline: Instant) -> Result<(), End> {
        if let Some(end) = self.ended {
            return Err(end);
        }
        let mut buffer = [0; 65_536];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(End::Deadline);
            }
            self.stream
                .socket()
                .set_read_timeout(Some(left))
                .expect("setting a timeout");
            match self.stream.read(&mut buffer) {
                Ok(0) => return self.finish(End::Closed),
                Ok(count) => {
                    self.input.extend_from_slice(&buffer[..count]);
                    return Ok(());
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    return Err(End::Deadline);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return self.finish(End::Cut);
                }
                Err(_) => return self.finish(End::Reset),
            }
        }
    }

    fn finish(&mut self, end: End) -> Result<(), End> {
        self.ended = Some(end);
        Err(end)
    }
}

/// Asks for a path with a GET on a connection of its own.
pub fn get(address: &str, path: &str) -> Response {
    Client::connect(address).ask(format!(
        "GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"
    ))
}

/// Asks for `/` over the unix socket at a path; all that came until the end.
pub fn get_unix(path: impl AsRef<Path>) -> String {
    let mut stream = UnixStream::connect(path).expect("a unix socket that is served");
    stream.set_read_timeout(Some(SOON)).expect("a read timeout");
    stream
        .write_all(b"GET / HTTP/1.0\r\n\r\n")
        .expect("sending");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

fn pieces(writing: Writing, bytes: &[u8]) -> Vec<&[u8]> {
    match writing {
        Writing::Whole => vec![bytes],
        Writing::Bytes => bytes.chunks(1).collect(),
        Writing::Lines => {
            let mut rest = bytes;
            let mut lines = Vec::new();
            while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
                let (line, after) = rest.split_at(end + 2);
                lines.push(line);
                rest = after;
            }
            if !rest.is_empty() {
                lines.push(rest);
            }
            lines
        }
    }
}
