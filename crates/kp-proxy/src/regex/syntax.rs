//! Patterns for the backtracking engine as a tree.
//!
//! Reads what [`super::translate`] writes, where most of PCRE's spellings are already one. What the engine does not have
//! (recursion, conditionals, `\K`, verbs) is an error that names it.

use regex_automata::Input;
use regex_automata::meta;
use regex_automata::util::syntax;
use std::iter::Peekable;
use std::str::Chars;

/// Nesting of groups; the parser, the compiler and the engine recurse along it.
const DEPTH_MAX: u32 = 100;

/// A set of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ByteSet([u64; 4]);

impl ByteSet {
    fn insert(&mut self, byte: u8) {
        if let Some(word) = self.0.get_mut(usize::from(byte >> 6)) {
            *word |= 1 << (byte & 63);
        }
    }

    #[inline]
    pub(super) fn contains(&self, byte: u8) -> bool {
        self.0
            .get(usize::from(byte >> 6))
            .is_some_and(|word| word >> (byte & 63) & 1 == 1)
    }
}

/// A part of a pattern.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// One byte of a set.
    Set(ByteSet),
    /// One after the other.
    Concat(Vec<Self>),
    /// The first that leads to a match.
    Alternate(Vec<Self>),
    /// `( … )` with its number.
    Group(usize, Box<Self>),
    /// A repetition.
    Repeat {
        node: Box<Self>,
        min: u32,
        max: Option<u32>,
        kind: Kind,
    },
    /// `(?= …)` and its kin.
    Look {
        node: Box<Self>,
        behind: bool,
        negative: bool,
    },
    /// `(?> … )`
    Atomic(Box<Self>),
    /// A condition on the place.
    Assert(Assert),
    /// `\1`
    Backreference { group: usize, ignore_case: bool },
}

/// How a repetition chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// As many as possible first.
    Greedy,
    /// As few as possible first.
    Lazy,
    /// As many as possible, and never fewer.
    Possessive,
}

/// A condition on the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Assert {
    /// `^` or `\A`
    Start,
    /// `\z`
    End,
    /// `^` in multi-line mode
    LineStart,
    /// `$` in multi-line mode
    LineEnd,
    /// `\b`
    WordBoundary,
    /// `\B`
    NotWordBoundary,
}

/// A pattern that was read.
#[derive(Debug)]
pub(super) struct Parsed {
    /// Its tree.
    pub(super) node: Node,
    /// Groups, `$0` included.
    pub(super) groups: usize,
    /// Named groups.
    pub(super) names: Vec<(String, usize)>,
}

/// Reads a translated pattern.
pub(super) fn parse(text: &str, ignore_case: bool) -> Result<Parsed, String> {
    let mut parser = Parser {
        input: text.chars().peekable(),
        flags: Flags {
            ignore_case,
            ..Flags::default()
        },
        groups: 1,
        names: Vec::new(),
        references: Vec::new(),
        depth: 0,
    };
    let node = parser.alternatives()?;
    if parser.input.next().is_some() {
        return Err(String::from("unopened group"));
    }
    if parser
        .references
        .iter()
        .any(|group| *group >= parser.groups)
    {
        return Err(String::from("reference to a group that does not exist"));
    }
    Ok(Parsed {
        node,
        groups: parser.groups,
        names: parser.names,
    })
}

#[derive(Debug, Clone, Copy, Default)]
struct Flags {
    ignore_case: bool,
    multi_line: bool,
    dot_all: bool,
    swap_greed: bool,
    /// Only the translator sets it, around properties.
    unicode: bool,
}

struct Parser<'a> {
    input: Peekable<Chars<'a>>,
    flags: Flags,
    groups: usize,
    names: Vec<(String, usize)>,
    references: Vec<usize>,
    depth: u32,
}

fn unsupported<T>(what: &str) -> Result<T, String> {
    Err(format!("{what} is not supported"))
}

