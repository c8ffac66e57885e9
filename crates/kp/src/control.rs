//! The control socket: how the command line talks with a running master and learns how it went.
//!
//! A unix-domain socket beside the pid file, `kp.ctl` for `kp.pid` and `NAME.ctl` for any other, which root and the
//! master's own user may connect to. One connection is one question: the asker sends a line, and the master answers `ok` or
//! `failed` on a line of its own, then text for a terminal, then closes. A connection that ends without an answer means that
//! the master has ended. The line `ctl LENGTH` is followed by so many bytes of JSON, a command, whose answer is JSON, too.
//!
//! `socket` is the master's side and `client` the command line's, `command` what stands in the JSON; here is what all agree
//! on.

pub(crate) mod client;
pub(crate) mod command;
mod socket;

pub(crate) use socket::{AskerId, ControlSocket};

use crate::pidfile::beside;
use std::path::{Path, PathBuf};

/// Longest request line.
const LINE_MAX_BYTES: usize = 4096;
/// Longest command behind `ctl LENGTH`.
pub(crate) const COMMAND_MAX_BYTES: usize = 1 << 20;

/// What the master is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// Use the configuration file as it is now; the answer is how that went.
    Reload,
    /// Open the log files anew; the answer comes when nothing goes to the old ones any more.
    Reopen,
    /// Who runs, for how long and with what.
    Status,
    /// What a reload waits for, in one line.
    Progress,
    /// Start the binary anew in this one's place; the answer comes when it serves or has failed.
    Upgrade,
    /// `kp ctl`: a command in JSON, which nobody has looked at.
    Ctl(Vec<u8>),
}

/// The first line of a request.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// It is the whole.
    Whole(Request),
    /// So many bytes of a command follow.
    Ctl(usize),
}

/// How it went, and what the terminal is to show of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It was done.
    Done(String),
    /// It was not.
    Failed(String),
}

impl Answer {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Done(text) => format!("ok\n{text}"),
            Self::Failed(text) => format!("failed\n{text}"),
        }
        .into_bytes()
    }

    /// `None`: this is no answer, or none that came through.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let (word, rest) = text.split_once('\n')?;
        match word {
            "ok" => Some(Self::Done(rest.to_owned())),
            "failed" => Some(Self::Failed(rest.to_owned())),
            _ => None,
        }
    }
}

/// The word in front of a command's length.
const CTL: &str = "ctl";

impl Request {
    const WORDS: [(&'static str, Self); 5] = [
        ("reload", Self::Reload),
        ("reopen", Self::Reopen),
        ("upgrade", Self::Upgrade),
        ("status", Self::Status),
        ("progress", Self::Progress),
    ];

    /// As it is sent.
    fn encode(&self) -> Vec<u8> {
        if let Self::Ctl(command) = self {
            let mut bytes = format!("{CTL} {}\n", command.len()).into_bytes();
            bytes.extend_from_slice(command);
            return bytes;
        }
        let word = Self::WORDS.iter().find(|(_, request)| request == self);
        word.map_or(String::new(), |(word, _)| format!("{word}\n"))
            .into_bytes()
    }
}

impl Line {
    /// Reads a line, without its end; or what is wrong with it.
    fn parse(line: &[u8]) -> Result<Self, String> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(length) = line.strip_prefix(CTL.as_bytes())
            && length.first().is_none_or(|next| *next == b' ')
        {
            return length_of(length).map(Self::Ctl);
        }
        let known = Request::WORDS
            .iter()
            .find(|(word, _)| word.as_bytes() == line)
            .map(|(_, request)| Self::Whole(request.clone()));
        known.ok_or_else(|| {
            let shown: String = String::from_utf8_lossy(line)
                .chars()
                .take(40)
                .flat_map(char::escape_default)
                .collect();
            let words: Vec<_> = Request::WORDS.iter().map(|(word, _)| *word).collect();
            format!(
                "unknown request \"{shown}\", known are: {}, {CTL} LENGTH",
                words.join(", ")
            )
        })
    }
}

