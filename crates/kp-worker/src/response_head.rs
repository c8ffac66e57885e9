//! Reading response heads of an upstream.
//!
//! The first read of an answer goes into the worker's scratch buffer, so that a head and the beginning of its body arrive
//! with one call and the body leaves from where it lies. Only what is not used at once is kept at the connection.

use crate::active::{Active, READ_MAX, ResponseStage};
use crate::drive::{Told, Turn};
use crate::reactor::Worker;
use crate::transport::Received;
use kp_http::{HeadError, HeadLimits, Method};
use kp_proxy::{Cause, Failure, Input, Phase};

/// Further reads of a response head.
const HEAD_READ: usize = 8 * 1024;
/// Largest response head (`upstream sent too big header`).
pub(crate) const RESPONSE_HEAD_MAX: usize = 64 * 1024;

impl Worker {
    /// Reads until the head is whole.
    pub(crate) fn read_response_head(&mut self, active: &mut Active) -> Turn {
        let slowed = self
            .location(active.exchange.location)
            .proxy
            .limit_rate
            .is_some();
        let max = if slowed { HEAD_READ } else { READ_MAX };
        let Some(upstream) = active.upstream.and_then(|key| self.upstreams.at(key)) else {
            return Turn::Nothing;
        };
        if !upstream.input.is_empty() {
            return self.read_rest_of_head(active);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let turn = match upstream
            .transport
            .receive(&mut scratch, max, &mut self.buffers)
        {
            Received::Bytes(count) => {
                self.note_head_bytes(active, count);
                self.use_head(active, &scratch)
            }
            Received::Nothing => Turn::Nothing,
            Received::End | Received::Cut => self.head_broken_off(active, None),
            Received::Broken(errno) => self.head_broken_off(active, Some(errno)),
        };
        self.scratch = scratch;
        turn
    }

    /// A head that came in pieces, or behind an interim one, is put together in the connection's own buffer.
    fn read_rest_of_head(&mut self, active: &mut Active) -> Turn {
        // Bytes may also have come with the end of a TLS handshake.
        active.response.any_byte = true;
        match self.parse_response_head(active) {
            Turn::Nothing => {}
            found => return found,
        }
        let Some(upstream) = active.upstream.and_then(|key| self.upstreams.at(key)) else {
            return Turn::Nothing;
        };
        let room = (upstream.input.capacity() - upstream.input.len()).max(HEAD_READ);
        match upstream
            .transport
            .receive(&mut upstream.input, room, &mut self.buffers)
        {
            Received::Bytes(count) => {
                self.note_head_bytes(active, count);
                match self.parse_response_head(active) {
                    Turn::Nothing => Turn::Moved,
                    found => found,
                }
            }
            Received::Nothing => Turn::Nothing,
            Received::End | Received::Cut => self.head_broken_off(active, None),
            Received::Broken(errno) => self.head_broken_off(active, Some(errno)),
        }
    }

    fn note_head_bytes(&self, active: &mut Active, count: usize) {
        self.note_received(active, count);
        // The deadline stays: as in nginx, the whole head must be here within `proxy_read_timeout` of the request's end.
        active.response.any_byte = true;
    }

    fn head_broken_off(&mut self, active: &Active, errno: Option<i32>) -> Turn {
        Turn::Input(Input::UpstreamFailed(self.head_missing(active, errno)))
    }

    /// Takes the head off the first bytes of an answer and uses what came with it, without moving it.
    fn use_head(&mut self, active: &mut Active, bytes: &[u8]) -> Turn {
        let method = sent_method(active);
        let limits = self.response_limits(active);
        let head = active.exchange.response.upstream_head();
        let length = match active.reader.response_in(bytes, head, method, &limits) {
            Ok(Some(length)) => length,
            Ok(None) => {
                self.keep_for_later(active, bytes);
                return Turn::Moved;
            }
            Err(error) => return self.bad_response_head(active, &error),
        };
        let rest = bytes.get(length..).unwrap_or_default();
        if rest.is_empty() {
            return Turn::Input(Input::ResponseHead);
        }
        let sender = active.upstream;
        active.response.ahead = true;
        let told = self.tell(active, Input::ResponseHead);
        active.response.ahead = false;
        match told {
            Told::Hangup => Turn::Hangup,
            Told::Again(Some(input)) => Turn::Input(input),
            Told::Again(None) if matches!(active.response.stage, ResponseStage::Relaying) => {
                self.use_response(active, rest)
            }
            // An interim response, or the end of HTTP: what follows is still this upstream's.
            Told::Again(None) if active.upstream == sender => {
                self.keep_for_later(active, rest);
                Turn::Moved
            }
            Told::Again(None) => Turn::Moved,
        }
    }

    /// Keeps bytes of an upstream that is still in use.
    fn keep_for_later(&mut self, active: &Active, bytes: &[u8]) {
        if let Some(upstream) = active.upstream.and_then(|key| self.upstreams.at(key)) {
            self.buffers.fill(&mut upstream.input);
            upstream.input.extend_from_slice(bytes);
        }
    }

    /// Why there is no response head although the connection is over.
    fn head_missing(&mut self, active: &Active, errno: Option<i32>) -> Failure {
        if active.exchange.machine.reused && !active.response.any_byte {
            return Failure::new(Phase::AwaitHead, Cause::StaleConnection);
        }
        match (active.response.write_broken, errno) {
            (Some(errno), _) if !active.response.any_byte => {
                Failure::new(Phase::SendRequest, Cause::SendFailed(errno))
            }
            (_, Some(errno)) => Failure::new(Phase::AwaitHead, Cause::UpstreamReset(errno)),
            _ => Failure::new(Phase::AwaitHead, Cause::UpstreamClosed),
        }
    }

    fn parse_response_head(&mut self, active: &mut Active) -> Turn {
        let method = sent_method(active);
        let limits = self.response_limits(active);
        let Some(upstream) = active.upstream.and_then(|key| self.upstreams.at(key)) else {
            return Turn::Nothing;
        };
        let head = active.exchange.response.upstream_head();
        match active
            .reader
            .response(&mut upstream.input, head, method, &limits)
        {
            Ok(true) => {
                if upstream.input.is_empty() {
                    self.buffers.give(&mut upstream.input);
                }
                Turn::Input(Input::ResponseHead)
            }
            Ok(false) => Turn::Nothing,
            Err(error) => self.bad_response_head(active, &error),
        }
    }

    fn response_limits(&self, active: &Active) -> HeadLimits {
        let server = &self.config.http.servers[active.exchange.server.index()];
        self.response_limits[usize::from(server.early.accept_bare_lf)]
    }

    fn bad_response_head(&mut self, active: &mut Active, error: &HeadError) -> Turn {
        let failure = Failure::response_head(error);
        active.exchange.record.detail = Some(if failure.cause == Cause::UpstreamHeadTooLarge {
            format!("the head is larger than {RESPONSE_HEAD_MAX} bytes, see proxy_buffer_size")
        } else {
            error.to_string()
        });
        active.exchange.response.forget_upstream();
        Turn::Input(Input::UpstreamFailed(failure))
    }
}

/// The method the upstream was asked with, for the framing of its answer (RFC 9112 §6.3 rule 1).
fn sent_method(active: &Active) -> Method {
    active
        .exchange
        .machine
        .sent_method
        .unwrap_or(active.exchange.request.head.method)
}
