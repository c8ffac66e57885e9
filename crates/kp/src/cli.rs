//! The command line, nginx's: what was asked for, or the complaint in nginx's words.
//!
//! Hand-written because nginx's rules are older than any argument library's: flags combine (`-tq`), a value may be attached
//! (`-sreload`) or be the next argument even if that starts with a dash, `-?` is help, and the complaints are part of what
//! people's scripts read.

mod words;

use kp_config::suggest;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// What kp was asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Serve.
    Run(Options),
    /// `-t`, `-T`.
    Test {
        /// Where the configuration is.
        options: Options,
        /// `-T`: print it.
        dump: bool,
        /// `-q`: say nothing unless something is wrong.
        quiet: bool,
    },
    /// `-s`.
    Signal {
        /// Where the configuration is, which names the pid file.
        options: Options,
        /// What the master is told.
        order: Order,
    },
    /// `kp status`.
    Status(Options),
    /// `kp ctl`.
    Ctl {
        /// Where the configuration is, as far as it stands in front of `ctl`.
        options: Options,
        /// What stands behind it.
        arguments: Vec<OsString>,
    },
    /// `-v`.
    Version,
    /// `-V`.
    Build,
    /// `-h`, `-?`.
    Help,
    /// The first, then the second, whose exit code counts: `-V -t`.
    Both(Box<Self>, Box<Self>),
    /// `kp explain [NAME]`.
    Explain {
        /// Where the configuration is that it is explained for.
        options: Options,
        /// A directive, or a variable with its `$`; without it all are listed.
        name: Option<String>,
    },
    /// `kp convert FILE`.
    Convert(crate::convert::Order),
    /// `kp schema [CONTEXT]`.
    Schema {
        /// What the file holds; without it, a main file.
        context: Option<String>,
    },
    /// `kp demo-upstream PORT NAME`.
    DemoUpstream {
        /// Where it listens on 127.0.0.1; 0 lets the system choose.
        port: u16,
        /// What it calls itself.
        name: String,
    },
}

/// `-s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Fast stop.
    Stop,
    /// Graceful stop.
    Quit,
    /// Reopen the log files.
    Reopen,
    /// Check, then use, the new configuration.
    Reload,
    /// Check, then start the binary anew in the running one's place.
    Upgrade,
}

/// Their names.
pub(crate) const ORDERS: [(&str, Order); 5] = [
    ("stop", Order::Stop),
    ("quit", Order::Quit),
    ("reopen", Order::Reopen),
    ("reload", Order::Reload),
    ("upgrade", Order::Upgrade),
];

/// What says where the configuration is and what stands above it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Options {
    /// `-p`.
    pub(crate) prefix: Option<PathBuf>,
    /// `-c`.
    pub(crate) configuration: Option<PathBuf>,
    /// `-e`.
    pub(crate) error_log: Option<PathBuf>,
    /// `-g`.
    pub(crate) globals: Option<String>,
}

