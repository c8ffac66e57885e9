//! A connected socket, plain or with TLS on it, as clients and origins of the tests use it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rustls::{ClientConnection, ServerConnection, StreamOwned};
use socket2::SockRef;

use crate::tls::Seen;

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    /// What is written is what goes out.
    Plain(TcpStream),
    /// The side that opened the TLS connection.
    Client(Box<StreamOwned<ClientConnection, TcpStream>>),
    /// The side that accepted it.
    Server(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Stream {
    /// The socket below.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Client(stream) => &stream.sock,
            Self::Server(stream) => &stream.sock,
        }
    }

    /// What the handshake agreed upon; `None` without TLS.
    pub(crate) fn seen(&self) -> Option<Seen> {
        match self {
            Self::Plain(_) => None,
            Self::Client(stream) => Some(Seen::of_client(&stream.conn)),
            Self::Server(stream) => Some(Seen::of_server(&stream.conn)),
        }
    }

    /// Says that nothing more comes: a TLS close_notify where there is TLS, then a FIN.
    pub(crate) fn half_close(&mut self) -> io::Result<()> {
        self.close_notify()?;
        self.cut()
    }

    /// Says close_notify and leaves the socket open both ways.
    pub(crate) fn close_notify(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => return Ok(()),
            Self::Client(stream) => stream.conn.send_close_notify(),
            Self::Server(stream) => stream.conn.send_close_notify(),
        }
        self.flush()
    }

    /// Changes the keys of an open connection (TLS 1.3): a message of TLS without a byte of data.
    pub(crate) fn change_keys(&mut self) -> io::Result<()> {
        let changed = match self {
            Self::Plain(_) => Ok(()),
            Self::Client(stream) => stream.conn.refresh_traffic_keys(),
            Self::Server(stream) => stream.conn.refresh_traffic_keys(),
        };
        changed.map_err(io::Error::other)?;
        self.flush()
    }

    /// Ends the socket's own direction without a word of TLS.
    pub(crate) fn cut(&self) -> io::Result<()> {
        self.socket().shutdown(Shutdown::Write)
    }

    /// Makes the end of the connection a reset instead of a FIN.
    pub(crate) fn reset(&self) -> io::Result<()> {
        SockRef::from(self.socket()).set_linger(Some(Duration::ZERO))
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Client(stream) => stream.read(buffer),
            Self::Server(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Client(stream) => stream.write(bytes),
            Self::Server(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Client(stream) => stream.flush(),
            Self::Server(stream) => stream.flush(),
        }
    }
}
