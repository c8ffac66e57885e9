//! Everything TLS, without I/O: certificates and keys, handshakes, tickets, verification, records.
//!
//! [`Tls::load`] turns a configuration into what handshakes are made with. On a listener a [`HelloReader`] finds out which
//! virtual host a client asks for, [`Server::accept`] makes the [`Session`] and [`Server::verdict`] judges the client's
//! certificate afterwards; towards upstreams [`Upstream::connect`] makes one. Bytes go in and come out; sockets,
//! deadlines and the choice of a virtual host are the caller's. Certificates may change while it runs ([`PairUpdate`]), or
//! be loaded for a connection ([`PairName`], [`PairCache`]). Nothing here reads a clock ([`Clock`]) or a file (the
//! reader that is given).

mod certificate;
mod clock;
mod ends;
mod error;
mod facts;
mod hello;
mod load;
mod name;
mod on_demand;
mod pair;
mod pem;
mod possession;
mod reason;
mod server;
mod session;
mod session_id;
mod suites;
mod tickets;
mod trouble;
mod trust;
mod upstream;
mod version1;
mod watch;

pub use certificate::{Certificate, fingerprint, to_pem};
pub use clock::Clock;
pub use ends::{End, Role};
pub use error::TlsError;
pub use facts::Facts;
pub use hello::{ClientHello, Hello, HelloReader};
pub use load::{Expiry, ReadFile, Tls, expiry_warning};
pub use on_demand::{PairCache, PairName, Source};
pub use pair::{Pair, PairError};
pub use reason::Reason;
pub use rustls::pki_types::CertificateDer;
pub use server::{Server, Verdict};
pub use session::{Progress, Scratch, Session, Stage};
pub use trouble::Trouble;
pub use upstream::Upstream;
pub use watch::{PairUpdate, WatchedPair, watched_pairs};
