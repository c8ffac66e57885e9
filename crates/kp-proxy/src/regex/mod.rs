//! Regular expressions as nginx's users write them, without the power to hang a worker.
//!
//! A pattern is first translated from PCRE's spelling ([`translate`]), then given to the linear-time engine; only what
//! that refuses (look-around, backreferences, possessive and atomic groups) runs on the backtracking engine, under a step
//! limit. Both work on bytes, since a decoded URI need not be UTF-8, and without Unicode classes unless the pattern
//! begins with `(*UTF8)`, as PCRE.

mod translate;

use regex_automata::Input;
use regex_automata::meta;
use regex_automata::util::primitives::NonMaxUsize;
use regex_automata::util::syntax;

/// Steps of the backtracking engine by length of the subject: a step may scan the rest of the subject, so that a long
/// one gets fewer. Measured in release builds, the most expensive step stays below 5 ms in total for each row.
const STEPS: [(usize, usize); 4] = [
    (256, 50_000),
    (2_048, 10_000),
    (8_192, 2_500),
    (usize::MAX, 500),
];

/// Groups that fit the stack while matching; more cost one allocation.
const GROUPS_ON_STACK: usize = 16;

/// Where a group matched; `None`: it took no part.
pub(crate) type Group = Option<(u32, u32)>;

/// The step limit was reached: whether it matches is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit;

/// One compiled expression.
#[derive(Debug)]
pub(crate) struct Regex {
    engine: Engine,
    /// Groups including `$0`.
    groups: usize,
}

#[derive(Debug)]
enum Engine {
    Linear(Box<meta::Regex>),
    /// One per row of [`STEPS`], since the limit is part of what is compiled.
    Backtracking(Vec<fancy_regex::Regex>),
}

impl Regex {
    /// Compiles a pattern, or says in a few words what is wrong with it.
    pub(crate) fn new(pattern: &str, case_insensitive: bool) -> Result<Self, String> {
        let translated = translate::translate(pattern)?;
        let refused = if translated.backtracking {
            String::new()
        } else {
            match linear(&translated, case_insensitive) {
                Ok(regex) => return Ok(regex),
                // The other engine would take the second of two groups of one name.
                Err(reason) if reason.starts_with("duplicate") => return Err(reason),
                Err(reason) => reason,
            }
        };
        backtracking(&translated, case_insensitive)
            .map_err(|reason| if refused.is_empty() { reason } else { refused })
    }

    /// Whether it matches anywhere in the subject.
    pub(crate) fn is_match(&self, subject: &[u8]) -> Result<bool, Limit> {
        match &self.engine {
            Engine::Linear(regex) => Ok(regex.is_match(Input::new(subject))),
            Engine::Backtracking(by_length) => row(by_length, subject)
                .map_or(Err(Limit), |regex| {
                    regex.is_match(subject).map_err(|_| Limit)
                }),
        }
    }

    /// Whether it matches, and where its groups did. `groups` is changed only when it matches.
    pub(crate) fn captures(&self, subject: &[u8], groups: &mut Vec<Group>) -> Result<bool, Limit> {
        match &self.engine {
            Engine::Linear(regex) => Ok(self.linear_captures(regex, subject, groups)),
            Engine::Backtracking(by_length) => {
                let regex = row(by_length, subject).ok_or(Limit)?;
                let Some(found) = regex.captures(subject).map_err(|_| Limit)? else {
                    return Ok(false);
                };
                groups.clear();
                groups.extend(
                    (0..self.groups)
                        .map(|group| found.get(group).and_then(|at| span(at.start(), at.end()))),
                );
                Ok(true)
            }
        }
    }

    /// Number of a named group.
    pub(crate) fn group(&self, name: &str) -> Option<usize> {
        match &self.engine {
            Engine::Linear(regex) => regex
                .group_info()
                .to_index(regex_automata::PatternID::ZERO, name),
            Engine::Backtracking(by_length) => by_length
                .first()
                .and_then(|regex| regex.capture_names().position(|group| group == Some(name))),
        }
    }

    fn linear_captures(
        &self,
        regex: &meta::Regex,
        subject: &[u8],
        groups: &mut Vec<Group>,
    ) -> bool {
        let mut on_stack = [None::<NonMaxUsize>; 2 * GROUPS_ON_STACK];
        let mut on_heap = Vec::new();
        let slots = match on_stack.get_mut(..2 * self.groups) {
            Some(slots) => slots,
            None => {
                on_heap.resize(2 * self.groups, None);
                on_heap.as_mut_slice()
            }
        };
        if regex.search_slots(&Input::new(subject), slots).is_none() {
            return false;
        }
        groups.clear();
        groups.extend(slots.chunks_exact(2).map(|pair| match pair {
            [Some(start), Some(end)] => span(start.get(), end.get()),
            _ => None,
        }));
        true
    }
}

