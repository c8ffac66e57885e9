//! The listening sockets, which belong to the master: one SO_REUSEPORT socket per (address, worker slot), one per unix path.
//!
//! [`Listeners::stage`] binds what a configuration needs and this master does not have yet; [`Listeners::commit`] lets it
//! listen and closes what the configuration no longer has. Between the two a reload can still fail without a trace.
//!
//! An address that a reload takes away ignores newcomers at once and is closed a moment later, after those who are on their
//! way; one that comes back in that moment is the same sockets as before. A unix path is unlinked at once, which nobody can
//! be on the way to.
//!
//! A group of sockets never shrinks while its address stays: with fewer workers than sockets, slot 0 polls the rest, and new
//! connections are steered to the slots' own. So the index by which the kernel steers is always the position here, and no
//! queued connection is lost when `worker_processes` gets smaller.
//!
//! Sockets may also come from outside: from the master that this one replaces, which may hold them as well (`succession`),
//! or from a service manager, which does (`activation`). Those are the first of their group. They are never made to ignore
//! newcomers, since that would be felt by everybody who holds them.

mod activation;
mod succession;

use crate::report;
use kp_config::Diagnostic;
use kp_config::model::{ListenAddress, ListenOptions, Listener, ListenerId};
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

/// How long the master keeps sockets that ignore newcomers. Workers accept from them for half of it.
const REFUSING_MS: u64 = 1_000;

/// All sockets of this master.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    held: Vec<Held>,
    /// Unix paths that this master no longer serves and another one may: unlinked when that one is gone.
    left: Vec<Held>,
    /// Another master lives that this one was started by, or has started.
    company: bool,
    /// Addresses the other master has and this one has given up since it was last asked.
    given_up: Vec<ListenAddress>,
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
    /// The address was taken away: newcomers are ignored, and then it is closed.
    refusing_until_ms: Option<u64>,
    /// How many of them, the first ones, the other master has, too; while it lives.
    shared: usize,
    /// How many of them, the first ones, a service manager keeps.
    kept: usize,
    /// They were passed by a service manager, and no configuration has wanted them yet.
    fresh: bool,
    /// They cannot be a group: every slot polls all of them.
    single: bool,
}

