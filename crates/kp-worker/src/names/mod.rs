//! Names that are looked up while kp runs: of `resolve` servers, whose addresses all processes share (`shared`), and of
//! `proxy_pass` with variables, which each worker remembers and shares too, as far as there is room (`cache`).
//!
//! Decides when a name is looked up and what becomes of the answer. What a lookup asks whom is `kp-dns`'s; its sockets are
//! served by `asking`; `system` knows the system's files.

mod asking;
mod cache;
mod shared;
mod system;

pub(crate) use cache::Located;
pub use shared::resolved;

use crate::reactor::Worker;
use crate::slots::Slots;
use crate::token::Key;
use asking::{Running, Socket};
use cache::Cache;
use kp_dns::Order;
use shared::Shared;
use std::collections::BTreeMap;
use system::System;

/// The longest that a request waits for the first addresses of its group: the group's first answer may be on its way.
const FIRST_ANSWER_MS: u64 = 900;
/// How often a process looks for another one's answer while a request waits for it.
const PEEK_MS: u64 = 20;

/// Everything about names.
#[derive(Debug)]
pub(crate) struct Names {
    system: System,
    lookups: Slots<Running>,
    sockets: Slots<Socket>,
    /// The sockets of attempts; the oldest come first.
    attempts: BTreeMap<u32, Key>,
    /// Sockets with something to read or room to write.
    ready: Vec<Key>,
    orders: Vec<Order>,
    buffer: Vec<u8>,
    serial: u32,
    shared: Vec<Shared>,
    /// The state of shared memory that was looked at last.
    epoch: u64,
    stamp_ms: u64,
    cache: Cache,
    /// When something is to be done.
    due_ms: u64,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self {
            system: System::default(),
            lookups: Slots::new(),
            sockets: Slots::new(),
            attempts: BTreeMap::new(),
            ready: Vec::new(),
            orders: Vec::new(),
            buffer: Vec::new(),
            serial: 0,
            shared: Vec::new(),
            epoch: 0,
            stamp_ms: 0,
            cache: Cache::default(),
            due_ms: u64::MAX,
        }
    }

    /// When something is to be done.
    pub(crate) fn due_ms(&self) -> u64 {
        self.due_ms
    }

    /// Works out when something is to be done next.
    fn settle(&mut self) {
        let lookups = self.lookups.keys().into_iter();
        let lookups = lookups.filter_map(|key| Some(self.lookups.peek(key)?.lookup.due_ms()));
        let shared = self.shared.iter().map(|name| name.wake_ms);
        let elsewhere = self.cache.peek_ms();
        let due_ms = lookups.chain(shared).min().unwrap_or(u64::MAX);
        let due_ms = due_ms.min(elsewhere);
        self.due_ms = if self.ready.is_empty() { due_ms } else { 0 };
    }

    /// A socket has news.
    pub(crate) fn note(&mut self, key: Key) {
        self.ready.push(key);
    }
}

impl Worker {
    /// Does what there is to do about names: once per turn, before requests are served.
    pub(crate) fn run_names(&mut self) {
        let now_ms = self.clock.mono_ms;
        let news = !self.names.ready.is_empty() || now_ms >= self.names.due_ms;
        if news {
            self.serve_sockets();
            self.pass_lookups();
            self.look_up_shared();
            self.look_elsewhere();
        }
        if self.shm.names().epoch() != self.names.epoch {
            self.take_shared();
        }
        if news {
            self.names.settle();
        }
    }
}

/// Any number.
fn random() -> u64 {
    let mut bytes = [0; 8];
    match kp_sys::random(&mut bytes) {
        Ok(()) => u64::from_ne_bytes(bytes),
        Err(_) => kp_sys::clock::monotonic_ms(),
    }
}
