//! Regular expressions as nginx's users write them, without the power to hang a worker.
//!
//! A pattern is first translated from PCRE's spelling ([`translate`]), then given to the linear-time engine; only what
//! that has no way to do (look-around, references, possessive and atomic groups) runs on our own backtracking engine,
//! which counts its steps. Both work on bytes, since a decoded URI need not be UTF-8, and without Unicode classes unless
//! the pattern begins with `(*UTF8)`, as PCRE.

mod backtrack;
mod syntax;
mod translate;

use backtrack::Backtracking;
use regex_automata::util::primitives::NonMaxUsize;
use regex_automata::util::syntax::Config as SyntaxConfig;
use regex_automata::{Input, PatternID, meta};

/// Groups that fit the stack while matching; more cost one allocation.
const GROUPS_ON_STACK: usize = 16;

/// Where a group matched; `None`: it took no part.
pub(crate) type Group = Option<(u32, u32)>;

/// The step limit was reached: whether it matches is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit;

/// One compiled expression.
#[derive(Debug)]
pub(crate) enum Regex {
    /// In time linear in the subject.
    Linear(Box<meta::Regex>),
    /// Under a step limit.
    Backtracking(Backtracking),
}

impl Regex {
    /// Compiles a pattern, or says in a few words what is wrong with it.
    pub(crate) fn new(pattern: &str, ignore_case: bool) -> Result<Self, String> {
        let translated = translate::translate(pattern)?;
        if !translated.backtracking {
            return linear(&translated, ignore_case);
        }
        if translated.unicode {
            return Err(String::from(
                "\"(*UTF8)\" together with look-around or references is not supported",
            ));
        }
        let parsed = syntax::parse(&translated.text, ignore_case)?;
        Backtracking::new(parsed).map(Self::Backtracking)
    }

    /// Whether it matches anywhere in the subject.
    pub(crate) fn is_match(&self, subject: &[u8]) -> Result<bool, Limit> {
        match self {
            Self::Linear(regex) => Ok(regex.is_match(Input::new(subject))),
            Self::Backtracking(regex) => regex.search(subject, None),
        }
    }

    /// Whether it matches, and where its groups did. `groups` is changed only when it matches.
    pub(crate) fn captures(&self, subject: &[u8], groups: &mut Vec<Group>) -> Result<bool, Limit> {
        match self {
            Self::Linear(regex) => Ok(linear_captures(regex, subject, groups)),
            Self::Backtracking(regex) => regex.search(subject, Some(groups)),
        }
    }

    /// Number of a named group.
    pub(crate) fn group(&self, name: &str) -> Option<usize> {
        match self {
            Self::Linear(regex) => regex.group_info().to_index(PatternID::ZERO, name),
            Self::Backtracking(regex) => regex.group(name),
        }
    }
}

fn linear_captures(regex: &meta::Regex, subject: &[u8], groups: &mut Vec<Group>) -> bool {
    let wanted = 2 * regex.group_info().group_len(PatternID::ZERO);
    let mut on_stack = [None::<NonMaxUsize>; 2 * GROUPS_ON_STACK];
    let mut on_heap = Vec::new();
    let slots = match on_stack.get_mut(..wanted) {
        Some(slots) => slots,
        None => {
            on_heap.resize(wanted, None);
            on_heap.as_mut_slice()
        }
    };
    if regex.search_slots(&Input::new(subject), slots).is_none() {
        return false;
    }
    groups.clear();
    groups.extend(slots.chunks_exact(2).map(|pair| match pair {
        [Some(start), Some(end)] => Some((
            u32::try_from(start.get()).ok()?,
            u32::try_from(end.get()).ok()?,
        )),
        _ => None,
    }));
    true
}

fn linear(translated: &translate::Translated, ignore_case: bool) -> Result<Regex, String> {
    let syntax = SyntaxConfig::new()
        .unicode(translated.unicode)
        .utf8(false)
        .case_insensitive(ignore_case);
    meta::Regex::builder()
        .configure(meta::Config::new().utf8_empty(false))
        .syntax(syntax)
        .build(&translated.text)
        .map(|regex| Regex::Linear(Box::new(regex)))
        .map_err(|error| reason_of(&error))
}

