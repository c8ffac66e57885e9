//! The command line of `kp ctl`: one table of what may be said, from which the help, the complaints and the shells'
//! completions come.

use super::batch::Batch;
use super::table::printable;
use super::wait::Patience;
use crate::cli::{self, Options};
use crate::control::command::{Command, LIMIT};
use kp_config::overrides::Change;
use kp_config::suggest;
use kp_worker::inquiry::ROWS_MAX;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// One command.
#[derive(Debug)]
pub(crate) struct Form {
    /// The words that name it.
    pub(crate) words: &'static [&'static str],
    /// What follows them, for people.
    pub(crate) arguments: &'static str,
    /// Fewest and most of these.
    count: (usize, usize),
    /// Further options, and what they need.
    pub(crate) flags: &'static [Flag],
    /// In a few words.
    pub(crate) about: &'static str,
    command: fn(&mut Parts) -> Result<Command, String>,
}

/// An option of some commands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Flag {
    /// With its dashes.
    pub(crate) name: &'static str,
    pub(crate) value: Value,
}

/// What follows an option.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Nothing,
    /// This, attached with `=` or as the next word.
    Needed(&'static str),
    /// This, only attached with `=`, or nothing.
    Possible(&'static str),
}

/// What was said besides a command's words.
#[derive(Debug, Default)]
struct Parts {
    /// The command's own words and what follows them.
    words: Vec<String>,
    arguments: Vec<String>,
    flags: Vec<(&'static str, String)>,
    /// A batch that was read for it.
    batch: Option<Batch>,
}

impl Parts {
    fn argument(&self, index: usize) -> Option<String> {
        self.arguments.get(index).cloned()
    }

    /// The value of an option; the last one counts.
    fn flag(&self, flag: &Flag) -> Option<&str> {
        let mut given = self.flags.iter().rev();
        let found = given.find(|(name, _)| *name == flag.name);
        found.map(|(_, value)| value.as_str())
    }

    /// The words as a change, if they are one.
    fn change(&self) -> Result<Command, String> {
        let words = [self.words.as_slice(), &self.arguments].concat();
        match Change::parse(&words) {
            Ok(_) => Ok(self.changes(vec![words])),
            Err(complaint) => Err(complaint.to_string()),
        }
    }

    fn changes(&self, changes: Vec<Vec<String>>) -> Command {
        Command::Change {
            changes,
            force: self.flag(&FORCE_FLAG).is_some(),
        }
    }

    fn limit(&self) -> Result<usize, String> {
        self.flag(&LIMIT_FLAG).map_or(Ok(LIMIT), |text| {
            let number = text
                .parse()
                .ok()
                .filter(|limit| (1..=ROWS_MAX).contains(limit));
            number.ok_or_else(|| format!("--limit is a number from 1 to {ROWS_MAX}"))
        })
    }

    fn longer_ms(&self) -> Result<u64, String> {
        self.flag(&LONGER_FLAG).map_or(Ok(0), |text| {
            let time = kp_config::duration(text);
            let ms = time.and_then(|time| u64::try_from(time.as_millis()).ok());
            ms.ok_or_else(|| "--longer is a time as in the configuration: 500ms, 5s, 1m".into())
        })
    }

    fn wait(&self) -> Result<Option<Patience>, String> {
        let Some(text) = self.flag(&WAIT_FLAG) else {
            return Ok(None);
        };
        let limit = kp_config::duration(text);
        // Without a word there is no limit.
        if limit.is_none() && !text.is_empty() {
            return Err("--wait=TIME is a time as in the configuration: 500ms, 30s, 5m".into());
        }
        Ok(Some(Patience { limit }))
    }
}

/// All commands.
pub(crate) const FORMS: &[Form] = &[
    Form {
        words: &["upstream", "list"],
        arguments: "",
        count: (0, 0),
        flags: &[],
        about: "every upstream with its peers: state, weight, what is in flight, what failed last",
        command: |_| Ok(Command::UpstreamList {}),
    },
    Form {
        words: &["upstream", "show"],
        arguments: "NAME",
        count: (1, 1),
        flags: &[],
        about: "all that is known of one upstream, with the run-time changes in force",
        command: |parts| {
            Ok(Command::UpstreamShow {
                name: parts.argument(0).unwrap_or_default(),
            })
        },
    },
    Form {
        words: &["peer", "add"],
        arguments: "UPSTREAM ADDRESS [PARAMETER ...]",
        count: (2, usize::MAX),
        flags: &[FORCE_FLAG],
        about: "add a peer, with the parameters of a server line",
        command: |parts| parts.change(),
    },
    Form {
        words: &["peer", "remove"],
        arguments: "UPSTREAM PEER",
        count: (2, 2),
        flags: &[FORCE_FLAG, WAIT_FLAG],
        about: "take a peer out for good",
        command: |parts| parts.change(),
    },
    Form {
        words: &["peer", "drain"],
        arguments: "UPSTREAM PEER",
        count: (2, 2),
        flags: &[FORCE_FLAG, WAIT_FLAG],
        about: "send only those sessions to a peer that it has",
        command: |parts| parts.change(),
    },
    Form {
        words: &["peer", "down"],
        arguments: "UPSTREAM PEER",
        count: (2, 2),
        flags: &[FORCE_FLAG, WAIT_FLAG],
        about: "send nothing to a peer",
        command: |parts| parts.change(),
    },
    Form {
        words: &["peer", "up"],
        arguments: "UPSTREAM PEER",
        count: (2, 2),
        flags: &[FORCE_FLAG],
        about: "neither drain nor down",
        command: |parts| parts.change(),
    },
    Form {
        words: &["peer", "weight"],
        arguments: "UPSTREAM PEER N",
        count: (3, 3),
        flags: &[FORCE_FLAG],
        about: "give a peer another weight",
        command: |parts| parts.change(),
    },
    Form {
        words: &["peer", "max_conns"],
        arguments: "UPSTREAM PEER N",
        count: (3, 3),
        flags: &[FORCE_FLAG],
        about: "give a peer another limit of connections, 0 is none",
        command: |parts| parts.change(),
    },
    Form {
        words: &["peer", "reset"],
        arguments: "UPSTREAM PEER",
        count: (2, 2),
        flags: &[FORCE_FLAG],
        about: "forget a peer's failures and its ejection",
        command: |parts| parts.change(),
    },
    Form {
        words: &["reset"],
        arguments: "[UPSTREAM [PEER]]",
        count: (0, 2),
        flags: &[FORCE_FLAG],
        about: "give up run-time changes: the configuration holds again",
        command: |parts| parts.change(),
    },
    Form {
        words: &["batch"],
        arguments: "[FILE|-]",
        count: (0, 1),
        flags: &[FORCE_FLAG, WAIT_FLAG],
        about: "make many changes in one step or none: a line each, `peer ...` or `reset ...`",
        command: |parts| {
            let batch = Batch::read(parts.argument(0).as_deref().unwrap_or("-"))?;
            let command = parts.changes(batch.changes.clone());
            parts.batch = Some(batch);
            Ok(command)
        },
    },
    Form {
        words: &["requests"],
        arguments: "",
        count: (0, 0),
        flags: &[LIMIT_FLAG, LONGER_FLAG],
        about: "requests in flight, the oldest first: where each of them waits, and what will end it",
        command: |parts| {
            Ok(Command::Requests {
                limit: parts.limit()?,
                longer_ms: parts.longer_ms()?,
            })
        },
    },
    Form {
        words: &["connections"],
        arguments: "",
        count: (0, 0),
        flags: &[LIMIT_FLAG],
        about: "connections of clients, the oldest first, and those to each peer",
        command: |parts| {
            Ok(Command::Connections {
                limit: parts.limit()?,
            })
        },
    },
    Form {
        words: &["log-level"],
        arguments: "[LEVEL|reset]",
        count: (0, 1),
        flags: &[],
        about: "show or change the level of every error log, until reset or a restart",
        command: |parts| {
            Ok(Command::LogLevel {
                level: parts.argument(0),
            })
        },
    },
];

const FORCE_FLAG: Flag = Flag {
    name: "--force",
    value: Value::Nothing,
};
const LIMIT_FLAG: Flag = Flag {
    name: "--limit",
    value: Value::Needed("N"),
};
const LONGER_FLAG: Flag = Flag {
    name: "--longer",
    value: Value::Needed("TIME"),
};
const WAIT_FLAG: Flag = Flag {
    name: "--wait",
    value: Value::Possible("TIME"),
};

/// A command line that was understood.
#[derive(Debug)]
pub(crate) struct Line {
    /// Where the configuration is.
    pub(crate) options: Options,
    /// The answer is passed on as it is.
    pub(crate) json: bool,
    /// What is wanted.
    pub(crate) wish: Wish,
    /// The changes of `batch`.
    pub(crate) batch: Option<Batch>,
    /// What is in flight at the peers that are taken out is waited for.
    pub(crate) wait: Option<Patience>,
}

/// What is wanted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// The list of commands.
    Help,
    /// That the master does this.
    Command(Command),
}

/// What is wrong with a command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    what: String,
    usage: Vec<&'static Form>,
}

