//! Moving bytes between the two halves of an exchange: request bodies to the upstream, responses to the client.
//!
//! Bodies go through the worker's one scratch buffer: read, taken apart, framed anew and written in one visit; only what a
//! socket does not take is kept. A side is not read while its counterpart has no room.

use crate::active::{Active, Collected, NEVER, READ_MAX, READ_MIN, RequestStage, ResponseStage};
use crate::drive::Turn;
use crate::reactor::Worker;
use crate::transport::{Received, Sent};
use kp_http::Framing;
use kp_http::encode::{self, ChunkHead};
use kp_proxy::Input;
use kp_proxy::{Cause, Failure, Phase};
use kp_shm::Counter;
use std::ops::Range;

/// Body stretches per write; more chunks than these in one read go out in several writes.
const PIECES_MAX: usize = 6;
/// Unsent request bytes above which the client is not read.
const REQUEST_ROOM: usize = 64 * 1024;

/// A run of body bytes found in one read.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    ranges: [Range<usize>; PIECES_MAX],
    count: usize,
    bytes: usize,
    /// Where the undecoded rest begins.
    consumed: usize,
    done: bool,
}

impl Pieces {
    pub(crate) fn ranges(&self) -> &[Range<usize>] {
        &self.ranges[..self.count]
    }

    pub(crate) fn consumed(&self) -> usize {
        self.consumed
    }

    pub(crate) fn is_last(&self) -> bool {
        self.done
    }
}

/// Takes as much of `input` apart as fits one write.
fn pieces(decoder: &mut kp_http::BodyDecoder, input: &[u8]) -> Result<Pieces, kp_http::BodyError> {
    let mut found = Pieces::default();
    take_apart(decoder, input, &mut found)?;
    Ok(found)
}

/// The same, but what came before an error is found first: the error stays with the decoder and is the next answer.
fn pieces_before_error(
    decoder: &mut kp_http::BodyDecoder,
    input: &[u8],
) -> Result<Pieces, kp_http::BodyError> {
    let mut found = Pieces::default();
    match take_apart(decoder, input, &mut found) {
        Err(error) if found.bytes == 0 => Err(error),
        _ => Ok(found),
    }
}

fn take_apart(
    decoder: &mut kp_http::BodyDecoder,
    input: &[u8],
    found: &mut Pieces,
) -> Result<(), kp_http::BodyError> {
    while found.count < PIECES_MAX && found.consumed < input.len() && !found.done {
        let piece = decoder.decode(input.get(found.consumed..).unwrap_or_default())?;
        if !piece.data.is_empty() {
            found.ranges[found.count] =
                found.consumed + piece.data.start..found.consumed + piece.data.end;
            found.count += 1;
            found.bytes += piece.data.len();
        }
        found.consumed += piece.consumed;
        found.done = piece.done;
        if piece.consumed == 0 && !piece.done {
            break;
        }
    }
    Ok(())
}

/// A response that ended before its body did.
fn body_broken(cause: Cause) -> Turn {
    Turn::Input(Input::UpstreamFailed(Failure::new(Phase::ReadBody, cause)))
}

/// The stretches of one write: chunk head, data, chunk end, last chunk.
struct Stretches<'a> {
    list: [&'a [u8]; PIECES_MAX + 3],
    count: usize,
}

impl<'a> Stretches<'a> {
    fn new() -> Self {
        Self {
            list: [&[]; PIECES_MAX + 3],
            count: 0,
        }
    }

    fn add(&mut self, bytes: &'a [u8]) {
        if !bytes.is_empty() {
            self.list[self.count] = bytes;
            self.count += 1;
        }
    }

    fn frame(
        mut self,
        found: &Pieces,
        input: &'a [u8],
        chunk_head: Option<&'a [u8]>,
        last: &'a [u8],
    ) -> Self {
        self.add(chunk_head.unwrap_or_default());
        for range in found.ranges() {
            self.add(input.get(range.clone()).unwrap_or_default());
        }
        if chunk_head.is_some() {
            self.add(b"\r\n");
        }
        self.add(last);
        self
    }

