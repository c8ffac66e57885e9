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
}

impl Listeners {
    /// Binds what is `wanted` for `workers` slots and is not held yet. On failure everything is as before.
    pub(crate) fn stage(
        &mut self,
        wanted: &[Listener],
        workers: u32,
    ) -> Result<(), Vec<Diagnostic>> {
        let mut complaints = Vec::new();
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

    /// Lets everything that is `wanted` listen; then takes the other addresses away.
    pub(crate) fn commit(
        &mut self,
        wanted: &[Listener],
        now_ms: u64,
    ) -> Result<(), Vec<Diagnostic>> {
        let mut complaints = Vec::new();
        for listener in wanted {
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
        self.held.retain_mut(|held| {
            if wanted
                .iter()
                .any(|listener| listener.address == held.address)
            {
                held.welcome();
                return true;
            }
            if held.refusing_until_ms.is_some() {
                return true;
            }
            held.unlink();
            // Who comes from now on is to reach the wildcard address, not to be ignored.
            let covered = wanted.iter().any(|wider| covers(wider, &held.address));
            held.refusing_until_ms = Some(now_ms + REFUSING_MS);
            !covered && held.refuse()
        });
        Ok(())
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

    /// Closes everything: nothing new is taken.
    pub(crate) fn close(&mut self) {
        for mut held in self.held.drain(..) {
            held.unlink();
            held.refuse();
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
            refusing_until_ms: None,
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
            refusing_until_ms: None,
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

    /// Ignores newcomers from now on; false where there is nobody to ignore. What waits in the queues is served by the
    /// workers that still poll them.
    fn refuse(&mut self) -> bool {
        if !matches!(self.address, ListenAddress::Inet(_)) {
            return false;
        }
        let refused = self.sockets.iter().try_for_each(socket::refuse_new);
        if let Err(error) = &refused {
            log::warn!(
                "setsockopt(SO_ATTACH_FILTER) failed ({})",
                report::numbered(error)
            );
        }
        refused.is_ok()
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
struct Shown<'a>(&'a ListenAddress);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ListenAddress::Inet(address) => write!(out, "{address}"),
            ListenAddress::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kp_config::Span;
    use kp_config::model::ServerId;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::time::Duration;

    fn listener(address: ListenAddress) -> Listener {
        Listener {
            address,
            options: ListenOptions::default(),
            tls: false,
            servers: Vec::new(),
            default_server: ServerId(0),
            span: Span {
                line: 7,
                ..Span::default()
            },
        }
    }

    fn inet(address: SocketAddr) -> Listener {
        listener(ListenAddress::Inet(address))
    }

    /// An address that nobody else has: held by the group itself, which is bound to port 0 first.
    fn free_address() -> SocketAddr {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        taken.local_addr().unwrap()
    }

    fn numbers(
        listeners: &Listeners,
        wanted: &[Listener],
        slot: u32,
        slots: u32,
    ) -> Vec<(u32, i32)> {
        listeners
            .of_slot(wanted, slot, slots)
            .map(|(id, fd)| (id.0, fd.as_raw_fd()))
            .collect()
    }

    #[test]
    fn one_socket_for_each_slot_adopted_by_address_over_a_reload() {
        let (first, second) = (free_address(), free_address());
        let wanted = [inet(first), inet(second)];
        let mut listeners = Listeners::default();
        listeners.stage(&wanted, 2).unwrap();
        assert!(
            TcpStream::connect(first).is_err(),
            "bound sockets must not listen"
        );
        listeners.commit(&wanted, 0).unwrap();
        let (zero, one) = (
            numbers(&listeners, &wanted, 0, 2),
            numbers(&listeners, &wanted, 1, 2),
        );
        assert_eq!((zero.len(), one.len()), (2, 2));
        let swapped = [inet(second), inet(first)];
        listeners.stage(&swapped, 2).unwrap();
        listeners.commit(&swapped, 0).unwrap();
        assert_eq!(
            numbers(&listeners, &swapped, 0, 2),
            [(0, zero[1].1), (1, zero[0].1)]
        );
        assert_eq!(
            numbers(&listeners, &swapped, 1, 2),
            [(0, one[1].1), (1, one[0].1)]
        );
    }

    #[test]
    fn with_fewer_workers_the_first_polls_what_is_left_over() {
        let wanted = [inet(free_address())];
        let mut listeners = Listeners::default();
        listeners.stage(&wanted, 3).unwrap();
        listeners.commit(&wanted, 0).unwrap();
        let all: Vec<i32> = (0..3)
            .map(|slot| numbers(&listeners, &wanted, slot, 3)[0].1)
            .collect();
        listeners.stage(&wanted, 1).unwrap();
        listeners.commit(&wanted, 0).unwrap();
        listeners.steer(&[0], 1).unwrap();
        let polled: Vec<i32> = numbers(&listeners, &wanted, 0, 1)
            .into_iter()
            .map(|(_, fd)| fd)
            .collect();
        assert_eq!(polled, all);
        listeners.stage(&wanted, 4).unwrap();
        listeners.commit(&wanted, 0).unwrap();
        assert_eq!(numbers(&listeners, &wanted, 2, 4), [(0, all[2])]);
        assert!(!all.contains(&numbers(&listeners, &wanted, 3, 4)[0].1));
    }

    #[test]
    fn addresses_that_are_gone_refuse_and_new_ones_answer() {
        let (old, new) = (free_address(), free_address());
        let mut listeners = Listeners::default();
        listeners.stage(&[inet(old)], 1).unwrap();
        listeners.commit(&[inet(old)], 0).unwrap();
        listeners.stage(&[inet(new)], 1).unwrap();
        assert!(TcpStream::connect(old).is_ok());
        let before = numbers(&listeners, &[inet(old)], 0, 1);
        listeners.commit(&[inet(new)], 5).unwrap();
        let patience = Duration::from_millis(50);
        let ignored = TcpStream::connect_timeout(&old, patience).unwrap_err();
        assert_eq!(ignored.kind(), io::ErrorKind::TimedOut);
        assert!(TcpStream::connect(new).is_ok());
        // Back again in time: the same sockets as before.
        listeners.sweep(4 + REFUSING_MS);
        listeners.stage(&[inet(old), inet(new)], 1).unwrap();
        listeners.commit(&[inet(old), inet(new)], 6).unwrap();
        assert_eq!(numbers(&listeners, &[inet(old)], 0, 1), before);
        assert!(TcpStream::connect(old).is_ok());
        assert_eq!(listeners.due_ms(), None);
        listeners.commit(&[inet(new)], 7).unwrap();
        assert_eq!(listeners.due_ms(), Some(7 + REFUSING_MS));
        listeners.sweep(7 + REFUSING_MS);
        let refused = TcpStream::connect(old).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn an_address_that_a_wildcard_takes_over_ignores_nobody() {
        let narrow = free_address();
        let wide = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), narrow.port());
        let mut listeners = Listeners::default();
        listeners.stage(&[inet(narrow)], 2).unwrap();
        listeners.commit(&[inet(narrow)], 0).unwrap();
        listeners.stage(&[inet(wide)], 2).unwrap();
        listeners.commit(&[inet(wide)], 0).unwrap();
        assert!(TcpStream::connect(narrow).is_ok());
        assert_eq!((listeners.held.len(), listeners.due_ms()), (1, None));
    }

    #[test]
    fn a_low_port_is_told_with_every_way_out() {
        let advice = how_to_be_allowed(80, 1024);
        for part in [
            "port 80 is below 1024",
            "from 1024 up",
            "as root",
            "setcap cap_net_bind_service=+ep /",
        ] {
            assert!(advice.contains(part), "{part} in {advice}");
        }
        assert!(how_to_be_allowed(8080, 1024).contains("security module"));
    }

    #[test]
    fn an_address_in_use_is_told_at_its_listen_and_leaves_no_trace() {
        let foreign = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (kept, fresh) = (inet(free_address()), inet(free_address()));
        let mut listeners = Listeners::default();
        listeners.stage(std::slice::from_ref(&kept), 1).unwrap();
        listeners.commit(std::slice::from_ref(&kept), 0).unwrap();
        let address = foreign.local_addr().unwrap();
        let complaints = listeners
            .stage(&[kept.clone(), fresh, inet(address)], 2)
            .unwrap_err();
        assert_eq!(complaints.len(), 1);
        assert_eq!(
            complaints[0].message,
            format!("bind() to {address} failed (98: Address already in use)")
        );
        assert_eq!(complaints[0].span.map(|span| span.line), Some(7));
        assert!(complaints[0].hint.is_some());
        assert_eq!(listeners.held.len(), 1);
        assert_eq!(numbers(&listeners, &[kept], 1, 2), []);
    }

    #[test]
    fn a_wildcard_and_an_address_of_the_same_port_are_both_ours() {
        let narrow = free_address();
        let wide = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), narrow.port());
        let mut listeners = Listeners::default();
        listeners.stage(&[inet(wide), inet(narrow)], 2).unwrap();
        listeners.commit(&[inet(wide), inet(narrow)], 0).unwrap();
        assert_eq!(listeners.held.len(), 2);
        assert!(
            probe(&[inet(narrow), inet(wide)]).is_empty(),
            "-t does not mind a running kp"
        );
    }

    #[test]
    fn a_trial_tells_what_can_never_be_bound() {
        let elsewhere = SocketAddr::from(([192, 0, 2, 1], free_address().port()));
        let nowhere = listener(ListenAddress::Unix("/no/such/folder/kp.sock".into()));
        let complaints = probe(&[inet(elsewhere), nowhere, inet(free_address())]);
        let said: Vec<_> = complaints.iter().map(|one| one.message.as_str()).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].contains("192.0.2.1") && said[0].contains("(99: "),
            "{said:?}"
        );
        assert!(
            said[1].contains("(2: No such file or directory)"),
            "{said:?}"
        );
    }

