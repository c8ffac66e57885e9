//! The pages about kp itself: `metrics`, `stub_status`, `status`, `health`. A location has one handler, so that each also
//! takes the place of what answered there before.

use super::{LocationDraft, Reader};
use crate::span::{Span, Spanned};
use crate::syntax::Directive;

/// A page as written.
#[derive(Debug, Clone)]
pub(crate) struct PageDraft {
    pub(crate) kind: PageKind,
    /// The directive.
    pub(crate) name: String,
    pub(crate) span: Span,
}

/// Which page.
#[derive(Debug, Clone)]
pub(crate) enum PageKind {
    Metrics,
    StubStatus,
    Status,
    /// The group by name.
    Health(Option<Spanned<String>>),
}

impl LocationDraft {
    /// `metrics`.
    pub(crate) fn metrics(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        self.page(reader, directive, PageKind::Metrics);
    }

    /// `stub_status`. Its argument meant something to nginx before 1.7.5.
    pub(crate) fn stub_status(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        self.page(reader, directive, PageKind::StubStatus);
    }

    /// `status`.
    pub(crate) fn status(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        self.page(reader, directive, PageKind::Status);
    }

    /// `health`.
    pub(crate) fn health(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let mut upstream = None;
        if let Some(word) = directive.args.first() {
            let Some(name) = Reader::parameter(word, "upstream").filter(|name| !name.is_empty())
            else {
                let message = format!("invalid parameter \"{}\"", word.text);
                return reader.refuse(word.span, message, "it can be: upstream=name");
            };
            upstream = Some(Spanned::new(name.to_owned(), word.span));
        }
        self.page(reader, directive, PageKind::Health(upstream));
    }

    fn page(&mut self, reader: &mut Reader<'_>, directive: &Directive, kind: PageKind) {
        self.replace_handler(reader, directive);
        self.page = Some(PageDraft {
            kind,
            name: directive.name.text.clone(),
            span: directive.at,
        });
    }

    /// As with nginx, the last one that answers is the one that does. What is replaced hardly was meant to be.
    pub(crate) fn replace_handler(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let pass = self.proxy_pass.take();
        let pass = pass.map(|pass| ("proxy_pass".to_owned(), pass.span));
        let page = self.page.take().map(|page| (page.name, page.span));
        let Some((name, span)) = pass.or(page) else {
            return;
        };
        let message = format!(
            "\"{}\" takes the place of the \"{name}\" on line {}",
            directive.name.text, span.line
        );
        let hint = "a location has one that answers; remove the other";
        reader.warning(directive.at, message, hint);
    }
}