impl Complaint {
    fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            usage: Vec::new(),
        }
    }

    fn about(form: &'static Form, what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            usage: vec![form],
        }
    }

    /// For a terminal.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("kp: {}\n", printable(&self.what));
        for form in &self.usage {
            text.push_str(&format!("usage: kp ctl {}\n", form.shown()));
        }
        if self.usage.is_empty() {
            text.push_str("kp ctl -h lists the commands\n");
        }
        text
    }
}

impl PartialEq for Form {
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words
    }
}

impl Eq for Form {}

impl Form {
    /// As it is written.
    pub(crate) fn shown(&self) -> String {
        let mut shown = self.words.join(" ");
        for flag in self.flags {
            let name = flag.name;
            shown.push_str(&match flag.value {
                Value::Nothing => format!(" [{name}]"),
                Value::Needed(value) => format!(" [{name} {value}]"),
                Value::Possible(value) => format!(" [{name}[={value}]]"),
            });
        }
        if !self.arguments.is_empty() {
            shown.push(' ');
            shown.push_str(self.arguments);
        }
        shown
    }
}

/// The list of commands.
pub(crate) fn help() -> String {
    let mut text = String::from(
        "Usage: kp ctl [-p prefix] [-e filename] [-c filename] [-g directives] [--json] COMMAND ...\n\nCommands:\n",
    );
    for form in FORMS {
        text.push_str(&format!("  {}\n        {}\n", form.shown(), form.about));
    }
    text.push_str(
        "\n--json prints the master's answer as it is. A change that leaves an upstream without a usable peer needs --force.\n--wait returns when nothing is in flight any more at the peers that are taken out, tunnels included; with =TIME it is over\nthen, with exit code 1.\nExit code: 0 done, 1 refused, not done in time or nobody to ask, 2 the command line is wrong.\n",
    );
    text
}

