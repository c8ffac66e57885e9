//! Which session a handshake makes or resumes (`$ssl_session_id`): 32 random bytes that stand, encrypted, in its tickets.
//!
//! It is not the id that clients of TLS 1.2 send (RFC 5246 §7.4.1.2): with tickets each client makes one up (RFC 5077
//! §3.4), and TLS 1.3 has none.
//!
//! The library opens and seals tickets in the middle of a step and does not say for which connection. A step begins and ends
//! on one thread and makes no other step, so what it is about lies in a place of that thread meanwhile. The place is filled
//! from the connection before each step and emptied after it: what one connection leaves, no other finds.

use aws_lc_rs::rand;
use std::cell::Cell;

/// The id of a session.
pub(crate) type Id = [u8; 32];

/// What is known of a connection's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionId {
    /// The client wants to resume it; whether it may is not known yet.
    Offered(Id),
    /// It is this one.
    Known(Id),
}

thread_local! {
    static CURRENT: Cell<Option<SessionId>> = const { Cell::new(None) };
}

/// Does a step of a connection whose session is `id`, as far as it is known before and afterwards.
pub(crate) fn during<T>(id: &mut Option<SessionId>, step: impl FnOnce() -> T) -> T {
    CURRENT.set(*id);
    let done = step();
    *id = CURRENT.take();
    done
}

/// A ticket was opened, and its session may be resumed.
pub(crate) fn offer(id: Id) {
    CURRENT.set(Some(SessionId::Offered(id)));
}

/// A ticket is about to be sealed: the id that stands in it. `None`: no random numbers.
pub(crate) fn seal() -> Option<Id> {
    let id = match CURRENT.get() {
        Some(SessionId::Offered(id) | SessionId::Known(id)) => id,
        None => fresh()?,
    };
    CURRENT.set(Some(SessionId::Known(id)));
    Some(id)
}

/// The id of a new session. `None`: no random numbers.
pub(crate) fn fresh() -> Option<Id> {
    let mut id = Id::default();
    rand::fill(&mut id).ok()?;
    Some(id)
}
