//! `request_id_header` and `trace_context`.

use super::Reader;
use crate::model::TraceContext;
use crate::span::Spanned;
use crate::syntax::Directive;

impl Reader<'_> {
    /// `request_id_header`: the name of a field, or `off`.
    pub(crate) fn request_id_header(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Option<String>>>,
    ) {
        self.put(directive, slot, |reader, word| {
            if word.text == "off" {
                return Some(None);
            }
            let name = word.text.to_ascii_lowercase();
            reader.check_field_name(word).then_some(Some(name))
        });
    }

    /// `trace_context`.
    pub(crate) fn trace_context(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<TraceContext>>,
    ) {
        let choices = [
            ("propagate", TraceContext::Propagate),
            ("start", TraceContext::Start),
            ("off", TraceContext::Off),
        ];
        self.choice(directive, slot, &choices);
    }
}
