//! Listening sockets of two masters: the same sockets, inherited by the newer one. They are known by address and kept in the
//! kernel's order, so that both steer alike.
//!
//! While both live nobody unlinks a unix path that the other may serve; whoever is left does, also the paths that its own
//! configuration does not have. Nor does either close an address for newcomers that the other serves; so the newer one says
//! which ones it has given up.

use super::{Held, Listeners, Shown};
use crate::inherit::Passed;
use crate::report;
use kp_config::model::ListenAddress;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

impl Listeners {
    /// Takes what the master before this one has passed; it still lives.
    pub(crate) fn adopt(&mut self, passed: Vec<Passed<OwnedFd>>) {
        self.company = true;
        for one in passed {
            match self
                .held
                .iter_mut()
                .find(|held| held.address == one.address)
            {
                Some(held) => held.sockets.extend(one.sockets),
                None => self.held.push(Held {
                    inode: one.inode,
                    kept: one.kept,
                    single: one.single,
                    // The other master may have attached a program.
                    steered: true,
                    ..Held::new(one.address, one.sockets)
                }),
            }
        }
        for held in &mut self.held {
            held.listening = held.sockets.len();
            held.shared = held.listening;
        }
    }

    /// Everything that takes newcomers, for the master that is about to be started.
    pub(crate) fn passed(&self) -> Vec<Passed<BorrowedFd<'_>>> {
        let all = self.held.iter();
        let all = all.filter(|held| held.refusing_until_ms.is_none());
        all.map(|held| Passed {
            address: held.address.clone(),
            inode: held.inode,
            kept: held.kept,
            single: held.single,
            sockets: held.sockets.iter().map(AsFd::as_fd).collect(),
        })
        .collect()
    }

    /// A master was started that has every socket of this one.
    pub(crate) fn share(&mut self) {
        self.company = true;
        let all = self.held.iter_mut();
        for held in all.filter(|held| held.refusing_until_ms.is_none()) {
            held.shared = held.sockets.len();
            held.steered = true;
        }
    }

    /// Sends newcomers to the sockets that the other master has, too, until the next steering.
    pub(crate) fn steer_home(&mut self) {
        for held in self.held.iter().filter(|held| held.shared > 0) {
            if let Err(error) = held.steer_home(held.shared) {
                log::error!(target: "alert", "steering connections failed ({})", report::numbered(&error));
            }
        }
    }

    /// What this master has given up since the last call and the other one has.
    pub(crate) fn given_up(&mut self) -> Vec<ListenAddress> {
        std::mem::take(&mut self.given_up)
    }

    /// The other master has given this address up.
    pub(crate) fn other_gave_up(&mut self, address: &ListenAddress) {
        let all = self.held.iter_mut();
        for held in all.filter(|held| held.address == *address) {
            log::info!("{} is not served by the new binary", Shown(address));
            held.shared = 0;
        }
    }

    /// The other master is gone: its paths are no longer anybody's, its steering is not to be relied on.
    pub(crate) fn part(&mut self) {
        self.company = false;
        for left in std::mem::take(&mut self.left) {
            left.unlink();
        }
        for held in &mut self.held {
            held.shared = 0;
        }
    }
}