impl Options {
    /// Takes the value of an option; `false`: it is none of these.
    pub(crate) fn take(
        &mut self,
        letter: u8,
        value: impl FnOnce(&str) -> Result<OsString, String>,
    ) -> Result<bool, String> {
        match letter {
            b'p' => self.prefix = Some(value("directory name")?.into()),
            b'e' => self.error_log = Some(value("file name")?.into()),
            b'c' => self.configuration = Some(value("file name")?.into()),
            b'g' => self.globals = Some(text(value("parameter")?)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

const STATUS_USAGE: &str =
    "usage: kp status [-p prefix] [-e filename] [-c filename] [-g directives]";

/// Reads the arguments after the program's name.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let mut arguments = arguments.into_iter().peekable();
    if arguments
        .peek()
        .is_some_and(|first| first == "demo-upstream")
    {
        arguments.next();
        return demo_upstream(arguments);
    }
    let mut options = Options::default();
    let mut order = None;
    let mut flags = Flags::default();
    while let Some(argument) = arguments.next() {
        if argument == "status" {
            flags.status = true;
            continue;
        }
        if argument == "ctl" && order.is_none() && flags == Flags::default() {
            let arguments = arguments.collect();
            return Ok(Command::Ctl { options, arguments });
        }
        if order.is_none()
            && flags == Flags::default()
            && let Some(command) = words::parse(&argument, &options, &mut arguments)
        {
            return command;
        }
        match argument.as_bytes() {
            b"--help" | b"help" => {
                flags.help = true;
                continue;
            }
            b"--version" => {
                flags.version = true;
                continue;
            }
            _ => {}
        }
        let Some(mut letters) = argument.as_bytes().strip_prefix(b"-") else {
            return Err(unknown_word(&argument.to_string_lossy()));
        };
        while let Some((letter, rest)) = letters.split_first() {
            letters = rest;
            let mut value = |needs: &str| {
                value_of(*letter, std::mem::take(&mut letters), &mut arguments, needs)
            };
            match letter {
                b'?' | b'h' => flags.help = true,
                b'v' => flags.version = true,
                b'V' => flags.build = true,
                b't' => flags.test = true,
                b'T' => flags.dump = true,
                b'q' => flags.quiet = true,
                b's' => order = Some(order_named(&value("parameter")?)?),
                other if options.take(*other, value)? => {}
                other => return Err(format!("invalid option: \"{}\"", char::from(*other))),
            }
        }
    }
    flags.command(options, order)
}

/// What was given without a value.
#[derive(Debug, Default, PartialEq, Eq)]
struct Flags {
    version: bool,
    build: bool,
    help: bool,
    test: bool,
    dump: bool,
    quiet: bool,
    status: bool,
}

impl Flags {
    fn command(self, options: Options, order: Option<Order>) -> Result<Command, String> {
        let told = match &self {
            Self { help: true, .. } => Some(Command::Help),
            Self { build: true, .. } => Some(Command::Build),
            Self { version: true, .. } => Some(Command::Version),
            _ => None,
        };
        let is_test = (self.test || self.dump) && !self.status;
        // nginx's precedence: help and version end it, except that a test is made as well; a test excludes a signal.
        Ok(match (told, order) {
            (Some(told), _) if is_test => {
                Command::Both(Box::new(told), Box::new(self.test(options)))
            }
            (Some(told), _) => told,
            (None, _) if is_test => self.test(options),
            (None, order) if self.status => {
                if order.is_some() || self.test || self.dump || self.quiet {
                    return Err(STATUS_USAGE.into());
                }
                Command::Status(options)
            }
            (None, Some(order)) => Command::Signal { options, order },
            (None, None) => Command::Run(options),
        })
    }

    fn test(&self, options: Options) -> Command {
        Command::Test {
            options,
            dump: self.dump,
            quiet: self.quiet,
        }
    }
}

/// The value of an option: what is attached to its letter, else the next argument.
pub(crate) fn value_of(
    letter: u8,
    attached: &[u8],
    arguments: &mut impl Iterator<Item = OsString>,
    needs: &str,
) -> Result<OsString, String> {
    let value = if attached.is_empty() {
        arguments.next()
    } else {
        Some(OsStr::from_bytes(attached).to_owned())
    };
    value
        .filter(|value| !value.is_empty())
        .ok_or_else(|| format!("option \"-{}\" requires {needs}", char::from(letter)))
}

/// nginx's complaint, and what may have been meant.
fn unknown_word(word: &str) -> String {
    // A word that is right but in the wrong place is no slip.
    let near = suggest::nearest(word, words::ALL).filter(|near| *near != word);
    let hint = near.map_or_else(String::new, |near| format!(": did you mean \"{near}\"?"));
    format!("invalid option: \"{word}\"{hint}")
}

fn order_named(name: &OsStr) -> Result<Order, String> {
    let found = ORDERS.iter().find(|(known, _)| *known == name);
    found.map(|(_, order)| *order).ok_or_else(|| {
        let all = ORDERS.map(|(name, _)| name).join(", ");
        let name = name.to_string_lossy();
        format!("invalid option: \"-s {name}\": it can be {all}")
    })
}

fn text(value: OsString) -> Result<String, String> {
    String::from_utf8(value.into_vec())
        .map_err(|_| String::from("option \"-g\" requires UTF-8 text"))
}

fn demo_upstream(mut arguments: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let usage = || String::from("usage: kp demo-upstream PORT NAME");
    let port = arguments
        .next()
        .and_then(|port| port.to_str()?.parse().ok())
        .ok_or_else(usage)?;
    let name = arguments
        .next()
        .and_then(|name| name.into_string().ok())
        .ok_or_else(usage)?;
    // The name travels in a header field.
    let printable = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    match arguments.next() {
        None if printable => Ok(Command::DemoUpstream { port, name }),
        _ => Err(usage()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(
            line.split(' ')
                .filter(|word| !word.is_empty())
                .map(OsString::from),
        )
    }

    fn options(prefix: &str, configuration: &str) -> Options {
        Options {
            prefix: Some(prefix.into()),
            configuration: Some(configuration.into()),
            ..Options::default()
        }
    }

    #[test]
    fn accepted_lines() {
        let reload = |options| Command::Signal {
            options,
            order: Order::Reload,
        };
        let test = |dump, quiet| Command::Test {
            options: Options::default(),
            dump,
            quiet,
        };
        for (line, meaning) in [
            ("", Command::Run(Options::default())),
            (
                "-p /srv/ -c kp.conf",
                Command::Run(options("/srv/", "kp.conf")),
            ),
            (
                "-p/srv/ -ckp.conf",
                Command::Run(options("/srv/", "kp.conf")),
            ),
            ("-t", test(false, false)),
            ("-tq", test(false, true)),
            ("-q -t", test(false, true)),
            ("-T", test(true, false)),
            ("-s reload", reload(Options::default())),
            ("-sreload", reload(Options::default())),
            (
                "-p target/run -c kp.yaml -s reload",
                reload(options("target/run", "kp.yaml")),
            ),
            ("-qsreload", reload(Options::default())),
            (
                "-s stop",
                Command::Signal {
                    options: Options::default(),
                    order: Order::Stop,
                },
            ),
            (
                "-s quit",
                Command::Signal {
                    options: Options::default(),
                    order: Order::Quit,
                },
            ),
            (
                "-s reopen",
                Command::Signal {
                    options: Options::default(),
                    order: Order::Reopen,
                },
            ),
            (
                "-s upgrade",
                Command::Signal {
                    options: Options::default(),
                    order: Order::Upgrade,
                },
            ),
            ("-tsreload", test(false, false)),
            ("-v", Command::Version),
            ("-V", Command::Build),
            (
                "-V -t",
                Command::Both(Box::new(Command::Build), Box::new(test(false, false))),
            ),
            (
                "-vTq",
                Command::Both(Box::new(Command::Version), Box::new(test(true, true))),
            ),
            ("-Vs reload", Command::Build),
            ("-h", Command::Help),
            ("-?", Command::Help),
            ("--help", Command::Help),
            ("help", Command::Help),
            ("--version", Command::Version),
            (
                "-tqc -odd",
                Command::Test {
                    options: Options {
                        configuration: Some("-odd".into()),
                        ..Options::default()
                    },
                    dump: false,
                    quiet: true,
                },
            ),
            ("-", Command::Run(Options::default())),
            (
                "-e log -g daemon",
                Command::Run(Options {
                    error_log: Some("log".into()),
                    globals: Some("daemon".into()),
                    ..Options::default()
                }),
            ),
            ("status", Command::Status(Options::default())),
            (
                "status -p /srv/ -ckp.conf",
                Command::Status(options("/srv/", "kp.conf")),
            ),
            (
                "-p /srv/ -ckp.conf status",
                Command::Status(options("/srv/", "kp.conf")),
            ),
            ("status -h", Command::Help),
            (
                "explain",
                Command::Explain {
                    options: Options::default(),
                    name: None,
                },
            ),
            (
                "explain -p /srv/ $host -ckp.conf",
                Command::Explain {
                    options: options("/srv/", "kp.conf"),
                    name: Some("$host".into()),
                },
            ),
            (
                "-p /srv/ -c kp.conf explain root",
                Command::Explain {
                    options: options("/srv/", "kp.conf"),
                    name: Some("root".into()),
                },
            ),
            ("explain -h", Command::Help),
            (
                "-p /srv/ -ckp.conf ctl peer down -p x",
                Command::Ctl {
                    options: options("/srv/", "kp.conf"),
                    arguments: ["peer", "down", "-p", "x"].map(OsString::from).into(),
                },
            ),
            (
                "convert nginx.conf --inline -okp.yaml",
                Command::Convert(crate::convert::Order {
                    file: "nginx.conf".into(),
                    output: Some("kp.yaml".into()),
                    inline: true,
                }),
            ),
            ("convert -h", Command::Help),
            ("schema", Command::Schema { context: None }),
            (
                "schema http",
                Command::Schema {
                    context: Some("http".into()),
                },
            ),
            (
                "demo-upstream 9001 one",
                Command::DemoUpstream {
                    port: 9001,
                    name: "one".into(),
                },
            ),
        ] {
            assert_eq!(parsed(line), Ok(meaning), "{line}");
        }
    }

    #[test]
    fn complaints() {
        for (line, complaint) in [
            ("start", "invalid option: \"start\""),
            ("-x", "invalid option: \"x\""),
            ("-tx", "invalid option: \"x\""),
            (
                "statsu",
                "invalid option: \"statsu\": did you mean \"status\"?",
            ),
            (
                "-c x explian",
                "invalid option: \"explian\": did you mean \"explain\"?",
            ),
            ("--helpme", "invalid option: \"-\""),
            ("status -t", STATUS_USAGE),
            ("status -s quit", STATUS_USAGE),
            ("status now", "invalid option: \"now\""),
            ("-q status", STATUS_USAGE),
            ("-t ctl", "invalid option: \"ctl\""),
            ("status ctl", "invalid option: \"ctl\""),
            ("-s", "option \"-s\" requires parameter"),
            (
                "-s restart",
                "invalid option: \"-s restart\": it can be stop, quit, reopen, reload, upgrade",
            ),
            ("-p", "option \"-p\" requires directory name"),
            ("-c", "option \"-c\" requires file name"),
            ("-e", "option \"-e\" requires file name"),
            ("-g", "option \"-g\" requires parameter"),
            ("demo-upstream", "usage: kp demo-upstream PORT NAME"),
            (
                "convert",
                "usage: kp convert [--inline] [-o filename] nginx.conf",
            ),
            (
                "convert a b",
                "usage: kp convert [--inline] [-o filename] nginx.conf",
            ),
            ("schema a b", "usage: kp schema [context]"),
            (
                "explain -t x",
                "usage: kp explain [-p prefix] [-c filename] [-g directives] [directive | $variable | reason | status]",
            ),
            (
                "demo-upstream 70000 one",
                "usage: kp demo-upstream PORT NAME",
            ),
            (
                "demo-upstream 1 one two",
                "usage: kp demo-upstream PORT NAME",
            ),
        ] {
            assert_eq!(parsed(line), Err(complaint.to_string()), "{line}");
        }
    }

    /// The names in the first column of the lists between two lines of the manual page.
    fn listed<'a>(manual: &'a str, from: &str, to: &str) -> Vec<&'a str> {
        let (_, rest) = manual.split_once(from).unwrap();
        let (part, _) = rest.split_once(to).unwrap();
        let entries = part.split(".TP\n").skip(1);
        entries
            .filter_map(|entry| entry.lines().next())
            .flat_map(|line| line.split([' ', '"', ',']).skip(1))
            .filter(|word| !word.is_empty())
            .collect()
    }

    /// kp(8), the help and this file know the same options and orders.
    #[test]
    fn the_manual_page_has_every_option() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man/kp.8");
        let manual = std::fs::read_to_string(path).unwrap();
        let help = crate::version::help();

        let of_page: std::collections::BTreeSet<char> =
            listed(&manual, ".SH OPTIONS\n", ".SH COMMANDS\n")
                .into_iter()
                .filter_map(|word| word.strip_prefix("\\-")?.chars().next())
                .collect();
        let known = (' '..='~').filter(|letter| {
            let unknown = format!("invalid option: \"{letter}\"");
            parse([format!("-{letter}").into(), "x".into()]) != Err(unknown)
        });
        let known: std::collections::BTreeSet<char> = known.collect();
        assert_eq!(of_page, known);
        for letter in known {
            let shown = help
                .lines()
                .any(|line| line.starts_with("  -") && line.contains(&format!("-{letter}")));
            assert!(shown, "-{letter} is not in the help");
        }

        let orders = listed(&manual, ".BI \\-s", ".BI \\-p");
        assert_eq!(orders, ORDERS.map(|(name, _)| name));
        for name in orders {
            assert!(help.contains(name), "{name} is not in the help");
        }

        let commands = listed(&manual, ".SH COMMANDS\n", ".SH SIGNALS\n");
        for name in [
            "status",
            "ctl",
            "demo\\-upstream",
            "explain",
            "convert",
            "schema",
        ] {
            assert!(commands.contains(&name), "{name} is not in the manual");
            assert!(
                help.contains(&name.replace('\\', "")),
                "{name} is not in the help"
            );
        }
    }
}
