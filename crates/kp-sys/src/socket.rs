//! Sockets: how kp binds, listens, accepts and connects; descriptors over a channel.
//!
//! Listening is in two steps, because a listening socket swallows its share of the connections even while nobody accepts:
//! [`bind`] in the plan, [`listen`] at commit. All sockets of one TCP address form a SO_REUSEPORT group; the first
//! is bound without the option, so that a foreign owner of the address is seen as "address in use".

#![allow(unsafe_code)]

use crate::from_errno;
use nix::fcntl::OFlag;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    recvmsg, sendmsg, socketpair,
};
use nix::sys::stat::Mode;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a listening socket is set to; everything but the backlog is inherited by the connections it accepts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListenSettings {
    /// SO_RCVBUF.
    pub receive_buffer: Option<usize>,
    /// SO_SNDBUF.
    pub send_buffer: Option<usize>,
    /// SO_KEEPALIVE; `None` leaves the system's setting.
    pub keepalive: Option<Keepalive>,
    /// TCP_NODELAY.
    pub nodelay: bool,
    /// TCP_NOTSENT_LOWAT, bytes.
    pub notsent_lowat: Option<u32>,
    /// IPV6_V6ONLY, for IPv6 addresses.
    pub v6only: bool,
}

/// `so_keepalive`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keepalive {
    /// On or off.
    pub enabled: bool,
    /// Idle time before the first probe.
    pub idle: Option<Duration>,
    /// Time between probes.
    pub interval: Option<Duration>,
    /// Probes before giving up.
    pub count: Option<u32>,
}

/// Whether a socket joins a group that this process family already owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// The first of its address: fails if anybody else owns the address.
    First,
    /// A further one: joins the group of SO_REUSEPORT sockets.
    Further,
}

/// Binds a TCP address without listening; non-blocking, closed on exec.
pub fn bind(address: SocketAddr, group: Group, settings: &ListenSettings) -> io::Result<OwnedFd> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(settings.v6only)?;
    }
    if group == Group::Further {
        socket.set_reuse_port(true)?;
    }
    apply_tcp(&socket, settings)?;
    socket.bind(&address.into())?;
    if group == Group::First {
        socket.set_reuse_port(true)?;
    }
    Ok(socket.into())
}

/// Binds a unix-domain path without listening; the file gets mode 0666, as nginx's. The path must not exist.
pub fn bind_unix(path: &Path, settings: &ListenSettings) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    apply(
        &socket,
        &ListenSettings {
            keepalive: None,
            ..settings.clone()
        },
    )?;
    socket.bind(&SockAddr::unix(path)?)?;
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    Ok(socket.into())
}

/// Starts to listen, or changes the backlog of a socket that does.
pub fn listen(socket: &impl AsFd, backlog: u32) -> io::Result<()> {
    SockRef::from(socket).listen(i32::try_from(backlog).unwrap_or(i32::MAX))
}

/// Applies what can change on a live listening socket (reload): buffers, keepalive, lowat.
pub fn apply_settings(socket: &impl AsFd, settings: &ListenSettings) -> io::Result<()> {
    apply(&SockRef::from(socket), settings)
}

/// Makes a socket that somebody else has bound like those of [`bind`] or [`bind_unix`]: non-blocking, with our settings,
/// and open to a group where that can be (TCP).
pub fn adopt(socket: &impl AsFd, settings: &ListenSettings) -> io::Result<()> {
    let this = SockRef::from(socket);
    this.set_nonblocking(true)?;
    if this.local_addr()?.is_unix() {
        return apply(
            &this,
            &ListenSettings {
                keepalive: None,
                ..settings.clone()
            },
        );
    }
    apply_tcp(&this, settings)?;
    this.set_reuse_port(true)
}

