//! Overrides as text: one line for each, in words. The `state` file of a group, what workers are told and what a new binary
//! is handed are this text.
//!
//! ```text
//! kp-state 1
//! upstream app
//! lines 9c1f0a77d05e2b34
//! remove 127.0.0.1:8081
//! add 127.0.0.1:8083 weight=2
//! weight app.example.com:80 3
//! down 127.0.0.1:8082
//! ```
//!
//! `lines` is the fingerprint of the server lines that `add` and `remove` belong to. What is set later stands later and
//! holds. A word with a space, a quote, `#` at its beginning or anything that is not printable stands in quotes, with `\"`,
//! `\\` and `\u{HEX}`; a line that begins with `#` is a comment.

use super::change::{limit, weight};
use super::server::{parse_address, parse_server, server_words};
use super::{GroupOverrides, Overrides, Setting};
use std::collections::HashSet;
use std::fmt::Write;

/// The first line, which says that it is such a text and in which version.
const HEAD: &str = "kp-state 1";
/// More than any group can have; a longer one is something else.
pub const TEXT_MAX_BYTES: usize = 8 << 20;

/// Where a text cannot be read, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub text: String,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} in line {}", self.text, self.line)
    }
}

impl Overrides {
    /// All of them as text.
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEAD}\n");
        for group in self.groups() {
            write(&mut text, group);
        }
        text
    }

    /// What [`Overrides::to_text`] wrote.
    ///
    /// # Errors
    ///
    /// The first line that cannot be read.
    pub fn from_text(text: &str) -> Result<Self, Unreadable> {
        let mut overrides = Self::default();
        for group in sections(text)? {
            overrides.put(group);
        }
        Ok(overrides)
    }
}

/// The groups that the text is about, those without overrides included.
fn sections(text: &str) -> Result<Vec<GroupOverrides>, Unreadable> {
    let missing = || format!("\"{HEAD}\" is missing: these are no run-time changes of kp");
    let mut groups: Vec<GroupOverrides> = Vec::new();
    let mut begun = false;
    let mut added: HashSet<(usize, String)> = HashSet::new();
    for (number, line) in (1..).zip(text.lines()) {
        let fail = |text: String| Unreadable { line: number, text };
        let words = split_words(line).map_err(|why| fail(why.to_owned()))?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            [] => {}
            ["kp-state", "1"] if !begun => begun = true,
            ["kp-state", version] if !begun => {
                return Err(fail(format!(
                    "version {version} of the format, this kp reads version 1"
                )));
            }
            _ if !begun => return Err(fail(missing())),
            ["upstream", name] if groups.iter().any(|other| other.name == *name) => {
                return Err(fail(format!("upstream \"{name}\" stands here twice")));
            }
            ["upstream", name] => groups.push(GroupOverrides::new(name)),
            _ => {
                let place = groups.len();
                let group = groups.last_mut();
                let group = group
                    .ok_or_else(|| fail("no \"upstream NAME\" stands before this".to_owned()))?;
                read(group, &words).map_err(fail)?;
                if let (["add", ..], Some(server)) = (words.as_slice(), group.added.last())
                    && !added.insert((place, server.name.clone()))
                {
                    return Err(fail(format!("{} is added twice", server.name)));
                }
            }
        }
    }
    groups.iter_mut().for_each(GroupOverrides::tidy);
    match begun {
        true => Ok(groups),
        false => Err(Unreadable {
            line: 1,
            text: missing(),
        }),
    }
}

impl GroupOverrides {
    /// The group's alone as the text of its `state` file; of one without any it says so.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "# What was changed at run time: kp writes this file, and reads it when it starts.\n{HEAD}\n"
        );
        write(&mut text, self);
        text
    }

    /// What [`GroupOverrides::to_text`] wrote for the group of this name.
    ///
    /// # Errors
    ///
    /// The first line that cannot be read, or is another group's.
    pub fn from_text(text: &str, name: &str) -> Result<Self, Unreadable> {
        let mut groups = sections(text)?;
        let last = text.lines().count().max(1);
        match (groups.pop(), groups.is_empty()) {
            (Some(group), true) if group.name.eq_ignore_ascii_case(name) => Ok(group),
            (Some(group), true) => Err(Unreadable {
                line: 1,
                text: format!(
                    "it belongs to upstream \"{}\", not to \"{name}\",",
                    group.name
                ),
            }),
            (Some(_), false) => Err(Unreadable {
                line: last,
                text: "it is about several upstreams".to_owned(),
            }),
            (None, _) => Err(Unreadable {
                line: last,
                text: "no \"upstream NAME\" stands".to_owned(),
            }),
        }
    }
}

