//! What one master hands to the one that replaces it, and the words the two exchange.
//!
//! The new binary is started with one end of a SOCK_SEQPACKET pair as its standard input, which already holds everything;
//! the variable [`VARIABLE`] in its environment says so. Each datagram is text in lines, with descriptors:
//!
//! ```text
//! kp-upgrade 1
//! pid 0 4711
//! pid-file 0 /run/kp.pid.oldbin
//! daemon 0 yes
//! listen 2 - 127.0.0.1:80
//! tickets 1
//! overrides 1
//! listen 1 inode=2049:8812 unix:/run/kp-app.sock
//! end 0
//! ```
//!
//! The first line is the version. A later line is a word, how many of the datagram's descriptors belong to it, in order, and
//! a value. So what a newer kp adds an older one can skip: it closes what came with a word it does not know, and warns. A
//! version it does not know is an error. Afterwards the new master says how it fares, one [`Word`] in each datagram, and both
//! learn from the end of the channel that the other is gone.

use crate::report;
use kp_config::model::ListenAddress;
use kp_sys::process;
use kp_sys::socket::{self, FDS_MAX, recv_fds, send_fds};
use std::ffi::OsString;
use std::fmt::Write;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Tells a new binary that its standard input is the channel.
pub(crate) const VARIABLE: &str = "KP_UPGRADE";
const VERSION: &str = "kp-upgrade 1";
/// Text of one datagram, about; the receiver takes 64 KiB.
const TEXT_MAX: usize = 16 * 1024;

/// The sockets of one address, in the kernel's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passed<F> {
    /// Where they listen.
    pub(crate) address: ListenAddress,
    /// Device and inode of a path that kp made.
    pub(crate) inode: Option<(u64, u64)>,
    /// How many of them, the first ones, a service manager keeps.
    pub(crate) kept: usize,
    /// They cannot be a group.
    pub(crate) single: bool,
    /// The sockets.
    pub(crate) sockets: Vec<F>,
}

/// Everything that is handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Estate<F> {
    /// The old master.
    pub(crate) pid: i32,
    /// Its pid file, under the name that it has now.
    pub(crate) pid_file: PathBuf,
    /// It is a daemon, so the new one is.
    pub(crate) daemon: bool,
    /// The keys of TLS session tickets.
    pub(crate) tickets: Option<F>,
    /// What was changed at run time, as text in sealed memory.
    pub(crate) overrides: Option<F>,
    /// Listening sockets.
    pub(crate) sockets: Vec<Passed<F>>,
}

/// What the new master says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    /// It serves, with so many workers.
    Serving(u32),
    /// It cannot start: the reason, which may have lines.
    Failed(String),
    /// It does not serve an address that it was passed.
    GaveUp(ListenAddress),
    /// It was told to stop.
    Leaving,
}

/// Puts everything into the channel. Nobody need be reading: what does not fit is an error.
pub(crate) fn send(channel: &impl AsFd, estate: &Estate<BorrowedFd<'_>>) -> io::Result<()> {
    let mut text = format!("{VERSION}\n");
    line(&mut text, "pid", 0, &estate.pid.to_string());
    line(&mut text, "pid-file", 0, &escaped(&estate.pid_file));
    line(
        &mut text,
        "daemon",
        0,
        if estate.daemon { "yes" } else { "no" },
    );
    let mut fds: Vec<BorrowedFd<'_>> = Vec::new();
    if let Some(tickets) = estate.tickets {
        line(&mut text, "tickets", 1, "");
        fds.push(tickets);
    }
    if let Some(overrides) = estate.overrides {
        line(&mut text, "overrides", 1, "");
        fds.push(overrides);
    }
    for passed in &estate.sockets {
        for part in passed.sockets.chunks(FDS_MAX) {
            if fds.len() + part.len() > FDS_MAX || text.len() > TEXT_MAX {
                send_fds(channel, text.as_bytes(), &fds)?;
                text.clear();
                fds.clear();
            }
            let value = format!("{} {}", options_of(passed), address_text(&passed.address));
            line(&mut text, "listen", part.len(), &value);
            fds.extend_from_slice(part);
        }
    }
    line(&mut text, "end", 0, "");
    send_fds(channel, text.as_bytes(), &fds)
}

fn line(text: &mut String, word: &str, count: usize, value: &str) {
    // Writing to a string cannot fail.
    let _ = match value {
        "" => writeln!(text, "{word} {count}"),
        _ => writeln!(text, "{word} {count} {value}"),
    };
}

