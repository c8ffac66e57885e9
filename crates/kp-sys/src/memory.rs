//! The heap of this process.

#![allow(unsafe_code)]

/// Gives free memory of the heap back to the system. It goes through all of it, so not often.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointers and touches only what the allocator holds free.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident_kib() -> u64 {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4
    }

    #[test]
    fn what_is_free_goes_back() {
        let pieces: Vec<Vec<u8>> = (0..4096).map(|_| vec![7; 8 * 1024]).collect();
        // Keeps the heap from shrinking by itself.
        let last = vec![7_u8; 64];
        let full = resident_kib();
        drop(pieces);
        trim();
        assert!(resident_kib() + 16 * 1024 < full, "{full} KiB before");
        drop(last);
    }
}
