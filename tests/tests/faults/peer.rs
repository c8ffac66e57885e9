//! A peer that is bad once and well before and after.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kp_tests::origin::OK;
use kp_tests::tls::Acceptor;
use kp_tests::wait::{self, SOON};
use kp_tests::{Conversation, Origin, Port};
use socket2::{Domain, Socket, Type};

use crate::rules::{At, Fault};

/// `proxy_connect_timeout`, `proxy_send_timeout` and `proxy_read_timeout` of the matrix.
/// Far more than a busy machine takes for what does not hang.
pub(crate) const LIMIT: Duration = Duration::from_millis(2000);

/// A peer on a port, and what it needs to be there.
pub(crate) enum BadPeer {
    /// Nobody listens on the port.
    Absent(Port),
    /// A listener whose queue is full, and the connections that fill it.
    Full(Port, Socket, Vec<TcpStream>),
    Origin(Origin),
}

/// Set once the client has the head of its response.
pub(crate) type HeadCame = Arc<AtomicBool>;

impl BadPeer {
    pub(crate) fn start(
        fault: Fault,
        pooled: bool,
        port: Port,
        untrusted: &Acceptor,
        head_came: &HeadCame,
    ) -> Self {
        let head_came = Arc::clone(head_came);
        match fault {
            Fault::Refuse => Self::Absent(port),
            Fault::Unreachable => full(port),
            Fault::TlsUntrusted => {
                Self::Origin(Origin::secure_on(port, untrusted, |conversation| {
                    conversation.answer_all(|_| OK.to_vec())
                }))
            }
            _ => Self::Origin(Origin::on(port, move |conversation| {
                if conversation.index == 0 {
                    if pooled {
                        conversation.request()?;
                        conversation.send(OK)?;
                    }
                    act(fault, conversation, &head_came)?;
                }
                conversation.answer_all(|_| OK.to_vec())
            })),
        }
    }

    /// What never was a peer of the right kind becomes one, so that the next request can show who is asked.
    pub(crate) fn recover(self, fault: Fault, trusted: &Acceptor) -> Origin {
        let port = match self {
            Self::Absent(port) => return Origin::on(port, well),
            Self::Full(port, listener, fillers) => {
                drop((listener, fillers));
                return Origin::on(port, well);
            }
            Self::Origin(origin) if !is_tls(fault) => return origin,
            Self::Origin(origin) => origin.stop(),
        };
        Origin::secure_on(port, trusted, well)
    }
}

pub(crate) fn is_tls(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::PlainText | Fault::TlsCut | Fault::TlsHang | Fault::TlsUntrusted
    )
}

fn well(conversation: &mut Conversation) -> io::Result<()> {
    conversation.answer_all(|_| OK.to_vec())
}

/// A listener that takes no further connection: the kernel drops every SYN, as on the way to a host that is gone.
fn full(port: Port) -> BadPeer {
    let address: SocketAddr = port.address().parse().expect("an address");
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    listener.set_reuse_address(true).expect("an option");
    listener.bind(&address.into()).expect("binding");
    listener.listen(0).expect("listening");
    let patience = Duration::from_millis(100);
    let fillers =
        std::iter::from_fn(|| TcpStream::connect_timeout(&address, patience).ok()).collect();
    BadPeer::Full(port, listener, fillers)
}

const TEN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const UNFRAMED: &str = "HTTP/1.1 200 OK\r\n\r\nhel";