fn options_of<F>(passed: &Passed<F>) -> String {
    let inode = passed
        .inode
        .map(|(device, inode)| format!("inode={device}:{inode}"));
    let kept = (passed.kept > 0).then(|| format!("kept={}", passed.kept));
    let single = passed.single.then(|| String::from("single"));
    let all: Vec<String> = inode.into_iter().chain(kept).chain(single).collect();
    if all.is_empty() {
        String::from("-")
    } else {
        all.join(",")
    }
}

/// Takes the channel and what is in it, if this process was started by another master.
pub(crate) fn receive() -> Result<Option<Inheritance>, String> {
    if std::env::var_os(VARIABLE).is_none() {
        return Ok(None);
    }
    let channel = process::take_standard_input()
        .map_err(|error| format!("standard input cannot be taken: {error}"))?;
    let estate = read(&channel)?;
    let predecessor = Predecessor {
        pid: estate.pid,
        pid_file: estate.pid_file,
        daemon: estate.daemon,
        channel,
    };
    Ok(Some(Inheritance {
        predecessor,
        tickets: estate.tickets,
        overrides: estate.overrides,
        sockets: estate.sockets,
    }))
}

fn read(channel: &OwnedFd) -> Result<Estate<OwnedFd>, String> {
    let mut estate = Estate {
        pid: 0,
        pid_file: PathBuf::new(),
        daemon: false,
        tickets: None,
        overrides: None,
        sockets: Vec::new(),
    };
    let mut first = true;
    loop {
        let (text, fds) = match recv_fds(channel) {
            Ok(Some(datagram)) => datagram,
            Ok(None) => return Err(String::from("what the old master passed ends too early")),
            Err(error) => {
                return Err(format!(
                    "{VARIABLE} is set, but standard input is no channel to another master ({})",
                    report::numbered(&error)
                ));
            }
        };
        let text = String::from_utf8(text)
            .map_err(|_| String::from("what the old master passed is no text"))?;
        let mut lines = text.lines();
        if std::mem::take(&mut first) {
            let version = lines.next().unwrap_or_default();
            if version != VERSION {
                return Err(format!(
                    "the old master passed \"{version}\", this one knows \"{VERSION}\": stop the old one and start this one"
                ));
            }
        }
        if take_lines(&mut estate, lines, fds)? {
            return Ok(estate);
        }
    }
}

/// Takes in the lines of a datagram; whether the last of all was among them.
fn take_lines<'a>(
    estate: &mut Estate<OwnedFd>,
    lines: impl Iterator<Item = &'a str>,
    fds: Vec<OwnedFd>,
) -> Result<bool, String> {
    let mut fds = fds.into_iter();
    for line in lines {
        let odd = || format!("the old master passed \"{line}\", which cannot be read");
        let mut words = line.splitn(3, ' ');
        let (word, count) = (words.next().unwrap_or_default(), words.next());
        let value = words.next().unwrap_or_default();
        let count = count
            .and_then(|count| count.parse::<usize>().ok())
            .ok_or_else(odd)?;
        let mine: Vec<OwnedFd> = fds.by_ref().take(count).collect();
        if mine.len() != count {
            return Err(odd());
        }
        match word {
            "pid" => estate.pid = value.parse().map_err(|_| odd())?,
            "pid-file" => estate.pid_file = unescaped(value),
            "daemon" => estate.daemon = value == "yes",
            "listen" => estate.sockets.push(passed(value, mine).ok_or_else(odd)?),
            "tickets" => estate.tickets = mine.into_iter().next(),
            "overrides" => estate.overrides = mine.into_iter().next(),
            "end" => return Ok(true),
            _ => ignored(word),
        }
    }
    Ok(false)
}

fn passed(value: &str, sockets: Vec<OwnedFd>) -> Option<Passed<OwnedFd>> {
    let (options, address) = value.split_once(' ')?;
    let mut passed = Passed {
        address: address_of(address)?,
        inode: None,
        kept: 0,
        single: false,
        sockets,
    };
    for option in options.split(',').filter(|option| *option != "-") {
        match option.split_once('=') {
            Some(("inode", pair)) => {
                let (device, inode) = pair.split_once(':')?;
                passed.inode = Some((device.parse().ok()?, inode.parse().ok()?));
            }
            Some(("kept", count)) => passed.kept = count.parse().ok()?,
            None if option == "single" => passed.single = true,
            _ => ignored(option),
        }
    }
    Some(passed)
}