/// Reads what stands behind `kp ctl`.
pub(crate) fn parse(options: Options, arguments: Vec<OsString>) -> Result<Line, Complaint> {
    let mut line = Line {
        options,
        json: false,
        wish: Wish::Help,
        batch: None,
        wait: None,
    };
    let mut words = Vec::new();
    let mut flags = Vec::new();
    let mut only_words = false;
    let mut help = false;
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let bytes = argument.as_bytes();
        match bytes {
            _ if only_words || bytes == b"-" || !bytes.starts_with(b"-") => {
                words.push(text(&argument)?);
            }
            b"--" => only_words = true,
            b"--json" => line.json = true,
            b"-h" | b"-?" | b"--help" => help = true,
            [b'-', b'-', ..] => flags.push(flag(&argument, &mut arguments)?),
            [_, letter, attached @ ..] => {
                let value = |needs: &str| cli::value_of(*letter, attached, &mut arguments, needs);
                if !line.options.take(*letter, value).map_err(Complaint::new)? {
                    return Err(unknown_option(&argument));
                }
            }
            _ => return Err(unknown_option(&argument)),
        }
    }
    if !help {
        (line.wish, line.batch, line.wait) = wish(&words, flags)?;
    }
    Ok(line)
}

fn text(argument: &OsString) -> Result<String, Complaint> {
    let text = argument.to_str().map(str::to_owned);
    text.ok_or_else(|| Complaint::new("a word is not UTF-8"))
}

fn unknown_option(argument: &OsString) -> Complaint {
    let shown = argument.to_string_lossy();
    Complaint::new(format!("invalid option: \"{}\"", shown.escape_debug()))
}