fn apply_tcp(socket: &Socket, settings: &ListenSettings) -> io::Result<()> {
    apply(socket, settings)?;
    if settings.nodelay {
        socket.set_tcp_nodelay(true)?;
    }
    if let Some(bytes) = settings.notsent_lowat {
        socket.set_tcp_notsent_lowat(bytes)?;
    }
    Ok(())
}

fn apply(socket: &Socket, settings: &ListenSettings) -> io::Result<()> {
    if let Some(bytes) = settings.receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(bytes) = settings.send_buffer {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(keepalive) = &settings.keepalive {
        apply_keepalive(socket, keepalive)?;
    }
    Ok(())
}

fn apply_keepalive(socket: &Socket, keepalive: &Keepalive) -> io::Result<()> {
    socket.set_keepalive(keepalive.enabled)?;
    let mut details = TcpKeepalive::new();
    if let Some(idle) = keepalive.idle {
        details = details.with_time(idle);
    }
    if let Some(interval) = keepalive.interval {
        details = details.with_interval(interval);
    }
    if let Some(count) = keepalive.count {
        details = details.with_retries(count);
    }
    if keepalive.enabled
        && (keepalive.idle.is_some() || keepalive.interval.is_some() || keepalive.count.is_some())
    {
        socket.set_tcp_keepalive(&details)?;
    }
    Ok(())
}

/// Steers the new connections of a SO_REUSEPORT group evenly at random to the sockets with the given indexes (an index
/// is the position in the order in which the sockets began to listen; while no socket was closed, of bind). Takes effect
/// at once. At most 1024 targets; none is an error.
pub fn steer(any_of_group: &impl AsFd, targets: &[u16]) -> io::Result<()> {
    let program = steering_program(targets).ok_or(io::ErrorKind::InvalidInput)?;
    attach(any_of_group, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// Lets a listening socket ignore whoever begins to connect from now on, while connections that are being set up or wait
/// in its queue still come in: for an address that is about to be closed. Who is ignored asks again after a second, and is
/// refused then. Whoever shares the socket shares this.
pub fn refuse_new(listener: &impl AsFd) -> io::Result<()> {
    attach(listener, libc::SO_ATTACH_FILTER, &refusing_program())
}

/// Undoes [`refuse_new`].
pub fn welcome_new(listener: &impl AsFd) -> io::Result<()> {
    SockRef::from(listener).detach_filter()
}

/// Whether [`refuse_new`] was called on the socket.
pub fn refuses_new(listener: &impl AsFd) -> bool {
    let mut instructions: libc::socklen_t = 0;
    // SAFETY: with a length of 0 the kernel writes nothing through the value, and the number of instructions to the length.
    let result = unsafe {
        libc::getsockopt(
            listener.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            // Read, the option is called SO_GET_FILTER.
            libc::SO_ATTACH_FILTER,
            std::ptr::null_mut(),
            &raw mut instructions,
        )
    };
    result == 0 && instructions > 0
}

/// Drops a segment that has SYN and not ACK; the filter of a TCP socket sees the TCP header at offset 0.
fn refusing_program() -> [libc::sock_filter; 5] {
    const LOAD_BYTE: u16 = 0x30; // BPF_LD | BPF_B | BPF_ABS
    const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
    const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    let op = |code, k, jf| libc::sock_filter { code, jt: 0, jf, k };
    [
        op(LOAD_BYTE, FLAGS, 0),
        op(AND, SYN | ACK, 0),
        op(JUMP_EQUAL, SYN, 1),
        op(RETURN, 0, 0),
        op(RETURN, u32::MAX, 0),
    ]
}

fn attach(socket: &impl AsFd, option: i32, program: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let filter = libc::sock_fprog {
        len: length,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the option's value is a live sock_fprog whose filter points at `len` live instructions; the kernel copies both.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// A = random; A %= N; then either `return A` (targets are 0..N) or one comparison per target.
fn steering_program(targets: &[u16]) -> Option<Vec<libc::sock_filter>> {
    const LOAD_ABSOLUTE: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const MODULO: u16 = 0x94; // BPF_ALU | BPF_MOD | BPF_K
    const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    const RETURN_A: u16 = 0x16; // BPF_RET | BPF_A
    const RANDOM: u32 = 0xffff_f000 + 56; // SKF_AD_OFF + SKF_AD_RANDOM
    let op = |code, k| libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    };
    let count = u32::try_from(targets.len())
        .ok()
        .filter(|count| (1..=1024).contains(count))?;
    let mut program = vec![op(LOAD_ABSOLUTE, RANDOM), op(MODULO, count)];
    if targets
        .iter()
        .zip(0..)
        .all(|(target, index)| *target == index)
    {
        program.push(op(RETURN_A, 0));
        return Some(program);
    }
    for (target, remainder) in targets.iter().zip(0..) {
        program.push(libc::sock_filter {
            code: JUMP_EQUAL,
            jt: 0,
            jf: 1,
            k: remainder,
        });
        program.push(op(RETURN, u32::from(*target)));
    }
    program.push(op(RETURN, u32::from(*targets.first()?)));
    Some(program)
}

/// Accepts one connection, non-blocking and closed on exec, with the peer's address (`None` on a unix-domain socket).
pub fn accept(listener: &impl AsFd) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
    let (socket, peer) =
        SockRef::from(listener).accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)?;
    Ok((socket.into(), peer.as_socket()))
}

/// Where to connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// TCP.
    Inet(SocketAddr),
    /// A unix-domain path.
    Unix(&'a Path),
}

/// Begins to connect without blocking, from the local address `from` if given (its port may be 0). Success means begun:
/// writability tells the end, [`take_error`] whether it was a good one. What fails at once is an error here.
pub fn connect(target: Target<'_>, from: Option<SocketAddr>) -> io::Result<OwnedFd> {
    let (domain, address) = match target {
        Target::Inet(address) => (Domain::for_address(address), SockAddr::from(address)),
        Target::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
    };
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), None)?;
    if let Some(from) = from {
        if from.port() == 0 {
            // The port is chosen at connect, when the peer is known, so that ports are not used up per local address.
            set_bind_address_no_port(&socket)?;
        }
        socket.bind(&from.into())?;
    }
    match socket.connect(&address) {
        Ok(()) => Ok(socket.into()),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error),
    }
}

