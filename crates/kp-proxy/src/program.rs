//! Everything that is worked out once per configuration so that a request need not: regular expressions, name tables,
//! location levels, map tables, and which costly facts any variable asks for at all.

use crate::answer_kind::Fault;
use crate::exchange::Captures;
use crate::heads::Heads;
use crate::locations::Level;
use crate::map::MapTable;
use crate::regex::{Limit, Regex};
use crate::server_names::ServerNames;
use crate::templates;
use kp_config::model::{
    ListenerId, Location, LocationId, LocationMatch, RegexId, RegexSource, Rewrite, UserVar,
};
use kp_config::template::{Builtin, Part, Variable};
use kp_config::{Config, Diagnostic};

/// The compiled companion of one [`Config`].
#[derive(Debug)]
pub struct Program {
    regexes: Vec<Expression>,
    listeners: Vec<ServerNames>,
    /// By location: the level below it. For a server's root: its locations.
    levels: Vec<Option<Level>>,
    /// By user variable.
    origins: Vec<Origin>,
    maps: Vec<MapTable>,
    uses: Uses,
    /// By location: what building heads needs.
    pub(crate) heads: Heads,
}

/// Facts that cost something to keep, and whether any variable of the configuration reads them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Uses {
    /// `$sent_http_*`: `response.sent_head` is wanted.
    pub sent_head: bool,
    /// `$sent_trailer_*`: `response.sent_trailers` is wanted.
    pub sent_trailers: bool,
    /// `$upstream_trailer_*`: `response.upstream_trailers` is wanted.
    pub upstream_trailers: bool,
    /// `$request_body` or `$request_body_file`: the body must be whole before they are evaluated.
    pub request_body: bool,
    /// `$ssl_ciphers`, `$ssl_curves` or `$ssl_sigalgs`: `connection.tls.offer` is wanted.
    pub tls_offer: bool,
    /// A location has `health`.
    pub health: bool,
    /// `$1` … `$9`.
    captures: bool,
}

/// Who gives a user variable its value when nothing has yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `set`: empty until then.
    Set,
    /// A named group: not there until it matches.
    Capture,
    /// A `map`, by its index.
    Map(usize),
    /// A `split_clients`, by its index.
    Split(usize),
}

#[derive(Debug)]
struct Expression {
    regex: Regex,
    /// Group number and variable of each named group.
    named: Vec<(usize, UserVar)>,
}

/// What is wrong with regular expressions that nothing is going to match: those of a configuration that has other errors.
pub fn regex_problems(sources: &[RegexSource]) -> Vec<Diagnostic> {
    sources
        .iter()
        .filter_map(|source| expression(source).err())
        .collect()
}

impl Program {
    /// Compiles a configuration, or reports every regular expression that is wrong.
    pub fn compile(config: &Config) -> Result<Self, Vec<Diagnostic>> {
        let http = &config.http;
        let mut problems = Vec::new();
        let mut regexes = Vec::with_capacity(http.regexes.len());
        for source in &http.regexes {
            match expression(source) {
                Ok(expression) => regexes.push(expression),
                Err(problem) => problems.push(problem),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            regexes,
            listeners: http
                .listeners
                .iter()
                .map(|listener| ServerNames::new(config, listener))
                .collect(),
            levels: levels(config),
            origins: origins(config),
            maps: http.maps.iter().map(MapTable::new).collect(),
            uses: uses(config),
            heads: Heads::new(config),
        })
    }

    /// Which costly facts any variable asks for.
    pub fn uses(&self) -> Uses {
        self.uses
    }

    /// Whether a regular expression matches, without keeping its groups.
    pub fn is_match(&self, regex: RegexId, subject: &[u8]) -> Result<bool, Fault> {
        let Some(expression) = self.regexes.get(regex.index()) else {
            return Ok(false);
        };
        expression
            .regex
            .is_match(subject)
            .map_err(|Limit| Fault::RegexLimit(regex))
    }

    /// Matches, sets the variables of named groups, and keeps the numbered groups if anything can ask for them.
    pub fn matches(
        &self,
        regex: RegexId,
        subject: &[u8],
        captures: &mut Captures,
        variables: &mut Vec<Option<Vec<u8>>>,
    ) -> Result<bool, Fault> {
        let Some(expression) = self.regexes.get(regex.index()) else {
            return Ok(false);
        };
        if expression.named.is_empty() && !self.uses.captures {
            return self.is_match(regex, subject);
        }
        let found = expression.regex.captures(subject, &mut captures.groups);
        if !found.map_err(|Limit| Fault::RegexLimit(regex))? {
            return Ok(false);
        }
        captures.subject.clear();
        captures.subject.extend_from_slice(subject);
        captures.regex = Some(regex);
        for (group, variable) in &expression.named {
            let value = captures.group(*group).unwrap_or_default();
            self.set(variables, *variable, value);
        }
        Ok(true)
    }