    #[test]
    fn unix_paths_are_replaced_when_stale_and_unlinked_only_when_ours() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kp.sock");
        drop(UnixListener::bind(&path).unwrap());
        let wanted = [listener(ListenAddress::Unix(path.clone()))];
        assert!(probe(&wanted).is_empty());
        let mut listeners = Listeners::default();
        listeners.stage(&wanted, 2).unwrap();
        listeners.commit(&wanted, 0).unwrap();
        assert_eq!(
            numbers(&listeners, &wanted, 0, 2),
            numbers(&listeners, &wanted, 1, 2)
        );
        assert!(UnixStream::connect(&path).is_ok());
        let mut second = Listeners::default();
        let complaint = second.stage(&wanted, 1).unwrap_err().remove(0);
        assert_eq!(
            complaint.message,
            format!(
                "bind() to unix:{} failed (98: Address already in use)",
                path.display()
            )
        );
        listeners.close();
        assert!(!path.exists());

        listeners.stage(&wanted, 1).unwrap();
        listeners.commit(&wanted, 0).unwrap();
        fs::remove_file(&path).unwrap();
        let successor = UnixListener::bind(&path).unwrap();
        listeners.close();
        assert!(path.exists());
        drop(successor);
    }

    #[test]
    fn a_staged_unix_path_goes_when_the_reload_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kp.sock");
        let mut listeners = Listeners::default();
        listeners
            .stage(&[listener(ListenAddress::Unix(path.clone()))], 1)
            .unwrap();
        assert!(path.exists());
        listeners.unstage();
        assert!(!path.exists() && listeners.held.is_empty());
    }

    #[test]
    fn a_file_that_is_no_socket_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        fs::write(&path, "precious").unwrap();
        let wanted = [listener(ListenAddress::Unix(path.clone()))];
        assert!(Listeners::default().stage(&wanted, 1).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
