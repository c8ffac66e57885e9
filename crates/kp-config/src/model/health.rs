//! Active checks of an upstream's peers: `health_check`, `match`.

use super::*;

/// One `health_check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// The location it stands in, whose `proxy_set_header`s, TLS and timeouts hold for its requests.
    pub location: LocationId,
    /// What tells it from the group's other checks, in every generation: thresholds and times are no part of it, so what
    /// is known of a peer outlives a change of them.
    pub identity: String,
    /// `interval=`, default 5 s.
    pub interval: Duration,
    /// `jitter=`, default 0: each check is late by a random part of it.
    pub jitter: Duration,
    /// `fails=`, default 1: failures in a row that make a peer unhealthy.
    pub fails: u32,
    /// `passes=`, default 1: passes in a row that make it healthy again.
    pub passes: u32,
    /// `uri=`, default `/`.
    pub uri: String,
    /// `port=`; `None`: the peer's own.
    pub port: Option<u16>,
    /// `match=`; `None`: a status of 200 to 399.
    pub matches: Option<MatchId>,
    /// `mandatory`: the peer gets no request before its first pass.
    pub mandatory: bool,
    /// `type=`.
    pub protocol: CheckProtocol,
    /// Whether the location's `proxy_pass` is `https://`.
    pub https: bool,
    /// Where it was written.
    pub span: Span,
}

/// What a check speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CheckProtocol {
    /// `http`: a request, whose answer is looked at.
    Http,
    /// `tcp`: a connection, and what `send` and `expect` say.
    Tcp,
}

/// One `match`: passed if every condition holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchBlock {
    /// Its name.
    pub name: String,
    /// In file order.
    pub conditions: Vec<MatchCondition>,
    /// Where it was written.
    pub span: Span,
}

/// One condition of a `match`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MatchCondition {
    /// `status [!] code | from-to ...`.
    Status {
        /// Both ends belong to it.
        ranges: Vec<(u16, u16)>,
        /// `!`: none of them.
        negated: bool,
    },
    /// `header ...`.
    Header {
        /// Field name, lower case.
        name: String,
        /// What is asked of it.
        test: HeaderTest,
    },
    /// `body ~ regex`, `body !~ regex`: the first 256 KiB.
    Body {
        /// The expression.
        regex: RegexId,
        /// `!~`.
        negated: bool,
    },
    /// `require $variable ...`: none of them is empty or `0`.
    Require(Vec<Template>),
    /// `send` (tcp): what is sent once connected.
    Send(Vec<u8>),
    /// `expect` (tcp): what the peer says must hold this.
    Expect(Expectation),
}

/// What a `header` condition asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderTest {
    /// `header Name`: it is there.
    Present,
    /// `header ! Name`: it is not.
    Absent,
    /// `header Name = value`, `!=`.
    Equals {
        /// The value.
        value: String,
        /// `!=`.
        negated: bool,
    },
    /// `header Name ~ regex`, `!~`.
    Matches {
        /// The expression.
        regex: RegexId,
        /// `!~`.
        negated: bool,
    },
}

/// What an `expect` condition asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expectation {
    /// These bytes, at the beginning.
    Text(Vec<u8>),
    /// `~ regex`, anywhere.
    Regex(RegexId),
}