    /// Gives a user variable its value.
    pub(crate) fn set(
        &self,
        variables: &mut Vec<Option<Vec<u8>>>,
        variable: UserVar,
        value: &[u8],
    ) {
        if variables.len() < self.origins.len() {
            variables.resize(self.origins.len(), None);
        }
        if let Some(slot) = variables.get_mut(variable.index()) {
            let text = slot.get_or_insert_default();
            text.clear();
            text.extend_from_slice(value);
        }
    }

    pub(crate) fn listener(&self, listener: ListenerId) -> Option<&ServerNames> {
        self.listeners.get(listener.index())
    }

    pub(crate) fn level(&self, location: LocationId) -> Option<&Level> {
        self.levels.get(location.index()).and_then(Option::as_ref)
    }

    pub(crate) fn origin(&self, variable: UserVar) -> Origin {
        self.origins
            .get(variable.index())
            .copied()
            .unwrap_or(Origin::Capture)
    }

    pub(crate) fn map(&self, map: usize) -> Option<&MapTable> {
        self.maps.get(map)
    }
}

impl Captures {
    /// Text of a group; `None` where there is no such group or it took no part.
    pub fn group(&self, group: usize) -> Option<&[u8]> {
        let (start, end) = (*self.groups.get(group)?)?;
        self.subject.get(start as usize..end as usize)
    }
}

fn expression(source: &RegexSource) -> Result<Expression, Diagnostic> {
    let regex = Regex::new(&source.pattern, source.case_insensitive).map_err(|reason| {
        let text = format!(
            "regular expression \"{}\" is invalid: {reason}",
            source.pattern
        );
        Diagnostic::error(source.span, text)
            .hint("PCRE syntax; quote it if it holds \"{\", \"}\", \";\" or spaces")
    })?;
    let named = source
        .captures
        .iter()
        .filter_map(|(name, variable)| regex.group(name).map(|group| (group, *variable)))
        .collect();
    Ok(Expression { regex, named })
}

fn levels(config: &Config) -> Vec<Option<Level>> {
    let http = &config.http;
    let mut levels: Vec<Option<Level>> = http
        .locations
        .iter()
        .map(|location| {
            let table = &location.children;
            let empty = table.fixed.is_empty() && table.regexes.is_empty();
            (!empty && location.matches != LocationMatch::Server).then(|| Level::new(config, table))
        })
        .collect();
    for server in &http.servers {
        if let Some(slot) = levels.get_mut(server.root.index()) {
            *slot = Some(Level::new(config, &server.locations));
        }
    }
    levels
}

fn origins(config: &Config) -> Vec<Origin> {
    let mut origins = vec![Origin::Capture; config.http.user_variables.len()];
    let instructions = config
        .http
        .locations
        .iter()
        .flat_map(|location| &location.rewrite);
    for instruction in instructions {
        if let Rewrite::Set { variable, .. } = instruction
            && let Some(origin) = origins.get_mut(variable.index())
        {
            *origin = Origin::Set;
        }
    }
    for (index, map) in config.http.maps.iter().enumerate() {
        if let Some(origin) = origins.get_mut(map.variable.index()) {
            *origin = Origin::Map(index);
        }
    }
    for (index, split) in config.http.splits.iter().enumerate() {
        if let Some(origin) = origins.get_mut(split.variable.index()) {
            *origin = Origin::Split(index);
        }
    }
    origins
}

fn uses(config: &Config) -> Uses {
    let locations = &config.http.locations;
    let mut uses = Uses {
        health: locations.iter().any(Location::tells_health),
        ..Uses::default()
    };
    templates::each(config, &mut |template| {
        for part in &template.parts {
            match part {
                Part::Capture(_) => uses.captures = true,
                Part::Variable(Variable::SentHttp(_)) => uses.sent_head = true,
                Part::Variable(Variable::SentTrailer(_)) => uses.sent_trailers = true,
                Part::Variable(Variable::UpstreamTrailer(_)) => uses.upstream_trailers = true,
                Part::Variable(Variable::Builtin(
                    Builtin::RequestBody | Builtin::RequestBodyFile,
                )) => uses.request_body = true,
                Part::Variable(Variable::Builtin(
                    Builtin::SslCiphers | Builtin::SslCurves | Builtin::SslSigalgs,
                )) => uses.tls_offer = true,
                Part::Variable(_) | Part::Literal(_) => {}
            }
        }
    });
    uses
}