impl Parser<'_> {
    /// Up to the end or a `)` that is not its own. Flags set inside end with it.
    fn alternatives(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(String::from("groups are nested too deep"));
        }
        let flags = self.flags;
        let mut alternatives = Vec::new();
        let mut sequence = Vec::new();
        while let Some(next) = self.input.next_if(|next| *next != ')') {
            match next {
                '|' => alternatives.push(Node::Concat(std::mem::take(&mut sequence))),
                '*' | '+' | '?' => {
                    return Err(String::from("repetition operator missing expression"));
                }
                next => {
                    if let Some(node) = self.atom(next)? {
                        let node = self.repeated(node)?;
                        sequence.push(node);
                    }
                }
            }
        }
        self.flags = flags;
        self.depth -= 1;
        let last = Node::Concat(sequence);
        if alternatives.is_empty() {
            return Ok(last);
        }
        alternatives.push(last);
        Ok(Node::Alternate(alternatives))
    }

    /// One atom; nothing for a group of flags.
    fn atom(&mut self, next: char) -> Result<Option<Node>, String> {
        Ok(Some(match next {
            '(' => return self.group(),
            '[' => self.class()?,
            '\\' => self.escape()?,
            '.' => Node::Set(self.set(if self.flags.dot_all { "(?s:.)" } else { "." })?),
            '^' if self.flags.multi_line => Node::Assert(Assert::LineStart),
            '^' => Node::Assert(Assert::Start),
            '$' if self.flags.multi_line => Node::Assert(Assert::LineEnd),
            '$' => Node::Assert(Assert::End),
            literal => {
                let mut set = ByteSet::default();
                let Ok(byte) = u8::try_from(literal) else {
                    return unsupported("this character here");
                };
                set.insert(byte);
                if self.flags.ignore_case {
                    set.insert(byte.to_ascii_lowercase());
                    set.insert(byte.to_ascii_uppercase());
                }
                Node::Set(set)
            }
        }))
    }

    /// The bytes an expression for one byte matches, asked of the other engine.
    fn set(&self, text: &str) -> Result<ByteSet, String> {
        let syntax = syntax::Config::new()
            .unicode(self.flags.unicode)
            .utf8(false)
            .case_insensitive(self.flags.ignore_case);
        let regex = meta::Regex::builder()
            .configure(meta::Config::new().utf8_empty(false))
            .syntax(syntax)
            .build(&format!("\\A(?:{text})\\z"))
            .map_err(|error| super::reason_of(&error))?;
        let mut set = ByteSet::default();
        (0..=u8::MAX)
            .filter(|byte| regex.is_match(Input::new(&[*byte])))
            .for_each(|byte| set.insert(byte));
        Ok(set)
    }

    fn class(&mut self) -> Result<Node, String> {
        let mut text = String::from("[");
        loop {
            let Some(next) = self.input.next() else {
                return Err(String::from("unclosed character class"));
            };
            text.push(next);
            match next {
                ']' => break,
                '\\' => text.extend(self.input.next()),
                // What is left of brackets inside a class is `[:name:]`.
                '[' => {
                    for next in self.input.by_ref() {
                        text.push(next);
                        if next == ']' {
                            break;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(Node::Set(self.set(&text)?))
    }

    fn escape(&mut self) -> Result<Node, String> {
        let Some(next) = self.input.next() else {
            return Err(String::from("incomplete escape sequence"));
        };
        Ok(match next {
            'A' => Node::Assert(Assert::Start),
            'z' => Node::Assert(Assert::End),
            'b' => Node::Assert(Assert::WordBoundary),
            'B' => Node::Assert(Assert::NotWordBoundary),
            'K' | 'G' => return unsupported(&format!("\\{next}")),
            '1'..='9' => {
                let mut number = next.to_digit(10).unwrap_or_default() as usize;
                while let Some(digit) = self.input.peek().and_then(|next| next.to_digit(10)) {
                    number = number.saturating_mul(10).saturating_add(digit as usize);
                    self.input.next();
                }
                self.reference(number)
            }
            'k' | 'g' => {
                let name = self.reference_name()?;
                self.reference_to(&name)?
            }
            'x' | 'p' | 'P' => {
                let mut text = format!("\\{next}");
                if self.input.peek() == Some(&'{') {
                    for next in self.input.by_ref() {
                        text.push(next);
                        if next == '}' {
                            break;
                        }
                    }
                } else {
                    let bare = if next == 'x' { 2 } else { 1 };
                    text.extend(self.input.by_ref().take(bare));
                }
                Node::Set(self.set(&text)?)
            }
            other => Node::Set(self.set(&format!("\\{other}"))?),
        })
    }

    fn reference(&mut self, group: usize) -> Node {
        self.references.push(group);
        Node::Backreference {
            group,
            ignore_case: self.flags.ignore_case,
        }
    }

    fn reference_to(&mut self, name: &str) -> Result<Node, String> {
        let number = name.parse().ok();
        let named = || {
            self.names
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, group)| *group)
        };
        match number.or_else(named) {
            Some(group) => Ok(self.reference(group)),
            None => Err(format!("reference to the unknown group \"{name}\"")),
        }
    }

    /// The name or number after `\k` or `\g`: in `{}`, `<>`, `''`, or bare digits.
    fn reference_name(&mut self) -> Result<String, String> {
        let mut name = String::new();
        // The translator has made `{` that begins no repetition into `\{`.
        self.input.next_if_eq(&'\\');
        let end = match self.input.next() {
            Some('{') => '}',
            Some('<') => '>',
            Some('\'') => '\'',
            Some(digit) if digit.is_ascii_digit() => return Ok(String::from(digit)),
            _ => return Err(String::from("incomplete reference")),
        };
        for next in self.input.by_ref() {
            if next == end {
                return Ok(name);
            }
            if next != '\\' {
                name.push(next);
            }
        }
        Err(String::from("incomplete reference"))
    }

    fn repeated(&mut self, mut node: Node) -> Result<Node, String> {
        while let Some(next) = self
            .input
            .next_if(|next| matches!(next, '*' | '+' | '?' | '{'))
        {
            let (min, max) = match next {
                '*' => (0, None),
                '+' => (1, None),
                '?' => (0, Some(1)),
                _ => self.counts()?,
            };
            let kind = if self.input.next_if_eq(&'+').is_some() {
                Kind::Possessive
            } else if self.input.next_if_eq(&'?').is_some() != self.flags.swap_greed {
                Kind::Lazy
            } else {
                Kind::Greedy
            };
            node = Node::Repeat {
                node: Box::new(node),
                min,
                max,
                kind,
            };
        }
        Ok(node)
    }

    fn counts(&mut self) -> Result<(u32, Option<u32>), String> {
        let text: String = self
            .input
            .by_ref()
            .take_while(|next| *next != '}')
            .collect();
        let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number <= 1000);
        let counts = match text.split_once(',') {
            None => number(&text).map(|min| (min, Some(min))),
            Some((min, "")) => number(min).map(|min| (min, None)),
            Some((min, max)) => number(min)
                .zip(number(max))
                .map(|(min, max)| (min, Some(max))),
        };
        match counts {
            Some((min, Some(max))) if min > max => {
                Err(String::from("repetition with more at least than at most"))
            }
            Some(counts) => Ok(counts),
            None => Err(String::from("repetition of more than 1000")),
        }
    }

    /// After `(`.
    fn group(&mut self) -> Result<Option<Node>, String> {
        if self.input.peek() == Some(&'*') {
            return unsupported("a \"(*\" verb");
        }
        if self.input.next_if_eq(&'?').is_none() {
            return self.capture().map(Some);
        }
        let Some(next) = self.input.next() else {
            return Err(String::from("unclosed group"));
        };
        let look = |behind, negative| (behind, negative);
        let (behind, negative) = match next {
            ':' => return self.inside().map(Some),
            '>' => {
                let node = self.inside()?;
                return Ok(Some(Node::Atomic(Box::new(node))));
            }
            '=' => look(false, false),
            '!' => look(false, true),
            '<' => match self.input.next() {
                Some('=') => look(true, false),
                Some('!') => look(true, true),
                _ => return Err(String::from("unknown group")),
            },
            'P' => return self.python_group().map(Some),
            'i' | 'm' | 's' | 'U' | 'u' | '-' => return self.set_flags(next),
            '(' => return unsupported("a conditional group \"(?(\""),
            'R' | '&' | '0'..='9' | '+' => return unsupported("recursion"),
            other => {
                return unsupported(&format!(
                    "\"(?{other}\" together with look-around or references"
                ));
            }
        };
        let node = Box::new(self.inside()?);
        Ok(Some(Node::Look {
            node,
            behind,
            negative,
        }))
    }

    fn inside(&mut self) -> Result<Node, String> {
        let node = self.alternatives()?;
        match self.input.next() {
            Some(')') => Ok(node),
            _ => Err(String::from("unclosed group")),
        }
    }

    fn capture(&mut self) -> Result<Node, String> {
        let group = self.groups;
        self.groups += 1;
        Ok(Node::Group(group, Box::new(self.inside()?)))
    }

    /// `(?P<name> … )` or `(?P=name)`.
    fn python_group(&mut self) -> Result<Node, String> {
        let end = match self.input.next() {
            Some('<') => '>',
            Some('=') => ')',
            _ => return unsupported("recursion"),
        };
        let name: String = self
            .input
            .by_ref()
            .take_while(|next| *next != end)
            .collect();
        if end == ')' {
            return self.reference_to(&name);
        }
        if name.is_empty()
            || !name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            return Err(String::from("invalid group name"));
        }
        if self.names.iter().any(|(known, _)| *known == name) {
            return Err(String::from("duplicate capture group name"));
        }
        self.names.push((name, self.groups));
        self.capture()
    }

    /// `(?i)` for the rest of the enclosing group, `(?i: … )` for its own.
    fn set_flags(&mut self, first: char) -> Result<Option<Node>, String> {
        let before = self.flags;
        let mut on = true;
        let mut next = Some(first);
        loop {
            match next {
                Some('-') => on = false,
                Some('i') => self.flags.ignore_case = on,
                Some('m') => self.flags.multi_line = on,
                Some('s') => self.flags.dot_all = on,
                Some('U') => self.flags.swap_greed = on,
                Some('u') => self.flags.unicode = on,
                Some(')') => return Ok(None),
                Some(':') => break,
                _ => return unsupported("this flag together with look-around or references"),
            }
            next = self.input.next();
        }
        let node = self.inside()?;
        self.flags = before;
        Ok(Some(node))
    }
}
