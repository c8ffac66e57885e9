//! Setters of plain values: flags, numbers, sizes, times, paths, texts; with nginx's words for what is wrong.

use super::Reader;
use crate::diagnostic::Diagnostic;
use crate::model::MinRate;
use crate::span::Spanned;
use crate::suggest::nearest;
use crate::syntax::{Directive, Word};
use crate::template::Template;
use crate::value::{self, Finest};
use std::path::PathBuf;
use std::time::Duration;

const SIZE_HINT: &str = "a size is a number with k, m or g, such as 8k or 1m";
const TIME_HINT: &str = "a time is a number with ms, s, m, h, d, w, M or y, such as 30s or 1m30s";

impl Reader<'_> {
    /// `on` or `off`.
    pub(crate) fn flag(&mut self, directive: &Directive, slot: &mut Option<Spanned<bool>>) {
        self.put(directive, slot, |reader, word| {
            // The words of YAML arrive here as they stand; nginx compares flags without case.
            if word.text.eq_ignore_ascii_case("on") {
                return Some(true);
            }
            if word.text.eq_ignore_ascii_case("off") {
                return Some(false);
            }
            let name = &directive.name.text;
            let text = &word.text;
            reader.refuse(
                word.span,
                format!(
                    "invalid value \"{text}\" in \"{name}\" directive, it must be \"on\" or \"off\""
                ),
                format!("write `{name} on;` or `{name} off;`"),
            );
            None
        });
    }

    /// One of some words.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<T>>,
        choices: &[(&str, T)],
    ) {
        self.put(directive, slot, |reader, word| reader.choose(word, choices));
    }

    /// The meaning of a word that must be one of some.
    pub(crate) fn choose<T: Copy>(&mut self, word: &Word, choices: &[(&str, T)]) -> Option<T> {
        if let Some((_, value)) = choices
            .iter()
            .find(|(name, _)| word.text.eq_ignore_ascii_case(name))
        {
            return Some(*value);
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let hint = match nearest(&word.text, names.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("it can be: {}", names.join(", ")),
        };
        self.report(
            Diagnostic::error(word.span, format!("invalid value \"{}\"", word.text)).hint(hint),
        );
        None
    }

    /// A decimal number.
    pub(crate) fn number<T: TryFrom<u64>>(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<T>>,
    ) {
        self.put(directive, slot, |reader, word| {
            reader.read_number(directive, word)
        });
    }

    /// A decimal number above zero.
    pub(crate) fn positive<T: TryFrom<u64> + PartialEq + Default>(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<T>>,
    ) {
        self.put(directive, slot, |reader, word| {
            let number = reader.read_number::<T>(directive, word)?;
            if number == T::default() {
                let message = format!("\"{}\" directive invalid value", directive.name.text);
                reader.report(Diagnostic::error(word.span, message).hint("it must be at least 1"));
                return None;
            }
            Some(number)
        });
    }

    /// A priority of processes.
    pub(crate) fn nice(&mut self, directive: &Directive, slot: &mut Option<Spanned<i32>>) {
        self.put(directive, slot, |reader, word| {
            let number = word.text.parse().ok();
            let known = number.filter(|number| (-20..20).contains(number));
            if known.is_none() {
                let message = format!("\"{}\" directive invalid number", directive.name.text);
                reader.refuse(word.span, message, "it is a whole number from -20 to 19");
            }
            known
        });
    }

    fn read_number<T: TryFrom<u64>>(&mut self, directive: &Directive, word: &Word) -> Option<T> {
        let number = value::number(&word.text).and_then(|number| T::try_from(number).ok());
        if number.is_none() {
            self.error(
                word.span,
                format!("\"{}\" directive invalid number", directive.name.text),
            );
        }
        number
    }

    /// A size in bytes.
    pub(crate) fn size<T: TryFrom<u64>>(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<T>>,
    ) {
        self.put(directive, slot, |reader, word| {
            reader.read_size(directive, word)
        });
    }

    /// A size in bytes above zero.
    pub(crate) fn positive_size(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<usize>>,
    ) {
        self.put(directive, slot, |reader, word| {
            let size: usize = reader.read_size(directive, word)?;
            if size == 0 {
                let message = format!("\"{}\" directive invalid value", directive.name.text);
                reader.report(Diagnostic::error(word.span, message).hint("it must be above 0"));
                return None;
            }
            Some(size)
        });
    }

    pub(crate) fn read_size<T: TryFrom<u64>>(
        &mut self,
        directive: &Directive,
        word: &Word,
    ) -> Option<T> {
        let size = value::size(&word.text).and_then(|size| T::try_from(size).ok());
        if size.is_none() {
            let message = format!("\"{}\" directive invalid value", directive.name.text);
            self.report(Diagnostic::error(word.span, message).hint(SIZE_HINT));
        }
        size
    }

    /// A time.
    pub(crate) fn time(&mut self, directive: &Directive, slot: &mut Option<Spanned<Duration>>) {
        self.put(directive, slot, |reader, word| {
            reader.read_time(directive, word, Finest::Milliseconds)
        });
    }

    /// A time from a word of a directive.
    pub(crate) fn read_time(
        &mut self,
        directive: &Directive,
        word: &Word,
        finest: Finest,
    ) -> Option<Duration> {
        let time = value::time(&word.text, finest);
        if time.is_none() {
            let message = format!("\"{}\" directive invalid value", directive.name.text);
            self.report(Diagnostic::error(word.span, message).hint(TIME_HINT));
        }
        time
    }

    /// A number and a size, both above zero.
    pub(crate) fn buffers(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<(usize, usize)>>,
    ) {
        let [number_word, size_word] = directive.args.as_slice() else {
            return;
        };
        let message = format!("\"{}\" directive invalid value", directive.name.text);
        let number =
            value::number(&number_word.text).and_then(|number| usize::try_from(number).ok());
        let number = number.filter(|number| *number > 0);
        if number.is_none() {
            self.report(
                Diagnostic::error(number_word.span, message.clone()).hint("it must be at least 1"),
            );
        }
        let size = value::size(&size_word.text)
            .and_then(|size| usize::try_from(size).ok())
            .filter(|size| *size > 0);
        if size.is_none() {
            self.report(Diagnostic::error(size_word.span, message).hint(SIZE_HINT));
        }
        if let (Some(number), Some(size)) = (number, size) {
            *slot = Some(Spanned::new((number, size), number_word.span));
        }
    }

    /// A path below the prefix.
    pub(crate) fn path(&mut self, directive: &Directive, slot: &mut Option<Spanned<PathBuf>>) {
        self.put(directive, slot, |reader, word| {
            Some(reader.under_prefix(&word.text))
        });
    }

    /// A path below the prefix, with directory levels after it.
    pub(crate) fn temp_path(&mut self, directive: &Directive, slot: &mut Option<Spanned<PathBuf>>) {
        for word in directive.args.iter().skip(1) {
            if value::number(&word.text).is_none_or(|level| level == 0) {
                self.report(
                    Diagnostic::error(word.span, format!("invalid value \"{}\"", word.text))
                        .hint("a directory level is a number from 1"),
                );
            }
        }
        self.path(directive, slot);
    }

    /// A text as it is.
    pub(crate) fn string(&mut self, directive: &Directive, slot: &mut Option<Spanned<String>>) {
        self.put(directive, slot, |_, word| Some(word.text.clone()));
    }

    /// A text with variables.
    pub(crate) fn template(&mut self, directive: &Directive, slot: &mut Option<Spanned<Template>>) {
        self.put(directive, slot, Self::compile);
    }

    /// `off`, or bytes a second and the time they are measured over.
    pub(crate) fn min_rate(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Option<MinRate>>>,
    ) {
        self.put(directive, slot, |reader, word| {
            let window = directive.args.get(1);
            if word.text == "off" && window.is_none() {
                return Some(None);
            }
            let bytes_per_second: u64 = reader.read_size(directive, word)?;
            let window = match window {
                Some(word) => reader.read_window(directive, word)?,
                None => MinRate::WINDOW,
            };
            Some((bytes_per_second > 0).then_some(MinRate {
                bytes_per_second,
                window,
            }))
        });
    }

    /// `window=time`.
    fn read_window(&mut self, directive: &Directive, word: &Word) -> Option<Duration> {
        let name = &directive.name.text;
        let Some(text) = Self::parameter(word, "window") else {
            let message = format!("invalid parameter \"{}\"", word.text);
            self.refuse(word.span, message, "it is `window=time`");
            return None;
        };
        let time = value::time(text, Finest::Milliseconds).filter(|time| !time.is_zero());
        if time.is_none() {
            let message = format!("\"{name}\" directive invalid value");
            self.refuse(word.span, message, TIME_HINT);
        }
        time
    }

    /// A size that may have variables; without them it is checked here.
    pub(crate) fn evaluated_size(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Template>>,
    ) {
        self.put(directive, slot, |reader, word| {
            let template = reader.compile(word)?;
            if template.as_literal().is_some() {
                reader.read_size::<u64>(directive, word)?;
            }
            Some(template)
        });
    }

    /// Texts with variables.
    pub(crate) fn arguments(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<Template>>>,
    ) {
        for word in &directive.args {
            if let Some(template) = self.compile(word) {
                Self::push(slot, template, word.span);
            }
        }
    }
}