/// On standard error, since no log is known yet.
fn ignored(word: &str) {
    report::say(format_args!(
        "[warn] the old master passed \"{word}\", which this one does not know: ignored"
    ));
}

impl Word {
    /// Says it. A master that does not hear it any more is gone.
    pub(crate) fn send(&self, channel: &impl AsFd) {
        let text = match self {
            Self::Serving(workers) => format!("serving {workers}"),
            // A datagram is at most 64 KiB; a text that long says it at its beginning.
            Self::Failed(reason) => format!("failed {}", beginning(reason, TEXT_MAX)),
            Self::GaveUp(address) => format!("gave-up {}", address_text(address)),
            Self::Leaving => String::from("leaving"),
        };
        let _ = send_fds(channel, text.as_bytes(), &[]);
    }

    /// The next one, `None` if it is not one that this kp knows.
    fn parse(text: &str) -> Option<Self> {
        match text.split_once(' ') {
            Some(("serving", workers)) => workers.parse().ok().map(Self::Serving),
            Some(("gave-up", address)) => address_of(address).map(Self::GaveUp),
            Some(("failed", reason)) => Some(Self::Failed(reason.to_owned())),
            None if text == "leaving" => Some(Self::Leaving),
            _ => None,
        }
    }
}

/// The master that this one was started by, as long as it lives.
#[derive(Debug)]
pub(crate) struct Predecessor {
    /// Its process.
    pub(crate) pid: i32,
    /// Its pid file.
    pub(crate) pid_file: PathBuf,
    /// It is a daemon.
    pub(crate) daemon: bool,
    /// It ends when the old master does.
    pub(crate) channel: OwnedFd,
}

/// What a new master starts with.
#[derive(Debug)]
pub(crate) struct Inheritance {
    /// Who passed it.
    pub(crate) predecessor: Predecessor,
    /// The keys of TLS session tickets.
    pub(crate) tickets: Option<OwnedFd>,
    /// What was changed at run time.
    pub(crate) overrides: Option<OwnedFd>,
    /// Listening sockets.
    pub(crate) sockets: Vec<Passed<OwnedFd>>,
}

/// What the other end has said; the flag: it is still there.
pub(crate) fn hear(channel: &impl AsFd) -> (Vec<Word>, bool) {
    let mut words = Vec::new();
    loop {
        match socket::recv_fds(channel) {
            Ok(Some((text, _))) => words.extend(Word::parse(&String::from_utf8_lossy(&text))),
            Ok(None) => return (words, false),
            Err(error) => return (words, error.kind() == io::ErrorKind::WouldBlock),
        }
    }
}

fn beginning(text: &str, length: usize) -> &str {
    let end = (0..=length.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or(text)
}

fn address_text(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Inet(address) => address.to_string(),
        ListenAddress::Unix(path) => format!("unix:{}", escaped(path)),
    }
}

fn address_of(text: &str) -> Option<ListenAddress> {
    Some(match text.strip_prefix("unix:") {
        Some(path) => ListenAddress::Unix(unescaped(path)),
        None => ListenAddress::Inet(text.parse().ok()?),
    })
}

/// A path in one line of text: what is not printable ASCII, and `%`, as `%XX`.
fn escaped(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'%' | 0..0x20 | 0x7f.. => {
                let _ = write!(text, "%{byte:02x}");
            }
            _ => text.push(char::from(*byte)),
        }
    }
    text
}

fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escape)) = rest.split_once('%') {
        bytes.extend_from_slice(plain.as_bytes());
        let digits = escape.get(..2);
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = escape.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(b'%');
                rest = escape;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kp_sys::socket::seqpacket_pair;
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;

    fn estate<F>(sockets: Vec<Passed<F>>) -> Estate<F> {
        Estate {
            pid: 4711,
            pid_file: "/run/a b%\n.oldbin".into(),
            daemon: true,
            tickets: None,
            overrides: None,
            sockets,
        }
    }

    fn target(fd: &impl AsFd) -> PathBuf {
        fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())).unwrap()
    }

    /// What comes out for these datagrams.
    fn read_back(datagrams: &[(&str, usize)]) -> Result<Estate<OwnedFd>, String> {
        let (near, far) = seqpacket_pair().unwrap();
        let null = File::open("/dev/null").unwrap();
        for (text, fds) in datagrams {
            send_fds(&near, text.as_bytes(), &vec![null.as_fd(); *fds]).unwrap();
        }
        drop(near);
        read(&far)
    }

    #[test]
    fn what_is_sent_is_read_whatever_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<File> = (0..450)
            .map(|n| File::create(folder.path().join(n.to_string())).unwrap())
            .collect();
        let passed = |address: ListenAddress, range: std::ops::Range<usize>| Passed {
            address,
            inode: None,
            kept: 0,
            single: false,
            sockets: files[range].iter().map(AsFd::as_fd).collect::<Vec<_>>(),
        };
        let inet = |text: &str| ListenAddress::Inet(text.parse().unwrap());
        let mut unix = passed(ListenAddress::Unix("/tmp/a b\n%41".into()), 449..450);
        (unix.inode, unix.kept, unix.single) = (Some((2049, u64::MAX)), 1, true);
        let mut sent = estate(vec![
            passed(inet("127.0.0.1:80"), 0..401),
            passed(inet("[fe80::1%2]:443"), 401..449),
            unix.clone(),
        ]);
        let keys = File::open("/dev/null").unwrap();
        sent.tickets = Some(keys.as_fd());
        let (near, far) = seqpacket_pair().unwrap();
        send(&near, &sent).unwrap();
        let got = read(&far).unwrap();
        assert_eq!(got.tickets.as_ref().map(target), Some("/dev/null".into()));
        assert_eq!(
            (got.pid, &got.pid_file, got.daemon),
            (4711, &sent.pid_file, true)
        );
        let targets: Vec<PathBuf> = got
            .sockets
            .iter()
            .flat_map(|one| &one.sockets)
            .map(target)
            .collect();
        assert_eq!(targets, files.iter().map(target).collect::<Vec<_>>());
        let addresses: Vec<_> = got
            .sockets
            .iter()
            .map(|one| (&one.address, one.sockets.len()))
            .collect();
        let first = inet("127.0.0.1:80");
        assert_eq!(
            addresses,
            [
                (&first, 200),
                (&first, 200),
                (&first, 1),
                (&inet("[fe80::1%2]:443"), 48),
                (&unix.address, 1)
            ]
        );
        let last = got.sockets.last().unwrap();
        assert_eq!((last.inode, last.kept, last.single), (unix.inode, 1, true));
    }

    #[test]
    fn what_a_newer_one_adds_is_skipped_with_its_descriptors() {
        let got = read_back(&[(
            "kp-upgrade 1\npid 0 1\nquic-keys 2 of the future\nlisten 1 -,later 127.0.0.1:1\nend 0\n",
            3,
        )]);
        let got = got.unwrap();
        assert_eq!((got.pid, got.sockets.len()), (1, 1));
        assert_eq!(got.sockets[0].sockets.len(), 1);
    }

    #[test]
    fn what_cannot_be_understood_is_an_error() {
        for (datagrams, complaint) in [
            (&[("kp-upgrade 2\nend 0\n", 0)][..], "stop the old one"),
            (&[("kp-upgrade 1\npid 0 1\n", 0)][..], "ends too early"),
            (&[("kp-upgrade 1\npid\n", 0)][..], "cannot be read"),
            (
                &[("kp-upgrade 1\nlisten 2 - 127.0.0.1:1\n", 1)][..],
                "cannot be read",
            ),
            (
                &[("kp-upgrade 1\nlisten 1 - here\n", 1)][..],
                "cannot be read",
            ),
        ] {
            let said = read_back(datagrams).unwrap_err();
            assert!(said.contains(complaint), "{said}");
        }
        let null = File::open("/dev/null").unwrap();
        assert!(read(&null.into()).unwrap_err().contains("no channel"));
    }

    #[test]
    fn words_are_heard_until_the_channel_ends() {
        let (near, far) = seqpacket_pair().unwrap();
        let long = "ä".repeat(TEXT_MAX);
        let path = Word::GaveUp(ListenAddress::Unix("/a b\n".into()));
        for word in [
            Word::Serving(4),
            Word::Leaving,
            path.clone(),
            Word::Failed(long),
        ] {
            word.send(&near);
        }
        send_fds(&near, b"greetings", &[]).unwrap();
        let (words, there) = hear(&far);
        assert_eq!(
            words,
            [
                Word::Serving(4),
                Word::Leaving,
                path,
                Word::Failed("ä".repeat(TEXT_MAX / 2))
            ]
        );
        assert!(there);
        drop(near);
        assert_eq!(hear(&far), (vec![], false));
        Word::Leaving.send(&far);
    }
}
