//! The listener's side of a virtual host: what its handshakes are made with, and what it makes of a client's certificate.

use crate::clock::Clock;
use crate::error::TlsError;
use crate::pair::{Pair, Slot};
use crate::reason::Reason;
use crate::session::{Session, Stage};
use crate::tickets::Tickets;
use crate::trust::{Trust, Use};
use crate::{possession, suites};
use kp_config::model::{TlsServer, VerifyMode};
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection};
use rustls::{DistinguishedName, ServerConfig};
use std::sync::Arc;

/// A virtual host, ready for handshakes.
pub struct Server {
    config: Arc<ServerConfig>,
    slot: Arc<Slot>,
    passwords: Vec<Vec<u8>>,
    loads_pairs: bool,
    trust: Option<Arc<Trust>>,
    rejects: bool,
    record: usize,
}

/// Passwords are not for logs.
impl std::fmt::Debug for Server {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Server")
            .field("rejects", &self.rejects)
            .field("record", &self.record)
            .finish_non_exhaustive()
    }
}

/// What was loaded for a virtual host.
pub(crate) struct Parts {
    pub(crate) pairs: Vec<Pair>,
    /// For keys that are loaded later.
    pub(crate) passwords: Vec<Vec<u8>>,
    /// Variables name some of its certificates.
    pub(crate) loads_pairs: bool,
    /// Whom clients' certificates must lead to, if they are asked for.
    pub(crate) trust: Option<Arc<Trust>>,
    /// The names that are told to clients.
    pub(crate) told: Vec<DistinguishedName>,
    pub(crate) tickets: Option<Tickets>,
}

/// What was found out about a client's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// There is none, or none was asked for.
    None,
    /// It is good.
    Success,
    /// It is not.
    Failed(Reason),
}

/// unrecognized_name, fatal, in a record of its own (RFC 6066 §3, RFC 8446 §6).
const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 112];

/// What ALPN may choose from, as nginx: whoever offers other protocols only is refused.
const PROTOCOLS: [&[u8]; 3] = [b"http/1.1", b"http/1.0", b"http/0.9"];

impl Server {
    pub(crate) fn new(
        settings: &TlsServer,
        parts: Parts,
        clock: &Clock,
    ) -> Result<Self, rustls::Error> {
        let provider = suites::provider(&settings.suites, &settings.groups);
        let slot = Arc::new(Slot::new(parts.pairs));
        let builder = ServerConfig::builder_with_details(provider.clone(), Arc::new(clock.clone()))
            .with_protocol_versions(&suites::versions(settings.protocols, &settings.suites))?;
        let builder = match &parts.trust {
            None => builder.with_no_client_auth(),
            Some(_) => builder.with_client_cert_verifier(Arc::new(possession::AskClient::new(
                parts.told, &provider,
            ))),
        };
        let mut config = builder.with_cert_resolver(slot.clone());
        let record = settings.buffer_size.clamp(512, 16 * 1024);
        // The library counts the header in.
        config.max_fragment_size = Some(record + 5);
        config.ignore_client_order = settings.prefer_server_ciphers;
        config.alpn_protocols = PROTOCOLS.iter().map(|name| name.to_vec()).collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        match parts.tickets {
            Some(tickets) => config.ticketer = Arc::new(tickets),
            None => config.send_tls13_tickets = 0,
        }
        Ok(Self {
            config: Arc::new(config),
            slot,
            passwords: parts.passwords,
            loads_pairs: parts.loads_pairs,
            trust: parts.trust,
            rejects: settings.reject_handshake,
            record,
        })
    }

    /// A session for a connection whose ClientHello chose this host. It gets the same bytes again, by
    /// [`Session::receive`].
    ///
    /// # Errors
    ///
    /// `ssl_reject_handshake`: the alert stands in `out`.
    pub fn accept(&self, out: &mut Vec<u8>) -> Result<Session, TlsError> {
        if self.rejects {
            out.extend_from_slice(&UNRECOGNIZED_NAME);
            return Err(TlsError::Rejected);
        }
        let connection = UnbufferedServerConnection::new(self.config.clone())?;
        Ok(Session::server(connection, self.record))
    }

    /// The same with pairs that were loaded for this connection, beside those of files.
    ///
    /// # Errors
    ///
    /// As [`Server::accept`].
    pub fn accept_with(&self, pairs: &[Pair], out: &mut Vec<u8>) -> Result<Session, TlsError> {
        if self.rejects {
            return self.accept(out);
        }
        let mut config = ServerConfig::clone(&self.config);
        let all = pairs
            .iter()
            .chain(self.slot.pairs().iter())
            .cloned()
            .collect();
        config.cert_resolver = Arc::new(Slot::new(all));
        let connection = UnbufferedServerConnection::new(Arc::new(config))?;
        Ok(Session::server(connection, self.record))
    }

    /// Whether handshakes need pairs that variables name: then [`Server::accept_with`] is to be called.
    pub fn loads_pairs(&self) -> bool {
        self.loads_pairs && !self.rejects
    }

    /// The passwords for keys that are loaded during a handshake.
    pub fn passwords(&self) -> &[Vec<u8>] {
        &self.passwords
    }

    /// Judges the client's certificate of an open session, new or resumed. The handshake itself only made sure that the
    /// client has the key.
    pub fn verdict(&self, session: &Session, now_unix_secs: u64) -> Verdict {
        let chain = session.facts().chain;
        let Some(trust) = self.trust.as_ref().filter(|_| !chain.is_empty()) else {
            return Verdict::None;
        };
        if session.stage() != Stage::Open {
            return Verdict::None;
        }
        match trust.judge(chain, Use::Client, now_unix_secs) {
            Ok(()) => Verdict::Success,
            Err(reason) => Verdict::Failed(reason),
        }
    }

    /// The pairs that handshakes use now.
    pub fn pairs(&self) -> Arc<Vec<Pair>> {
        self.slot.pairs()
    }

    /// Lets handshakes that begin from now on use other pairs; connections go on with what they began with.
    pub fn replace(&self, pairs: Vec<Pair>) {
        self.slot.replace(pairs);
    }
}

/// Whether clients are asked for a certificate.
pub(crate) fn asks(mode: VerifyMode) -> bool {
    mode != VerifyMode::Off
}
