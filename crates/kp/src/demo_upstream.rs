//! `kp demo-upstream PORT NAME`: a small real HTTP/1.1 server on 127.0.0.1 to put behind kp. It answers every request with
//! its name and the request's head as it arrived, keeps connections alive, and ends on INT or TERM.
//!
//! One thread, one `poll(2)`. It is for trying things out, not for the open network: no limits but the obvious ones.

use crate::report;
use kp_sys::poll;
use kp_sys::signals::{SIGINT, SIGTERM, Signals};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

/// Longest head, and longest chunk-size line.
const HEAD_MAX: usize = 64 * 1024;
/// A client that does not read its answer is dropped after this.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves until told to stop.
pub(crate) fn serve(port: u16, name: &str) -> ExitCode {
    let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(listener) => listener,
        Err(error) => {
            report::say(format_args!(
                "demo upstream {name}: bind() to 127.0.0.1:{port} failed ({})",
                report::numbered(&error)
            ));
            return ExitCode::FAILURE;
        }
    };
    match run(&listener, port == 0, name) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::say(format_args!("demo upstream {name}: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(listener: &TcpListener, tell_port: bool, name: &str) -> io::Result<()> {
    let mut signals = Signals::new(&[SIGINT, SIGTERM])?;
    listener.set_nonblocking(true)?;
    if tell_port {
        writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    }
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let mut sources = vec![signals.as_fd(), listener.as_fd()];
        sources.extend(clients.iter().map(|client| client.stream.as_fd()));
        let readable = poll::readable(&sources, None)?;
        if !signals.drain().is_empty() {
            return Ok(());
        }
        let mut flags = readable.iter().skip(2);
        clients.retain_mut(|client| {
            !flags.next().is_some_and(|readable| *readable) || client.visit(name).is_ok()
        });
        // One that failed (no descriptor left) is tried again at the next event.
        while let Ok((stream, _)) = listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                clients.push(Client {
                    stream,
                    input: Vec::new(),
                    body: Body::None,
                });
            }
        }
    }
}

/// What of the request's body is still to come before the next head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    None,
    Length(u64),
    /// Before a chunk-size line.
    ChunkSize,
    /// Within a chunk, its line end included.
    Chunk(u64),
    /// Trailer lines.
    Trailers,
}

#[derive(Debug)]
struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    body: Body,
}

impl Client {
    /// Reads what has come and answers every request that is complete; an error ends the connection.
    fn visit(&mut self, name: &str) -> io::Result<()> {
        let mut piece = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self
                    .input
                    .extend_from_slice(piece.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            self.answer(name)?;
        }
        Ok(())
    }

