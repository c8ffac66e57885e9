//! The beginning of a request body that is not taken whole (`proxy_request_buffering auto`): it is here before a peer is
//! asked, so that a client that sends its body slowly holds no connection to an upstream.
//!
//! Decides when enough has come. What has come stays as it is in the client's input and goes on from there; whether it is
//! a good body is found out then.

use crate::active::{Active, NEVER, RequestStage};
use crate::drive::Turn;
use crate::reactor::Worker;
use crate::transport::Received;
use kp_proxy::Input;
use kp_shm::Counter;

impl Worker {
    /// Begins to wait for so many bytes of the body, as they stand in the message; says so if they are here.
    pub(crate) fn begin_gathering(&mut self, active: &mut Active, bytes: usize) -> Option<Input> {
        let here = self
            .clients
            .peek(active.client)
            .map_or(0, |client| client.input.len());
        if here >= bytes || active.request.whole {
            return Some(Input::Gathered);
        }
        active.request.stage = RequestStage::Gathering(bytes);
        self.send_continue(active);
        None
    }

    /// Reads on until enough is here.
    pub(crate) fn gather(&mut self, active: &mut Active, bytes: usize) -> Turn {
        let Some(client) = self.clients.at(active.client) else {
            return Turn::Nothing;
        };
        self.buffers.fill(&mut client.input);
        let room = bytes.saturating_sub(client.input.len()).max(1);
        match client
            .transport
            .receive(&mut client.input, room, &mut self.buffers)
        {
            Received::Bytes(count) => {
                self.counters.add(Counter::ClientBytesIn, count as u64);
                active.deadlines.client_read = NEVER;
                if client.input.len() < bytes {
                    return Turn::Moved;
                }
                active.request.stage = RequestStage::Unread;
                Turn::Input(Input::Gathered)
            }
            Received::Nothing => {
                if client.input.is_empty() {
                    self.buffers.give(&mut client.input);
                }
                Turn::Nothing
            }
            Received::End | Received::Cut | Received::Broken(_) => Turn::Input(Input::ClientCut),
        }
    }
}