fn span(start: usize, end: usize) -> Group {
    Some((u32::try_from(start).ok()?, u32::try_from(end).ok()?))
}

fn row<'a>(by_length: &'a [fancy_regex::Regex], subject: &[u8]) -> Option<&'a fancy_regex::Regex> {
    STEPS
        .iter()
        .position(|(length, _)| subject.len() <= *length)
        .and_then(|row| by_length.get(row))
}

fn linear(translated: &translate::Translated, case_insensitive: bool) -> Result<Regex, String> {
    let syntax = syntax::Config::new()
        .unicode(translated.unicode)
        .utf8(false)
        .case_insensitive(case_insensitive);
    let regex = meta::Regex::builder()
        .configure(meta::Config::new().utf8_empty(false))
        .syntax(syntax)
        .build(&translated.text)
        .map_err(|error| match error.syntax_error() {
            Some(error) => last_line(&error.to_string()),
            None => match error.size_limit() {
                Some(_) => String::from("it is too large when compiled"),
                None => error.to_string(),
            },
        })?;
    let groups = regex
        .group_info()
        .group_len(regex_automata::PatternID::ZERO);
    Ok(Regex {
        engine: Engine::Linear(Box::new(regex)),
        groups,
    })
}

fn backtracking(
    translated: &translate::Translated,
    case_insensitive: bool,
) -> Result<Regex, String> {
    let mut by_length = Vec::with_capacity(STEPS.len());
    for (_, steps) in STEPS {
        let mut builder = fancy_regex::RegexBuilder::new(&translated.text);
        builder
            .case_insensitive(case_insensitive)
            .backtrack_limit(steps)
            .bytes_mode(if translated.unicode {
                fancy_regex::BytesMode::UnicodeBytes
            } else {
                fancy_regex::BytesMode::Ascii
            });
        let regex = builder
            .build()
            .map_err(|error| last_line(&error.to_string()))?;
        by_length.push(regex);
    }
    let groups = by_length
        .first()
        .map_or(1, fancy_regex::Regex::captures_len);
    Ok(Regex {
        engine: Engine::Backtracking(by_length),
        groups,
    })
}

