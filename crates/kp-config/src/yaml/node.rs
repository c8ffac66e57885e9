//! YAML events to a tree of nodes with places, within limits.
//!
//! It decides what of YAML is accepted at all: one document, no tags, anchors and aliases up to a limit. Scalars keep their
//! text as written (`1.10` stays `1.10`); what they mean is decided by their directive.

use crate::diagnostic::Diagnostic;
use crate::nginx::lexer::Places;
use crate::nginx::parser::TextPlaces;
use crate::span::{FileId, Span};
use crate::yaml::places;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError};
use std::collections::HashMap;
use std::rc::Rc;

/// Mappings and lists inside each other beyond this are an error: blocks may be 100 deep, and each takes two levels.
const DEPTH_MAX: u32 = 250;
/// Values that all aliases of a file may stand for together.
const ALIASED_MAX: u64 = 100_000;

/// A value and where it stands.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its place; of a mapping or list, its opening bracket or first entry.
    pub(crate) span: Span,
    /// What it is.
    pub(crate) value: Value,
    /// Levels of mappings and lists, itself included.
    depth: u32,
    /// Values in it, itself included, aliases counted as what they stand for.
    size: u64,
}

/// What a node is.
#[derive(Debug)]
pub(crate) enum Value {
    /// A scalar.
    Scalar(Scalar),
    /// A list.
    List(Vec<Rc<Node>>),
    /// A mapping, in its order, duplicates included.
    Map {
        /// Keys and values.
        pairs: Vec<(Rc<Node>, Rc<Node>)>,
        /// Line and column of its end.
        end: (u32, u32),
    },
}

/// A scalar's text and how it was written.
#[derive(Debug)]
pub(crate) struct Scalar {
    /// The text.
    pub(crate) text: String,
    /// How it was written.
    pub(crate) style: ScalarStyle,
    /// Byte offset in the file.
    pub(crate) offset: usize,
}

impl Scalar {
    /// Whether it was written without quotes, so that `on` or `null` is a word of YAML and no text.
    pub(crate) fn is_plain(&self) -> bool {
        self.style == ScalarStyle::Plain
    }

    /// Whether it stands for "nothing".
    pub(crate) fn is_null(&self) -> bool {
        self.is_plain() && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    /// `on`, `off`, `true`, `false` as YAML writes them, without quotes.
    pub(crate) fn switch(&self) -> Option<bool> {
        match self.text.as_str() {
            _ if !self.is_plain() => None,
            "on" | "true" | "True" | "TRUE" => Some(true),
            "off" | "false" | "False" | "FALSE" => Some(false),
            _ => None,
        }
    }
}

/// The root of a document, or why there is none. An empty document has none either.
pub(crate) fn read(file: FileId, text: &str) -> Result<Option<Rc<Node>>, Diagnostic> {
    if let Some(problem) = unprintable(file, text) {
        return Err(problem);
    }
    let mut builder = Builder {
        file,
        text,
        index: 0,
        byte: 0,
        open: Vec::new(),
        anchors: HashMap::new(),
        aliased: 0,
        root: None,
    };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| builder.syntax_error(&error))?;
        builder.event(event, span.start)?;
    }
    Ok(builder.root)
}

fn too_deep(span: Span) -> Diagnostic {
    let hint = format!("lists and mappings may be {DEPTH_MAX} deep");
    Diagnostic::error(span, "YAML values are nested too deep").hint(hint)
}

/// YAML has no control characters (YAML 1.2 §5.1), and the parser takes a NUL for the end.
fn unprintable(file: FileId, text: &str) -> Option<Diagnostic> {
    let allowed = |character: char| matches!(character, '\t' | '\r' | '\n' | '\u{85}');
    let (at, character) = text
        .char_indices()
        .find(|(_, character)| character.is_control() && !allowed(*character))?;
    let span = TextPlaces::new(file, text).span(at, at);
    let message = format!(
        "unexpected control character U+{:04X}",
        u32::from(character)
    );
    Some(
        Diagnostic::error(span, message)
            .hint("write it as an escape in a double-quoted scalar: \"\\x07\""),
    )
}

struct Builder<'a> {
    file: FileId,
    text: &'a str,
    /// A character index and its byte offset, moving forward with the events.
    index: usize,
    byte: usize,
    /// The mappings and lists that are being read.
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<Node>>,
    aliased: u64,
    root: Option<Rc<Node>>,
}