/// The engine draws the pattern over several lines; the reason is on the last one.
fn reason_of(error: &meta::BuildError) -> String {
    let Some(syntax) = error.syntax_error() else {
        return String::from("it is too large when compiled");
    };
    let text = syntax.to_string();
    let line = text.lines().last().unwrap_or(&text).trim();
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

    /// Patterns, subjects, whether they match: what the linear engine reads differently.
    const SPELLINGS: &[(&str, &[u8], bool)] = &[
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
        (r"^www\p{N}+\.a$", b"www12.a", true),
        (r"^\p{Lu}\PL\pL$", b"A1b", true),
        (r"^[\p{Lu}_-]+$", b"A_-", true),
        (r"^[\p{Lu}_-]+$", b"a", false),
        (r"a(?#comment)b", b"ab", true),
    ];

    /// What only the backtracking engine can do.
    const HARD: &[(&str, &[u8], bool)] = &[
        (r"^(?:/a|/b)(?=/|$)", b"/b/c", true),
        (r"^/(?!api/)", b"/api/x", false),
        (r"^/(?!api/)", b"/web/\xff", true),
        (r"^(a)\1$", b"aa", true),
        (r"^(a)\1$", b"ab", false),
        (r"^a++a", b"aaa", false),
        (r"^(?>a+)b", b"aab", true),
        (r"(?<!x)y", b"xy", false),
        (r"(?<=x)y", b"xy", true),
        (r"(?<=ab|c)y", b"cy", true),
        (r"(?<=ab|c)y", b"aby", true),
        (r"(?<=ab|c)y", b"by", false),
        (r"(?<!ab|c)y", b"aby", false),
        (r"(?<!ab|c)y", b"by", true),
        (r"^(?:a*)*(?!x)$", b"aaa", true),
        (r"^(?:a|b*)*?c(?!x)", b"abbac", true),
        (r"^(?:ab){2,3}(?!c)", b"ababab", true),
        (r"^(?:ab){2}(?!a)", b"ababab", false),
        (r"^a{2,3}?(?=ab)", b"aaab", true),
        (r"^(a|ab)(?=c)", b"abc", true),
        (r"^(?i:A)b(?!x)", b"ab", true),
        (r"^(?i:A)b(?!x)", b"aB", false),
        (r"(?i)^(a)\1$", b"aA", true),
        (r"^(?<q>['\x22]).*\k<q>$", b"'x'", true),
        (r"^(?P<q>['\x22]).*(?P=q)$", b"'x\"", false),
        (r"\bphp\b(?!x)", b"/php/", true),
        (r"\bphp\b(?!x)", b"/xphp/", false),
        (r"^(?=.*\d)(?=.*[a-z])\w+$", b"a1", true),
        (r"^(?=.*\d)(?=.*[a-z])\w+$", b"aa", false),
        (r"^.*+(?<=z)", b"aaz", true),
        (r"^(?>a|ab)c", b"abc", false),
        (r"(?!)", b"a", false),
        (r"^\p{N}[\p{L}]+(?!x)", b"1a", true),
        (r"^\p{N}[\p{L}]+(?!x)", b"a1", false),
        ("^é(?!x)", "é".as_bytes(), true),
        (r"^(?:(?=a)a|b)+$", b"aba", true),
        (r"(?m)^b$(?!x)", b"a\nb\nc", true),
    ];

    #[test]
    fn pcre_spelling_is_understood() {
        for (pattern, subject, expected) in SPELLINGS.iter().chain(HARD) {
            assert_eq!(
                matches(pattern, subject),
                *expected,
                "{pattern} on {subject:?}"
            );
        }
        let is_linear = |pattern: &str| matches!(Regex::new(pattern, false), Ok(Regex::Linear(_)));
        assert!(SPELLINGS.iter().all(|(pattern, ..)| is_linear(pattern)));
        assert!(HARD.iter().all(|(pattern, ..)| !is_linear(pattern)));
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
            for length in [40, 8_000] {
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

    proptest::proptest! {
        /// No pattern and no subject makes either engine panic, and groups lie inside the subject.
        #[test]
        fn nothing_panics(
            pieces in proptest::collection::vec(
                proptest::sample::select(vec![
                    "a", "b", "é", ".", "*", "+", "?", "|", "(", ")", "[", "]", "^", "$", "\\", "{", "}", "1", ",", "2", "-",
                    "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?<n>", "(?P<m>", "(?'o'", "(?i)", "(?i:", "(?P=m)", "\\k<n>",
                    "\\1", "\\Q", "\\E", "\\b", "\\p{L}", "\\x{61}", "[^", "[[:alpha:]", "&&", "(?#", "(?|", "(*UTF8)", "{2}",
                ]),
                0..12,
            ),
            subject in proptest::collection::vec(proptest::sample::select(b"aabb1-\xc3\xa9\n".to_vec()), 0..12),
        ) {
            if let Ok(regex) = Regex::new(&pieces.concat(), false) {
                let mut groups = Vec::new();
                let found = regex.captures(&subject, &mut groups);
                proptest::prop_assert_eq!(found, regex.is_match(&subject));
                for (start, end) in groups.into_iter().flatten() {
                    proptest::prop_assert!(start <= end && end as usize <= subject.len());
                }
            }
        }
    }
}