/// Does what the fault says. `Err` ends the connection; `Ok` goes on with it as if nothing had been.
fn act(fault: Fault, peer: &mut Conversation, head_came: &HeadCame) -> io::Result<()> {
    match fault {
        Fault::Fin(at) => {
            reach(at, peer)?;
            peer.half_close()?;
            linger(at, peer);
            end()
        }
        Fault::Reset(at) => {
            reach(at, peer)?;
            // A reset discards what was sent and not read: the client shall have the head first.
            if matches!(at, At::BeforeBody | At::InBody | At::InChunk | At::Unframed) {
                wait::until(SOON, "the client to have its head", || {
                    head_came.load(Ordering::SeqCst)
                });
            }
            peer.reset()?;
            end()
        }
        Fault::Hang(at) => {
            reach(at, peer)?;
            linger(at, peer);
            end()
        }
        Fault::SlowHead => {
            peer.request()?;
            // More than the limit for half of it.
            for byte in TEN.bytes() {
                peer.send([byte])?;
                peer.pause(LIMIT / 20);
            }
            peer.stall();
            end()
        }
        Fault::PlainText => {
            peer.read_at_least(1)?;
            peer.send("HTTP/1.1 400 Bad Request\r\n\r\n")?;
            peer.read_to_end();
            end()
        }
        Fault::TlsCut => peer.read_at_least(1).and_then(|_| end()),
        Fault::TlsHang => {
            peer.read_to_end();
            end()
        }
        Fault::Early => {
            peer.head()?;
            peer.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")?;
            end()
        }
        Fault::Refuse | Fault::Unreachable | Fault::TlsUntrusted => end(),
        _ => answer(fault, peer),
    }
}

/// The faults that are a matter of what is answered to a whole request.
fn answer(fault: Fault, peer: &mut Conversation) -> io::Result<()> {
    peer.request()?;
    match fault {
        Fault::Garbage => {
            peer.send("nonsense\r\n\r\n")?;
            peer.stall();
            end()
        }
        Fault::Oversized => {
            let long = "x".repeat(70 * 1024);
            peer.send(format!("HTTP/1.1 200 OK\r\nX-Long: {long}\r\n\r\n"))?;
            peer.stall();
            end()
        }
        Fault::BadChunk => {
            peer.send(format!("{CHUNKED}2\r\nok\r\nzz\r\n"))?;
            peer.stall();
            end()
        }
        Fault::Bytewise => peer.send_bytes(OK),
        Fault::SlowBody => {
            peer.send(TEN)?;
            for byte in b"0123456789" {
                peer.pause(LIMIT / 7);
                peer.send([*byte])?;
            }
            Ok(())
        }
        Fault::Extra => {
            peer.send([OK, b"extra"].concat())?;
            peer.stall();
            end()
        }
        Fault::HalfClose => {
            peer.send(OK)?;
            peer.half_close()?;
            peer.stall();
            end()
        }
        Fault::CloseFramed => peer.send("HTTP/1.1 200 OK\r\n\r\nok").and_then(|()| end()),
        _ => peer.send("HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno"),
    }
}

/// Behaves well up to that point.
fn reach(at: At, peer: &mut Conversation) -> io::Result<()> {
    match at {
        At::Unread => return peer.wait_unread(),
        At::InRequest => {
            peer.head()?;
            return peer.read_at_least(1).map(|_| ());
        }
        _ => {}
    }
    peer.request()?;
    match at {
        At::InHead => peer.send("HTTP/1.1 200 OK\r\nContent-Le"),
        At::BeforeBody => peer.send(TEN),
        At::InBody => peer.send(format!("{TEN}hel")),
        At::InChunk => peer.send(format!("{CHUNKED}5\r\nhel")),
        At::BeforeLastChunk => peer.send(format!("{CHUNKED}5\r\nhello\r\n")),
        At::Unframed => peer.send(UNFRAMED),
        At::Unread | At::InRequest | At::BeforeHead => Ok(()),
    }
}

/// Stays until the other side ends the connection.
fn linger(at: At, peer: &mut Conversation) {
    match at {
        // Whoever reads nothing cannot see an end behind it either: it goes when its case is over.
        At::Unread => peer.stall(),
        _ => drop(peer.read_to_end()),
    }
}

fn end() -> io::Result<()> {
    Err(io::Error::other("the connection ends here"))
}
