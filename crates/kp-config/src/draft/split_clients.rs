//! `split_clients`.

use super::{HttpDraft, Reader};
use crate::model::{Split, SplitPart};
use crate::syntax::{Directive, Word};

/// Shares are counted in hundredths of a percent.
const WHOLE: u32 = 10_000;

impl HttpDraft {
    /// Reads a `split_clients` and its parts.
    pub(crate) fn split_clients(
        &mut self,
        reader: &mut Reader<'_>,
        directive: &Directive,
        entries: &[Directive],
    ) {
        let [source, name] = directive.args.as_slice() else {
            return;
        };
        let source = reader.compile(source);
        let variable = reader.defined(&directive.name, name);
        let (mut parts, mut sum, mut below) = (Vec::new(), 0, 0_u32);
        for entry in entries.iter().filter(|entry| entry.name.text != "include") {
            let Some((share, value)) = reader.split_part(entry) else {
                return;
            };
            sum = share.map_or(WHOLE, |share| share + sum);
            let is_behind_all = share.is_none() && parts.iter().any(is_rest);
            if sum > WHOLE || is_behind_all {
                let advice = "the shares are percents of all; \"*\" takes what they leave";
                let message = "percent total is greater than 100%";
                return reader.refuse(entry.name.span, message, advice);
            }
            let below = share.map(|share| {
                let width = u64::from(share) * u64::from(u32::MAX) / u64::from(WHOLE);
                below = below.saturating_add(width as u32);
                below
            });
            let value = value.text.clone();
            parts.push(SplitPart { below, value });
        }
        if let (Some(source), Some(variable)) = (source, variable) {
            self.splits.push(Split {
                variable,
                source,
                parts,
            });
        }
    }
}

fn is_rest(part: &SplitPart) -> bool {
    part.below.is_none()
}

impl Reader<'_> {
    /// A share in hundredths of a percent (`None`: the rest), and what it stands for.
    fn split_part<'d>(&mut self, entry: &'d Directive) -> Option<(Option<u32>, &'d Word)> {
        let share = &entry.name;
        let [value] = entry.args.as_slice() else {
            let advice = "a part is a share and a value, such as 0.5% .one; a value with blanks needs quotes";
            self.refuse(
                share.span,
                "invalid number of arguments in \"split_clients\" part",
                advice,
            );
            return None;
        };
        if share.text == "*" {
            return Some((None, value));
        }
        match hundredths(&share.text) {
            Some(share) => Some((Some(share), value)),
            None => {
                let message = format!("invalid percent value \"{}\"", share.text);
                let advice = "it is a number from 0.01% to 100%, with two places at most, or \"*\"";
                self.refuse(share.span, message, advice);
                None
            }
        }
    }
}

/// `51.2%` is 5120.
fn hundredths(text: &str) -> Option<u32> {
    let number = text.strip_suffix('%')?;
    let (whole, places) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(places) || number.is_empty() || places.len() > 2 {
        return None;
    }
    let share: u32 = format!("{whole}{places:0<2}").parse().ok()?;
    (1..=WHOLE).contains(&share).then_some(share)
}