/// The engines draw the pattern over several lines; the reason is on the last one.
fn last_line(text: &str) -> String {
    let line = text.lines().last().unwrap_or(text).trim();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, subject: &[u8]) -> bool {
        Regex::new(pattern, false)
            .unwrap()
            .is_match(subject)
            .unwrap()
    }

    fn groups(pattern: &str, subject: &str) -> Option<Vec<Option<String>>> {
        let regex = Regex::new(pattern, false).unwrap();
        let mut found = Vec::new();
        regex
            .captures(subject.as_bytes(), &mut found)
            .unwrap()
            .then(|| {
                found
                    .iter()
                    .map(|group| {
                        group.map(|(start, end)| subject[start as usize..end as usize].to_owned())
                    })
                    .collect()
            })
    }

    #[test]
    fn pcre_spelling_is_understood() {
        let cases: &[(&str, &[u8], bool)] = &[
            (r"^/a\/b$", b"/a/b", true),
            (r"^\/(\w+)\.php$", b"/x.php", true),
            (r"\.php$", b"/x.php\n", true),
            (r"\.php\z", b"/x.php\n", false),
            (r"^a.c$", b"a\xffc", true),
            (r"^a.c$", b"a\nc", false),
            (r"^\w$", "é".as_bytes(), false),
            ("^é+$", "é".as_bytes(), true),
            ("^[é]+$", "é".as_bytes(), true),
            ("(*UTF8)^.$", "é".as_bytes(), true),
            (r"^[\w-.]+$", b"a-b.c", true),
            (r"^[a-z\d-_]+$", b"a-1_", true),
            (r"^[[a]+$", b"[a", true),
            (r"^[]a]+$", b"]a", true),
            (r"^[^]a]+$", b"b", true),
            (r"^[a&&b]+$", b"a&b", true),
            (r"^[a~~b]+$", b"~", true),
            (r"^[[:alpha:]]+$", b"abc", true),
            (r"^a{,3}$", b"a{,3}", true),
            (r"^\{x\}$", b"{x}", true),
            (r"^x{y}$", b"x{y}", true),
            (r"^\d{2,3}$", b"12", true),
            (r"^\d{2,3}$", b"1", false),
            (r"^a\hb$", b"a\tb", true),
            (r"^[\h]$", b" ", true),
            (r"^\x41\e$", b"A\x1b", true),
            (r"^\Qa.b*\E+$", b"a.b**", true),
            (r"^\Qa.b*\E+$", b"axb*", false),
            (r"^\<a\>$", b"<a>", true),
            (r"(?i)^ABC$", b"abc", true),
            (r"a(?#comment)b", b"ab", true),
            (r"^(?:/a|/b)(?=/|$)", b"/b/c", true),
            (r"^/(?!api/)", b"/api/x", false),
            (r"^/(?!api/)", b"/web/\xff", true),
            (r"^(a)\1$", b"aa", true),
            (r"^(a)\1$", b"ab", false),
            (r"^a++a", b"aaa", false),
            (r"^(?>a+)b", b"aab", true),
            (r"(?<!x)y", b"xy", false),
            (r"(?<=x)y", b"xy", true),
        ];
        for (pattern, subject, expected) in cases {
            assert_eq!(
                matches(pattern, subject),
                *expected,
                "{pattern} on {subject:?}"
            );
        }
    }

    #[test]
    fn groups_by_number_and_name() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            groups("^/(a)?(b)?$", "/b"),
            Some(vec![some("/b"), None, some("b")])
        );
        assert_eq!(
            groups("^/(?!x)(.*)$", "/b"),
            Some(vec![some("/b"), some("b")])
        );
        assert_eq!(groups("^x$", "/b"), None);
        for pattern in [
            "^(?<one>a)(?P<two>b)(?'three'c)$",
            "^(?<one>a)(?P<two>b)(?'three'c)(?!d)$",
        ] {
            let regex = Regex::new(pattern, false).unwrap();
            assert_eq!(
                (
                    regex.group("one"),
                    regex.group("two"),
                    regex.group("three"),
                    regex.group("four")
                ),
                (Some(1), Some(2), Some(3), None),
                "{pattern}"
            );
        }
        let many = "(a)".repeat(40);
        assert_eq!(groups(&many, &"a".repeat(40)).unwrap().len(), 41);
    }

    #[test]
    fn case_is_ignored_on_request_in_both_engines() {
        for pattern in ["^/abc$", "^/abc$(?!x)"] {
            assert!(
                Regex::new(pattern, true)
                    .unwrap()
                    .is_match(b"/ABC")
                    .unwrap()
            );
            assert!(
                !Regex::new(pattern, false)
                    .unwrap()
                    .is_match(b"/ABC")
                    .unwrap()
            );
        }
    }

    #[test]
    fn bad_patterns_say_why() {
        for pattern in [
            "(",
            ")",
            "[a",
            "a**b(",
            "(?|a|b)",
            "*a",
            r"\",
            "(?<n>a",
            "(?P<n>a)(?P<n>b)",
            "(?<=a",
        ] {
            let reason = Regex::new(pattern, false).expect_err(pattern);
            assert!(
                !reason.is_empty() && !reason.contains('\n'),
                "{pattern}: {reason}"
            );
        }
    }

    #[test]
    fn a_catastrophic_pattern_ends_with_a_limit() {
        let patterns = [
            "^(a+)+$(?!x)",
            "^(a|a)*$(?!x)",
            r"^(a*)*\1b",
            "(?=(a+))a*b=",
            "(?!x)(a*)*(a*)*b",
        ];
        for pattern in patterns {
            let regex = Regex::new(pattern, false).unwrap();
            for length in [30, 200, 2_000, 8_000, 32_000] {
                let mut subject = vec![b'a'; length];
                subject.push(b'!');
                let mut found = Vec::new();
                // Either an answer or the limit, but soon; the time itself is measured in release builds.
                let _ = (
                    regex.is_match(&subject),
                    regex.captures(&subject, &mut found),
                );
            }
        }
        let regex = Regex::new("^((?!x)a+)+$", false).unwrap();
        let mut subject = vec![b'a'; 40];
        subject.push(b'!');
        assert_eq!(regex.is_match(&subject), Err(Limit));
        assert_eq!(regex.captures(&subject, &mut Vec::new()), Err(Limit));
    }
}
