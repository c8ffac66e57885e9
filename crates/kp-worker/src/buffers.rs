//! The pool of byte buffers.
//!
//! A connection holds a buffer only while it has bytes in it, so the pool's size follows the number of connections that
//! are in the middle of something: one head being read, one head being answered, one unsent rest per direction.

/// First capacity: most heads fit, so that growing (which copies) is rare.
pub(crate) const BUFFER_BYTES: usize = 8 * 1024;
/// Larger ones are given back to the allocator: a burst of large heads must not stay for ever.
const KEEP_BYTES_MAX: usize = 32 * 1024;
/// Kept for reuse: what about a thousand busy exchanges use. Above it memory goes back.
const KEEP_ALL_BYTES: usize = 2048 * BUFFER_BYTES;

/// The pool.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: Vec<Vec<u8>>,
    free_bytes: usize,
    /// What TLS sessions keep of records and messages that are not complete.
    kept_bytes: u64,
    /// Where TLS records pass through on their way from and to a socket.
    pub(crate) sealed: Vec<u8>,
    /// Where short stretches are joined into one record.
    pub(crate) joined: kp_tls::Scratch,
}

impl Buffers {
    /// An empty buffer with some capacity.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        match self.free.pop() {
            Some(buffer) => {
                self.free_bytes -= buffer.capacity();
                buffer
            }
            None => Vec::with_capacity(BUFFER_BYTES),
        }
    }

    /// Memory of the buffers that are free, bytes.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes as u64
    }

    /// Memory of what TLS sessions keep, bytes.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// One of them keeps so much now, and kept that much before.
    pub(crate) fn note_kept(&mut self, now: u32, before: u32) {
        self.kept_bytes = (self.kept_bytes + u64::from(now)).saturating_sub(u64::from(before));
    }

    /// Gives all but so many free buffers back to the allocator.
    pub(crate) fn shrink(&mut self, keep: usize) {
        self.free.truncate(keep);
        self.free_bytes = self.free.iter().map(Vec::capacity).sum();
    }

    /// Gives `buffer` capacity from the pool if it has none.
    pub(crate) fn fill(&mut self, buffer: &mut Vec<u8>) {
        if buffer.capacity() == 0 {
            *buffer = self.take();
        }
    }

    /// Takes the memory of a buffer back; what is in it is forgotten.
    pub(crate) fn give(&mut self, buffer: &mut Vec<u8>) {
        let mut buffer = std::mem::take(buffer);
        if buffer.capacity() >= BUFFER_BYTES
            && buffer.capacity() <= KEEP_BYTES_MAX
            && self.free_bytes + buffer.capacity() <= KEEP_ALL_BYTES
        {
            buffer.clear();
            self.free_bytes += buffer.capacity();
            self.free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_reused_and_bounded() {
        let mut pool = Buffers::default();
        let mut buffer = pool.take();
        buffer.extend_from_slice(b"x");
        let address = buffer.as_ptr();
        pool.give(&mut buffer);
        assert_eq!(buffer.capacity(), 0);
        let again = pool.take();
        assert_eq!((again.as_ptr(), again.len()), (address, 0));
        let all = KEEP_ALL_BYTES / BUFFER_BYTES;
        for _ in 0..2 * all {
            pool.give(&mut Vec::with_capacity(BUFFER_BYTES));
        }
        assert_eq!(pool.free.len(), all);
        pool.shrink(0);
        pool.give(&mut Vec::with_capacity(KEEP_BYTES_MAX + 1));
        assert_eq!(pool.free.len(), 0);
        for _ in 0..all {
            pool.give(&mut Vec::with_capacity(KEEP_BYTES_MAX));
        }
        assert_eq!(pool.free_bytes(), KEEP_ALL_BYTES as u64);
        let held = |pool: &Buffers| pool.free.iter().map(Vec::capacity).sum::<usize>() as u64;
        assert_eq!(pool.free_bytes(), held(&pool));
        pool.take();
        pool.shrink(3);
        assert_eq!((pool.free.len(), pool.free_bytes()), (3, held(&pool)));
    }
}
