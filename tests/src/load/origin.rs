//! The server behind a load: it checks what it receives, answers with what it was asked for, and keeps nothing but the
//! numbers of the POST requests, so that one that was sent twice is noticed.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::load::content::{Content, PIECE};
use crate::message::{BodyReader, Head, invalid, take_head};
use crate::port::{self, Port};
use crate::wait;

const SWITCHING: &str =
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";

/// The server behind a load, running until dropped.
///
/// It knows `POST /wait/MS` (the body comes back after that time), `PUT /upload` (the body is compared with the content
/// of the request's number), `GET /download/BYTES` (such content is the answer) and websockets, whose messages come back.
#[derive(Debug)]
pub struct LoadOrigin {
    port: Port,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stopping: AtomicBool,
    requests: AtomicU64,
    posts: Mutex<HashSet<u64>>,
    twice: Mutex<Vec<u64>>,
    streams: Mutex<Vec<TcpStream>>,
}

impl LoadOrigin {
    /// Starts it.
    pub fn start() -> Self {
        let port = Port::take();
        let listener = port::listen(&port.address());
        let shared = Arc::new(Shared::default());
        let accepting = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Self {
            port,
            shared,
            accepting: Some(accepting),
        }
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        self.port.address()
    }

    /// Requests received whole.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// The numbers of POST requests that came more than once.
    pub fn twice(&self) -> Vec<u64> {
        self.shared.twice.lock().expect("numbers").clone()
    }
}

impl Drop for LoadOrigin {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.port.address());
        for stream in self.shared.streams.lock().expect("streams").iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut serving: Vec<JoinHandle<()>> = Vec::new();
    while let Ok((stream, _)) = listener.accept() {
        if shared.stopping.load(Ordering::SeqCst) {
            break;
        }
        let _ = stream.set_nodelay(true);
        let Ok(handle) = stream.try_clone() else {
            continue;
        };
        let id = {
            use std::os::fd::AsRawFd;
            handle.as_raw_fd()
        };
        shared.streams.lock().expect("streams").push(handle);
        let shared = Arc::clone(shared);
        serving.retain(|thread| !thread.is_finished());
        serving.push(std::thread::spawn(move || {
            let mut served = Served {
                stream,
                input: Vec::new(),
                shared: Arc::clone(&shared),
            };
            // An error is the end of this connection, which the client of the load sees as well.
            while let Ok(true) = served.request() {}
            use std::os::fd::AsRawFd;
            let mut streams = shared.streams.lock().expect("streams");
            streams.retain(|stream| stream.as_raw_fd() != id);
        }));
    }
    for thread in serving {
        let _ = thread.join();
    }
}

struct Served {
    stream: TcpStream,
    input: Vec<u8>,
    shared: Arc<Shared>,
}

impl Served {
    /// Answers one request; false when the connection is over.
    fn request(&mut self) -> io::Result<bool> {
        let head = loop {
            if let Some(bytes) = take_head(&mut self.input) {
                break Head::parse(&bytes)?;
            }
            if !self.fill()? {
                return Ok(false);
            }
        };
        let id: u64 = head
            .field("x-load")
            .and_then(|id| id.parse().ok())
            .ok_or_else(|| invalid("not a request of a load"))?;
        if head.field("upgrade").is_some() {
            self.stream.write_all(SWITCHING.as_bytes())?;
            return self.echo().map(|()| false);
        }
        let target = head.line.split(' ').nth(1).unwrap_or_default().to_owned();
        let (_, number) = target.rsplit_once('/').unwrap_or_default();
        let number: u64 = number.parse().unwrap_or(0);
        if head.line.starts_with("POST ") {
            self.post(id, &head, number)?;
        } else if head.line.starts_with("PUT ") {
            self.upload(id, &head)?;
        } else {
            self.shared.requests.fetch_add(1, Ordering::SeqCst);
            self.download(id, number)?;
        }
        Ok(true)
    }

    fn post(&mut self, id: u64, head: &Head, wait_ms: u64) -> io::Result<()> {
        let mut body = Vec::new();
        self.body(head, |_, bytes| body.extend_from_slice(bytes))?;
        self.shared.requests.fetch_add(1, Ordering::SeqCst);
        if !self.shared.posts.lock().expect("numbers").insert(id) {
            self.shared.twice.lock().expect("numbers").push(id);
        }
        if wait_ms > 0 {
            wait::pause(Duration::from_millis(wait_ms));
        }
        self.answer(id, &body)
    }

    fn upload(&mut self, id: u64, head: &Head) -> io::Result<()> {
        let mut wrong = None;
        let mut total = 0;
        self.body(head, |offset, bytes| {
            wrong = wrong.or_else(|| Content(id).differs(offset, bytes));
            total = offset + bytes.len() as u64;
        })?;
        self.shared.requests.fetch_add(1, Ordering::SeqCst);
        let said = match wrong {
            None => format!("{total} bytes"),
            Some(at) => format!("byte {at} is wrong"),
        };
        self.answer(id, said.as_bytes())
    }

    fn download(&mut self, id: u64, length: u64) -> io::Result<()> {
        let head = format!("HTTP/1.1 200 OK\r\nX-Load: {id}\r\nContent-Length: {length}\r\n\r\n");
        self.stream.write_all(head.as_bytes())?;
        let mut offset = 0;
        while offset < length {
            let left = usize::try_from(length - offset).unwrap_or(PIECE);
            let piece = Content(id).piece(offset, left);
            self.stream.write_all(piece)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    fn answer(&mut self, id: u64, body: &[u8]) -> io::Result<()> {
        let mut bytes = format!(
            "HTTP/1.1 200 OK\r\nX-Load: {id}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(body);
        self.stream.write_all(&bytes)
    }

    fn body(&mut self, head: &Head, mut take: impl FnMut(u64, &[u8])) -> io::Result<()> {
        let mut reader = BodyReader::new(head.framing(false)?);
        let mut piece = Vec::new();
        let mut offset = 0;
        loop {
            reader.take(&mut self.input, &mut piece)?;
            take(offset, &piece);
            offset += piece.len() as u64;
            piece.clear();
            if reader.done() {
                return Ok(());
            }
            if !self.fill()? {
                return Err(invalid("the connection ended in a body"));
            }
        }
    }

    /// Sends each message back, unmasked, as a server does (RFC 6455 §5.1). Messages of a load are shorter than 126
    /// bytes.
    fn echo(&mut self) -> io::Result<()> {
        loop {
            while let Some(message) = unmask(&mut self.input) {
                let mut frame = vec![0x82, u8::try_from(message.len()).unwrap_or(0)];
                frame.extend_from_slice(&message);
                self.stream.write_all(&frame)?;
            }
            if !self.fill()? {
                return Ok(());
            }
        }
    }

    fn fill(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 65_536];
        let count = self.stream.read(&mut buffer)?;
        self.input.extend_from_slice(&buffer[..count]);
        Ok(count > 0)
    }
}

/// Takes a masked frame from the front.
fn unmask(input: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = usize::from(input.get(1)? & 0x7f);
    if input.len() < 6 + length {
        return None;
    }
    let frame: Vec<u8> = input.drain(..6 + length).collect();
    let (mask, payload) = frame[2..].split_at(4);
    Some(
        payload
            .iter()
            .zip(mask.iter().cycle())
            .map(|(byte, mask)| byte ^ mask)
            .collect(),
    )
}
