//! What the system says of processes, in /proc: memory and descriptors. Files are read: on a thread, then.

/// Of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// Open.
    pub(crate) open: u64,
    /// That may be open; `None`: any number, or the system does not say.
    pub(crate) max: Option<u64>,
}

/// Memory of a process, shared memory included; `None` where it is gone, or the system keeps it to itself.
pub(crate) fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Descriptors of a process; `None` where it is gone. Linux says since 6.2 how many are open, to everybody; before, only
/// those who may list them could count them, and `own`, what the process itself counts, stands for it.
pub(crate) fn descriptors(pid: u32, own: u64) -> Option<Descriptors> {
    let found = std::fs::metadata(format!("/proc/{pid}/fd")).ok()?.len();
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok();
    Some(Descriptors {
        open: if found == 0 { own } else { found },
        max: limits.as_deref().and_then(max_open_files),
    })
}

/// The soft limit, which is the one that holds.
fn max_open_files(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max processes             127456               127456               processes \n\
                    Max open files            1024                 524288               files     \n";
        assert_eq!(max_open_files(text), Some(1024));
        assert_eq!(max_open_files(&text.replace("1024 ", "unlimited ")), None);
        assert_eq!(max_open_files(""), None);
    }

    #[test]
    fn this_process_has_memory_and_descriptors() {
        let pid = std::process::id();
        assert!(resident_bytes(pid).is_some_and(|bytes| bytes > 100_000));
        let found = descriptors(pid, 1).unwrap();
        assert!(found.open > 0 && found.max.is_none_or(|max| max >= found.open));
        assert_eq!(descriptors(u32::MAX, 1), None);
    }
}