impl Listeners {
    /// Binds what is `wanted` for `workers` slots and is not held yet. On failure everything is as before.
    pub(crate) fn stage(
        &mut self,
        wanted: &[Listener],
        workers: u32,
    ) -> Result<(), Vec<Diagnostic>> {
        let mut complaints: Vec<_> = wanted
            .iter()
            .filter_map(|listener| self.mismatch(listener).or(self.other_family(listener)))
            .collect();
        if !complaints.is_empty() {
            return Err(complaints);
        }
        for listener in wanted {
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

    /// Whether a wildcard socket takes IPv4, too, is decided when it is bound. Silently one family would be refused, or
    /// taken from another listener.
    fn other_family(&self, listener: &Listener) -> Option<Diagnostic> {
        let ListenAddress::Inet(SocketAddr::V6(address)) = listener.address else {
            return None;
        };
        let mut all = self.held.iter();
        let held = all.find(|held| held.address == listener.address && !held.fresh)?;
        let only_v6 = held.sockets.first().map(socket::is_only_v6)?.ok()?;
        if !address.ip().is_unspecified() || only_v6 == settings_of(&listener.options).v6only {
            return None;
        }
        let text = format!("ipv6only of {address} cannot be changed while kp listens there");
        let advice =
            "stop kp and start it again, or reload once without this address and then with it";
        Some(Diagnostic::error(listener.span, text).hint(advice))
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

    /// Lets everything that is `wanted` listen; then takes the other addresses away. On failure everything is as it was before
    /// [`Listeners::stage`].
    pub(crate) fn commit(
        &mut self,
        wanted: &[Listener],
        now_ms: u64,
    ) -> Result<(), Vec<Diagnostic>> {
        self.listen(wanted)?;
        let (stay, go) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|held| wanted.iter().any(|one| one.address == held.address));
        self.held = stay;
        for held in &mut self.held {
            held.welcome();
        }
        for mut held in go {
            // Who comes from now on is to reach the wildcard address, not to be ignored.
            let covered = wanted.iter().any(|wider| covers(wider, &held.address));
            if held.refusing_until_ms.is_some() {
                self.held.push(held);
            } else if self.is_shared(&held) {
                self.given_up.push(held.address.clone());
                self.leave_to_other(held);
            } else {
                held.unlink();
                held.refusing_until_ms = Some(now_ms + REFUSING_MS);
                if !covered && held.refuse(held.kept) {
                    self.held.push(held);
                }
            }
        }
        Ok(())
    }

    /// All of them listen, or only those that did before.
    fn listen(&mut self, wanted: &[Listener]) -> Result<(), Vec<Diagnostic>> {
        let before: Vec<usize> = self.held.iter().map(|held| held.listening).collect();
        let mut complaints = Vec::new();
        for listener in wanted {
            let mut all = self.held.iter_mut();
            let Some(held) = all.find(|held| held.address == listener.address) else {
                continue;
            };
            if let Err(error) = held.listen(&listener.options) {
                complaints.push(refusal(listener, &error, "listen()"));
            }
        }
        if complaints.is_empty() {
            return Ok(());
        }
        for (held, listening) in self.held.iter_mut().zip(before) {
            held.listening = listening;
        }
        self.unstage();
        Err(complaints)
    }

    fn is_shared(&self, held: &Held) -> bool {
        self.company && held.shared > 0
    }

    /// Closes what the other master has, too; its path stays as long as that one lives.
    fn leave_to_other(&mut self, mut held: Held) {
        held.sockets.clear();
        self.left.push(held);
    }

    /// When [`Listeners::sweep`] has something to do.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.held
            .iter()
            .filter_map(|held| held.refusing_until_ms)
            .min()
    }

    /// Closes what was taken away a while ago. Not while a generation is starting, which may want it back.
    pub(crate) fn sweep(&mut self, now_ms: u64) {
        self.held
            .retain(|held| held.refusing_until_ms.is_none_or(|until| now_ms < until));
    }

    /// The sockets that a slot polls, of `slots`.
    pub(crate) fn of_slot<'a>(
        &'a self,
        wanted: &'a [Listener],
        slot: u32,
        slots: u32,
    ) -> impl Iterator<Item = (ListenerId, BorrowedFd<'a>)> {
        wanted.iter().zip(0..).flat_map(move |(listener, id)| {
            let held = self
                .held
                .iter()
                .find(|held| held.address == listener.address);
            let sockets = held.map_or(&[][..], |held| &held.sockets);
            let all = held.is_some_and(Held::is_one_for_all);
            let mine = move |index: u32| all || index == slot || (slot == 0 && index >= slots);
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
            .filter(|held| !held.is_one_for_all())
            .filter(|held| held.refusing_until_ms.is_none())
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

    /// Every address that is served, as text.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let served = self
            .held
            .iter()
            .filter(|held| held.listening > 0 && held.refusing_until_ms.is_none());
        served
            .map(|held| Shown(&held.address).to_string())
            .collect()
    }

    /// Closes everything: nothing new is taken. What somebody else has, too, gets all newcomers.
    pub(crate) fn close(&mut self) {
        for mut held in std::mem::take(&mut self.held) {
            if self.is_shared(&held) {
                held.refuse(held.shared.max(held.kept));
                self.leave_to_other(held);
            } else {
                held.unlink();
                held.refuse(held.kept);
            }
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
        let Some(held) = self.held.get_mut(index) else {
            return Ok(());
        };
        let was_fresh = std::mem::take(&mut held.fresh);
        if was_fresh {
            held.adopt(&settings)?;
        }
        let ListenAddress::Inet(address) = &listener.address else {
            return Ok(());
        };
        while held.sockets.len() < workers && !held.single {
            match socket::bind(*address, Group::Further, &settings) {
                Ok(further) => held.sockets.push(further),
                Err(_) if was_fresh => held.single = true,
                Err(error) => return Err(error),
            }
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
        Ok(Held::new(ListenAddress::Inet(address), vec![bound?]))
    }
}

impl Held {
    fn new(address: ListenAddress, sockets: Vec<OwnedFd>) -> Self {
        Self {
            address,
            sockets,
            listening: 0,
            inode: None,
            steered: false,
            refusing_until_ms: None,
            shared: 0,
            kept: 0,
            fresh: false,
            single: false,
        }
    }

    /// Every slot polls every socket, and there is nothing to steer.
    fn is_one_for_all(&self) -> bool {
        self.single || matches!(self.address, ListenAddress::Unix(_))
    }

    fn unix(path: &Path, settings: &ListenSettings) -> io::Result<Self> {
        remove_stale(path)?;
        let sockets = vec![socket::bind_unix(path, settings)?];
        let address = ListenAddress::Unix(path.to_owned());
        Ok(Self {
            inode: inode_of(path),
            ..Self::new(address, sockets)
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

    /// Ignores newcomers from now on, or sends them to the first `home` sockets, which somebody else has, too. False where
    /// there is nobody to ignore. What waits in the queues is served by the workers that still poll them.
    fn refuse(&mut self, home: usize) -> bool {
        let own = self.sockets.get(home..).unwrap_or_default();
        if own.is_empty() || self.is_one_for_all() {
            return false;
        }
        let refused = self
            .steer_home(home)
            .and_then(|()| own.iter().try_for_each(socket::refuse_new));
        if let Err(error) = &refused {
            // Not everybody may do that, and who may not can change nothing about it.
            let level = match error.kind() {
                io::ErrorKind::PermissionDenied => log::Level::Info,
                _ => log::Level::Warn,
            };
            log::log!(
                level,
                "setsockopt() failed ({}): connections to {} may be reset",
                report::numbered(error),
                Shown(&self.address)
            );
        }
        refused.is_ok()
    }

    /// Newcomers go to the first `home` sockets, if there are any.
    fn steer_home(&self, home: usize) -> io::Result<()> {
        let targets: Vec<u16> = (0..u16::try_from(home).unwrap_or(u16::MAX)).collect();
        match self.sockets.first() {
            Some(first) if home > 0 && !self.is_one_for_all() => socket::steer(first, &targets),
            _ => Ok(()),
        }
    }

    /// Takes newcomers again, after a reload has brought the address back.
    fn welcome(&mut self) {
        if self.refusing_until_ms.take().is_some()
            && let Err(error) = self.sockets.iter().try_for_each(welcome_one)
        {
            log::error!(target: "alert", "setsockopt(SO_DETACH_FILTER) failed ({})", report::numbered(&error));
        }
    }

    fn unlink(&self) {
        let ListenAddress::Unix(path) = &self.address else {
            return;
        };
        if self.inode.is_some() && self.inode == inode_of(path) {
            let _ = fs::remove_file(path);
        }
    }
}

fn inode_of(path: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Sockets that were added since do not refuse.
fn welcome_one(listener: &OwnedFd) -> io::Result<()> {
    if socket::refuses_new(listener) {
        socket::welcome_new(listener)?;
    }
    Ok(())
}

/// Whether connections to an address reach a wildcard address when it is gone.
fn covers(wider: &Listener, address: &ListenAddress) -> bool {
    match (&wider.address, address) {
        (ListenAddress::Inet(wide), ListenAddress::Inet(address)) => {
            let takes_both = !settings_of(&wider.options).v6only;
            wide.port() == address.port()
                && wide.ip().is_unspecified()
                && (wide.is_ipv6() == address.is_ipv6() || (wide.is_ipv6() && takes_both))
        }
        _ => false,
    }
}

/// Whether the addresses could be bound if nobody had them, for `-t`: as with nginx, one that is in use is no error, since
/// a running master uses them. Never listens.
pub(crate) fn probe(wanted: &[Listener]) -> Vec<Diagnostic> {
    let mut trial = Listeners::default();
    let mut complaints = Vec::new();
    for listener in wanted {
        let tried = match &listener.address {
            ListenAddress::Inet(address) => trial
                .first_of(*address, &settings_of(&listener.options))
                .map(|held| trial.held.push(held)),
            ListenAddress::Unix(path) => probe_unix(path),
        };
        match tried {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => complaints.push(refusal(listener, &error, "bind()")),
            Ok(()) => {}
        }
    }
    complaints
}

/// Whether its folder is there. What lies at the path itself may be a running master's.
fn probe_unix(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(".".as_ref());
    fs::metadata(folder).map(|_| ())
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
        (io::ErrorKind::PermissionDenied, Some(port)) => complaint.hint(how_to_be_allowed(port, first_free_port())),
        (io::ErrorKind::AddrNotAvailable, _) => complaint.hint("the address belongs to none of this machine's interfaces (`ip address`)"),
        _ => complaint,
    }
}

/// The first port that everybody may use (ip(7)).
fn first_free_port() -> u16 {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1024)
}

fn how_to_be_allowed(port: u16, first_free: u16) -> String {
    if port >= first_free {
        return format!(
            "a security module of this system (SELinux, AppArmor) keeps port {port} from kp"
        );
    }
    let program = std::env::current_exe().unwrap_or_else(|_| "kp".into());
    format!(
        "port {port} is below {first_free}, which needs root or CAP_NET_BIND_SERVICE: listen on a port from {first_free} up, start kp as root, \
         or give it that right: `setcap cap_net_bind_service=+ep {}` (a container: `--sysctl net.ipv4.ip_unprivileged_port_start=0`)",
        program.display()
    )
}

/// nginx's text for an address.
pub(crate) struct Shown<'a>(pub(crate) &'a ListenAddress);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ListenAddress::Inet(address) => write!(out, "{address}"),
            ListenAddress::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests;