/// What stands behind `ctl`.
fn length_of(text: &[u8]) -> Result<usize, String> {
    let digits = text.strip_prefix(b" ").filter(|digits| {
        !digits.is_empty() && digits.len() <= 10 && digits.iter().all(u8::is_ascii_digit)
    });
    let length = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    match length {
        Some(0) | None => Err(format!(
            "\"{CTL}\" is followed by the length of a command in bytes"
        )),
        Some(length) if length > COMMAND_MAX_BYTES => {
            Err(format!("a command has at most {COMMAND_MAX_BYTES} bytes"))
        }
        Some(length) => Ok(length),
    }
}

/// Where the socket of a master with this pid file is.
pub(crate) fn path_of(pid_file: &Path) -> PathBuf {
    if pid_file
        .extension()
        .is_some_and(|extension| extension == "pid")
    {
        pid_file.with_extension("ctl")
    } else {
        beside(pid_file, "ctl")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_a_neighbour_of_the_pid_file() {
        for (pid_file, socket) in [
            ("/run/kp.pid", "/run/kp.ctl"),
            ("/run/proxy", "/run/proxy.ctl"),
            ("/run/kp.pid.oldbin", "/run/kp.pid.oldbin.ctl"),
            ("/run/a.ctl", "/run/a.ctl.ctl"),
        ] {
            assert_eq!(path_of(Path::new(pid_file)), Path::new(socket));
        }
    }

    #[test]
    fn requests_are_one_known_word() {
        for (word, request) in Request::WORDS {
            let line = Ok(Line::Whole(request.clone()));
            assert_eq!(Line::parse(word.as_bytes()), line);
            assert_eq!(Line::parse(format!("{word}\r").as_bytes()), line);
            assert_eq!(request.encode(), format!("{word}\n").as_bytes());
        }
        for (line, shown) in [
            (&b""[..], "\"\""),
            (b"RELOAD", "\"RELOAD\""),
            (b"reload now", "\"reload now\""),
            (b"\xff\"\x1b[2J", "\\u{fffd}\\\"\\u{1b}[2J"),
        ] {
            let complaint = Line::parse(line).unwrap_err();
            assert!(
                complaint.contains(shown) && complaint.contains("known are: reload"),
                "{complaint}"
            );
        }
        assert!(Line::parse(&[b'x'; 4000]).unwrap_err().len() < 200);
    }

    #[test]
    fn a_command_says_how_long_it_is() {
        assert_eq!(Request::Ctl(b"{}".into()).encode(), b"ctl 2\n{}");
        assert_eq!(Line::parse(b"ctl 2"), Ok(Line::Ctl(2)));
        assert_eq!(Line::parse(b"ctl 1048576\r"), Ok(Line::Ctl(1 << 20)));
        for (line, part) in [
            (&b"ctl"[..], "is followed by the length"),
            (b"ctl ", "is followed by the length"),
            (b"ctl 0", "is followed by the length"),
            (b"ctl -1", "is followed by the length"),
            (b"ctl +1", "is followed by the length"),
            (b"ctl  1", "is followed by the length"),
            (b"ctl 1 2", "is followed by the length"),
            (b"ctl 99999999999999999999", "is followed by the length"),
            (b"ctl 1048577", "at most 1048576 bytes"),
            (b"control 1", "unknown request"),
        ] {
            let complaint = Line::parse(line).unwrap_err();
            assert!(complaint.contains(part), "{complaint}");
        }
    }

    #[test]
    fn answers_are_read_as_they_were_written() {
        for answer in [
            Answer::Done(String::new()),
            Answer::Done("one\ntwo\n".into()),
            Answer::Failed("kp: [emerg] no\n  2 | x\n\n".into()),
        ] {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
        for bytes in [
            &b""[..],
            b"ok",
            b"fail",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"\nok\n",
        ] {
            assert_eq!(Answer::decode(bytes), None, "{bytes:?}");
        }
    }
}
