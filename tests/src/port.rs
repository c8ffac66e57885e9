//! Ports that nobody else gets.
//!
//! A port is free when nobody listens on it, and taken while its owner holds a UDP socket on the same number: the lock works
//! between the processes of a test run and vanishes with its owner. Numbers come from below the kernel's ephemeral range, so
//! that no outgoing connection can sit on a port between two starts of a server.
//!
//! Nothing is bound to the port to see whether that works: while another test of the same process starts a program, that
//! program holds, from its fork to its exec, all sockets that there were, and the port's owner would find it in use. For the
//! same reason who binds an address anew that was in use just now has patience ([`listen`]).

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::process;
use crate::wait::{self, SOON};

const FIRST: u32 = 10_240;
const LAST: u32 = 32_000;

/// Listens at an address that nobody else has, as soon as no program that is just starting holds it any more.
pub fn listen(address: &str) -> TcpListener {
    wait::until_some(SOON, "an address to be free", || {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => None,
            listener => Some(listener.expect("listening")),
        }
    })
}

/// A TCP port of 127.0.0.1, held until dropped. Nobody listens on it until its owner does.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lock: UdpSocket,
}

impl Port {
    /// Takes a free port.
    pub fn take() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let start = std::process::id().wrapping_mul(97);
        for _ in 0..(LAST - FIRST) {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let number = FIRST + (start.wrapping_add(step)) % (LAST - FIRST);
            if let Some(port) = u16::try_from(number).ok().and_then(Self::claim) {
                return port;
            }
        }
        panic!("no free port between {FIRST} and {LAST}");
    }

    /// Takes that many free ports with consecutive numbers.
    pub fn take_row(count: u16) -> Vec<Self> {
        for _ in 0..1000 {
            let first = Self::take();
            let rest: Option<Vec<Self>> = (1..count)
                .map(|step| Self::claim(first.number + step))
                .collect();
            if let Some(mut rest) = rest {
                rest.insert(0, first);
                return rest;
            }
        }
        panic!("no {count} free ports in a row");
    }

    fn claim(number: u16) -> Option<Self> {
        let lock = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        (!process::listening(number)).then_some(Self {
            number,
            _lock: lock,
        })
    }

    /// The number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// `127.0.0.1:NUMBER`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.number)
    }
}