    fn list(&self) -> &[&'a [u8]] {
        &self.list[..self.count]
    }
}

impl Worker {
    /// Moves the request body one step.
    pub(crate) fn move_request(&mut self, active: &mut Active) -> Turn {
        match active.request.stage {
            RequestStage::Unread | RequestStage::Done => Turn::Nothing,
            RequestStage::Replaying(cursor) => self.replay(active, cursor),
            RequestStage::Gathering(bytes) => self.gather(active, bytes),
            RequestStage::Streaming if active.to_upstream.len() >= REQUEST_ROOM => {
                if !std::mem::replace(&mut active.request.held_back, true) {
                    self.counters.increment(Counter::BackpressureUpstream);
                }
                Turn::Nothing
            }
            RequestStage::Streaming if !self.upstream_open(active) => Turn::Nothing,
            RequestStage::Collecting if active.request.whole || self.spilling(active) => {
                Turn::Nothing
            }
            RequestStage::Streaming | RequestStage::Collecting | RequestStage::Discarding => {
                self.read_body(active)
            }
        }
    }

    /// Whether the upstream takes request bytes.
    pub(crate) fn upstream_open(&self, active: &Active) -> bool {
        active
            .upstream
            .and_then(|key| self.upstreams.peek(key))
            .is_some_and(|upstream| upstream.phase == crate::upstream::UpstreamPhase::Busy)
            && active.response.write_broken.is_none()
    }

