//! Listening sockets of one worker: polled after Commit, accepted until the kernel says "no more".

use crate::client::Client;
use crate::exhaustion;
use crate::reactor::Worker;
use crate::token::{Key, Kind};
use kp_config::Config;
use kp_config::model::{AcceptLimit, ListenerId, LocationId, ServerId, VirtualHost};
use kp_http::HeadLimits;
use kp_proxy::Reason;
use kp_shm::Counter;
use mio::unix::SourceFd;
use mio::{Interest, Token};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

/// Connections accepted per turn and listener, so that a flood cannot hold up those that are here (`multi_accept off`).
const ACCEPT_MAX: usize = 64;
/// First pause after accept failed; twice as long with every further time,
const PAUSE_MS: u64 = 5;
/// but no longer than this: what was missing may be there again at any moment, and ten looks a second cost nothing.
const PAUSE_MAX_MS: u64 = 100;
/// How often the log says that accept fails.
const SAY_MS: u64 = 1000;

/// One listening socket.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) id: ListenerId,
    fd: Option<OwnedFd>,
    /// There may be connections in the queue. Edge-triggered: stays until accept says otherwise.
    ready: bool,
    /// Accepting waits until then, after it failed.
    again_ms: u64,
    /// The last pause; 0 once a connection was accepted.
    pause_ms: u64,
    /// The log says again that it fails.
    said_ms: u64,
    /// Connections begin with a TLS handshake.
    pub(crate) tls: bool,
    /// Connections begin with a PROXY header, before TLS.
    pub(crate) proxy_protocol: bool,
    /// The default server.
    pub(crate) server: ServerId,
}

impl Listening {
    pub(crate) fn new(config: &Config, id: ListenerId, fd: OwnedFd) -> Self {
        let listener = &config.http.listeners[id.index()];
        Self {
            id,
            fd: Some(fd),
            ready: false,
            again_ms: 0,
            pause_ms: 0,
            said_ms: 0,
            tls: listener.tls,
            proxy_protocol: listener.proxy_protocol,
            server: listener.default_server,
        }
    }

    pub(crate) fn note(&mut self) {
        self.ready = true;
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready && self.again_ms == 0
    }
}

/// What of a virtual host holds before a request is routed.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) limits: HeadLimits,
    pub(crate) head_timeout_ms: u64,
    pub(crate) handshake_timeout_ms: u64,
    /// `limit_accept`.
    pub(crate) accept: Option<AcceptLimit>,
    /// Its level, for what happens before routing.
    pub(crate) root: LocationId,
    /// Its name, for the error log.
    pub(crate) name: String,
}

impl Front {
    pub(crate) fn new(server: &VirtualHost) -> Self {
        let early = &server.early;
        Self {
            limits: HeadLimits {
                line_max: early
                    .large_header_buffer_size
                    .max(early.client_header_buffer_size),
                total_max: (early.large_header_buffers * early.large_header_buffer_size)
                    .max(early.client_header_buffer_size),
                fields_max: early.max_headers,
                underscores: early.underscores_in_headers,
                ignore_invalid: early.ignore_invalid_headers,
                accept_bare_lf: early.accept_bare_lf,
            },
            accept: early.limit_accept,
            head_timeout_ms: early.client_header_timeout.as_millis() as u64,
            handshake_timeout_ms: server
                .tls
                .as_ref()
                .map_or(early.client_header_timeout, |tls| tls.handshake_timeout)
                .as_millis() as u64,
            root: server.root,
            name: server.primary_name.clone(),
        }
    }
}

/// The virtual hosts of a worker as they are before routing: the one a TLS client asked for, else the default server.
#[derive(Debug)]
pub(crate) struct Fronts(Vec<Front>);

impl Fronts {
    pub(crate) fn new(config: &Config) -> Self {
        Self(config.http.servers.iter().map(Front::new).collect())
    }

    /// Of a server.
    pub(crate) fn of(&self, server: ServerId) -> &Front {
        &self.0[server.index()]
    }

    /// Of a client.
    pub(crate) fn at(&self, client: &Client, listeners: &[Listening]) -> &Front {
        let asked = client.transport.facts().map(|facts| facts.server);
        self.of(asked.unwrap_or(listeners[usize::from(client.listener)].server))
    }
}

