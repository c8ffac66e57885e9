//! The expected values: one row per way of being bad, and nginx's rules about who is asked next.
//!
//! The rows are the failure table of the documents (docs/reasons.md): what `$upstream_status` shows of the try, the word
//! of `$kp_reason`, which word of `proxy_next_upstream` allows another try, and whether the try counts for `max_fails`.

/// What the peer has done of the conversation when it goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// Bytes of the request have come, and it reads none of them.
    Unread,
    /// It has read the head and a part of the body.
    InRequest,
    /// It has read the whole request.
    BeforeHead,
    /// It has sent half of a head.
    InHead,
    /// It has sent a head that promises ten bytes.
    BeforeBody,
    /// It has sent some of the ten.
    InBody,
    /// It has sent a part of a chunk.
    InChunk,
    /// It has sent all chunks but the last.
    BeforeLastChunk,
    /// It has sent a part of a body that ends with the connection.
    Unframed,
}

/// One way of being bad, or odd but well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nobody listens.
    Refuse,
    /// The kernel does not take the connection.
    Unreachable,
    /// No TLS where TLS was asked for.
    PlainText,
    /// The connection ends in the handshake.
    TlsCut,
    /// Nothing comes of the handshake.
    TlsHang,
    /// A certificate of nobody who is trusted.
    TlsUntrusted,
    /// A FIN; it still reads, unless it never did.
    Fin(At),
    /// A reset.
    Reset(At),
    /// Nothing more, connection open.
    Hang(At),
    /// A head that comes byte by byte, too slowly as a whole.
    SlowHead,
    /// Not HTTP.
    Garbage,
    /// A head of 70 KiB.
    Oversized,
    /// A chunk size that is none.
    BadChunk,
    /// A head that comes byte by byte, in time.
    Bytewise,
    /// A body that takes longer than `proxy_read_timeout`, without a pause of that length.
    SlowBody,
    /// Bytes after the end of the response.
    Extra,
    /// A whole response, and a FIN on its heels.
    HalfClose,
    /// A body that ends with the connection.
    CloseFramed,
    /// 413 as soon as the head is there; then it closes on the rest.
    Early,
    /// A status that nothing lists.
    Unlisted,
}

/// Which word of `proxy_next_upstream` it takes; `error` and `timeout` stand there by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Error,
    Timeout,
    InvalidHeader,
    Never,
}

/// What the upstream may know of the request when the try fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nothing: there was no connection yet.
    Nothing,
    /// Some of the request, and it has answered nothing.
    Request,
    /// Some of the request, and there are bytes of an answer.
    Answered,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) fault: Fault,
    /// `$upstream_status` of the try; where no other follows also the client's.
    pub(crate) status: u16,
    /// `$kp_reason` where no other try follows. More than one: it depends on whether the last bytes of the request were
    /// still to be written.
    pub(crate) reasons: &'static [&'static str],
    pub(crate) next: Next,
    pub(crate) counts: bool,
    pub(crate) seen: Seen,
    pub(crate) client: Client,
    /// The connection goes back to the pool.
    pub(crate) kept: bool,
}

/// What the client gets to see of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    /// A whole response.
    Whole,
    /// A head, and an end that no client takes for a complete response.
    Aborted,
}

const fn failed(
    fault: Fault,
    status: u16,
    reasons: &'static [&'static str],
    next: Next,
    seen: Seen,
) -> Rule {
    Rule {
        fault,
        status,
        reasons,
        next,
        counts: true,
        seen,
        client: Client::Whole,
        kept: false,
    }
}

/// A response that breaks off. Its head was sent on, so nothing is tried again, and as in nginx it does not count.
const fn broken(fault: Fault, reasons: &'static [&'static str]) -> Rule {
    Rule {
        counts: false,
        client: Client::Aborted,
        ..failed(fault, 200, reasons, Next::Never, Seen::Answered)
    }
}

/// Nothing is wrong with it.
const fn well(fault: Fault, status: u16, kept: bool) -> Rule {
    Rule {
        counts: false,
        kept,
        ..failed(fault, status, &["-"], Next::Never, Seen::Answered)
    }
}

