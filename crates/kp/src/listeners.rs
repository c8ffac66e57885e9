//! The listening sockets, which belong to the master: one SO_REUSEPORT socket per (address, worker slot), one per unix path.
//!
//! [`Listeners::stage`] binds what a configuration needs and this master does not have yet; [`Listeners::commit`] lets it
//! listen and closes what the configuration no longer has. Between the two a reload can still fail without a trace.
//!
//! A group of sockets never shrinks while its address stays: with fewer workers than sockets, slot 0 polls the rest, and new
//! connections are steered to the slots' own. So the index by which the kernel steers is always the position here, and no
//! queued connection is lost when `worker_processes` gets smaller.

use crate::report;
use kp_config::Diagnostic;
use kp_config::model::{Config, ListenAddress, ListenOptions, Listener, ListenerId};
use kp_sys::socket::{self, Group, Keepalive, ListenSettings, Target};
use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// nginx's NGX_LISTEN_BACKLOG.
const BACKLOG: u32 = 511;
/// Unsent bytes in the kernel above which a connection is not writable: bounds what a slow reader parks there.
const NOTSENT_LOWAT: u32 = 128 * 1024;

/// All sockets of this master.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    held: Vec<Held>,
}

/// The sockets of one address.
#[derive(Debug)]
struct Held {
    address: ListenAddress,
    sockets: Vec<OwnedFd>,
    /// How many of them listen; the others are staged.
    listening: usize,
    /// Device and inode of a unix socket's path: unlinked only while it is still ours.
    inode: Option<(u64, u64)>,
    /// A steering program is attached, so that it must follow every change.
    steered: bool,
}

impl Listeners {
    /// Binds what `config` needs for `workers` slots and is not held yet. On failure everything is as before.
    pub(crate) fn stage(&mut self, config: &Config, workers: u32) -> Result<(), Vec<Diagnostic>> {
        let mut complaints = Vec::new();
        for listener in &config.http.listeners {
            if let Err(error) = self.stage_one(listener, workers as usize) {
                complaints.push(refusal(listener, &error, "bind()"));
            }
        }
        if complaints.is_empty() {
            return Ok(());
        }
        self.unstage();
        Err(complaints)
    }

    /// Drops what was staged.
    pub(crate) fn unstage(&mut self) {
        for held in &mut self.held {
            if held.listening == 0 {
                held.unlink();
            }
            held.sockets.truncate(held.listening);
        }
        self.held.retain(|held| !held.sockets.is_empty());
    }

    /// Lets everything of `config` listen; then closes the addresses it does not have.
    pub(crate) fn commit(&mut self, config: &Config) -> Result<(), Vec<Diagnostic>> {
        let mut complaints = Vec::new();
        for listener in &config.http.listeners {
            let Some(held) = self
                .held
                .iter_mut()
                .find(|held| held.address == listener.address)
            else {
                continue;
            };
            if let Err(error) = held.listen(&listener.options) {
                complaints.push(refusal(listener, &error, "listen()"));
            }
        }
        if !complaints.is_empty() {
            return Err(complaints);
        }
        self.held.retain(|held| {
            let stays = config
                .http
                .listeners
                .iter()
                .any(|listener| listener.address == held.address);
            if !stays {
                held.unlink();
            }
            stays
        });
        Ok(())
    }