fn write(text: &mut String, group: &GroupOverrides) {
    line(text, &["upstream".to_owned(), group.name.clone()]);
    if group.has_membership() {
        line(text, &["lines".to_owned(), format!("{:016x}", group.lines)]);
    }
    for each in group.each() {
        line(text, &each);
    }
}

fn line(text: &mut String, words: &[String]) {
    let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    text.push_str(&quoted.join(" "));
    text.push('\n');
}

impl GroupOverrides {
    /// Each override as words: `add 127.0.0.1:8083 weight=2`, `down 127.0.0.1:8082`.
    pub fn each(&self) -> Vec<Vec<String>> {
        let remove = |peer: &String| vec!["remove".to_owned(), peer.clone()];
        let add = |server| {
            let mut words = vec!["add".to_owned()];
            words.extend(server_words(server));
            words
        };
        let set = |(peer, setting): &(String, Setting)| {
            let (word, number) = match setting {
                Setting::Up => ("up", None),
                Setting::Down => ("down", None),
                Setting::Drain => ("drain", None),
                Setting::Weight(weight) => ("weight", Some(weight)),
                Setting::MaxConns(limit) => ("max_conns", Some(limit)),
            };
            let mut words = vec![word.to_owned(), peer.clone()];
            words.extend(number.map(u32::to_string));
            words
        };
        let removed = self.removed.iter().map(remove);
        let added = self.added.iter().map(add);
        removed
            .chain(added)
            .chain(self.settings.iter().map(set))
            .collect()
    }
}

fn read(group: &mut GroupOverrides, words: &[&str]) -> Result<(), String> {
    let text = |complaint: super::Complaint| complaint.error;
    match words {
        ["lines", digits] if digits.len() == 16 => {
            group.lines = u64::from_str_radix(digits, 16)
                .map_err(|_| format!("\"{digits}\" is no fingerprint"))?;
        }
        ["remove", peer] => group.removed.push((*peer).to_owned()),
        ["add", address, ..] => {
            parse_address(address).map_err(text)?;
            let server = parse_server(words.get(1..).unwrap_or_default()).map_err(text)?;
            group.added.push(server);
        }
        ["up", peer] => group.push(peer, Setting::Up),
        ["down", peer] => group.push(peer, Setting::Down),
        ["drain", peer] => group.push(peer, Setting::Drain),
        ["weight", peer, number] => {
            group.push(peer, Setting::Weight(weight(number).map_err(text)?));
        }
        ["max_conns", peer, number] => {
            group.push(peer, Setting::MaxConns(limit(number).map_err(text)?));
        }
        [word, ..] => return Err(format!("\"{word}\" is not understood here")),
        [] => {}
    }
    Ok(())
}

/// A word as it stands in a line: in quotes where it would be read as another one.
pub fn quoted(word: &str) -> String {
    let plain =
        |char: char| !char.is_whitespace() && !char.is_control() && !matches!(char, '"' | '\\');
    if !word.is_empty() && !word.starts_with('#') && word.chars().all(plain) {
        return word.to_owned();
    }
    let mut text = String::from("\"");
    for char in word.chars() {
        match char {
            '"' | '\\' => text.extend(['\\', char]),
            ' ' => text.push(' '),
            char if plain(char) => text.push(char),
            char => {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\u{{{:x}}}", u32::from(char));
            }
        }
    }
    text.push('"');
    text
}