use Fault::{Fin, Hang, Reset};
use Next::{Error, InvalidHeader, Timeout};
use Seen::{Answered, Nothing, Request};

const CLOSED: &[&str] = &["upstream_closed"];
const BROKEN: &[&str] = &["upstream_reset", "upstream_send_failed"];
const LATE: &[&str] = &["upstream_timeout"];
const STUCK: &[&str] = &["upstream_timeout", "upstream_send_timeout"];

pub(crate) const RULES: &[Rule] = &[
    //     what it does               $upstream_status   $kp_reason             next      what it knew
    failed(Fault::Refuse, 502, &["connect_failed"], Error, Nothing),
    failed(
        Fault::Unreachable,
        504,
        &["connect_timeout"],
        Timeout,
        Nothing,
    ),
    failed(
        Fault::PlainText,
        502,
        &["upstream_tls_failed"],
        Error,
        Nothing,
    ),
    failed(Fault::TlsCut, 502, &["upstream_tls_failed"], Error, Nothing),
    failed(Fault::TlsHang, 504, &["connect_timeout"], Timeout, Nothing),
    failed(
        Fault::TlsUntrusted,
        502,
        &["upstream_certificate"],
        Error,
        Nothing,
    ),
    failed(Fin(At::Unread), 502, CLOSED, Error, Request),
    failed(Fin(At::InRequest), 502, CLOSED, Error, Request),
    failed(Fin(At::BeforeHead), 502, CLOSED, Error, Request),
    failed(Fin(At::InHead), 502, CLOSED, Error, Answered),
    failed(Reset(At::Unread), 502, BROKEN, Error, Request),
    failed(Reset(At::InRequest), 502, BROKEN, Error, Request),
    failed(
        Reset(At::BeforeHead),
        502,
        &["upstream_reset"],
        Error,
        Request,
    ),
    failed(Reset(At::InHead), 502, &["upstream_reset"], Error, Answered),
    failed(Hang(At::Unread), 504, STUCK, Timeout, Request),
    failed(Hang(At::InRequest), 504, STUCK, Timeout, Request),
    failed(Hang(At::BeforeHead), 504, LATE, Timeout, Request),
    failed(Hang(At::InHead), 504, LATE, Timeout, Answered),
    failed(Fault::SlowHead, 504, LATE, Timeout, Answered),
    failed(
        Fault::Garbage,
        502,
        &["upstream_invalid_header"],
        InvalidHeader,
        Answered,
    ),
    failed(
        Fault::Oversized,
        502,
        &["upstream_head_too_large"],
        InvalidHeader,
        Answered,
    ),
    broken(Fin(At::BeforeBody), &["body_truncated"]),
    broken(Fin(At::InBody), &["body_truncated"]),
    broken(Fin(At::InChunk), &["body_truncated"]),
    broken(Fin(At::BeforeLastChunk), &["body_truncated"]),
    broken(Reset(At::BeforeBody), &["body_reset"]),
    broken(Reset(At::InBody), &["body_reset"]),
    broken(Reset(At::InChunk), &["body_reset"]),
    broken(Reset(At::Unframed), &["body_reset"]),
    broken(Hang(At::BeforeBody), &["body_timeout"]),
    broken(Hang(At::InBody), &["body_timeout"]),
    broken(Hang(At::InChunk), &["body_timeout"]),
    broken(Fault::BadChunk, &["body_invalid"]),
    well(Fault::Bytewise, 200, true),
    well(Fault::SlowBody, 200, true),
    well(Fault::Extra, 200, false),
    well(Fault::HalfClose, 200, false),
    well(Fault::CloseFramed, 200, false),
    well(Fault::Early, 413, false),
    well(Fault::Unlisted, 503, true),
];

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Get,
    /// Five bytes, taken whole before a peer is chosen.
    PostSmall,
    /// Chunked, passed on as it comes.
    PostStreamed,
    /// 1,000,000 bytes, passed on as they come.
    PostLarge,
    /// The same five bytes with a method that may be repeated.
    PutSmall,
    /// 1,000,000 bytes with `proxy_request_buffering on`.
    PutCollected,
}

