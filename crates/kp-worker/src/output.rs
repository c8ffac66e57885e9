//! Bytes on their way to a socket: what was encoded and not yet taken by the kernel.

use crate::buffers::Buffers;
use crate::transport::{Sent, Transport};
use std::io::IoSlice;

/// Stretches per write: the pending bytes, and a chunk head, data, and end for a few pieces.
const STRETCHES_MAX: usize = 16;
/// Up to this many bytes are cheaper to copy behind the pending ones than to name in a second stretch.
const COPY_BYTES_MAX: usize = 1024;
/// Sent bytes in front of the pending ones above which these are moved forward. Output that never runs empty, since its
/// reader is slow, would otherwise keep everything that was ever sent.
const SENT_BYTES_MAX: usize = 16 * 1024;

/// Pending output.
#[derive(Debug, Default)]
pub(crate) struct Output {
    data: Vec<u8>,
    /// Bytes of `data` that were already sent.
    sent: usize,
    /// Bytes that left here and are held by the transport, encrypted and not yet taken by the kernel.
    held: usize,
}

impl Output {
    /// Bytes that the kernel has not taken yet.
    pub(crate) fn len(&self) -> usize {
        self.waiting() + self.held
    }

    /// Memory it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.data.capacity()
    }

    /// Takes bytes over while none are pending, without copying them.
    pub(crate) fn take_over(&mut self, data: Vec<u8>, pool: &mut Buffers) {
        self.clear(pool);
        self.data = data;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the transport has not taken yet.
    fn waiting(&self) -> usize {
        self.data.len() - self.sent
    }

    /// Where to append; filled from the pool.
    pub(crate) fn buffer(&mut self, pool: &mut Buffers) -> &mut Vec<u8> {
        pool.fill(&mut self.data);
        &mut self.data
    }

    /// Lends the memory of what is pending to somebody who appends to it and then calls [`Output::restore`].
    pub(crate) fn lend(&mut self, pool: &mut Buffers) -> Vec<u8> {
        pool.fill(&mut self.data);
        std::mem::take(&mut self.data)
    }

    /// Takes lent memory back.
    pub(crate) fn restore(&mut self, data: Vec<u8>) {
        self.data = data;
    }

    /// Forgets what is pending and gives the memory back.
    pub(crate) fn clear(&mut self, pool: &mut Buffers) {
        self.held = 0;
        self.sent = 0;
        pool.give(&mut self.data);
    }

    /// Sends what is pending, then `more`; keeps what the transport does not take. Returns how many bytes it took.
    pub(crate) fn push(
        &mut self,
        transport: &mut Transport,
        more: &[&[u8]],
        pool: &mut Buffers,
    ) -> Sent {
        let sent = self.offer(transport, more, pool);
        // What was held may also have left when the event came.
        let before = std::mem::replace(&mut self.held, transport.held());
        if sent == Sent::Bytes(0) && self.held < before {
            return Sent::Moved;
        }
        sent
    }

    /// Sends at most `most` of the pending bytes.
    pub(crate) fn push_some(
        &mut self,
        transport: &mut Transport,
        most: usize,
        pool: &mut Buffers,
    ) -> Sent {
        let pending = self.waiting();
        let some = pending.min(most);
        if some == 0 && transport.held() == 0 || !transport.writable {
            return Sent::Bytes(0);
        }
        let end = self.sent + some;
        let stretch = IoSlice::new(self.data.get(self.sent..end).unwrap_or_default());
        let sent = transport.send(&[stretch], some, pool);
        match sent {
            Sent::Bytes(count) => self.taken(count, pending, &[], pool),
            Sent::Moved | Sent::Broken(_) => {}
        }
        self.held = transport.held();
        sent
    }

    fn offer(&mut self, transport: &mut Transport, more: &[&[u8]], pool: &mut Buffers) -> Sent {
        let extra: usize = more.iter().map(|stretch| stretch.len()).sum();
        if extra > 0
            && (extra <= COPY_BYTES_MAX && self.waiting() > 0
                || !transport.writable
                || more.len() >= STRETCHES_MAX)
        {
            let data = self.buffer(pool);
            for stretch in more {
                data.extend_from_slice(stretch);
            }
            return self.offer(transport, &[], pool);
        }
        if !transport.writable {
            return Sent::Bytes(0);
        }
        let mut stretches = [IoSlice::new(&[]); STRETCHES_MAX];
        let mut count = 0;
        if self.waiting() > 0 {
            stretches[0] = IoSlice::new(self.data.get(self.sent..).unwrap_or_default());
            count = 1;
        }
        for stretch in more.iter().filter(|stretch| !stretch.is_empty()) {
            stretches[count] = IoSlice::new(stretch);
            count += 1;
        }
        let pending = self.waiting();
        let sent = transport.send(&stretches[..count], pending + extra, pool);
        match sent {
            Sent::Bytes(count) => self.taken(count, pending, more, pool),
            Sent::Moved => self.taken(0, pending, more, pool),
            Sent::Broken(_) => {}
        }
        sent
    }

    /// Books `count` sent bytes: first the pending ones, then those of `more`, whose rest becomes pending.
    fn taken(&mut self, count: usize, pending: usize, more: &[&[u8]], pool: &mut Buffers) {
        if count < pending {
            self.sent += count;
            // Each byte is moved at most once per byte that left before it.
            if self.sent >= SENT_BYTES_MAX && self.sent >= self.waiting() {
                self.data.drain(..self.sent);
                self.sent = 0;
            }
        } else {
            self.sent = 0;
            self.data.clear();
        }
        let mut skip = count.saturating_sub(pending);
        for stretch in more {
            if skip >= stretch.len() {
                skip -= stretch.len();
                continue;
            }
            self.buffer(pool)
                .extend_from_slice(stretch.get(skip..).unwrap_or_default());
            skip = 0;
        }
        if self.waiting() == 0 {
            self.sent = 0;
            pool.give(&mut self.data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    fn pair() -> (Transport, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("nonblocking");
        theirs.set_nonblocking(true).expect("nonblocking");
        (Transport::new(ours.into(), true), theirs)
    }

    fn random(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    /// Reads at most `limit` bytes.
    fn take(from: &mut UnixStream, limit: usize, into: &mut Vec<u8>) -> bool {
        let mut bytes = vec![0; limit];
        match from.read(&mut bytes) {
            Ok(count) => {
                into.extend_from_slice(&bytes[..count]);
                count > 0
            }
            Err(_) => false,
        }
    }

    #[test]
    fn order_survives_any_cut() {
        for seed in 1..16u64 {
            let mut seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let (mut transport, mut reader) = pair();
            let (mut output, mut pool) = (Output::default(), Buffers::default());
            let (mut expected, mut seen) = (Vec::<u8>::new(), Vec::<u8>::new());
            for _ in 0..40 {
                let count = random(&mut seed) as usize % (STRETCHES_MAX + 3);
                let stretches: Vec<Vec<u8>> = (0..count)
                    .map(|_| {
                        let length = random(&mut seed) as usize % [10, 900, 40_000][count % 3];
                        (0..length).map(|_| random(&mut seed) as u8).collect()
                    })
                    .collect();
                let more: Vec<&[u8]> = stretches.iter().map(Vec::as_slice).collect();
                expected.extend(stretches.iter().flatten());
                let sent = output.push(&mut transport, &more, &mut pool);
                assert!(matches!(sent, Sent::Bytes(_) | Sent::Moved));
                take(
                    &mut reader,
                    random(&mut seed) as usize % 60_000 + 1,
                    &mut seen,
                );
                transport.writable |= random(&mut seed).is_multiple_of(3);
            }
            while take(&mut reader, 1 << 20, &mut seen) || !output.is_empty() {
                transport.writable = true;
                output.push(&mut transport, &[], &mut pool);
            }
            assert!(
                seen == expected,
                "{} bytes of {}",
                seen.len(),
                expected.len()
            );
        }
    }

    /// A reader that takes a little at a time, while the writer always has something: only what is pending is held.
    #[test]
    fn what_was_sent_is_not_kept() {
        let (mut transport, mut reader) = pair();
        let (mut output, mut pool) = (Output::default(), Buffers::default());
        let piece = vec![7; 16 * 1024];
        let (mut pushed, mut seen) = (0, Vec::new());
        while pushed < 16 << 20 {
            while output.len() < 64 * 1024 {
                output.push(&mut transport, &[&piece], &mut pool);
                pushed += piece.len();
            }
            seen.clear();
            take(&mut reader, 20_000, &mut seen);
            transport.writable = true;
            output.push(&mut transport, &[], &mut pool);
            assert!(
                output.data.len() <= 256 * 1024,
                "{} bytes are held for {} pending ones",
                output.data.len(),
                output.len()
            );
        }
    }

    #[test]
    fn an_empty_output_holds_no_memory() {
        let (mut transport, reader) = pair();
        let (mut output, mut pool) = (Output::default(), Buffers::default());
        output.buffer(&mut pool).extend_from_slice(b"head");
        output.push(&mut transport, &[b"body"], &mut pool);
        assert_eq!((output.len(), output.data.capacity()), (0, 0));
        drop(reader);
        let sent = output.push(&mut transport, &[b"more"], &mut pool);
        assert!(matches!(sent, Sent::Broken(_)));
    }
}