/// A socket for datagrams to and from one address only, from a port that the kernel draws at random. Never blocks.
pub fn connect_datagram(to: SocketAddr) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM.nonblocking(), None)?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

fn set_bind_address_no_port(socket: &Socket) -> io::Result<()> {
    nix::sys::socket::setsockopt(
        socket,
        nix::sys::socket::sockopt::IpBindAddressNoPort,
        &true,
    )
    .map_err(from_errno)
}

/// SO_ERROR: how a connect that was begun has ended, or what went wrong since.
pub fn take_error(socket: &impl AsFd) -> io::Result<Option<io::Error>> {
    SockRef::from(socket).take_error()
}

/// TCP_NODELAY.
pub fn set_nodelay(socket: &impl AsFd, on: bool) -> io::Result<()> {
    SockRef::from(socket).set_tcp_nodelay(on)
}

/// SO_KEEPALIVE, with the system's times.
pub fn set_keepalive(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).set_keepalive(true)
}

/// SO_RCVBUF.
pub fn set_receive_buffer(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    SockRef::from(socket).set_recv_buffer_size(bytes)
}

/// SO_SNDBUF.
pub fn set_send_buffer(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    SockRef::from(socket).set_send_buffer_size(bytes)
}

/// TCP_NOTSENT_LOWAT.
pub fn set_notsent_lowat(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    SockRef::from(socket).set_tcp_notsent_lowat(bytes)
}

/// SO_LINGER with 0: closing sends a reset instead of what is unsent (`reset_timedout_connection`).
pub fn reset_on_close(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).set_linger(Some(Duration::ZERO))
}

