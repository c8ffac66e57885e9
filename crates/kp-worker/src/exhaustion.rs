//! Errors that say that this machine, or this process, has run out of something, or that the local address it was told to
//! use does not do. They are nobody else's fault: no peer is blamed for them.

use std::io;

const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;
const EAFNOSUPPORT: i32 = 97;
const EADDRINUSE: i32 = 98;
const EADDRNOTAVAIL: i32 = 99;
const ENOBUFS: i32 = 105;

/// Descriptors.
pub(crate) fn is_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

/// Of a message: it came, but there was no descriptor free for those that came with it.
pub(crate) fn lost_descriptors(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ENOBUFS)
}

/// Descriptors, memory, or places in epoll.
pub(crate) fn is_any(error: &io::Error) -> bool {
    is_of_files(error) || matches!(error.raw_os_error(), Some(ENOMEM | ENOBUFS | ENOSPC))
}

/// Of a socket with a local address of its own: the address is not this machine's, is taken, or cannot reach the peer's
/// family or network.
pub(crate) fn is_of_local_address(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(EINVAL | EAFNOSUPPORT | EADDRINUSE | EADDRNOTAVAIL)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_here_is_told_from_what_a_peer_does() {
        let error = io::Error::from_raw_os_error;
        assert!(is_of_files(&error(EMFILE)) && is_any(&error(ENFILE)));
        assert!(!is_of_files(&error(ENOBUFS)) && is_any(&error(ENOBUFS)));
        assert!(!is_any(&error(111)) && !is_any(&error(99)));
        assert!(is_of_local_address(&error(99)) && !is_of_local_address(&error(111)));
    }
}