impl Ask {
    pub(crate) fn is_large(self) -> bool {
        matches!(self, Self::PostLarge | Self::PutCollected)
    }

    /// RFC 9110 §9.2.2.
    fn is_idempotent(self) -> bool {
        matches!(self, Self::Get | Self::PutSmall | Self::PutCollected)
    }

    /// Whether kp still has all of it when a try fails.
    fn is_replayable(self) -> bool {
        !matches!(self, Self::PostStreamed | Self::PostLarge)
    }
}

/// One cell of the matrix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) rule: &'static Rule,
    pub(crate) ask: Ask,
    /// The fault comes on a connection that has served a request before.
    pub(crate) pooled: bool,
    /// There is a second peer, healthy, a backup.
    pub(crate) second: bool,
}

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Faulty,
    Healthy,
}

/// What must be seen of a case.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) status: u16,
    pub(crate) client: Client,
    pub(crate) reasons: &'static [&'static str],
    /// Who was tried, with the `$upstream_status` of each.
    pub(crate) tries: Vec<(Peer, u16)>,
    /// Who gets the next request.
    pub(crate) then: Peer,
}

impl Case {
    /// All cases of a request.
    pub(crate) fn all(ask: Ask) -> Vec<Self> {
        let mut cases = Vec::new();
        for rule in RULES {
            for (pooled, second) in [(false, false), (false, true), (true, false), (true, true)] {
                let case = Self {
                    rule,
                    ask,
                    pooled,
                    second,
                };
                cases.extend(case.makes_sense().then_some(case));
            }
        }
        cases
    }

    /// The client keeps back the end of its body, to see that the failure is not waited for with it.
    pub(crate) fn held_back(&self) -> bool {
        self.ask == Ask::PostStreamed
            && matches!(
                self.rule.fault,
                Fin(At::Unread | At::InRequest) | Reset(At::Unread | At::InRequest) | Fault::Early
            )
    }

    fn makes_sense(&self) -> bool {
        match self.rule.fault {
            // A connection that is there has been connected to.
            _ if self.pooled && self.rule.seen == Nothing => false,
            // There must be something of the body left to come.
            Fin(At::InRequest) | Reset(At::InRequest) | Fault::Early => {
                self.ask.is_large() || self.ask == Ask::PostStreamed
            }
            Hang(At::InRequest) => self.ask.is_large(),
            _ => true,
        }
    }

    pub(crate) fn expected(&self) -> Expected {
        let rule = self.rule;
        let repeatable =
            rule.seen == Nothing || (self.ask.is_idempotent() && self.ask.is_replayable());
        let stale = self.pooled && rule.seen == Request && matches!(rule.fault, Fin(_) | Reset(_));
        // A reused connection that ends before a byte of an answer says nothing about its peer: another connection is
        // tried for free, and it does not count.
        if stale {
            return self.tries(
                repeatable.then_some(Peer::Faulty),
                &["stale_connection"],
                Peer::Faulty,
            );
        }
        // The only peer of a group is never taken out of it.
        let then = if rule.counts && self.second {
            Peer::Healthy
        } else {
            Peer::Faulty
        };
        let listed = matches!(rule.next, Error | Timeout);
        let next = (listed && self.second && repeatable).then_some(Peer::Healthy);
        self.tries(next, rule.reasons, then)
    }

    fn tries(&self, next: Option<Peer>, reasons: &'static [&'static str], then: Peer) -> Expected {
        let mut tries = vec![(Peer::Faulty, self.rule.status)];
        if let Some(next) = next {
            tries.push((next, 200));
            return Expected {
                status: 200,
                client: Client::Whole,
                reasons: &["-"],
                tries,
                then,
            };
        }
        Expected {
            status: self.rule.status,
            client: self.rule.client,
            reasons,
            tries,
            then,
        }
    }
}