    /// Reads what the client sent of its body and uses it as the stage says.
    fn read_body(&mut self, active: &mut Active) -> Turn {
        active.request.held_back = false;
        let room = match active.request.stage {
            RequestStage::Collecting => self.spill_room(active),
            _ => READ_MAX.saturating_sub(active.to_upstream.len()),
        };
        let Some(client) = self.clients.at(active.client) else {
            return Turn::Nothing;
        };
        if !client.input.is_empty() {
            let mut held = std::mem::take(&mut client.input);
            let turn = self.use_body(active, &held);
            self.buffers.give(&mut held);
            return turn;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let turn = match client
            .transport
            .receive(&mut scratch, room.max(1), &mut self.buffers)
        {
            Received::Bytes(count) => {
                self.counters.add(Counter::ClientBytesIn, count as u64);
                active.deadlines.client_read = NEVER;
                self.use_body(active, &scratch)
            }
            Received::Nothing => Turn::Nothing,
            Received::End | Received::Cut | Received::Broken(_) => self.body_broken_off(active),
        };
        self.scratch = scratch;
        turn
    }

    /// The client's side ended before its body did.
    fn body_broken_off(&mut self, active: &mut Active) -> Turn {
        if active.request.stage == RequestStage::Discarding {
            active.give_up_body();
            return Turn::Moved;
        }
        // A close-delimited request body does not exist (RFC 9112 §6.3 rule 6), so this is always a broken request.
        Turn::Input(Input::ClientCut)
    }

    pub(crate) fn use_body(&mut self, active: &mut Active, input: &[u8]) -> Turn {
        let mut rest = input;
        loop {
            let found = match self.take_pieces(active, rest) {
                Ok(found) => found,
                Err(failure) => return Self::refuse_body(active, failure),
            };
            match active.request.stage {
                RequestStage::Collecting => self.collect(active, &found, rest),
                RequestStage::Streaming => self.forward_body(active, &found, rest),
                _ => {}
            }
            rest = rest.get(found.consumed..).unwrap_or_default();
            if found.done {
                return self.body_done(active, rest);
            }
            if rest.is_empty() || found.consumed == 0 {
                return Turn::Moved;
            }
        }
    }

    /// Takes the next body bytes apart, counts them, and holds them against `client_max_body_size`.
    pub(crate) fn take_pieces(&self, active: &mut Active, input: &[u8]) -> Result<Pieces, Failure> {
        let found = pieces(&mut active.request.decoder, input).map_err(|error| {
            active.exchange.record.detail = Some(error.reason().to_owned());
            Failure::new(Phase::RequestBody, Cause::BadBody)
        })?;
        active.request.read_bytes += found.bytes as u64;
        active.exchange.record.request_length += found.consumed as u64;
        let max = self.location(active.exchange.location).client_max_body_size;
        if max.is_some_and(|max| active.request.read_bytes > max) {
            return Err(Failure::new(Phase::RequestBody, Cause::BodyTooLarge(None)));
        }
        Ok(found)
    }

    /// A body that cannot be read on: a failure, unless it was to be thrown away anyway.
    fn refuse_body(active: &mut Active, failure: Failure) -> Turn {
        if active.request.stage == RequestStage::Discarding {
            active.exchange.record.detail = None;
            active.give_up_body();
            return Turn::Moved;
        }
        active.request.stage = RequestStage::Done;
        Turn::Input(Input::ClientFailed(failure))
    }

    /// The body is whole; `rest` is the beginning of the next request.
    pub(crate) fn body_done(&mut self, active: &mut Active, rest: &[u8]) -> Turn {
        active.request.whole = true;
        if !rest.is_empty()
            && let Some(client) = self.clients.at(active.client)
        {
            if client.input.capacity() == 0 {
                client.input = self.buffers.take();
            }
            client.input.extend_from_slice(rest);
        }
        let stage = std::mem::replace(&mut active.request.stage, RequestStage::Done);
        match stage {
            RequestStage::Collecting => self.collected(active),
            _ => Turn::Moved,
        }
    }

    /// Sends body bytes on, framed for the upstream.
    fn forward_body(&mut self, active: &mut Active, found: &Pieces, input: &[u8]) {
        let chunked = active.request.out == Framing::Chunked;
        let head = (chunked && found.bytes > 0).then(|| encode::chunk_head(found.bytes as u64));
        let last: &[u8] = if chunked && found.done {
            encode::LAST_CHUNK
        } else {
            b""
        };
        let stretches =
            Stretches::new().frame(found, input, head.as_ref().map(ChunkHead::as_bytes), last);
        active.exchange.machine.body_touched();
        self.push_upstream(active, stretches.list());
    }

    /// Books bytes that came from the upstream.
    pub(crate) fn note_received(&self, active: &mut Active, count: usize) {
        self.counters.add(Counter::UpstreamBytesIn, count as u64);
        if let Some(attempt) = active.exchange.attempts.last_mut() {
            attempt.bytes_received += count as u64;
        }
    }

    /// Writes to the upstream: what is pending, then `more`.
    pub(crate) fn push_upstream(&mut self, active: &mut Active, more: &[&[u8]]) -> bool {
        let Some(upstream) = active.upstream.and_then(|key| self.upstreams.at(key)) else {
            return false;
        };
        match active
            .to_upstream
            .push(&mut upstream.transport, more, &mut self.buffers)
        {
            Sent::Bytes(count) => {
                if count > 0 {
                    active.deadlines.upstream_write = NEVER;
                    self.counters.add(Counter::UpstreamBytesOut, count as u64);
                    if let Some(attempt) = active.exchange.attempts.last_mut() {
                        attempt.bytes_sent += count as u64;
                    }
                }
                count > 0
            }
            Sent::Moved => {
                active.deadlines.upstream_write = NEVER;
                true
            }
            Sent::Broken(errno) => {
                // The write side is over; what the upstream said before is still read (an early 413 behind a reset).
                active.to_upstream.clear(&mut self.buffers);
                active.response.write_broken = Some(errno);
                upstream.transport.readable = true;
                upstream.transport.ending = true;
                true
            }
        }
    }

    /// Sends a collected body.
    fn replay(&mut self, active: &mut Active, cursor: u64) -> Turn {
        if !self.upstream_open(active) || active.to_upstream.len() >= REQUEST_ROOM {
            return Turn::Nothing;
        }
        if matches!(active.request.collected, Collected::File(_)) {
            return self.replay_file(active, cursor);
        }
        match std::mem::take(&mut active.request.collected) {
            Collected::None => active.request.stage = RequestStage::Done,
            Collected::Memory(body) => {
                let chunked = active.request.out == Framing::Chunked;
                if chunked && !body.is_empty() {
                    let head = encode::chunk_head(body.len() as u64);
                    self.push_upstream(
                        active,
                        &[head.as_bytes(), &body, b"\r\n", encode::LAST_CHUNK],
                    );
                } else if chunked {
                    self.push_upstream(active, &[encode::LAST_CHUNK]);
                } else {
                    self.push_upstream(active, &[&body]);
                }
                active.request.collected = Collected::Memory(body);
                active.request.stage = RequestStage::Done;
            }
            Collected::File(spill) => active.request.collected = Collected::File(spill),
        }
        Turn::Moved
    }

    /// Moves the response one step.
    pub(crate) fn move_response(&mut self, active: &mut Active) -> Turn {
        match active.response.stage {
            ResponseStage::AwaitHead => self.read_response_head(active),
            ResponseStage::Relaying => self.relay_response(active),
            ResponseStage::Tunnel(_) => self.tunnel(active),
            ResponseStage::File(_) => self.send_file(active),
            ResponseStage::Page(_) => self.send_page(active),
            ResponseStage::Idle | ResponseStage::Opening | ResponseStage::Complete => Turn::Nothing,
        }
    }

    /// How many unsent response bytes may wait for the client.
    fn read_ahead(&self, active: &Active) -> usize {
        let proxy = &self.location(active.exchange.location).proxy;
        if active.exchange.machine.buffering {
            proxy.buffers.0.saturating_mul(proxy.buffers.1)
        } else {
            1
        }
    }

    fn relay_response(&mut self, active: &mut Active) -> Turn {
        let full =
            !active.to_client.is_empty() && active.to_client.len() >= self.read_ahead(active);
        let held_back = !self.client_writable(active) || active.deadlines.send != NEVER;
        if (full && held_back || self.is_spooling(active)) && !self.may_spool(active) {
            if !std::mem::replace(&mut active.response.held_back, true) {
                self.counters.increment(Counter::BackpressureClient);
            }
            return Turn::Nothing;
        }
        active.response.held_back = false;
        let Some(most) = self.readable_now(active) else {
            return Turn::Nothing;
        };
        if most != usize::MAX {
            active.response.read_max = most.min(READ_MAX);
        }
        let Some(upstream) = active.upstream.and_then(|key| self.upstreams.at(key)) else {
            return Turn::Nothing;
        };
        let room = if self.memory.is_tight() {
            active.response.read_max.min(READ_MIN)
        } else {
            active.response.read_max
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let received = if upstream.input.is_empty() {
            let received = upstream
                .transport
                .receive(&mut scratch, room, &mut self.buffers);
            if let Received::Bytes(count) = received {
                self.note_received(active, count);
            }
            received
        } else {
            scratch.extend_from_slice(&upstream.input);
            upstream.input.clear();
            self.buffers.give(&mut upstream.input);
            Received::Bytes(scratch.len())
        };
        let turn = match received {
            Received::Bytes(_) => {
                active.deadlines.upstream_read = NEVER;
                self.use_response(active, &scratch)
            }
            Received::Nothing => Turn::Nothing,
            Received::End if active.response.decoder.finish_on_eof().is_ok() => {
                self.end_response(active);
                self.response_complete(active);
                Turn::Moved
            }
            // Without the close_notify of TLS nobody knows whether the body was whole (RFC 9112 §9.8).
            Received::End | Received::Cut => body_broken(Cause::BodyTruncated),
            Received::Broken(errno) => body_broken(Cause::BodyReset(errno)),
        };
        self.scratch = scratch;
        turn
    }

    fn client_writable(&self, active: &Active) -> bool {
        self.clients
            .peek(active.client)
            .is_some_and(|client| client.transport.writable)
    }

    /// Frames the bytes for the client and sends them.
    pub(crate) fn use_response(&mut self, active: &mut Active, input: &[u8]) -> Turn {
        let mut rest = input;
        loop {
            let found = match pieces_before_error(&mut active.response.decoder, rest) {
                Ok(found) => found,
                Err(error) => {
                    active.exchange.record.detail = Some(error.reason().to_owned());
                    return Turn::Input(Input::UpstreamFailed(Failure::new(
                        Phase::ReadBody,
                        Cause::BodyInvalid,
                    )));
                }
            };
            if let Some(attempt) = active.exchange.attempts.last_mut() {
                attempt.response_length += found.bytes as u64;
            }
            let chunked = active.response.out == Framing::Chunked;
            let head = (chunked && found.bytes > 0).then(|| encode::chunk_head(found.bytes as u64));
            let stretches =
                Stretches::new().frame(&found, rest, head.as_ref().map(ChunkHead::as_bytes), b"");
            if found.done {
                // The end of the body leaves with its last bytes.
                self.append_client(active, stretches.list());
                self.end_response(active);
            } else {
                self.push_client(active, stretches.list());
            }
            rest = rest.get(found.consumed..).unwrap_or_default();
            if found.done {
                if !rest.is_empty()
                    && let Some(upstream) = active.upstream.and_then(|key| self.upstreams.at(key))
                {
                    // More than was asked for: it reaches nobody, and the connection is not used again.
                    upstream.transport.ending = true;
                }
                self.response_complete(active);
                return Turn::Moved;
            }
            if rest.is_empty() || found.consumed == 0 {
                return Turn::Moved;
            }
        }
    }

    /// Puts the end of the body, trailers included, behind what is pending.
    pub(crate) fn end_response(&mut self, active: &mut Active) {
        if active.response.out == Framing::Chunked {
            let raw = active.response.decoder.trailers();
            if !raw.is_empty() {
                active
                    .exchange
                    .response
                    .upstream_trailers
                    .extend_from_slice(raw);
            }
            let mut out = std::mem::take(&mut self.text);
            out.clear();
            self.consult(active, |exchange, program, context| {
                kp_proxy::last_chunk(&mut out, exchange, program, context);
            });
            self.append_client(active, &[&out]);
            self.text = out;
        }
    }

    /// The upstream's part is over.
    pub(crate) fn response_complete(&mut self, active: &mut Active) {
        active.response.stage = ResponseStage::Complete;
        self.consult(active, |exchange, _, context| exchange.end_attempt(context));
        self.release_upstream(active);
        active.to_upstream.clear(&mut self.buffers);
        if active.request.stage != RequestStage::Done {
            self.discard_body(active);
        }
    }

    /// Appends without sending; the next flush takes it.
    pub(crate) fn append_client(&mut self, active: &mut Active, more: &[&[u8]]) {
        if self.is_spooling(active) {
            return self.spool(active, more);
        }
        let total: usize = more.iter().map(|bytes| bytes.len()).sum();
        if total > READ_MIN {
            self.push_client(active, more);
            return;
        }
        let buffer = active.to_client.buffer(&mut self.buffers);
        for bytes in more {
            buffer.extend_from_slice(bytes);
        }
    }

    /// Writes to the client: what is pending, then `more`. Where the response is spooled, `more` goes behind that.
    pub(crate) fn push_client(&mut self, active: &mut Active, more: &[&[u8]]) -> bool {
        let spools = active.spool.is_some() && active.to_client.len() >= self.read_ahead(active);
        if !more.is_empty() && (self.is_spooling(active) || spools && !self.client_writable(active))
        {
            self.spool(active, more);
            return false;
        }
        self.push_unspooled(active, more)
    }

    /// Writes to the client: what is pending, then `more`.
    pub(crate) fn push_unspooled(&mut self, active: &mut Active, more: &[&[u8]]) -> bool {
        let throttled = self.is_throttled(active);
        let Some(client) = self.clients.at(active.client) else {
            return false;
        };
        let sent = if throttled {
            self.push_throttled(active, more)
        } else {
            active
                .to_client
                .push(&mut client.transport, more, &mut self.buffers)
        };
        active.response.read_max = if active.to_client.is_empty() {
            (active.response.read_max * 2).min(READ_MAX)
        } else {
            READ_MIN
        };
        match sent {
            Sent::Bytes(count) => {
                if count > 0 {
                    active.deadlines.client_write = NEVER;
                    active.exchange.record.bytes_sent += count as u64;
                    self.counters.add(Counter::ClientBytesOut, count as u64);
                }
                count > 0
            }
            Sent::Moved => {
                active.deadlines.client_write = NEVER;
                true
            }
            Sent::Broken(_) => {
                if let Some(client) = self.clients.at(active.client) {
                    client.transport.ending = true;
                    client.transport.errored = true;
                }
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kp_http::BodyDecoder;

    fn random(seed: &mut u64, below: usize) -> usize {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        (*seed >> 16) as usize % below
    }

    /// A body in random chunks, and those chunks with an extension here and there and a trailer.
    fn chunked(seed: &mut u64) -> (Vec<u8>, Vec<u8>) {
        let (mut body, mut wire) = (Vec::new(), Vec::new());
        for _ in 0..random(seed, 12) {
            let most = [3, 40, 3000][random(seed, 3)];
            let length = 1 + random(seed, most);
            let data: Vec<u8> = (0..length).map(|_| random(seed, 256) as u8).collect();
            let extension = ["", ";a=b"][random(seed, 2)];
            wire.extend_from_slice(format!("{length:x}{extension}\r\n").as_bytes());
            wire.extend_from_slice(&data);
            wire.extend_from_slice(b"\r\n");
            body.extend(data);
        }
        wire.extend_from_slice(b"0\r\nX: y\r\n\r\n");
        (body, wire)
    }

    /// Takes `wire` apart in random cuts as the relay does, and frames what it finds.
    fn relayed(wire: &[u8], framing: Framing, chunked: bool, seed: &mut u64) -> Vec<u8> {
        let mut decoder = BodyDecoder::new(framing);
        let (mut out, mut rest, mut done) = (Vec::new(), wire, false);
        while !rest.is_empty() {
            let most = 1 + random(seed, 5000);
            let cut = 1 + random(seed, rest.len().min(most));
            let (mut input, behind) = rest.split_at(cut);
            rest = behind;
            while !input.is_empty() && !done {
                let found = pieces(&mut decoder, input).expect("a good body");
                let head =
                    (chunked && found.bytes > 0).then(|| encode::chunk_head(found.bytes as u64));
                let last: &[u8] = if chunked && found.done {
                    encode::LAST_CHUNK
                } else {
                    b""
                };
                let head = head.as_ref().map(ChunkHead::as_bytes);
                let stretches = Stretches::new().frame(&found, input, head, last);
                out.extend(stretches.list().concat());
                assert!(found.consumed > 0, "no progress");
                done = found.done;
                input = &input[found.consumed..];
            }
        }
        assert!(done, "the end was seen");
        out
    }

    #[test]
    fn any_cut_of_a_chunked_body_comes_out_whole() {
        for seed in 1..400u64 {
            let mut seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let (body, wire) = chunked(&mut seed);
            let again = relayed(&wire, Framing::Chunked, true, &mut seed);
            let plain = relayed(&again, Framing::Chunked, false, &mut seed);
            assert!(plain == body, "{} bytes of {}", plain.len(), body.len());
            assert!(relayed(&wire, Framing::Chunked, false, &mut seed) == body);
        }
    }

    #[test]
    fn a_counted_body_ends_where_its_length_says() {
        let mut decoder = BodyDecoder::new(Framing::Length(5));
        let found = pieces(&mut decoder, b"helloGET /next").expect("a good body");
        assert_eq!(found.ranges().first(), Some(&(0..5)));
        assert_eq!(
            (found.ranges().len(), found.consumed, found.done),
            (1, 5, true)
        );
    }

    #[test]
    fn no_more_pieces_than_a_write_takes() {
        let mut decoder = BodyDecoder::new(Framing::Chunked);
        let wire = b"1\r\na\r\n".repeat(20);
        let found = pieces(&mut decoder, &wire).expect("a good body");
        assert_eq!(
            (found.ranges().len(), found.bytes),
            (PIECES_MAX, PIECES_MAX)
        );
        assert!(!found.done && found.consumed < wire.len());
    }
}
