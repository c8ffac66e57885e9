//! Which location a URI belongs to, as nginx's `ngx_http_core_find_location` decides it.
//!
//! Per level: the exact location; else the longest prefix, then inside it again; else, unless that prefix has `^~`, the
//! first regular expression that matches, then inside it again; else the longest prefix. A URI that lacks only the final
//! slash of a proxied location is redirected to it. Case matters.

use crate::Exchange;
use crate::answer_kind::Fault;
use crate::program::Program;
use kp_config::Config;
use kp_config::model::{Handler, LocationId, LocationMatch, LocationTable, RegexId};

/// The locations of one level, ready to search.
#[derive(Debug, Default)]
pub(crate) struct Level {
    /// Sorted by text.
    fixed: Vec<Fixed>,
    /// Texts without their final slash, sorted, of locations that answer with a redirect to the text with it.
    redirects: Vec<(Box<[u8]>, LocationId)>,
    regexes: Vec<(RegexId, LocationId)>,
}

/// One text of a level; `= /x` and `/x` share an entry.
#[derive(Debug)]
struct Fixed {
    text: Box<[u8]>,
    exact: Option<LocationId>,
    prefix: Option<Prefix>,
    /// The entry of the longest prefix location that is a proper prefix of this text.
    parent: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Prefix {
    location: LocationId,
    /// `^~`
    stop: bool,
}

/// How a search ended; `exchange.location` is the location found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// It answers. (Without any match it is the level's owner.)
    Location,
    /// The URI lacks its final slash.
    MissingSlash,
}

enum Step {
    /// Exact, or a regular expression: nothing else is tried.
    Final,
    MissingSlash,
    /// A prefix location, or nothing: regular expressions of the levels above may still win.
    Open,
}

impl Level {
    pub(crate) fn new(config: &Config, table: &LocationTable) -> Self {
        let mut level = Self::default();
        for &id in &table.fixed {
            let Some(location) = config.http.locations.get(id.index()) else {
                continue;
            };
            let (text, exact, prefix) = match &location.matches {
                LocationMatch::Exact(text) => (text, Some(id), None),
                LocationMatch::Prefix { text, stop } => (
                    text,
                    None,
                    Some(Prefix {
                        location: id,
                        stop: *stop,
                    }),
                ),
                _ => continue,
            };
            level.fixed.push(Fixed {
                text: text.as_bytes().into(),
                exact,
                prefix,
                parent: None,
            });
            if let (Handler::Proxy(_), Some(short)) = (&location.handler, text.strip_suffix('/'))
                && !short.is_empty()
            {
                level.redirects.push((short.as_bytes().into(), id));
            }
        }
        for &id in &table.regexes {
            if let Some(LocationMatch::Regex(regex)) = config
                .http
                .locations
                .get(id.index())
                .map(|location| &location.matches)
            {
                level.regexes.push((*regex, id));
            }
        }
        level.finish();
        level
    }

    fn finish(&mut self) {
        self.redirects.sort();
        self.redirects
            .dedup_by(|later, earlier| later.0 == earlier.0);
        self.fixed.sort_by(|left, right| left.text.cmp(&right.text));
        self.fixed.dedup_by(|later, earlier| {
            let same = later.text == earlier.text;
            if same {
                earlier.exact = earlier.exact.or(later.exact);
                earlier.prefix = earlier.prefix.or(later.prefix);
            }
            same
        });
        for at in 1..self.fixed.len() {
            let parent = self
                .fixed
                .get(at)
                .and_then(|entry| self.prefix_entry(at.checked_sub(1), &entry.text));
            if let Some(entry) = self.fixed.get_mut(at) {
                entry.parent = parent;
            }
        }
    }

    /// The longest prefix location of `uri` among an entry and its parents.
    ///
    /// Everything between a prefix of `uri` and `uri` in sorted order begins with that prefix, so that the predecessor of
    /// `uri` has it among its parents.
    fn prefix_entry(&self, mut at: Option<usize>, uri: &[u8]) -> Option<usize> {
        loop {
            let entry = self.fixed.get(at?)?;
            if entry.prefix.is_some() && uri.starts_with(&entry.text) {
                return at;
            }
            at = entry.parent;
        }
    }

    /// The static part of the search.
    fn fixed(&self, uri: &[u8]) -> (Option<LocationId>, Static) {
        let after = self
            .fixed
            .partition_point(|entry| entry.text.as_ref() <= uri);
        let before = after.checked_sub(1);
        if let Some(entry) = before.and_then(|at| self.fixed.get(at))
            && entry.text.as_ref() == uri
        {
            if let Some(location) = entry.exact {
                return (Some(location), Static::Exact);
            }
        } else if let Ok(at) = self
            .redirects
            .binary_search_by(|(text, _)| text.as_ref().cmp(uri))
        {
            let location = self.redirects.get(at).map(|(_, location)| *location);
            return (location, Static::MissingSlash);
        }
        let prefix = self
            .prefix_entry(before, uri)
            .and_then(|at| self.fixed.get(at))
            .and_then(|entry| entry.prefix);
        match prefix {
            Some(prefix) => (Some(prefix.location), Static::Prefix { stop: prefix.stop }),
            None => (None, Static::Nothing),
        }
    }
}

enum Static {
    Exact,
    MissingSlash,
    Prefix { stop: bool },
    Nothing,
}

/// Finds the location of `exchange.request.uri` below `exchange.location` (the server's root, as a rule).
pub(crate) fn find(program: &Program, exchange: &mut Exchange) -> Result<Found, Fault> {
    Ok(match descend(program, exchange)? {
        Step::MissingSlash => Found::MissingSlash,
        Step::Final | Step::Open => Found::Location,
    })
}

/// One level. Recursion follows the nesting of the configuration.
fn descend(program: &Program, exchange: &mut Exchange) -> Result<Step, Fault> {
    let Some(level) = program.level(exchange.location) else {
        return Ok(Step::Open);
    };
    let (location, outcome) = level.fixed(&exchange.request.uri);
    exchange.location = location.unwrap_or(exchange.location);
    let (step, stop) = match outcome {
        Static::Exact => (Step::Final, false),
        Static::MissingSlash => (Step::MissingSlash, false),
        Static::Prefix { stop } => (descend(program, exchange)?, stop),
        Static::Nothing => (Step::Open, false),
    };
    if !matches!(step, Step::Open) || stop {
        return Ok(step);
    }
    for (regex, location) in &level.regexes {
        let request = &mut exchange.request;
        if program.matches(
            *regex,
            &request.uri,
            &mut request.captures,
            &mut request.variables,
        )? {
            exchange.location = *location;
            return Ok(match descend(program, exchange)? {
                Step::MissingSlash | Step::Final | Step::Open => Step::Final,
            });
        }
    }
    Ok(step)
}
