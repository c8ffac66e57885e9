//! One connection of a load: it knows what was written and what came, and says in which stage something went wrong.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::load::report::Stage;
use crate::message::{BodyReader, Head, take_head};
use crate::peers::unix_end;

/// How long a client waits for the next byte before it gives a request up for lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a connection goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `ADDRESS:PORT`.
    Tcp(String),
    /// The path of a unix socket.
    Unix(PathBuf),
}

/// What went wrong, and when in the life of a request.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) stage: Stage,
    pub(crate) what: String,
}

impl Failed {
    pub(crate) fn new(stage: Stage, what: impl Into<String>) -> Self {
        Self {
            stage,
            what: what.into(),
        }
    }
}

/// The head of a response, and how much of its body is still to come.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: Head,
    body: BodyReader,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: Stream,
    input: Vec<u8>,
    pub(crate) local: String,
    pub(crate) worker: Option<u32>,
    pub(crate) answered: u64,
    pub(crate) opened: Instant,
}

impl Wire {
    pub(crate) fn connect(target: &Target) -> Result<Self, Failed> {
        let failed = |error: io::Error| {
            let what = format!("connecting to {target:?}: {error}");
            Failed::new(Stage::Connecting, what)
        };
        let opened = Instant::now();
        let (stream, local) = match target {
            Target::Tcp(address) => {
                let address: SocketAddr = address.parse().expect("an address and port");
                let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
                stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
                let local = stream.local_addr().map_err(failed)?.to_string();
                (Stream::Tcp(stream), local)
            }
            Target::Unix(path) => {
                let stream = UnixStream::connect(path).map_err(failed)?;
                stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
                stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
                let local = unix_end(&stream);
                (Stream::Unix(stream), local)
            }
        };
        Ok(Self {
            stream,
            input: Vec::new(),
            local,
            worker: None,
            answered: 0,
            opened,
        })
    }

    /// Whether the connection can take another request: false when the other side has ended it, which is its right as
    /// long as nothing is under way. A reset, or bytes that nobody asked for, are a failure.
    pub(crate) fn is_open(&mut self) -> Result<bool, Failed> {
        if !self.input.is_empty() {
            return Err(self.unasked());
        }
        self.set_nonblocking(true);
        let came = self.read_once();
        self.set_nonblocking(false);
        match came {
            Ok(0) => Ok(false),
            Ok(_) => Err(self.unasked()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(Failed::new(Stage::Idle, error.to_string())),
        }
    }

    fn unasked(&self) -> Failed {
        let text = String::from_utf8_lossy(&self.input);
        Failed::new(Stage::Idle, format!("bytes nobody asked for: {text:?}"))
    }

    /// Writes. What the other side may have said before it stopped reading is left for [`Wire::answer`].
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), Failed> {
        let sent = match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        };
        sent.map_err(|error| Failed::new(Stage::Sending, error.to_string()))
    }

    /// Reads the head of the final response.
    pub(crate) fn answer(&mut self) -> Result<Answer, Failed> {
        loop {
            if let Some(bytes) = take_head(&mut self.input) {
                let head = Head::parse(&bytes).map_err(wrong)?;
                if (100..200).contains(&head.status()) && head.status() != 101 {
                    continue;
                }
                let worker = head.field("x-worker").and_then(|pid| pid.parse().ok());
                self.worker = worker.or(self.worker);
                let framing = head.framing(head.status() != 101).map_err(wrong)?;
                return Ok(Answer {
                    head,
                    body: BodyReader::new(framing),
                });
            }
            let stage = if self.input.is_empty() {
                Stage::Waiting
            } else {
                Stage::Receiving
            };
            self.fill(stage)?;
        }
    }

    /// The next bytes of the body; `false` when it is complete.
    pub(crate) fn body(&mut self, answer: &mut Answer, out: &mut Vec<u8>) -> Result<bool, Failed> {
        loop {
            let before = out.len();
            answer.body.take(&mut self.input, out).map_err(wrong)?;
            if answer.body.done() {
                self.answered += 1;
                return Ok(false);
            }
            if out.len() > before {
                return Ok(true);
            }
            self.fill(Stage::Receiving)?;
        }
    }

    /// The whole body, of at most `limit` bytes.
    pub(crate) fn small_body(
        &mut self,
        answer: &mut Answer,
        limit: usize,
    ) -> Result<Vec<u8>, Failed> {
        let mut body = Vec::new();
        while self.body(answer, &mut body)? {
            if body.len() > limit {
                return Err(Failed::new(
                    Stage::Checking,
                    format!("more than {limit} bytes"),
                ));
            }
        }
        Ok(body)
    }

    /// Waits for the end that the last response has announced. A reset would endanger that response on a longer way.
    pub(crate) fn closed(&mut self) -> Result<(), Failed> {
        let what = match self.read_once() {
            Ok(0) => return Ok(()),
            Ok(_) => String::from("bytes behind the last response"),
            Err(error) => format!("after the last response: {error}"),
        };
        Err(Failed::new(Stage::Checking, what))
    }

    /// Exactly `count` raw bytes.
    pub(crate) fn exactly(&mut self, count: usize) -> Result<Vec<u8>, Failed> {
        while self.input.len() < count {
            self.fill(Stage::Waiting)?;
        }
        Ok(self.input.drain(..count).collect())
    }

    fn fill(&mut self, stage: Stage) -> Result<(), Failed> {
        match self.read_once() {
            Ok(0) => {
                let came =
                    String::from_utf8_lossy(&self.input[..self.input.len().min(200)]).into_owned();
                Err(Failed::new(
                    stage,
                    format!("the connection ended after {came:?}"),
                ))
            }
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(Failed::new(stage, format!("nothing came for {PATIENCE:?}")))
            }
            Err(error) => Err(Failed::new(stage, error.to_string())),
        }
    }

    fn read_once(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 65_536];
        let count = match &mut self.stream {
            Stream::Tcp(stream) => stream.read(&mut buffer),
            Stream::Unix(stream) => stream.read(&mut buffer),
        }?;
        self.input.extend_from_slice(&buffer[..count]);
        Ok(count)
    }

    fn set_nonblocking(&self, on: bool) {
        let set = match &self.stream {
            Stream::Tcp(stream) => stream.set_nonblocking(on),
            Stream::Unix(stream) => stream.set_nonblocking(on),
        };
        set.expect("a socket of this process");
    }
}

fn wrong(error: io::Error) -> Failed {
    Failed::new(Stage::Checking, error.to_string())
}