impl Worker {
    /// Commit: begins to poll the listening sockets.
    pub(crate) fn poll_listeners(&mut self) {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            let Some(fd) = &listener.fd else { continue };
            let token = Key {
                index: index as u32,
                generation: 0,
            }
            .token(Kind::Listener);
            if let Err(error) = self.poll.registry().register(
                &mut SourceFd(&fd.as_raw_fd()),
                Token(token as usize),
                Interest::READABLE,
            ) {
                log::error!(target: "alert", "epoll_ctl() of a listening socket failed: {error}");
            }
            // Connections may have been waiting since before this worker lived.
            listener.ready = true;
        }
    }

    /// `limit_accept`: whether this address may have another connection now. One that may not is closed before a byte is
    /// read or written; the kernel has accepted it already, so all that can be saved is what follows. Of IPv6 the network
    /// counts, since one client has all of its addresses.
    pub(crate) fn may_connect(&self, listener: u16, remote: Option<SocketAddr>) -> bool {
        let server = self.listeners[usize::from(listener)].server;
        let Some(limit) = &self.fronts.of(server).accept else {
            return true;
        };
        let zone = self
            .limits
            .as_ref()
            .and_then(|limits| limits.rate(limit.zone));
        let (Some(zone), Some(remote)) = (zone, remote) else {
            return true;
        };
        let key = match remote.ip().to_canonical() {
            IpAddr::V4(address) => zone.hash(&address.octets()),
            IpAddr::V6(address) => zone.hash(address.octets().get(..8).unwrap_or_default()),
        };
        if zone.charge(key, self.clock.mono_ms, limit.burst).is_ok() {
            return true;
        }
        self.counters.increment(Counter::ConnectionsLimited);
        let zones = &self.config.http.rate_zones;
        let zone = zones.get(limit.zone.index());
        let text = format!(
            "limiting connections of {} by zone \"{}\" of limit_accept",
            remote.ip(),
            zone.map_or("", |zone| zone.name.as_str())
        );
        self.turn_away(listener, Some(remote), Reason::AcceptLimited, Some(&text));
        false
    }

    /// Accepts from every listener that may have connections.
    pub(crate) fn accept_ready(&mut self) {
        let now_ms = self.clock.mono_ms;
        if self.spare_fd.is_none() && self.accept_again_ms() <= now_ms {
            self.spare_fd = kp_sys::process::spare_descriptor().ok();
        }
        for index in 0..self.listeners.len() {
            let listener = &mut self.listeners[index];
            if listener.again_ms != 0 && now_ms >= listener.again_ms {
                listener.again_ms = 0;
            }
            if listener.is_ready() {
                let all = self.config.main.multi_accept;
                self.accept_some(index, if all { usize::MAX } else { ACCEPT_MAX });
            }
        }
    }

    /// When a listener that paused goes on.
    pub(crate) fn accept_again_ms(&self) -> u64 {
        self.listeners
            .iter()
            .map(|listener| listener.again_ms)
            .filter(|again_ms| *again_ms != 0)
            .min()
            .unwrap_or(u64::MAX)
    }

    fn accept_some(&mut self, index: usize, max: usize) {
        for _ in 0..max {
            let listener = &mut self.listeners[index];
            let Some(fd) = &listener.fd else { return };
            match kp_sys::socket::accept(fd) {
                Ok((socket, remote)) => {
                    listener.pause_ms = 0;
                    self.admit(index as u16, socket, remote);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    listener.ready = false;
                    return;
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => return self.accept_failed(index, &error),
            }
        }
    }

    /// Out of descriptors: idle connections go first, then one connection is accepted only to be closed. Then, as with
    /// whatever else the kernel is short of, a pause.
    fn accept_failed(&mut self, index: usize, error: &std::io::Error) {
        let now_ms = self.clock.mono_ms;
        let made_room = exhaustion::is_of_files(error) && self.make_room();
        let listener = &mut self.listeners[index];
        listener.pause_ms = (listener.pause_ms * 2).clamp(PAUSE_MS, PAUSE_MAX_MS);
        listener.again_ms = now_ms + listener.pause_ms;
        if now_ms >= listener.said_ms {
            listener.said_ms = now_ms + SAY_MS;
            log::error!(target: "crit", "accept4() failed ({})", crate::jobs::errno_text(error));
        }
        if made_room || !exhaustion::is_of_files(error) || self.spare_fd.take().is_none() {
            return;
        }
        // Who waits learns at once that it waits in vain.
        if let Some(fd) = &self.listeners[index].fd {
            drop(kp_sys::socket::accept(fd));
        }
        self.counters.increment(Counter::ConnectionsAccepted);
        self.counters.increment(Counter::ConnectionsRefused);
        self.turn_away(index as u16, None, Reason::OutOfDescriptors, None);
        self.spare_fd = kp_sys::process::spare_descriptor().ok();
    }

    /// Accepts everything that is queued, before the listeners are given up.
    pub(crate) fn accept_all(&mut self) {
        for index in 0..self.listeners.len() {
            self.listeners[index].ready = true;
            self.accept_some(index, usize::MAX);
        }
    }

    /// Whether any of them is still open.
    pub(crate) fn is_listening(&self) -> bool {
        self.listeners.iter().any(|listener| listener.fd.is_some())
    }

    /// Deregisters, then closes: an open descriptor elsewhere would keep the registration alive. `all`: also those of
    /// addresses that were taken away, which connections on their way still come in by.
    pub(crate) fn close_listeners(&mut self, all: bool) {
        for listener in &mut self.listeners {
            let leaves = |fd: &OwnedFd| all || !kp_sys::socket::refuses_new(fd);
            if !listener.fd.as_ref().is_some_and(leaves) {
                continue;
            }
            listener.ready = false;
            listener.again_ms = 0;
            if let Some(fd) = listener.fd.take() {
                // Not registered before Commit.
                let _ = self
                    .poll
                    .registry()
                    .deregister(&mut SourceFd(&fd.as_raw_fd()));
            }
        }
    }
}
