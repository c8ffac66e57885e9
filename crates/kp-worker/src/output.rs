//! Bytes on their way to a socket: what was encoded and not yet taken by the kernel.

use crate::buffers::Buffers;
use crate::transport::{Sent, Transport};
use std::io::IoSlice;

/// Stretches per write: the pending bytes, and a chunk head, data, and end for a few pieces.
const STRETCHES_MAX: usize = 16;
/// Up to this many bytes are cheaper to copy behind the pending ones than to name in a second stretch.
const COPY_BYTES_MAX: usize = 1024;

/// Pending output.
#[derive(Debug, Default)]
pub(crate) struct Output {
    data: Vec<u8>,
    /// Bytes of `data` that were already sent.
    sent: usize,
}

impl Output {
    pub(crate) fn len(&self) -> usize {
        self.data.len() - self.sent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.data.len() == self.sent
    }

    /// Where to append; filled from the pool.
    pub(crate) fn buffer(&mut self, pool: &mut Buffers) -> &mut Vec<u8> {
        pool.fill(&mut self.data);
        &mut self.data
    }

    /// Forgets what is pending and gives the memory back.
    pub(crate) fn clear(&mut self, pool: &mut Buffers) {
        self.sent = 0;
        pool.give(&mut self.data);
    }

    /// Sends what is pending, then `more`; keeps what the socket does not take. Returns how many bytes were sent.
    pub(crate) fn push(
        &mut self,
        transport: &mut Transport,
        more: &[&[u8]],
        pool: &mut Buffers,
    ) -> Sent {
        let extra: usize = more.iter().map(|stretch| stretch.len()).sum();
        if extra > 0
            && (extra <= COPY_BYTES_MAX && !self.is_empty()
                || !transport.writable
                || more.len() >= STRETCHES_MAX)
        {
            let data = self.buffer(pool);
            for stretch in more {
                data.extend_from_slice(stretch);
            }
            return self.push(transport, &[], pool);
        }
        if !transport.writable {
            return Sent::Bytes(0);
        }
        let mut stretches = [IoSlice::new(&[]); STRETCHES_MAX];
        let mut count = 0;
        if !self.is_empty() {
            stretches[0] = IoSlice::new(self.data.get(self.sent..).unwrap_or_default());
            count = 1;
        }
        for stretch in more.iter().filter(|stretch| !stretch.is_empty()) {
            stretches[count] = IoSlice::new(stretch);
            count += 1;
        }
        let pending = self.len();
        let sent = transport.send(&stretches[..count], pending + extra);
        if let Sent::Bytes(count) = sent {
            self.taken(count, pending, more, pool);
        }
        sent
    }

    /// Books `count` sent bytes: first the pending ones, then those of `more`, whose rest becomes pending.
    fn taken(&mut self, count: usize, pending: usize, more: &[&[u8]], pool: &mut Buffers) {
        if count < pending {
            self.sent += count;
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
        if self.is_empty() {
            self.clear(pool);
        }
    }
}