/// The words of a line, without quotes and comment.
///
/// # Errors
///
/// What is wrong with its quotes.
pub fn split_words(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        let (word, after) = match rest.strip_prefix('"') {
            Some(inside) => quoted_word(inside)?,
            None => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                let (word, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
                (word.to_owned(), after)
            }
        };
        if !after.is_empty() && !after.starts_with(char::is_whitespace) {
            return Err("a space is missing after a quote");
        }
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

fn quoted_word(inside: &str) -> Result<(String, &str), &'static str> {
    const BAD: &str = "after a backslash stands \", another backslash or u{HEX}";
    let mut word = String::new();
    let mut rest = inside;
    loop {
        let mut chars = rest.chars();
        let next = chars.next().ok_or("a quote is missing")?;
        rest = chars.as_str();
        match next {
            '"' => return Ok((word, rest)),
            '\\' => {
                let mut chars = rest.chars();
                match chars.next() {
                    Some(char @ ('"' | '\\')) => {
                        word.push(char);
                        rest = chars.as_str();
                    }
                    Some('u') => {
                        let (digits, after) = chars
                            .as_str()
                            .strip_prefix('{')
                            .and_then(|text| text.split_once('}'))
                            .ok_or(BAD)?;
                        let char = u32::from_str_radix(digits, 16)
                            .ok()
                            .and_then(char::from_u32);
                        word.push(char.ok_or(BAD)?);
                        rest = after;
                    }
                    _ => return Err(BAD),
                }
            }
            char => word.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_text_is_read_with_comments_and_quotes() {
        let text = "# of somebody\nkp-state 1\n\nupstream \"a b\"\n  lines 00000000000000ff\n remove \"unix:/x y\" # gone\nadd 127.0.0.1:1 weight=3 backup\ndown 127.0.0.1:2\nup 127.0.0.1:2\nupstream c\nweight d:80 4\nmax_conns d:80 9\n";
        let overrides = Overrides::from_text(text).unwrap();
        let words: Vec<String> = overrides
            .groups()
            .flat_map(|group| group.each().into_iter().map(|words| words.join(" ")))
            .collect();
        assert_eq!(
            words,
            [
                "remove unix:/x y",
                "add 127.0.0.1:1 weight=3 backup",
                "up 127.0.0.1:2",
                "weight d:80 4",
                "max_conns d:80 9"
            ]
        );
        assert_eq!(overrides.group("a b").unwrap().lines, 255);
        let again = Overrides::from_text(&overrides.to_text()).unwrap();
        assert_eq!(again, overrides);
    }

    #[test]
    fn a_state_file_is_about_one_group() {
        let mut group = GroupOverrides::new("a b");
        for _ in 0..2 {
            let text = group.to_text();
            assert_eq!(GroupOverrides::from_text(&text, "A B"), Ok(group.clone()));
            let foreign = GroupOverrides::from_text(&text, "c").unwrap_err();
            assert!(
                foreign.text.contains("belongs to upstream \"a b\""),
                "{foreign}"
            );
            group.push("x", Setting::Down);
            group.tidy();
        }
        for text in ["kp-state 1\n", "kp-state 1\nupstream a\nupstream b\n", ""] {
            assert!(GroupOverrides::from_text(text, "a").is_err());
        }
    }

    #[test]
    fn what_cannot_be_read_is_said_with_its_line() {
        for (text, line, why) in [
            ("", 1, "is missing"),
            ("server 127.0.0.1:80;\n", 1, "is missing"),
            ("\n\nkp-state 2\n", 3, "version 2"),
            ("kp-state 1\ndown a\n", 2, "no \"upstream NAME\""),
            (
                "kp-state 1\nupstream a\nfly b\n",
                3,
                "\"fly\" is not understood",
            ),
            (
                "kp-state 1\nupstream a\nweight b 0\n",
                3,
                "invalid weight \"0\"",
            ),
            (
                "kp-state 1\nupstream a\nweight b\n",
                3,
                "\"weight\" is not understood",
            ),
            (
                "kp-state 1\nupstream a\nadd b:80\n",
                3,
                "\"b:80\" is no address",
            ),
            (
                "kp-state 1\nupstream a\nadd 1.1.1.1:1\nadd 1.1.1.1:1\n",
                4,
                "added twice",
            ),
            (
                "kp-state 1\nupstream a\nlines zz\n",
                3,
                "\"lines\" is not understood",
            ),
            (
                "kp-state 1\nupstream a\ndown \"b\n",
                3,
                "a quote is missing",
            ),
            (
                "kp-state 1\nupstream a\ndown \"b\"c\n",
                3,
                "a space is missing",
            ),
            (
                "kp-state 1\nupstream a\ndown \"\\n\"\n",
                3,
                "after a backslash",
            ),
            ("kp-state 1\nkp-state 1\n", 2, "no \"upstream NAME\""),
            ("kp-state 1\nupstream a\nupstream a\ndown b\n", 3, "twice"),
        ] {
            let unreadable = Overrides::from_text(text).unwrap_err();
            assert!(unreadable.text.contains(why), "{text:?}: {unreadable}");
            assert_eq!(unreadable.line, line, "{text:?}: {unreadable}");
        }
    }

    proptest! {
        #[test]
        fn words_survive_a_line(words in prop::collection::vec(any::<String>(), 1..5)) {
            let line: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            let line = line.join(" ");
            prop_assert!(!line.contains(['\n', '\r']));
            prop_assert_eq!(line.lines().count(), 1);
            prop_assert_eq!(split_words(&line), Ok(words));
        }

        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = Overrides::from_text(&text);
            let _ = Overrides::from_text(&format!("{HEAD}\nupstream a\n{text}"));
        }
    }
}