/// Ends the writing side: the peer reads the end of the stream.
pub fn shutdown_write(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).shutdown(std::net::Shutdown::Write)
}

/// Sets O_NONBLOCK.
pub fn set_nonblocking(socket: &impl AsFd, on: bool) -> io::Result<()> {
    SockRef::from(socket).set_nonblocking(on)
}

/// This side's address; `None` on a unix-domain socket.
pub fn local_address(socket: &impl AsFd) -> io::Result<Option<SocketAddr>> {
    SockRef::from(socket)
        .local_addr()
        .map(|address| address.as_socket())
}

/// The other side's address; `None` on a unix-domain socket.
pub fn peer_address(socket: &impl AsFd) -> io::Result<Option<SocketAddr>> {
    SockRef::from(socket)
        .peer_addr()
        .map(|address| address.as_socket())
}

/// The user id of the process at the other end of a unix-domain connection, as the kernel saw it when it connected.
pub fn peer_uid(socket: &impl AsFd) -> io::Result<u32> {
    nix::sys::socket::getsockopt(socket, nix::sys::socket::sockopt::PeerCredentials)
        .map(|credentials| credentials.uid())
        .map_err(from_errno)
}

/// A unix-domain path in a form short enough for the kernel, which takes 107 bytes: one that is longer goes through a
/// descriptor of its directory. Usable while the value lives.
#[derive(Debug)]
pub struct ShortPath {
    path: PathBuf,
    _directory: Option<OwnedFd>,
}

impl ShortPath {
    /// An error if the directory cannot be opened, or if not even the name alone is short enough.
    pub fn of(path: &Path) -> io::Result<Self> {
        if SockAddr::unix(path).is_ok() {
            return Ok(Self {
                path: path.to_owned(),
                _directory: None,
            });
        }
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = nix::fcntl::open(directory, flags, Mode::empty()).map_err(from_errno)?;
        let mut short = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        short.push(name);
        SockAddr::unix(&short)?;
        Ok(Self {
            path: short,
            _directory: Some(directory),
        })
    }

    /// The form to use.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether the socket listens.
pub fn is_listening(socket: &impl AsFd) -> io::Result<bool> {
    SockRef::from(socket).is_listener()
}

/// Whether connections are streams.
pub fn is_stream(socket: &impl AsFd) -> io::Result<bool> {
    SockRef::from(socket)
        .r#type()
        .map(|kind| kind == Type::STREAM)
}

/// The path a unix-domain socket is bound to; `None`: another family, or no path.
pub fn local_path(socket: &impl AsFd) -> io::Result<Option<PathBuf>> {
    SockRef::from(socket)
        .local_addr()
        .map(|address| address.as_pathname().map(Path::to_owned))
}

/// IPV6_V6ONLY.
pub fn is_only_v6(socket: &impl AsFd) -> io::Result<bool> {
    SockRef::from(socket).only_v6()
}

/// What `$tcpinfo_*` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpInfo {
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: u32,
    /// Its variation, microseconds.
    pub rtt_variation_us: u32,
    /// Congestion window, segments.
    pub send_window_segments: u32,
    /// Receive space, bytes.
    pub receive_space_bytes: u32,
}

/// TCP_INFO.
pub fn tcp_info(socket: &impl AsFd) -> io::Result<TcpInfo> {
    // SAFETY: tcp_info is plain old data, for which all bits zero is a valid value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: value and length are live locals, and the length is the value's size, so the kernel writes within it.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(TcpInfo {
        rtt_us: info.tcpi_rtt,
        rtt_variation_us: info.tcpi_rttvar,
        send_window_segments: info.tcpi_snd_cwnd,
        receive_space_bytes: info.tcpi_rcv_space,
    })
}

/// What the kernel holds for a socket, and lets it hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketMemory {
    /// Received and not read, with the kernel's own part, bytes.
    pub read: u32,
    /// The most it may become, bytes.
    pub read_limit: u32,
    /// Written and not acknowledged, with the kernel's own part, bytes.
    pub written: u32,
}

