//! `queue`, `retry_budget` and `proxy_retry_backoff`: how long and how often requests try.

use super::{Reader, UpstreamDraft};
use crate::model::{Queue, RetryBackoff, RetryBudget};
use crate::span::Spanned;
use crate::syntax::{Directive, Word};
use crate::value::{self, Finest};
use std::time::Duration;

impl UpstreamDraft {
    /// `queue`.
    pub(crate) fn queue(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let Some((number, rest)) = directive.args.split_first() else {
            return;
        };
        let length = value::number(&number.text).and_then(|number| u32::try_from(number).ok());
        let Some(length) = length.filter(|length| *length > 0) else {
            let message = format!("invalid value \"{}\" in \"queue\" directive", number.text);
            return reader.refuse(
                number.span,
                message,
                "it is how many requests may wait, from 1",
            );
        };
        let mut timeout = Duration::from_secs(60);
        for word in rest {
            match read_time(word, "timeout") {
                Some(time) => timeout = time,
                None => {
                    return invalid(
                        reader,
                        word,
                        "it can be \"timeout=\" with a time such as 10s",
                    );
                }
            }
        }
        self.queue = Some(Spanned::new(Queue { length, timeout }, directive.at));
    }

    /// `retry_budget`.
    pub(crate) fn retry_budget(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        if is_off(directive) {
            self.retry_budget = Some(Spanned::new(None, directive.at));
            return;
        }
        let mut budget = RetryBudget::DEFAULT;
        for word in &directive.args {
            let number = |name| {
                Reader::parameter(word, name)
                    .and_then(value::number)
                    .and_then(|number| u32::try_from(number).ok())
            };
            match (number("percent"), number("min")) {
                (Some(percent), _) if percent <= 100 => budget.percent = percent,
                (None, Some(min)) => budget.min = min,
                _ => {
                    return invalid(
                        reader,
                        word,
                        "it can be \"off\", or \"percent=\" with a number to 100 and \"min=\" with a number",
                    );
                }
            }
        }
        self.retry_budget = Some(Spanned::new(Some(budget), directive.at));
    }
}

impl Reader<'_> {
    /// `proxy_retry_backoff`.
    pub(crate) fn retry_backoff(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Option<RetryBackoff>>>,
    ) {
        if is_off(directive) {
            *slot = Some(Spanned::new(None, directive.at));
            return;
        }
        let mut backoff = RetryBackoff::DEFAULT;
        let mut max = None;
        for word in &directive.args {
            match (read_time(word, "base"), read_time(word, "max")) {
                (Some(base), _) => backoff.base = base,
                (_, Some(time)) => max = Some(time),
                _ => {
                    return invalid(
                        self,
                        word,
                        "it can be \"off\", or \"base=\" and \"max=\" with times such as 50ms",
                    );
                }
            }
        }
        backoff.max = max.unwrap_or(backoff.max.max(backoff.base));
        if backoff.max < backoff.base {
            return self.refuse(
                directive.at,
                "\"proxy_retry_backoff\" has a \"max\" below its \"base\"",
                "the first pause is at most \"base\", every one at most \"max\"",
            );
        }
        *slot = Some(Spanned::new(Some(backoff), directive.at));
    }
}

fn is_off(directive: &Directive) -> bool {
    matches!(directive.args.as_slice(), [word] if word.text == "off")
}

fn read_time(word: &Word, name: &str) -> Option<Duration> {
    Reader::parameter(word, name).and_then(|text| value::time(text, Finest::Milliseconds))
}

fn invalid(reader: &mut Reader<'_>, word: &Word, hint: &str) {
    reader.refuse(
        word.span,
        format!("invalid parameter \"{}\"", word.text),
        hint,
    );
}
