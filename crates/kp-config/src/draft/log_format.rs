//! `log_format`: nginx's form, a text in one or several words, and kp's own, a block of JSON fields.

use super::{HttpDraft, Reader};
use crate::diagnostic::Diagnostic;
use crate::json_types::JsonType;
use crate::model::{Escape, JsonField, JsonValue, LogFormat, LogShape};
use crate::syntax::{Block, Directive, Word};
use crate::template::{Part, Template};

/// Objects inside objects; nobody's log needs more, and what reads logs often cannot take more.
const DEPTH_MAX: usize = 16;

impl HttpDraft {
    /// `log_format`.
    pub(crate) fn log_format(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let Some((name, words)) = directive.args.split_first() else {
            return;
        };
        let taken = name.text == "combined"
            || self
                .log_formats
                .iter()
                .any(|format| format.name == name.text);
        if taken {
            reader.refuse(
                name.span,
                format!("duplicate \"log_format\" name \"{}\"", name.text),
                "every format has a name of its own; \"combined\" is built in",
            );
        }
        let shape = match &directive.block {
            Some(block) => reader.json_format(name, words, block),
            None => reader.text_format(directive, words),
        };
        if let Some(shape) = shape {
            self.log_formats.push(LogFormat {
                name: name.text.clone(),
                shape,
            });
        }
    }
}

impl Reader<'_> {
    fn text_format(&mut self, directive: &Directive, mut words: &[Word]) -> Option<LogShape> {
        if words.is_empty() {
            let message = "invalid number of arguments in \"log_format\" directive";
            self.refuse(
                directive.at,
                message,
                "after the name stands what a line looks like: a text with variables, or json { field value; … }",
            );
            return None;
        }
        let mut escape = Escape::Default;
        if let Some((first, rest)) = words.split_first()
            && let Some(text) = Self::parameter(first, "escape")
        {
            words = rest;
            escape = match text {
                "default" => Escape::Default,
                "json" => Escape::Json,
                "none" => Escape::None,
                _ => {
                    let message = format!("unknown log format escaping \"{text}\"");
                    self.refuse(first.span, message, "it can be: default, json, none");
                    escape
                }
            };
        }
        let mut template = Template::default();
        for word in words {
            if let Some(part) = self.compile(word) {
                template.parts.extend(part.parts);
            }
        }
        Some(LogShape::Text {
            template: template.joined(),
            escape,
        })
    }

    fn json_format(&mut self, name: &Word, words: &[Word], block: &Block) -> Option<LogShape> {
        match words {
            [word] if word.text == "json" => {}
            _ => {
                let span = words.first().map_or(block.opened, |word| word.span);
                let message = format!("\"log_format\" \"{}\" has an unexpected block", name.text);
                self.refuse(
                    span,
                    message,
                    format!("a block of fields follows the word json: log_format {} json {{ field value; … }}", name.text),
                );
                return None;
            }
        }
        Some(LogShape::Json(self.json_fields(&block.directives, 1)))
    }

    fn json_fields(&mut self, entries: &[Directive], depth: usize) -> Vec<JsonField> {
        let mut fields: Vec<JsonField> = Vec::with_capacity(entries.len());
        for entry in entries {
            let name = &entry.name;
            if fields.iter().any(|field| field.name == name.text) {
                let message = format!("duplicate field \"{}\" in \"log_format\"", name.text);
                self.refuse(
                    name.span,
                    message,
                    "a JSON object has each field once; what reads the log would see one of them",
                );
                continue;
            }
            if let Some(value) = self.json_value(entry, depth) {
                fields.push(JsonField {
                    name: name.text.clone(),
                    value,
                });
            }
        }
        fields
    }

    fn json_value(&mut self, entry: &Directive, depth: usize) -> Option<JsonValue> {
        let name = &entry.name;
        match (&entry.block, entry.args.as_slice()) {
            (Some(block), []) if depth < DEPTH_MAX => Some(JsonValue::Object(
                self.json_fields(&block.directives, depth + 1),
            )),
            (Some(block), []) => {
                self.error(
                    block.opened,
                    "objects in \"log_format\" are nested too deep",
                );
                None
            }
            (None, [word]) => {
                let template = self.compile(word)?;
                Some(match template.parts.as_slice() {
                    [part @ (Part::Variable(_) | Part::Capture(_))] => {
                        let kind = JsonType::of(part);
                        JsonValue::One(template, kind)
                    }
                    _ => JsonValue::Text(template),
                })
            }
            _ => {
                let message = format!("field \"{}\" of \"log_format\" needs one value", name.text);
                self.report(Diagnostic::error(name.span, message).hint(
                    "a field is a name and a value, or a name and a block of fields; a value with blanks needs quotes",
                ));
                None
            }
        }
    }
}