/// SO_MEMINFO.
pub fn memory(socket: &impl AsFd) -> io::Result<SocketMemory> {
    let mut words = [0_u32; 9];
    let mut length = size_of_val(&words) as libc::socklen_t;
    // SAFETY: value and length are live locals, and the length is the value's size, so the kernel writes within it.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            words.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let [read, read_limit, _, _, _, written, ..] = words;
    Ok(SocketMemory {
        read,
        read_limit,
        written,
    })
}

/// SIOCOUTQ: bytes that were written and that the other side has not acknowledged.
pub fn unacknowledged(socket: &impl AsFd) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one int, to a live local.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes.unsigned_abs())
}

/// A connected pair that keeps datagram borders and tells when the other end is gone; non-blocking, closed on exec.
pub fn seqpacket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).map_err(from_errno)
}

/// The kernel's limit of descriptors in one message is 253 (`SCM_MAX_FD`); a little less is used.
pub const FDS_MAX: usize = 200;

/// Sends one datagram with descriptors (at most [`FDS_MAX`]).
pub fn send_fds(channel: &impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    let flags = MsgFlags::MSG_NOSIGNAL;
    sendmsg::<UnixAddr>(
        channel.as_fd().as_raw_fd(),
        &[IoSlice::new(bytes)],
        control,
        flags,
        None,
    )
    .map(|_| ())
    .map_err(from_errno)
}