    /// The sockets that a slot polls, of `slots`.
    pub(crate) fn of_slot<'a>(
        &'a self,
        config: &'a Config,
        slot: u32,
        slots: u32,
    ) -> impl Iterator<Item = (ListenerId, BorrowedFd<'a>)> {
        config
            .http
            .listeners
            .iter()
            .zip(0..)
            .flat_map(move |(listener, id)| {
                let held = self
                    .held
                    .iter()
                    .find(|held| held.address == listener.address);
                let sockets = held.map_or(&[][..], |held| &held.sockets);
                let unix = matches!(listener.address, ListenAddress::Unix(_));
                let mine = move |index: u32| unix || index == slot || (slot == 0 && index >= slots);
                sockets
                    .iter()
                    .zip(0..)
                    .filter(move |(_, index)| mine(*index))
                    .map(move |(fd, _)| (ListenerId(id), fd.as_fd()))
            })
    }

    /// Sends new connections to the sockets of these slots only. With none, they wait where the kernel puts them.
    pub(crate) fn steer(&mut self, live: &[u32], slots: u32) -> io::Result<()> {
        let targets: Vec<u16> = live
            .iter()
            .filter_map(|slot| u16::try_from(*slot).ok())
            .collect();
        let all = live.len() == slots as usize;
        for held in self
            .held
            .iter_mut()
            .filter(|held| matches!(held.address, ListenAddress::Inet(_)))
        {
            let whole = all && held.sockets.len() == slots as usize;
            if targets.is_empty() || (whole && !held.steered) {
                continue;
            }
            if let Some(first) = held.sockets.first() {
                socket::steer(first, &targets)?;
                held.steered = true;
            }
        }
        Ok(())
    }

    /// Every address held, as text, for the state file.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.held
            .iter()
            .map(|held| Shown(&held.address).to_string())
            .collect()
    }

    /// Closes everything: nothing new is taken.
    pub(crate) fn close(&mut self) {
        for held in self.held.drain(..) {
            held.unlink();
        }
    }

    fn stage_one(&mut self, listener: &Listener, workers: usize) -> io::Result<()> {
        let settings = settings_of(&listener.options);
        let index = match self
            .held
            .iter()
            .position(|held| held.address == listener.address)
        {
            Some(index) => index,
            None => {
                let held = match &listener.address {
                    ListenAddress::Inet(address) => self.first_of(*address, &settings)?,
                    ListenAddress::Unix(path) => Held::unix(path, &settings)?,
                };
                self.held.push(held);
                self.held.len() - 1
            }
        };
        let (Some(held), ListenAddress::Inet(address)) =
            (self.held.get_mut(index), &listener.address)
        else {
            return Ok(());
        };
        while held.sockets.len() < workers {
            held.sockets
                .push(socket::bind(*address, Group::Further, &settings)?);
        }
        Ok(())
    }

    /// The first socket of an address. Only our own sockets may overlap (a wildcard and an address of the same port).
    fn first_of(&self, address: SocketAddr, settings: &ListenSettings) -> io::Result<Held> {
        let overlaps = |held: &Held| matches!(held.address, ListenAddress::Inet(ours) if ours.port() == address.port());
        let bound = match socket::bind(address, Group::First, settings) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && self.held.iter().any(overlaps) =>
            {
                socket::bind(address, Group::Further, settings)
            }
            bound => bound,
        };
        let address = ListenAddress::Inet(address);
        Ok(Held {
            address,
            sockets: vec![bound?],
            listening: 0,
            inode: None,
            steered: false,
        })
    }
}

impl Held {
    fn unix(path: &Path, settings: &ListenSettings) -> io::Result<Self> {
        remove_stale(path)?;
        let sockets = vec![socket::bind_unix(path, settings)?];
        let inode = fs::symlink_metadata(path)
            .map(|found| (found.dev(), found.ino()))
            .ok();
        let address = ListenAddress::Unix(path.to_owned());
        Ok(Self {
            address,
            sockets,
            listening: 0,
            inode,
            steered: false,
        })
    }

    fn listen(&mut self, options: &ListenOptions) -> io::Result<()> {
        let backlog = options.backlog.unwrap_or(BACKLOG);
        let settings = settings_of(options);
        for (socket, index) in self.sockets.iter().zip(0..) {
            // Also for those that listen already: a reload may have changed the backlog and the buffers.
            socket::listen(socket, backlog)?;
            if index < self.listening {
                socket::apply_settings(socket, &settings)?;
            }
        }
        self.listening = self.sockets.len();
        Ok(())
    }

