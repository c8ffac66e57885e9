//! `map`: a variable whose value is looked up by another value, as nginx does it.
//!
//! Exact entries without case, with `hostnames` then wildcards, then regular expressions in order (which set captures),
//! then the default. A value is kept for the rest of the exchange unless the map is `volatile`.

use crate::Exchange;
use crate::names::NameTable;
use crate::vars::Evaluation;
use kp_config::model::{Map, RegexId};
use kp_config::template::Template;

/// One `map`, ready to search.
#[derive(Debug)]
pub(crate) struct MapTable {
    source: Template,
    names: NameTable,
    hostnames: bool,
    regexes: Vec<(RegexId, u32)>,
    /// What the names and expressions stand for; the default is the last.
    values: Vec<Template>,
    pub(crate) volatile: bool,
}

impl MapTable {
    pub(crate) fn new(map: &Map) -> Self {
        let mut values =
            Vec::with_capacity(map.exact.len() + map.wildcards.len() + map.regexes.len() + 1);
        let mut number = |value: &Template| {
            values.push(value.clone());
            u32::try_from(values.len() - 1).unwrap_or(u32::MAX)
        };
        let mut names = NameTable::default();
        for (text, value) in &map.exact {
            names.exact(text, number(value));
        }
        for (text, value) in &map.wildcards {
            let value = number(value);
            if let Some(name) = text.strip_prefix("*.") {
                names.suffix(name, value);
            } else if let Some(name) = text.strip_prefix('.') {
                names.exact(name, value);
                names.suffix(name, value);
            } else if let Some(name) = text.strip_suffix(".*") {
                names.prefix(name, value);
            } else {
                names.exact(text, value);
            }
        }
        names.finish();
        let regexes = map
            .regexes
            .iter()
            .map(|(regex, value)| (*regex, number(value)))
            .collect();
        number(&map.default);
        Self {
            source: map.source.clone(),
            names,
            hostnames: map.hostnames,
            regexes,
            values,
            volatile: map.volatile,
        }
    }

    /// Appends the map's value. `out` also serves as scratch space behind its end.
    pub(crate) fn evaluate(
        &self,
        evaluation: Evaluation<'_>,
        exchange: &mut Exchange,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        evaluation.template(&self.source, exchange, out);
        if self.hostnames && out.len() > start && out.last() == Some(&b'.') {
            out.pop();
        }
        let end = out.len();
        out.extend_from_within(start..end);
        if let Some(lower) = out.get_mut(end..) {
            lower.make_ascii_lowercase();
        }
        let by_name = self.names.find(out.get(end..).unwrap_or_default());
        out.truncate(end);
        let found = by_name
            .or_else(|| self.by_regex(evaluation, exchange, out.get(start..).unwrap_or_default()));
        out.truncate(start);
        let value = match found {
            Some(number) => self.values.get(number as usize),
            None => self.values.last(),
        };
        if let Some(value) = value {
            evaluation.template(value, exchange, out);
        }
    }

    /// As nginx, an empty value is not shown to the expressions, and one that runs out of steps ends the search.
    fn by_regex(
        &self,
        evaluation: Evaluation<'_>,
        exchange: &mut Exchange,
        subject: &[u8],
    ) -> Option<u32> {
        if subject.is_empty() {
            return None;
        }
        let request = &mut exchange.request;
        for (regex, value) in &self.regexes {
            match evaluation.program.matches(
                *regex,
                subject,
                &mut request.captures,
                &mut request.variables,
            ) {
                Ok(true) => return Some(*value),
                Ok(false) => {}
                Err(fault) => {
                    exchange.record.fault.get_or_insert(fault);
                    return None;
                }
            }
        }
        None
    }
}
