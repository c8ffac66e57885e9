//! A request body that nobody wants: what is already here of it is looked at before the answer, the rest is thrown away
//! behind it.
//!
//! Decides when the connection may go on after such a body (RFC 9112 §9.3: it has to be read to its end, or the
//! connection closed). Does not decide what is answered.

use crate::active::{Active, RequestStage};
use crate::reactor::Worker;
use kp_proxy::Failure;

impl Worker {
    /// Looks at the body bytes that came along with the head, before a local answer. As in nginx, a body that is
    /// malformed is a 400 although nobody wanted it; and the answer can say whether the connection goes on.
    pub(crate) fn sift_body(&mut self, active: &mut Active) -> Option<Failure> {
        if active.request.whole || active.request.stage != RequestStage::Unread {
            return None;
        }
        let client = self.clients.at(active.client)?;
        let mut held = std::mem::take(&mut client.input);
        if !held.is_empty() {
            // Who sends the body does not wait for a 100.
            active.request.owes_continue = false;
        }
        let failed = self.sift(active, &held);
        self.buffers.give(&mut held);
        if failed.is_some() {
            active.request.stage = RequestStage::Done;
        }
        failed
    }

    fn sift(&mut self, active: &mut Active, held: &[u8]) -> Option<Failure> {
        let mut rest = held;
        while !rest.is_empty() {
            let found = match self.take_pieces(active, rest) {
                Ok(found) => found,
                Err(failure) => return Some(failure),
            };
            rest = rest.get(found.consumed()..).unwrap_or_default();
            if found.is_last() {
                self.body_done(active, rest);
                return None;
            }
            if found.consumed() == 0 {
                return None;
            }
        }
        None
    }

    /// Whether the end of the request can still be found, so that another one may follow.
    pub(crate) fn body_is_lost(active: &Active) -> bool {
        active.request.stage == RequestStage::Done && !active.request.whole
    }

    /// Nobody wants the rest of the request body any more.
    pub(crate) fn discard_body(&mut self, active: &mut Active) {
        if active.request.whole {
            active.request.stage = RequestStage::Done;
            return;
        }
        if active.request.owes_continue {
            // The client waits for a 100 that does not come: the body may never be sent, and the next bytes could be either.
            active.persistent = false;
        }
        if !active.persistent {
            // What still comes is read without looking at it once the answer is out.
            active.request.stage = RequestStage::Done;
            return;
        }
        active.request.stage = RequestStage::Discarding;
        let location = self.location(active.exchange.location);
        active.deadlines.discard = self.clock.mono_ms + location.lingering.time.as_millis() as u64;
    }
}