    fn unlink(&self) {
        let ListenAddress::Unix(path) = &self.address else {
            return;
        };
        if self.inode.is_some()
            && self.inode
                == fs::symlink_metadata(path)
                    .map(|found| (found.dev(), found.ino()))
                    .ok()
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Whether the addresses that a running master does not hold can be bound; for `-t` and before a reload. Never listens.
/// `held`: what the master holds, as [`Listeners::addresses`] wrote it; `None`: addresses in use are no error.
pub(crate) fn probe(config: &Config, held: Option<&[String]>) -> Vec<Diagnostic> {
    let mut trial = Listeners::default();
    let mut complaints = Vec::new();
    for listener in &config.http.listeners {
        let shown = Shown(&listener.address).to_string();
        if held.is_some_and(|held| held.contains(&shown)) {
            continue;
        }
        let tried = match &listener.address {
            ListenAddress::Inet(address) => {
                let ours =
                    held.is_some_and(|held| held.iter().any(|held| same_port(held, *address)));
                trial.try_bind(*address, &settings_of(&listener.options), ours)
            }
            ListenAddress::Unix(path) => probe_unix(path),
        };
        match tried {
            Err(error) if held.is_none() && error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => complaints.push(refusal(listener, &error, "bind()")),
            Ok(()) => {}
        }
    }
    complaints
}

impl Listeners {
    fn try_bind(
        &mut self,
        address: SocketAddr,
        settings: &ListenSettings,
        ours: bool,
    ) -> io::Result<()> {
        let held = match self.first_of(address, settings) {
            Err(error) if ours && error.kind() == io::ErrorKind::AddrInUse => {
                socket::bind(address, Group::Further, settings)?;
                return Ok(());
            }
            held => held?,
        };
        self.held.push(held);
        Ok(())
    }
}

fn same_port(held: &str, address: SocketAddr) -> bool {
    held.parse::<SocketAddr>()
        .is_ok_and(|held| held.port() == address.port())
}

fn probe_unix(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() && is_stale(path) => Ok(()),
        Ok(_) => Err(in_use()),
        Err(_) => {
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty())
                .unwrap_or(".".as_ref());
            fs::metadata(folder).map(|_| ())
        }
    }
}

/// Removes a socket file that nobody listens on any more.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() && is_stale(path) => fs::remove_file(path),
        _ => Ok(()),
    }
}

fn is_stale(path: &Path) -> bool {
    matches!(socket::connect(Target::Unix(path), None), Err(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

fn in_use() -> io::Error {
    // EADDRINUSE
    io::Error::from_raw_os_error(98)
}

fn settings_of(options: &ListenOptions) -> ListenSettings {
    ListenSettings {
        receive_buffer: options.rcvbuf.map(|bytes| bytes as usize),
        send_buffer: options.sndbuf.map(|bytes| bytes as usize),
        keepalive: options.so_keepalive.as_ref().map(|keepalive| Keepalive {
            enabled: keepalive.enabled,
            idle: keepalive.idle,
            interval: keepalive.interval,
            count: keepalive.count,
        }),
        nodelay: true,
        notsent_lowat: Some(NOTSENT_LOWAT),
        v6only: options.ipv6only.unwrap_or(true),
    }
}

/// nginx's sentence, at the `listen` that asked for the address.
fn refusal(listener: &Listener, error: &io::Error, call: &str) -> Diagnostic {
    let text = format!(
        "{call} to {} failed ({})",
        Shown(&listener.address),
        report::numbered(error)
    );
    let complaint = Diagnostic::error(listener.span, text);
    let port = match &listener.address {
        ListenAddress::Inet(address) => Some(address.port()),
        ListenAddress::Unix(_) => None,
    };
    match (error.kind(), port) {
        (io::ErrorKind::AddrInUse, Some(port)) => {
            complaint.hint(format!("another process listens there: `ss -ltnp 'sport = :{port}'` shows which; stop it or choose another port"))
        }
        (io::ErrorKind::AddrInUse, None) => complaint.hint("another process listens there, or the path is no socket"),
        (io::ErrorKind::PermissionDenied, Some(_)) => complaint.hint("ports below 1024 need root or CAP_NET_BIND_SERVICE"),
        (io::ErrorKind::AddrNotAvailable, _) => complaint.hint("the address belongs to none of this machine's interfaces (`ip address`)"),
        _ => complaint,
    }
}

/// nginx's text for an address.
struct Shown<'a>(&'a ListenAddress);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ListenAddress::Inet(address) => write!(out, "{address}"),
            ListenAddress::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}
