//! Whose connections a process holds, told by the other ends: exact for a process that is stopped.

use std::fs;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use socket2::{Domain, Protocol, Socket, Type};

use crate::process;

/// What is asked about each unix socket of the machine, and answered (`linux/unix_diag.h`).
const AF_NETLINK: i32 = 16;
const AF_UNIX: u8 = 1;
const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_DONE: u16 = 3;
const UDIAG_SHOW_PEER: u32 = 4;
const UNIX_DIAG_PEER: u16 = 2;
const HEADER: usize = 16;
const MESSAGE: usize = 16;

/// The other ends of the connections of a process, each as the client itself would name it: `ADDRESS:PORT` over IPv4,
/// [`unix_end`] for a unix socket.
pub fn peers(pid: u32) -> Vec<String> {
    let mut ends = tcp_peers(pid);
    ends.extend(unix_peers(pid));
    ends
}

/// The name of this process's end of a connection over a unix socket.
pub fn unix_end(socket: &impl AsRawFd) -> String {
    let target = fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd()));
    let target = target.expect("an open descriptor");
    let inode = inode(&target.to_string_lossy()).map(str::to_owned);
    format!("unix:{}", inode.expect("a socket"))
}

fn inode(target: &str) -> Option<&str> {
    target.strip_prefix("socket:[")?.strip_suffix(']')
}

fn sockets(pid: u32) -> Vec<String> {
    process::descriptors(pid)
        .into_iter()
        .filter_map(|(_, target)| inode(&target).map(str::to_owned))
        .collect()
}

/// The other ends of its IPv4 connections.
pub fn tcp_peers(pid: u32) -> Vec<String> {
    let held = sockets(pid);
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let remote = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (end, state, inode) = (words.get(2)?, words.get(3)?, words.get(9)?);
        // A listening socket (0A) has no other end.
        if *state == "0A" || !held.iter().any(|held| held == inode) {
            return None;
        }
        let (address, port) = end.split_once(':')?;
        // The kernel prints the address as one number in the byte order of the machine.
        let address = u32::from_str_radix(address, 16).ok()?.to_le_bytes();
        let port = u16::from_str_radix(port, 16).ok()?;
        Some(format!("{}:{port}", Ipv4Addr::from(address)))
    };
    table.lines().skip(1).filter_map(remote).collect()
}

fn unix_peers(pid: u32) -> Vec<String> {
    let held = sockets(pid);
    unix_pairs()
        .into_iter()
        .filter(|(own, _)| held.iter().any(|held| *held == own.to_string()))
        .map(|(_, other)| format!("unix:{other}"))
        .collect()
}

/// The inodes of the two ends of every connection over unix sockets, each connection from both sides.
fn unix_pairs() -> Vec<(u32, u32)> {
    let kind = Some(Protocol::from(NETLINK_SOCK_DIAG));
    let mut socket = Socket::new(Domain::from(AF_NETLINK), Type::DGRAM, kind)
        .expect("a socket to ask the kernel about sockets");
    socket.write_all(&question()).expect("asking the kernel");
    let mut pairs = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = socket.read(&mut buffer).expect("the kernel's answer");
        let mut rest = &buffer[..count];
        while rest.len() >= HEADER {
            let length = u32_at(rest, 0) as usize;
            let message = &rest[HEADER..length.max(HEADER)];
            match u16_at(rest, 4) {
                SOCK_DIAG_BY_FAMILY => pairs.extend(pair(message)),
                NLMSG_DONE => return pairs,
                other => panic!("the kernel answered with a message of kind {other}"),
            }
            rest = &rest[aligned(length).min(rest.len())..];
        }
    }
}

/// A netlink header, and a `unix_diag_req` for all states.
fn question() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&40_u32.to_ne_bytes());
    bytes.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&[AF_UNIX, 0, 0, 0]);
    bytes.extend_from_slice(&u32::MAX.to_ne_bytes());
    bytes.extend_from_slice(&0_u32.to_ne_bytes());
    bytes.extend_from_slice(&UDIAG_SHOW_PEER.to_ne_bytes());
    bytes.extend_from_slice(&[0xff; 8]);
    bytes
}

/// A `unix_diag_msg`: the inode at 4, attributes behind it.
fn pair(message: &[u8]) -> Option<(u32, u32)> {
    let own = u32_at(message, 4);
    let mut rest = message.get(MESSAGE..)?;
    while rest.len() >= 8 {
        let length = usize::from(u16_at(rest, 0));
        if u16_at(rest, 2) == UNIX_DIAG_PEER {
            return Some((own, u32_at(rest, 4)));
        }
        rest = rest.get(aligned(length).max(4)..)?;
    }
    None
}

fn aligned(length: usize) -> usize {
    length.div_ceil(4) * 4
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    #[test]
    fn both_ends_of_a_connection_are_found() {
        let (near, far) = UnixStream::pair().expect("a pair");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        let client = TcpStream::connect(address).expect("a connection");
        let own = peers(std::process::id());
        assert!(own.contains(&unix_end(&near)) && own.contains(&unix_end(&far)));
        assert!(own.contains(&address.to_string()));
        // Nobody has accepted it: the client's own end is not a peer of this process yet.
        let end = client.local_addr().expect("an address").to_string();
        assert!(!own.contains(&end));
        let _accepted = listener.accept().expect("a connection");
        assert!(peers(std::process::id()).contains(&end));
    }
}