/// Receives one datagram of at most 64 KiB with its descriptors (closed on exec). `None`: the other end is gone.
pub fn recv_fds(channel: &impl AsFd) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut bytes = vec![0_u8; 64 * 1024];
    let mut control = nix::cmsg_space!([RawFd; FDS_MAX]);
    let (length, raw) = {
        let mut stretches = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<UnixAddr>(
            channel.as_fd().as_raw_fd(),
            &mut stretches,
            Some(&mut control),
            flags,
        )
        .map_err(from_errno)?;
        let mut raw: Vec<RawFd> = Vec::new();
        // ENOBUFS: the message is here, but no descriptor was free for all that came with it.
        for item in message.cmsgs().map_err(from_errno)? {
            if let ControlMessageOwned::ScmRights(fds) = item {
                raw.extend(fds);
            }
        }
        (message.bytes, raw)
    };
    // SAFETY: the kernel installed these descriptors for this message; nobody else in this process knows them.
    let fds: Vec<OwnedFd> = raw
        .into_iter()
        .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
        .collect();
    if length == 0 && fds.is_empty() {
        // Neither side ever sends an empty datagram.
        return Ok(None);
    }
    bytes.truncate(length);
    Ok(Some((bytes, fds)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::readable;
    use std::net::{IpAddr, TcpListener, TcpStream};

    const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    fn group_of(count: usize) -> (SocketAddr, Vec<OwnedFd>) {
        let first = bind(ANY, Group::First, &ListenSettings::default()).unwrap();
        let address = local_address(&first).unwrap().unwrap();
        let mut sockets = vec![first];
        while sockets.len() < count {
            sockets.push(bind(address, Group::Further, &ListenSettings::default()).unwrap());
        }
        (address, sockets)
    }

    fn accepted(listener: &OwnedFd) -> usize {
        std::iter::from_fn(|| accept(listener).ok()).count()
    }

    #[test]
    fn a_foreign_owner_is_seen_even_if_it_shares() {
        let plain = TcpListener::bind(ANY).unwrap();
        let taken = bind(
            plain.local_addr().unwrap(),
            Group::First,
            &ListenSettings::default(),
        );
        assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let (address, sockets) = group_of(2);
        for socket in &sockets {
            listen(socket, 16).unwrap();
        }
        let taken = bind(address, Group::First, &ListenSettings::default());
        assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_refusing_listener_serves_its_queue_and_ignores_newcomers() {
        let (address, sockets) = group_of(1);
        let listener = &sockets[0];
        listen(listener, 16).unwrap();
        let queued: Vec<_> = (0..3)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        assert!(!refuses_new(listener));
        refuse_new(listener).unwrap();
        assert!(refuses_new(listener));
        let late = TcpStream::connect_timeout(&address, Duration::from_millis(100));
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(accepted(listener), queued.len());
        welcome_new(listener).unwrap();
        assert!(!refuses_new(listener));
        let _welcome = TcpStream::connect(address).unwrap();
        assert_eq!(accepted(listener), 1);
    }

    #[test]
    fn a_foreign_socket_is_adopted_and_may_head_a_group() {
        let plain = TcpListener::bind(ANY).unwrap();
        let address = plain.local_addr().unwrap();
        let settings = ListenSettings {
            nodelay: true,
            ..ListenSettings::default()
        };
        adopt(&plain, &settings).unwrap();
        assert!(is_stream(&plain).unwrap() && is_listening(&plain).unwrap());
        assert_eq!(local_path(&plain).unwrap(), None);
        assert_eq!(
            plain.accept().unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        let second = bind(address, Group::Further, &settings).unwrap();
        listen(&second, 64).unwrap();
        steer(&plain, &[1]).unwrap();
        let _clients: Vec<_> = (0..10)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        assert_eq!((accepted(&plain.into()), accepted(&second)), (0, 10));

        let path = std::env::temp_dir().join(format!("kp-adopt-{}", std::process::id()));
        let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
        adopt(&unix, &settings).unwrap();
        assert_eq!(local_path(&unix).unwrap(), Some(path.clone()));
        std::fs::remove_file(path).unwrap();

        let both = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
        both.set_only_v6(false).unwrap();
        assert!(!is_only_v6(&both).unwrap());
    }

    #[test]
    fn a_bound_socket_gets_nothing_until_it_listens() {
        let (address, sockets) = group_of(2);
        listen(&sockets[0], 64).unwrap();
        assert!(is_listening(&sockets[0]).unwrap() && !is_listening(&sockets[1]).unwrap());
        let _clients: Vec<_> = (0..20)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        assert_eq!(accepted(&sockets[0]), 20);
        assert_eq!(
            accept(&sockets[1]).unwrap_err().raw_os_error(),
            Some(libc::EINVAL)
        );
    }

    #[test]
    fn steering_leaves_out_who_has_no_poller() {
        let (address, sockets) = group_of(3);
        for socket in &sockets {
            listen(socket, 256).unwrap();
        }
        let share = |targets: &[u16]| {
            steer(&sockets[0], targets).unwrap();
            let _clients: Vec<_> = (0..120)
                .map(|_| TcpStream::connect(address).unwrap())
                .collect();
            sockets.iter().map(accepted).collect::<Vec<_>>()
        };
        let all = share(&[0, 1, 2]);
        assert_eq!(all.iter().sum::<usize>(), 120);
        assert!(all.iter().all(|count| *count > 15), "{all:?}");
        let hole = share(&[0, 2]);
        assert_eq!((hole[1], hole[0] + hole[2]), (0, 120));
        assert!(hole[0] > 15 && hole[2] > 15, "{hole:?}");
        assert_eq!(share(&[1]), [0, 120, 0]);
        assert!(steer(&sockets[0], &[]).is_err());
    }

    #[test]
    fn connections_inherit_what_the_listener_was_set_to() {
        let keepalive = Keepalive {
            enabled: true,
            idle: Some(Duration::from_secs(77)),
            interval: None,
            count: Some(3),
        };
        let settings = ListenSettings {
            nodelay: true,
            notsent_lowat: Some(128 * 1024),
            keepalive: Some(keepalive),
            ..ListenSettings::default()
        };
        let listener = bind(ANY, Group::First, &settings).unwrap();
        listen(&listener, 4).unwrap();
        let client = TcpStream::connect(local_address(&listener).unwrap().unwrap()).unwrap();
        let (connection, peer) = accept(&listener).unwrap();
        assert_eq!(peer, Some(client.local_addr().unwrap()));
        assert_eq!(peer_address(&connection).unwrap(), peer);
        let inherited = SockRef::from(&connection);
        assert!(inherited.tcp_nodelay().unwrap() && inherited.keepalive().unwrap());
        assert_eq!(inherited.tcp_notsent_lowat().unwrap(), 128 * 1024);
        assert_eq!(
            inherited.tcp_keepalive_time().unwrap(),
            Duration::from_secs(77)
        );
        assert!(tcp_info(&connection).unwrap().send_window_segments > 0);
    }

    #[test]
    fn connect_begins_and_tells_how_it_ended() {
        let listener = TcpListener::bind(ANY).unwrap();
        let address = listener.local_addr().unwrap();
        let socket = connect(
            Target::Inet(address),
            Some(SocketAddr::new(address.ip(), 0)),
        )
        .unwrap();
        let (server, peer) = listener.accept().unwrap();
        assert_eq!(
            take_error(&socket).unwrap().map(|error| error.to_string()),
            None
        );
        assert_eq!(Some(peer), local_address(&socket).unwrap());
        reset_on_close(&socket).unwrap();
        drop(socket);
        readable(&[server.as_fd()], Some(Duration::from_secs(5))).unwrap();
        let mut buffer = Vec::new();
        let end = crate::io::recv_into(&server, &mut buffer, 10);
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        drop(listener);
        // Loopback refuses at once or after the event, depending on the kernel.
        match connect(Target::Inet(address), None) {
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused),
            Ok(socket) => {
                readable(&[socket.as_fd()], Some(Duration::from_secs(5))).unwrap();
                assert_eq!(
                    take_error(&socket).unwrap().unwrap().kind(),
                    io::ErrorKind::ConnectionRefused
                );
            }
        }
    }

    #[test]
    fn unix_paths_are_bound_accepted_and_connected() {
        let path = std::env::temp_dir().join(format!("kp-sys-{}.sock", std::process::id()));
        let listener = bind_unix(&path, &ListenSettings::default()).unwrap();
        assert_eq!(
            bind_unix(&path, &ListenSettings::default())
                .unwrap_err()
                .kind(),
            io::ErrorKind::AddrInUse
        );
        assert_eq!(
            connect(Target::Unix(&path), None).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        listen(&listener, 4).unwrap();
        let client = connect(Target::Unix(&path), None).unwrap();
        let (_connection, peer) = accept(&listener).unwrap();
        assert_eq!((peer, peer_address(&client).unwrap()), (None, None));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            connect(Target::Unix(&path), None).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn descriptors_travel_with_their_datagram() {
        let (near, far) = seqpacket_pair().unwrap();
        assert_eq!(
            recv_fds(&far).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        let (read, write) = std::io::pipe().unwrap();
        send_fds(&near, b"L", &[write.as_fd()]).unwrap();
        send_fds(&near, b"C", &[]).unwrap();
        drop(write);
        let (bytes, fds) = recv_fds(&far).unwrap().unwrap();
        assert_eq!((bytes.as_slice(), fds.len()), (b"L".as_slice(), 1));
        let (bytes, none) = recv_fds(&far).unwrap().unwrap();
        assert_eq!((bytes.as_slice(), none.len()), (b"C".as_slice(), 0));
        std::io::Write::write_all(
            &mut std::fs::File::from(fds.into_iter().next().unwrap()),
            b"through",
        )
        .unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut std::fs::File::from(OwnedFd::from(read)), &mut text)
            .unwrap();
        assert_eq!(text, "through");
        drop(near);
        assert!(recv_fds(&far).unwrap().is_none());
    }
}