/// An option of some command with its value, which may be attached (`--limit=5`).
fn flag(
    argument: &OsString,
    rest: &mut impl Iterator<Item = OsString>,
) -> Result<(&'static str, String), Complaint> {
    let said = text(argument)?;
    let (name, attached) = match said.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (said.as_str(), None),
    };
    let mut known = FORMS.iter().flat_map(|form| form.flags);
    let Some(flag) = known.find(|flag| flag.name == name) else {
        return Err(unknown_option(argument));
    };
    let value = match (&flag.value, attached) {
        (Value::Nothing, Some(_)) => {
            return Err(Complaint::new(format!("option \"{name}\" has no value")));
        }
        (Value::Possible(what), Some(value)) if value.is_empty() => {
            return Err(Complaint::new(format!(
                "option \"{name}=\" requires {what}"
            )));
        }
        (Value::Needed(_) | Value::Possible(_), Some(value)) => value,
        (Value::Nothing | Value::Possible(_), None) => String::new(),
        (Value::Needed(what), None) => match rest.next() {
            Some(value) => text(&value)?,
            None => {
                let what = format!("option \"{name}\" requires {what}");
                return Err(Complaint::new(what));
            }
        },
    };
    Ok((flag.name, value))
}

/// Finds the command that begins with these words, and what belongs to it.
fn wish(
    words: &[String],
    flags: Vec<(&'static str, String)>,
) -> Result<(Wish, Option<Batch>, Option<Patience>), Complaint> {
    let begins = |form: &&Form| {
        let mut said = words.iter().map(String::as_str);
        form.words.iter().all(|word| said.next() == Some(word))
    };
    let Some(form) = FORMS.iter().find(begins) else {
        return Err(unknown(words));
    };
    let (words, arguments) = words.split_at_checked(form.words.len()).unwrap_or_default();
    let (fewest, most) = form.count;
    if arguments.len() < fewest {
        return Err(Complaint::about(form, "something is missing"));
    }
    if let Some(further) = arguments.get(most) {
        let what = format!("\"{}\" is too much", further.escape_debug());
        return Err(Complaint::about(form, what));
    }
    if let Some((name, _)) = flags
        .iter()
        .find(|(name, _)| !form.flags.iter().any(|flag| flag.name == *name))
    {
        let what = format!("\"{name}\" is no option of \"{}\"", form.words.join(" "));
        return Err(Complaint::about(form, what));
    }
    let mut parts = Parts {
        words: words.to_vec(),
        arguments: arguments.to_vec(),
        flags,
        batch: None,
    };
    let about = |what| Complaint::about(form, what);
    let wait = parts.wait().map_err(about)?;
    let command = (form.command)(&mut parts).map_err(about)?;
    Ok((Wish::Command(command), parts.batch, wait))
}

/// What no command begins with.
fn unknown(words: &[String]) -> Complaint {
    let Some(first) = words.first() else {
        return Complaint::new("a command is missing");
    };
    // The word that no command has at its place, and what may stand there.
    let of_first: Vec<&'static Form> = FORMS
        .iter()
        .filter(|form| form.words.first() == Some(&first.as_str()))
        .collect();
    let (said, place) = match (of_first.is_empty(), words.get(1)) {
        (true, _) => (first, 0),
        (false, Some(second)) => (second, 1),
        (false, None) => {
            return Complaint {
                what: format!("what of \"{first}\"?"),
                usage: of_first,
            };
        }
    };
    let forms: Vec<&'static Form> = if of_first.is_empty() {
        FORMS.iter().collect()
    } else {
        of_first.clone()
    };
    let candidates = forms
        .iter()
        .filter_map(|form| form.words.get(place).copied());
    let mut what = format!("unknown word \"{}\"", said.escape_debug());
    if let Some(near) = suggest::nearest(said, candidates) {
        what.push_str(&format!(", did you mean \"{near}\"?"));
    }
    Complaint {
        what,
        usage: of_first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Line, Complaint> {
        let words = line.split(' ').filter(|word| !word.is_empty());
        parse(Options::default(), words.map(OsString::from).collect())
    }

    fn wish(line: &str) -> Wish {
        parsed(line).unwrap().wish
    }

    #[test]
    fn options_may_stand_anywhere() {
        let line = parsed("-p /srv log-level --json -ckp.conf debug -- ").unwrap();
        assert!(line.json);
        assert_eq!(line.options.prefix, Some("/srv".into()));
        assert_eq!(line.options.configuration, Some("kp.conf".into()));
        let level = Some("debug".into());
        assert_eq!(line.wish, Wish::Command(Command::LogLevel { level }));
        for help in ["-h", "--help", "log-level -h", "nonsense -?"] {
            assert_eq!(wish(help), Wish::Help);
        }
    }

    #[test]
    fn complaints_name_what_is_wrong_and_what_is_right() {
        for (line, part) in [
            ("", "kp: a command is missing\nkp ctl -h lists"),
            (
                "log-levle",
                "unknown word \"log-levle\", did you mean \"log-level\"?",
            ),
            ("xyzzy", "unknown word \"xyzzy\"\nkp ctl -h"),
            (
                "log-level debug now",
                "\"now\" is too much\nusage: kp ctl log-level [LEVEL|reset]\n",
            ),
            ("peer", "what of \"peer\"?\nusage: kp ctl peer add"),
            (
                "peer dwon a b",
                "unknown word \"dwon\", did you mean \"down\"?\nusage: kp ctl peer add",
            ),
            (
                "peer down a",
                "something is missing\nusage: kp ctl peer down [--force] [--wait[=TIME]] UPSTREAM PEER\n",
            ),
            ("peer weight a b 0", "invalid weight \"0\""),
            ("peer add a b:1", "is no address"),
            (
                "requests --force",
                "\"--force\" is no option of \"requests\"",
            ),
            ("reset --force=yes", "option \"--force\" has no value"),
            (
                "batch /no/such",
                "(2: No such file or directory)\nusage: kp ctl batch",
            ),
            ("-x", "invalid option: \"-x\""),
            ("--frobnicate", "invalid option: \"--frobnicate\""),
            ("-p", "option \"-p\" requires directory name"),
            ("\u{1b}[2J", "unknown word \"\\u{1b}[2J\""),
            ("peer weight a b \u{1b}[2J", "invalid weight \"\\u{1b}[2J\""),
            ("peer add a \u{1b}[2J", "\"\\u{1b}[2J\" is no address"),
        ] {
            let said = parsed(line).unwrap_err().text();
            assert!(said.contains(part), "{line}: {said}");
        }
    }

    #[test]
    fn changes_are_sent_as_their_words() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (line, change, force) in [
            (
                "peer add app 10.0.0.1:80 weight=2 backup",
                "peer add app 10.0.0.1:80 weight=2 backup",
                false,
            ),
            ("--force peer down app b", "peer down app b", true),
            (
                "peer max_conns app b 0 --force",
                "peer max_conns app b 0",
                true,
            ),
            ("reset", "reset", false),
            ("reset app b", "reset app b", false),
        ] {
            let changes = vec![words(change)];
            assert_eq!(
                wish(line),
                Wish::Command(Command::Change { changes, force }),
                "{line}"
            );
        }
    }

    #[test]
    fn whoever_waits_may_have_a_limit() {
        let wait = |line: &str| parsed(line).unwrap().wait;
        let limited = |limit| Some(Patience { limit });
        assert_eq!(wait("peer down a b"), None);
        assert_eq!(wait("--wait peer down a b"), limited(None));
        assert_eq!(
            wait("peer remove a b --wait=1m30s"),
            limited(Some(std::time::Duration::from_secs(90)))
        );
        for (line, part) in [
            ("peer down a b --wait=", "option \"--wait=\" requires TIME"),
            ("peer down a b --wait=-1s", "--wait=TIME is a time as in"),
            ("peer down a b --wait 5s", "\"5s\" is too much\nusage: "),
            ("peer up a b --wait", "\"--wait\" is no option of"),
        ] {
            let said = parsed(line).unwrap_err().text();
            assert!(said.contains(part), "{line}: {said}");
        }
    }

    #[test]
    fn the_help_and_the_manual_have_every_command() {
        let help = help();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/man/kp-ctl.8");
        let manual = std::fs::read_to_string(path).unwrap();
        let listed = manual.replace(['"', '\\'], "");
        for form in FORMS {
            let name = form.words.join(" ");
            let entries = [format!("\n.TP\n.BR {name} "), format!("\n.TP\n.B {name}\n")];
            let found = entries.iter().any(|entry| listed.contains(entry));
            assert!(found, "{name} is not in kp-ctl(8)");
            assert!(help.contains(&format!("  {}\n", form.shown())));
            assert!(form.count.0 <= form.count.1 && !form.about.is_empty());
        }
    }
}
