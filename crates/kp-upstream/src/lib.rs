//! Which peer next, which idle connection, may we retry. Sans-I/O.
//!
//! A group's configuration belongs to this process; the facts about its peers are rows of `kp-shm`, shared with every
//! other process where the group has a `zone`, private otherwise. One code path serves both. Time is an argument.

mod balance;
mod budget;
#[cfg(test)]
mod fixture;
mod groups;
mod hash;
mod ketama;
mod lineup;
mod md5;
mod measure;
mod outliers;
mod peer;
mod pool;
pub mod retry;
mod roster;
mod steer;
mod tried;

pub use budget::Budget;
pub use groups::{Groups, NoPeer, Outcome, PeerId, PickQuery};
pub use lineup::Member;
pub use outliers::{Answer, Offence, PeerChange, Traffic};
pub use pool::{Idle, Pool, Put, Ticket};
pub use steer::Applied;
pub use tried::Tried;