    fn answer(&mut self, name: &str) -> io::Result<()> {
        while self.skip_body()? {
            let Some(end) = find(&self.input, b"\r\n\r\n") else {
                return if self.input.len() > HEAD_MAX {
                    Err(io::ErrorKind::InvalidData.into())
                } else {
                    Ok(())
                };
            };
            let head: Vec<u8> = self.input.drain(..end + 4).collect();
            let request = Request::read(&head)?;
            log::info!(
                "{name}: {}",
                String::from_utf8_lossy(&head)
                    .lines()
                    .next()
                    .unwrap_or_default()
            );
            self.body = request.body;
            self.write(&response(name, &head, &request))?;
            if request.close {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
        Ok(())
    }

    /// Drops body bytes; true when the next head may begin.
    fn skip_body(&mut self) -> io::Result<bool> {
        loop {
            match self.body {
                Body::None => return Ok(true),
                Body::Length(left) | Body::Chunk(left) => {
                    let count = left.min(self.input.len() as u64);
                    self.input.drain(..count as usize);
                    self.body = match (self.body, left - count) {
                        (Body::Chunk(_), 0) => Body::ChunkSize,
                        (Body::Chunk(_), left) => Body::Chunk(left),
                        (_, 0) => Body::None,
                        (_, left) => Body::Length(left),
                    };
                    if count < left {
                        return Ok(false);
                    }
                }
                Body::ChunkSize | Body::Trailers => {
                    let Some(end) = find(&self.input, b"\r\n") else {
                        return if self.input.len() > HEAD_MAX {
                            Err(io::ErrorKind::InvalidData.into())
                        } else {
                            Ok(false)
                        };
                    };
                    let line: Vec<u8> = self.input.drain(..end + 2).collect();
                    self.body = match self.body {
                        Body::Trailers if end == 0 => Body::None,
                        Body::Trailers => Body::Trailers,
                        _ => match chunk_size(&line)? {
                            0 => Body::Trailers,
                            size => Body::Chunk(size.saturating_add(2)),
                        },
                    };
                }
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        self.stream.write_all(bytes)?;
        self.stream.set_nonblocking(true)
    }
}

/// What the answer depends on.
struct Request {
    body: Body,
    close: bool,
    without_body: bool,
}

impl Request {
    fn read(head: &[u8]) -> io::Result<Self> {
        let text = String::from_utf8_lossy(head);
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default();
        let mut request = Self {
            body: Body::None,
            close: !first.ends_with(" HTTP/1.1"),
            without_body: first.starts_with("HEAD "),
        };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                request.body = Body::Length(value.parse().map_err(|_| io::ErrorKind::InvalidData)?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                request.body = Body::ChunkSize;
            } else if name.eq_ignore_ascii_case("connection") {
                request.close |= value.eq_ignore_ascii_case("close");
            }
        }
        Ok(request)
    }
}

fn response(name: &str, head: &[u8], request: &Request) -> Vec<u8> {
    let connection = if request.close {
        "Connection: close\r\n"
    } else {
        ""
    };
    let length = name.len() + 2 + head.len();
    let mut bytes = format!(
        "HTTP/1.1 200 OK\r\nX-Demo-Upstream: {name}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n{connection}\r\n"
    )
    .into_bytes();
    if !request.without_body {
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b"\n\n");
        bytes.extend_from_slice(head);
    }
    bytes
}

fn chunk_size(line: &[u8]) -> io::Result<u64> {
    let text = String::from_utf8_lossy(line);
    let digits = text.split([';', '\r', ' ']).next().unwrap_or_default();
    u64::from_str_radix(digits, 16).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client of a served connection pair.
    fn pair() -> (TcpStream, Client) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        (
            near,
            Client {
                stream,
                input: Vec::new(),
                body: Body::None,
            },
        )
    }

    fn exchange(near: &mut TcpStream, client: &mut Client, bytes: &[u8]) -> (String, bool) {
        near.write_all(bytes).unwrap();
        poll::readable(&[client.stream.as_fd()], Some(Duration::from_secs(5))).unwrap();
        let open = client.visit("blue").is_ok();
        near.set_nonblocking(true).unwrap();
        let mut text = Vec::new();
        let _ = near.read_to_end(&mut text);
        near.set_nonblocking(false).unwrap();
        (String::from_utf8(text).unwrap(), open)
    }

    #[test]
    fn answers_with_its_name_and_the_head() {
        let (mut near, mut client) = pair();
        let head = "GET /x HTTP/1.1\r\nHost: a\r\nX-Odd:  1\r\n\r\n";
        let (text, open) = exchange(&mut near, &mut client, head.as_bytes());
        assert!(
            open && text.starts_with("HTTP/1.1 200 OK\r\nX-Demo-Upstream: blue\r\n"),
            "{text}"
        );
        assert!(text.ends_with(&format!("\r\n\r\nblue\n\n{head}")), "{text}");
        let (text, open) = exchange(
            &mut near,
            &mut client,
            b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        );
        assert!(
            !open && text.ends_with("Connection: close\r\n\r\n"),
            "{text}"
        );
    }

    #[test]
    fn bodies_are_skipped_between_pipelined_requests() {
        let (mut near, mut client) = pair();
        let requests = "POST /1 HTTP/1.1\r\nContent-Length: 5\r\n\r\nGET /POST /2 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
                        3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\nGET /3 HTTP/1.0\r\n\r\n";
        let (text, open) = exchange(&mut near, &mut client, requests.as_bytes());
        assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 3, "{text}");
        assert!(!open && text.contains("POST /2") && text.contains("GET /3"));
    }

    #[test]
    fn nonsense_ends_the_connection() {
        for nonsense in [
            "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        ] {
            let (mut near, mut client) = pair();
            let (_, open) = exchange(&mut near, &mut client, nonsense.as_bytes());
            assert!(!open, "{nonsense}");
        }
    }
}
