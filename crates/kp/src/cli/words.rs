//! Commands that help with a configuration: `explain`, `convert` and `schema`, and what may follow these words.

use super::{Command, Options, text, value_of};
use crate::convert;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

const EXPLAIN: &str = "usage: kp explain [-p prefix] [-c filename] [-g directives] [directive | $variable | reason | status]";
const CONVERT: &str = "usage: kp convert [--inline] [-o filename] nginx.conf";
const SCHEMA: &str = "usage: kp schema [context]";

/// The words that may stand for what kp is to do, for "did you mean".
pub(super) const ALL: [&str; 7] = [
    "convert",
    "ctl",
    "demo-upstream",
    "explain",
    "help",
    "schema",
    "status",
];

/// What a word asks for that has these options in front; `None`: the word is not one of these. `convert` and `schema` have
/// no use for the options, but an alias may bring them.
pub(super) fn parse(
    word: &OsStr,
    options: &Options,
    rest: impl Iterator<Item = OsString>,
) -> Option<Result<Command, String>> {
    match word.to_str()? {
        "explain" => Some(explain(options.clone(), rest)),
        "convert" => Some(convert(rest)),
        "schema" => Some(schema(rest)),
        _ => None,
    }
}

fn explain(
    mut options: Options,
    mut rest: impl Iterator<Item = OsString>,
) -> Result<Command, String> {
    let mut name = None;
    while let Some(argument) = rest.next() {
        let Some((letter, attached)) = option(&argument) else {
            let given = name.replace(text(argument).map_err(|_| EXPLAIN.to_owned())?);
            if given.is_some() {
                return Err(EXPLAIN.into());
            }
            continue;
        };
        let mut value = |needs: &str| value_of(letter, attached, &mut rest, needs);
        match letter {
            b'h' | b'?' => return Ok(Command::Help),
            b'p' => options.prefix = Some(value("directory name")?.into()),
            b'c' => options.configuration = Some(value("file name")?.into()),
            b'g' => options.globals = Some(text(value("parameter")?)?),
            _ => return Err(EXPLAIN.into()),
        }
    }
    Ok(Command::Explain { options, name })
}

fn convert(mut rest: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let mut order = convert::Order::default();
    let mut file = None;
    while let Some(argument) = rest.next() {
        if argument == "--inline" {
            order.inline = true;
            continue;
        }
        let Some((letter, attached)) = option(&argument) else {
            if file.replace(argument).is_some() {
                return Err(CONVERT.into());
            }
            continue;
        };
        match letter {
            b'h' | b'?' => return Ok(Command::Help),
            b'o' => {
                order.output = Some(value_of(letter, attached, &mut rest, "file name")?.into());
            }
            _ => return Err(CONVERT.into()),
        }
    }
    order.file = file.ok_or(CONVERT)?.into();
    Ok(Command::Convert(order))
}

fn schema(mut rest: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let context = rest.next().map(OsString::into_string);
    match (context, rest.next()) {
        (Some(Ok(word)), None) if matches!(word.as_str(), "-h" | "-?") => Ok(Command::Help),
        (Some(Ok(word)), None) if !word.starts_with('-') => Ok(Command::Schema {
            context: Some(word),
        }),
        (None, None) => Ok(Command::Schema { context: None }),
        _ => Err(SCHEMA.into()),
    }
}

/// The letter of an option and what is attached to it.
fn option(argument: &OsStr) -> Option<(u8, &[u8])> {
    let letters = argument.as_bytes().strip_prefix(b"-")?;
    letters.split_first().map(|(letter, rest)| (*letter, rest))
}
