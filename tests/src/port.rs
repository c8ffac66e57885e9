//! Ports that nobody else gets.
//!
//! A port is free when a listening socket can be bound to it, and taken while its owner holds a UDP socket on the same
//! number: the lock works between the processes of a test run and vanishes with its owner. Numbers come from below the
//! kernel's ephemeral range, so that no outgoing connection can sit on a port between two starts of a server.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 10_240;
const LAST: u32 = 32_000;

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
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, number)).ok()?;
        Some(Self {
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
