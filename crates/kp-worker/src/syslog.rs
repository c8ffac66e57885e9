//! Lines to a syslog server: RFC 3164 messages as nginx sends them, each a datagram.
//!
//! Nobody waits: what the socket does not take at once is lost, counted, and told of. The socket is made when the first line
//! comes, so that every process has its own, and anew after an error.

use crate::clock;
use crate::jobs::errno_text;
use crate::losses::Losses;
use kp_config::model::{Level, Syslog, SyslogServer};
use std::fmt::Write as _;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;

const EMSGSIZE: i32 = 90;

/// One syslog server with its parameters.
#[derive(Debug)]
pub(crate) struct Sender {
    syslog: Syslog,
    hostname: String,
    socket: Option<Socket>,
    losses: Losses,
    /// What stands between priority and text, for the second that it was made in.
    header: String,
    header_s: u64,
    message: Vec<u8>,
}

#[derive(Debug)]
enum Socket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

/// What came of a line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// It did not go out.
    pub(crate) lost: bool,
    /// What is to be said about it in the error log.
    pub(crate) complaint: Option<String>,
}

impl Sender {
    pub(crate) fn new(syslog: Syslog, hostname: String) -> Self {
        Self {
            syslog,
            hostname,
            socket: None,
            losses: Losses::default(),
            header: String::new(),
            header_s: u64::MAX,
            message: Vec::new(),
        }
    }

    /// Sends one line (without its end).
    pub(crate) fn send(&mut self, severity: u8, line: &[u8]) -> Sent {
        self.write_message(severity, line, kp_sys::clock::unix_ms() / 1000);
        let Err(error) = self.transmit() else {
            return Sent::default();
        };
        let untold = self.losses.count(1, kp_sys::clock::monotonic_ms());
        let complaint = untold.map(|lines| {
            format!(
                "send() failed ({}) while logging to syslog, server: {}, {lines} lines were dropped; more of them are counted, and told after a minute at the earliest",
                errno_text(&error),
                self.syslog.server_name()
            )
        });
        Sent {
            lost: true,
            complaint,
        }
    }

    fn write_message(&mut self, severity: u8, line: &[u8], unix_s: u64) {
        if self.header_s != unix_s {
            self.header_s = unix_s;
            let offset_s = kp_sys::clock::utc_offset_seconds(unix_s as i64);
            self.header = clock::syslog_date(unix_s, offset_s);
            self.header.push(' ');
            if !self.syslog.nohostname {
                self.header.push_str(&self.hostname);
                self.header.push(' ');
            }
            self.header.push_str(&self.syslog.tag);
            self.header.push_str(": ");
        }
        let priority = u32::from(self.syslog.facility) * 8 + u32::from(severity);
        let mut start = String::new();
        // Writing to a String cannot fail.
        let _ = write!(start, "<{priority}>");
        self.message.clear();
        self.message.extend_from_slice(start.as_bytes());
        self.message.extend_from_slice(self.header.as_bytes());
        self.message.extend_from_slice(line);
    }

    fn transmit(&mut self) -> io::Result<()> {
        // The first error may be about an earlier datagram that a server of before did not want.
        for again in [false, true] {
            let socket = match &self.socket {
                Some(socket) => socket,
                None => self.socket.insert(Socket::connect(&self.syslog.server)?),
            };
            match socket.send(&self.message) {
                Ok(()) => return Ok(()),
                Err(error)
                    if error.kind() == ErrorKind::WouldBlock
                        || error.raw_os_error() == Some(EMSGSIZE) =>
                {
                    return Err(error);
                }
                Err(error) => {
                    self.socket = None;
                    if again {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Socket {
    fn connect(server: &SyslogServer) -> io::Result<Self> {
        match server {
            SyslogServer::Udp(address) => {
                let own: SocketAddr = match address {
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let socket = UdpSocket::bind(own)?;
                socket.set_nonblocking(true)?;
                socket.connect(address)?;
                Ok(Self::Udp(socket))
            }
            SyslogServer::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.set_nonblocking(true)?;
                socket.connect(path)?;
                Ok(Self::Unix(socket))
            }
        }
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        loop {
            let sent = match self {
                Self::Udp(socket) => socket.send(message),
                Self::Unix(socket) => socket.send(message),
            };
            match sent {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                sent => return sent.map(|_| ()),
            }
        }
    }
}

/// The severity of an error log line: 0 (emerg) to 7 (debug).
pub(crate) fn severity(level: Level) -> u8 {
    match level {
        Level::Emerg => 0,
        Level::Alert => 1,
        Level::Crit => 2,
        Level::Error => 3,
        Level::Warn => 4,
        Level::Notice => 5,
        Level::Info => 6,
        Level::Debug => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn sender(server: SyslogServer, nohostname: bool) -> Sender {
        let syslog = Syslog {
            server,
            facility: 23,
            tag: "nginx".into(),
            nohostname,
        };
        Sender::new(syslog, "edge1".into())
    }

    #[test]
    fn messages_are_those_of_nginx() {
        let server = SyslogServer::Unix("/none".into());
        let mut with = sender(server.clone(), false);
        with.write_message(6, b"GET / 200", 951_782_400);
        let text = String::from_utf8(with.message).unwrap();
        assert!(text.starts_with("<190>Feb 29 "), "{text}");
        assert!(text.ends_with(":00 edge1 nginx: GET / 200"), "{text}");
        let mut without = sender(server, true);
        without.write_message(1, b"x", 951_782_400);
        let text = String::from_utf8(without.message).unwrap();
        assert!(
            text.starts_with("<185>Feb 29 ") && text.ends_with(":00 nginx: x"),
            "{text}"
        );
    }

    #[test]
    fn a_server_that_comes_back_gets_lines_again() {
        let first = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = first.local_addr().unwrap();
        let mut sender = sender(SyslogServer::Udp(address), false);
        let receive = |socket: &UdpSocket| {
            socket
                .set_read_timeout(Some(Duration::from_secs(60)))
                .unwrap();
            let mut room = [0; 100];
            let count = socket.recv(&mut room).unwrap();
            String::from_utf8_lossy(&room[..count]).into_owned()
        };
        assert_eq!(sender.send(6, b"one"), Sent::default());
        assert!(receive(&first).ends_with("one"));
        drop(first);
        for _ in 0..3 {
            sender.send(6, b"nobody");
        }
        let second = UdpSocket::bind(address).unwrap();
        assert_eq!(sender.send(6, b"two"), Sent::default());
        assert!(receive(&second).ends_with("two"));
    }

    #[test]
    fn lost_lines_are_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut sender = sender(SyslogServer::Unix(path.clone()), false);
        let first = sender.send(6, b"x");
        assert!(first.lost);
        let complaint = first.complaint.unwrap();
        assert!(
            complaint.starts_with(
                "send() failed (2: No such file or directory) while logging to syslog, server: unix:"
            ) && complaint.contains(", 1 lines were dropped"),
            "{complaint}"
        );
        let second = sender.send(6, b"x");
        assert!(second.lost && second.complaint.is_none());
        let server = UnixDatagram::bind(&path).unwrap();
        server.set_nonblocking(true).unwrap();
        assert_eq!(sender.send(6, b"here"), Sent::default());
        let mut room = [0; 100];
        assert!(server.recv(&mut room).unwrap() > 4);
        // One who does not read.
        let lost = (0..100_000).any(|_| sender.send(6, b"x").lost);
        assert!(lost, "nobody waits");
    }
}
