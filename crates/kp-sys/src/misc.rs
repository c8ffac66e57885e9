//! Small facts about the machine.

#![allow(unsafe_code)]

use std::io;

/// Fills `out` with bytes from the kernel's random number generator.
pub fn random(out: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = out.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        // SAFETY: the pointer and length are those of a live exclusive slice.
        let count = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(count) {
            Ok(count) => filled += count,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// The machine's name as `gethostname(2)` has it, lower-cased, as nginx's `$hostname`.
pub fn hostname() -> String {
    nix::unistd::gethostname().map_or_else(
        |_| String::from("localhost"),
        |name| name.to_string_lossy().to_ascii_lowercase(),
    )
}

/// CPUs this process may use (affinity mask and cgroup quota respected), at least 1: what `worker_processes auto` means.
pub fn cpu_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_differs() {
        let (mut first, mut second) = ([0_u8; 32], [0_u8; 32]);
        random(&mut first).unwrap();
        random(&mut second).unwrap();
        assert_ne!(first, second);
        random(&mut []).unwrap();
    }

    #[test]
    fn the_machine_has_a_name_and_a_cpu() {
        assert!(!hostname().is_empty());
        assert!(cpu_count() >= 1);
    }
}
