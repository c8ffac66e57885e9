//! What `/proc` tells about processes: titles, children, memory, listening sockets.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Sends a signal; false when there is no such process.
pub fn signal(pid: u32, signal: Signal) -> bool {
    i32::try_from(pid).is_ok_and(|pid| kill(Pid::from_raw(pid), signal).is_ok())
}

/// Whether the process exists and is not a zombie.
pub fn alive(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.state != 'Z')
}

/// Whether the process is stopped (SIGSTOP).
pub fn stopped(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.state == 'T')
}

/// The command line, arguments joined by spaces, as `ps` shows it.
pub fn title(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes)
        .replace('\0', " ")
        .trim_end()
        .to_owned()
}

/// The living children of a process.
pub fn children(parent: u32) -> Vec<u32> {
    let mut found: Vec<u32> = fs::read_dir("/proc")
        .expect("reading /proc")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&pid| stat(pid).is_some_and(|stat| stat.parent == parent && stat.state != 'Z'))
        .collect();
    found.sort_unstable();
    found
}

/// Proportional set size in KiB: what the process adds to the machine's memory.
pub fn pss_kib(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").trim().parse().ok())
        .unwrap_or(0)
}

/// Resident set size in KiB.
pub fn rss_kib(pid: u32) -> u64 {
    status(pid, "VmRSS")
        .and_then(|text| text.trim_end_matches(" kB").trim().parse().ok())
        .unwrap_or(0)
}

/// User and system time used so far, in clock ticks of 10 ms.
pub fn cpu_ticks(pid: u32) -> u64 {
    stat(pid).map_or(0, |stat| stat.ticks)
}

/// The open descriptors: `(number, target)`.
pub fn descriptors(pid: u32) -> Vec<(u32, String)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number = entry.file_name().to_str()?.parse().ok()?;
            let target = fs::read_link(entry.path()).ok()?;
            Some((number, target.to_string_lossy().into_owned()))
        })
        .collect()
}

/// How many descriptors of a process are not connections: what must not grow.
pub fn lasting_descriptors(pid: u32) -> usize {
    let connections = crate::peers::tcp_peers(pid).len();
    descriptors(pid).len().saturating_sub(connections)
}

/// A value of `/proc/PID/status`, such as `Uid`.
pub fn status(pid: u32, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| {
        Some(
            line.strip_prefix(name)?
                .strip_prefix(':')?
                .trim()
                .to_owned(),
        )
    })
}

/// Its scheduling priority, from -20 to 19.
pub fn nice(pid: u32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything, the 17th field.
    let (_, rest) = text.rsplit_once(") ")?;
    rest.split(' ').nth(16)?.parse().ok()
}

/// Whether anybody listens on the TCP port, on any address.
pub fn listening(port: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        fs::read_to_string(table)
            .unwrap_or_default()
            .lines()
            .skip(1)
            .any(|line| {
                let mut words = line.split_whitespace().skip(1);
                let local = words.next().and_then(|word| word.rsplit(':').next());
                let state = words.nth(1);
                local == Some(&format!("{port:04X}")) && state == Some("0A")
            })
    })
}

struct Stat {
    state: char,
    parent: u32,
    ticks: u64,
}

/// The command name is in parentheses and may hold anything, so the fields are counted from the last one.
fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    let mut words = rest.split(' ');
    let state = words.next()?.chars().next()?;
    let parent = words.next()?.parse().ok()?;
    let user: u64 = words.nth(9)?.parse().ok()?;
    let system: u64 = words.next()?.parse().ok()?;
    Some(Stat {
        state,
        parent,
        ticks: user + system,
    })
}
