//! The upstream's side of a TLS identity: what handshakes with upstreams are made with, and the sessions that may be
//! resumed with each of them.

use crate::clock::Clock;
use crate::error::TlsError;
use crate::pair::{OwnPair, Pair};
use crate::possession::VerifyUpstream;
use crate::reason::Reason;
use crate::session::Session;
use crate::suites;
use crate::trust::Trust;
use arc_swap::ArcSwap;
use kp_config::model::TlsIdentity;
use rustls::ClientConfig;
use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::pki_types::{IpAddr, Ipv4Addr, ServerName};
use std::collections::HashMap;
use std::sync::Arc;

/// A TLS identity, ready for handshakes.
pub struct Upstream {
    config: Arc<ClientConfig>,
    passwords: Vec<Vec<u8>>,
    verifies: bool,
    reuses: bool,
    /// The same with the sessions of one peer: a ticket of one server is nothing to another.
    peers: ArcSwap<HashMap<Place, Arc<ClientConfig>>>,
}

/// A peer, and the place in memory of the pair that is shown to it, if it was loaded for the connection: the configuration
/// that is remembered holds on to the pair, so nothing else comes to lie there.
type Place = (u64, Option<usize>);

/// Passwords are not for logs.
impl std::fmt::Debug for Upstream {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Upstream")
            .field("verifies", &self.verifies)
            .field("reuses", &self.reuses)
            .finish_non_exhaustive()
    }
}

/// How many peers' sessions are remembered; the others' handshakes are full ones.
const PEERS_MAX: usize = 1024;
/// How many names of one peer have sessions: the library divides by the tickets it keeps of each.
const SESSIONS: usize = 32;

impl Upstream {
    pub(crate) fn new(
        identity: &TlsIdentity,
        pair: Option<Pair>,
        passwords: Vec<Vec<u8>>,
        trust: Option<Arc<Trust>>,
        clock: &Clock,
    ) -> Result<Self, rustls::Error> {
        let provider = suites::provider(&identity.suites, &identity.groups);
        let verifies = trust.is_some();
        let verifier = Arc::new(VerifyUpstream::new(trust, &provider));
        let builder = ClientConfig::builder_with_details(provider, Arc::new(clock.clone()))
            .with_protocol_versions(&suites::versions(identity.protocols, &identity.suites))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match pair {
            None => builder.with_no_client_auth(),
            Some(pair) => builder.with_client_cert_resolver(Arc::new(OwnPair(pair))),
        };
        config.enable_sni = identity.server_name;
        config.alpn_protocols = identity.alpn.iter().map(|one| one.clone().into()).collect();
        config.resumption = Resumption::disabled();
        Ok(Self {
            config: Arc::new(config),
            passwords,
            verifies,
            reuses: identity.session_reuse,
            peers: ArcSwap::default(),
        })
    }

    /// A session with the upstream at `peer` (any number that stands for its address) under `name`, which is the one to
    /// verify, and to send where `proxy_ssl_server_name` is on. [`Session::start`] gives the first flight.
    ///
    /// # Errors
    ///
    /// The name is none that a certificate could be for, and verification is on.
    pub fn connect(&self, peer: u64, name: &str) -> Result<Session, TlsError> {
        self.session(self.config_for(peer, None), name)
    }

    /// The same with a pair that was loaded for this connection.
    ///
    /// # Errors
    ///
    /// As [`Upstream::connect`].
    pub fn connect_with(&self, pair: &Pair, peer: u64, name: &str) -> Result<Session, TlsError> {
        self.session(self.config_for(peer, Some(pair)), name)
    }

    /// The passwords for keys that are loaded for a connection.
    pub fn passwords(&self) -> &[Vec<u8>] {
        &self.passwords
    }

    fn session(&self, config: Arc<ClientConfig>, name: &str) -> Result<Session, TlsError> {
        let name = match ServerName::try_from(name.strip_suffix('.').unwrap_or(name)) {
            Ok(name) => name.to_owned(),
            Err(_) if self.verifies => {
                return Err(TlsError::Certificate(Reason::HostnameMismatch));
            }
            // An address is not sent as SNI (RFC 6066 §3).
            Err(_) => ServerName::IpAddress(IpAddr::V4(Ipv4Addr::from([0, 0, 0, 0]))),
        };
        let connection = UnbufferedClientConnection::new(config, name)?;
        Ok(Session::client(connection, 16 * 1024))
    }

    fn config_for(&self, peer: u64, pair: Option<&Pair>) -> Arc<ClientConfig> {
        let place = (peer, pair.map(|pair| Arc::as_ptr(&pair.key).addr()));
        let known = self.peers.load();
        if let Some(config) = known.get(&place) {
            return config.clone();
        }
        let remembers = self.reuses && known.len() < PEERS_MAX;
        if !remembers && pair.is_none() {
            return self.config.clone();
        }
        let mut config = ClientConfig::clone(&self.config);
        if let Some(pair) = pair {
            config.client_auth_cert_resolver = Arc::new(OwnPair(pair.clone()));
        }
        if remembers {
            config.resumption = Resumption::in_memory_sessions(SESSIONS);
        }
        let config = Arc::new(config);
        if remembers {
            let mut more = HashMap::clone(&known);
            more.insert(place, config.clone());
            self.peers.store(Arc::new(more));
        }
        config
    }
}
