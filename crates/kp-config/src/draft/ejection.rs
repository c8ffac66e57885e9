//! `least_time`, `outlier_detection` and `max_ejected_percent`: what the answers of servers say about whom to ask.

use super::{BalancerDraft, Reader, UpstreamDraft};
use crate::diagnostic::Diagnostic;
use crate::model::OutlierDetection;
use crate::span::Spanned;
use crate::syntax::{Directive, Word};
use crate::value::{self, Finest};
use std::time::Duration;

impl UpstreamDraft {
    /// `least_time`.
    pub(crate) fn least_time(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let Some((until, rest)) = directive.args.split_first() else {
            return;
        };
        let last_byte = match until.text.as_str() {
            "header" => false,
            "last_byte" => true,
            _ => {
                let message = format!("invalid value \"{}\"", until.text);
                return reader.refuse(until.span, message, "it is \"header\" or \"last_byte\"");
            }
        };
        let inflight = match rest.first() {
            None => false,
            Some(word) if word.text == "inflight" => true,
            Some(word) => return invalid(reader, word, "it can be \"inflight\""),
        };
        let balancer = BalancerDraft::LeastTime {
            last_byte,
            inflight,
        };
        self.balance(reader, directive, balancer);
    }

    /// `outlier_detection`.
    pub(crate) fn outlier_detection(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let mut outliers = OutlierDetection {
            consecutive_5xx: 0,
            failure_percent: 0,
            latency_factor_percent: 0,
            base_time: Duration::from_secs(30),
            max_percent: 10,
        };
        for word in &directive.args {
            let hint = match outlier_parameter(&mut outliers, word) {
                Ok(()) => continue,
                Err(hint) => hint,
            };
            return invalid(reader, word, hint);
        }
        if (
            outliers.consecutive_5xx,
            outliers.failure_percent,
            outliers.latency_factor_percent,
        ) == (0, 0, 0)
        {
            let message = "\"outlier_detection\" has no condition";
            let hint = "give it consecutive_5xx=, failure_percent= or latency_factor=";
            return reader.refuse(directive.at, message.to_owned(), hint);
        }
        self.outliers = Some(Spanned::new(outliers, directive.at));
    }

    /// `max_ejected_percent`.
    pub(crate) fn max_ejected_percent(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let Some(word) = directive.args.first() else {
            return;
        };
        match percent(&word.text) {
            Some(percent) => {
                self.max_ejected_percent = Some(Spanned::new(percent, directive.at));
            }
            None => {
                let message = format!(
                    "invalid value \"{}\" in \"max_ejected_percent\" directive",
                    word.text
                );
                reader.report(
                    Diagnostic::error(word.span, message).hint("it is a number from 0 to 100"),
                );
            }
        }
    }
}

fn outlier_parameter(outliers: &mut OutlierDetection, word: &Word) -> Result<(), &'static str> {
    let (name, text) = word.text.split_once('=').unwrap_or((&word.text, ""));
    let number = |text: &str| value::number(text).and_then(|number| u32::try_from(number).ok());
    match name {
        "consecutive_5xx" => {
            outliers.consecutive_5xx = number(text).ok_or("it is a number, 0 is off")?;
        }
        "failure_percent" => {
            outliers.failure_percent = percent(text).ok_or("it is a number to 100, 0 is off")?;
        }
        "max_percent" => {
            outliers.max_percent = percent(text).ok_or("it is a number to 100")?;
        }
        "latency_factor" => {
            outliers.latency_factor_percent =
                factor(text).ok_or("it is a number such as 3 or 2.5, 0 is off")?;
        }
        "base_time" => {
            outliers.base_time = value::time(text, Finest::Milliseconds)
                .filter(|time| !time.is_zero())
                .ok_or("it is a time, such as 30s")?;
        }
        _ => {
            return Err(
                "parameters are: consecutive_5xx=, failure_percent=, latency_factor=, base_time=, max_percent=",
            );
        }
    }
    Ok(())
}

fn percent(text: &str) -> Option<u32> {
    let number = value::number(text).and_then(|number| u32::try_from(number).ok())?;
    (number <= 100).then_some(number)
}

/// A number with up to two decimals that is 0 or more than 1, in hundredths.
fn factor(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits =
        |text: &str| (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 2 {
        return None;
    }
    let part = format!("{part:0<2}").parse::<u32>().ok()?;
    let factor = whole.parse::<u32>().ok()? * 100 + part;
    (factor == 0 || factor > 100).then_some(factor)
}

fn invalid(reader: &mut Reader<'_>, word: &Word, hint: &str) {
    let error = Diagnostic::error(word.span, format!("invalid parameter \"{}\"", word.text));
    reader.report(error.hint(hint));
}