/// A mapping or list that is being read.
struct Open {
    span: Span,
    anchor: usize,
    is_map: bool,
    /// Elements; of a mapping, keys and values in turn.
    nodes: Vec<Rc<Node>>,
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, start: Marker) -> Result<(), Diagnostic> {
        let span = self.place(start);
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) if self.root.is_none() => Ok(()),
            Event::DocumentStart(_) => Err(Diagnostic::error(span, "a configuration is one YAML document")
                .hint("remove the \"---\" and what follows, or put it in a file of its own and include it")),
            Event::Scalar(_, _, _, Some(tag)) | Event::SequenceStart(_, Some(tag)) | Event::MappingStart(_, Some(tag)) => {
                Err(Diagnostic::error(span, format!("YAML tags are not supported: \"{tag}\""))
                    .hint("quote a value that begins with \"!\""))
            }
            Event::Scalar(text, style, anchor, None) => self.scalar(text.into_owned(), style, anchor, start),
            Event::SequenceStart(anchor, None) => self.start(span, anchor, false),
            Event::MappingStart(anchor, None) => self.start(span, anchor, true),
            Event::SequenceEnd | Event::MappingEnd => self.end(span),
            Event::Alias(anchor) => self.alias(anchor, span),
        }
    }

    fn scalar(
        &mut self,
        text: String,
        style: ScalarStyle,
        anchor: usize,
        start: Marker,
    ) -> Result<(), Diagnostic> {
        let mut offset = self.byte_of(start);
        let mut span = self.place(start);
        if anchor > 0 {
            // The place of an anchored scalar begins at its `&name`.
            let rest = self.text.get(offset..).unwrap_or_default();
            let name: usize = rest
                .chars()
                .take_while(|character| !character.is_whitespace())
                .map(char::len_utf8)
                .sum();
            let blanks: usize = rest
                .get(name..)
                .unwrap_or_default()
                .chars()
                .take_while(|character| *character == ' ')
                .count();
            span.column += (rest.get(..name).unwrap_or_default().chars().count() + blanks) as u32;
            offset += name + blanks;
        }
        span.length = places::of_scalar(self.text, offset, &text, style, span)
            .whole()
            .length;
        let scalar = Scalar {
            text,
            style,
            offset,
        };
        self.complete(
            Node {
                span,
                value: Value::Scalar(scalar),
                depth: 0,
                size: 1,
            },
            anchor,
        )
    }

    fn start(&mut self, span: Span, anchor: usize, is_map: bool) -> Result<(), Diagnostic> {
        if self.open.len() as u32 >= DEPTH_MAX {
            return Err(too_deep(span));
        }
        self.open.push(Open {
            span,
            anchor,
            is_map,
            nodes: Vec::new(),
        });
        Ok(())
    }

    fn end(&mut self, at: Span) -> Result<(), Diagnostic> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let depth = 1 + open.nodes.iter().map(|node| node.depth).max().unwrap_or(0);
        let size = open
            .nodes
            .iter()
            .fold(1, |sum: u64, node| sum.saturating_add(node.size));
        let value = if open.is_map {
            let mut nodes = open.nodes.into_iter();
            let pairs = std::iter::from_fn(|| nodes.next().zip(nodes.next())).collect();
            Value::Map {
                pairs,
                end: (at.line, at.column.saturating_sub(1)),
            }
        } else {
            Value::List(open.nodes)
        };
        self.complete(
            Node {
                span: open.span,
                value,
                depth,
                size,
            },
            open.anchor,
        )
    }

    fn alias(&mut self, anchor: usize, span: Span) -> Result<(), Diagnostic> {
        let Some(node) = self.anchors.get(&anchor).map(Rc::clone) else {
            return Err(
                Diagnostic::error(span, "a YAML alias inside its own anchor")
                    .hint("an alias stands for something that is complete"),
            );
        };
        self.aliased = self.aliased.saturating_add(node.size);
        if self.aliased > ALIASED_MAX {
            return Err(Diagnostic::error(
                span,
                format!("YAML aliases stand for more than {ALIASED_MAX} values"),
            )
            .hint("use fewer aliases of aliases"));
        }
        if self.open.len() as u32 + node.depth > DEPTH_MAX {
            return Err(too_deep(span));
        }
        self.add(node);
        Ok(())
    }

    fn complete(&mut self, node: Node, anchor: usize) -> Result<(), Diagnostic> {
        let node = Rc::new(node);
        if anchor > 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        self.add(node);
        Ok(())
    }

    fn add(&mut self, node: Rc<Node>) {
        match self.open.last_mut() {
            Some(open) => open.nodes.push(node),
            None => self.root = Some(node),
        }
    }

    fn place(&self, marker: Marker) -> Span {
        Span {
            file: self.file,
            line: marker.line() as u32,
            column: marker.col() as u32 + 1,
            length: 1,
        }
    }

    fn byte_of(&mut self, marker: Marker) -> usize {
        if marker.index() < self.index {
            (self.index, self.byte) = (0, 0);
        }
        let rest = self.text.get(self.byte..).unwrap_or_default();
        let steps = rest.chars().take(marker.index() - self.index);
        self.byte += steps.map(char::len_utf8).sum::<usize>();
        self.index = marker.index();
        self.byte
    }

    fn syntax_error(&self, error: &ScanError) -> Diagnostic {
        let info = error.info();
        let span = self.place(*error.marker());
        let hint = if info.contains("tab") {
            Some("indent with spaces".to_owned())
        } else if info.contains("unknown anchor") {
            Some("quote a value that begins with \"*\", such as \"*.example.com\"".to_owned())
        } else if info.contains("mapping values are not allowed") {
            Some("check the indentation; quote a value that contains \": \"".to_owned())
        } else if info.contains("unexpected character") {
            Some(
                "quote a value that begins with a special character, such as \"@name\" or \"%{…}\""
                    .to_owned(),
            )
        } else if let Some(open) = self.open.last().filter(|_| info.contains("flow")) {
            let bracket = if open.is_map { '{' } else { '[' };
            Some(format!(
                "the \"{bracket}\" opened on line {}, column {} is not closed",
                open.span.line, open.span.column
            ))
        } else {
            Some("check brackets, quotes and indentation here and in the lines above".to_owned())
        };
        if info.contains("recursion limit") {
            return too_deep(span);
        }
        Diagnostic {
            hint,
            ..Diagnostic::error(span, format!("YAML syntax: {info}"))
        }
    }
}
