//! Writes docs/reasons.md from the tables of reasons and failures: `UPDATE=1 cargo test -p kp-proxy reasons_page`.

use super::{Reason, Side};
use crate::early::EarlyEnd;
use crate::failure::tests::ALL;
use crate::{After, Cause, Failure};
use kp_upstream::{Outcome, retry};
use std::collections::BTreeSet;
use std::fmt::Write;

const INTRODUCTION: &str = "\
# Reasons

This page is written from the tables in `crates/kp-proxy/src/reason.rs` and `failure.rs`; a test keeps it current.

When kp answers by itself, or does not end a request as it should, it gives the reason one fixed word. The word is

- `$kp_reason` in access logs (`-` where the whole answer is an upstream's or a file's), with its circumstances in
  `$kp_reason_detail`;
- the label `reason` of the metric `kp_failures_total`, beside `side`; of `kp_configured_answers_total` where the
  configuration asks for the answer, which is no failure;
- the field `X-Kp-Reason` of the answer under `kp_reason_header on`.

It is meant for counting: words stay, sentences in the error log may change.

`$kp_reason_detail` is `phase=… side=… directive=… attempt=N closed_by=…`, without what does not apply:

- `phase`: what kp was doing: `request_line`, `request_head`, `route` (rules and limits), `file`, `request_body`, `connect`,
  `handshake` (TLS with the upstream), `send_request`, `await_head`, `read_body`, `send_response`, `tunnel`; and of
  connections without a request `accept`, `proxy_header`, `client_handshake`;
- `side`: whose fault it is: `client`, `upstream`, `kp` (itself, its resources, its surroundings), `config` (nobody's: the
  configuration asks for this answer);
- `directive`: the directive whose time, limit or rule it was;
- `attempt`: which of the attempts failed last, counted from one as in `$upstream_addr` and `$upstream_status`;
- `closed_by`: who ended the connection it is about: `client`, `upstream` or `kp`.

The reason of a request is the one that decided what its client got. Where a failed attempt was repeated with success, the
answer is an upstream's and there is none: the attempts stand in `$upstream_status`, and every peer's last failure is kept
with the peer. What `error_page` gives instead of an error keeps the error's reason, unless the page itself fails; under
`error_page … =` the status is that of what answers, and so is the reason.

Status is what the client gets and what the access log shows. A dash: the response was already under way, so its status
stays, and the connection is ended in a way that no client takes for a complete response. Where not even a head was sent,
the log has `000`, as nginx.

## Without a request

A connection can end before there is a request: in its TLS handshake, in its PROXY header, or because there is no place for
it. As in nginx there is no line in an access log then. Such an end is counted in `kp_failures_total` all the same, stands
among the last ends on the [status page](status-page.md) with its phase, its `$connection` and the virtual host that its TLS
server name chose (the default server's, where none is known), and its line of the error log, mostly at `info`, ends with
`reason: WORD`; in JSON that is the field `reason`.

A client that closes before it has sent a byte has no reason, nor has one that closes between two requests: checks of load
balancers and browsers do that all day.
";

/// Reasons that are no failures, and their statuses.
const ANSWERS: [(Reason, &str); 20] = [
    (Reason::FileError, "500, or – in the middle of a file"),
    (Reason::FileForbidden, "403"),
    (Reason::FileNotFound, "404"),
    (Reason::InternalLocation, "404"),
    (Reason::MethodNotAllowed, "405"),
    (Reason::PreconditionFailed, "412"),
    (Reason::RangeNotSatisfiable, "416"),
    (Reason::NoNamedLocation, "500"),
    (Reason::EmptyUri, "500"),
    (Reason::RegexLimit, "500"),
    (Reason::BadAccelRedirect, "404"),
    (Reason::Intercepted, "what `error_page` says"),
    (Reason::Return, "what `return` says"),
    (Reason::ReturnClose, "444, 408 or 499 in the log"),
    (Reason::RewriteRedirect, "301 or 302"),
    (Reason::DirectoryRedirect, "301"),
    (Reason::PrefixRedirect, "301"),
    (Reason::Page, "200"),
    (Reason::NotReady, "503"),
    (Reason::RedirectCycle, "500"),
];

fn page() -> String {
    let mut out = INTRODUCTION.to_owned();
    for (side, title) in [
        (Side::Client, "The client"),
        (Side::Upstream, "The upstream"),
        (Side::Own, "kp itself"),
        (Side::Config, "The configuration"),
    ] {
        let _ = write!(
            out,
            "\n## {title}\n\n| reason | status | what happened |\n|---|---|---|\n"
        );
        let of_side = || Reason::ALL.iter().filter(|reason| reason.side() == side);
        for reason in of_side() {
            let (token, status) = (reason.token(), status(*reason));
            let _ = writeln!(
                out,
                "| [`{token}`](#{token}) | {status} | {} |",
                reason.meaning()
            );
        }
        for reason in of_side() {
            write_reason(&mut out, *reason);
        }
    }
    out
}

fn write_reason(out: &mut String, reason: Reason) {
    let _ = write!(out, "\n### {}\n\n{}\n\n", reason.token(), reason.meaning());
    let _ = writeln!(out, "- Likely: {}", reason.likely());
    let _ = writeln!(out, "- Look at: {}", reason.look_at());
    if let Some(directive) = reason.directive() {
        let _ = writeln!(out, "- Directive: `{directive}`");
    }
    let failure = failure(reason);
    let consequences = failure.map(|failure| consequences(&failure));
    let _ = writeln!(
        out,
        "- Status: {}{}",
        status(reason),
        consequences.unwrap_or_default()
    );
}

/// What else follows from a failure.
fn consequences(failure: &Failure) -> String {
    let mut out = String::from(match failure.after() {
        After::Keep => "; the client's connection stays",
        After::Close => "; the client's connection is closed",
        After::Abort => "; the client's connection is broken off",
        After::Gone => "; the client's connection is gone",
    });
    let next = match failure.retry() {
        Some(retry::Failure::Error) => Some("`error`".to_owned()),
        Some(retry::Failure::Timeout) => Some("`timeout`".to_owned()),
        Some(retry::Failure::InvalidHeader) => Some("`invalid_header`".to_owned()),
        Some(retry::Failure::Status(_)) => Some("that status".to_owned()),
        Some(retry::Failure::Stale) => Some("anything but `off`".to_owned()),
        Some(retry::Failure::NoLivePeer) | None => None,
    };
    if let Some(next) = next {
        let _ = write!(
            out,
            "; another peer is tried under `proxy_next_upstream` {next}"
        );
    }
    if failure.peer_mark(false) == Outcome::Failed {
        out.push_str("; counts against the peer");
    }
    out
}

fn failure(reason: Reason) -> Option<Failure> {
    ALL.iter()
        .map(|&(phase, cause)| Failure::new(phase, cause))
        .find(|failure| failure.reason() == reason && !matches!(failure.cause, Cause::FileBroken))
}

fn status(reason: Reason) -> String {
    if let Some((_, status)) = ANSWERS.iter().find(|(answer, _)| *answer == reason) {
        return (*status).to_owned();
    }
    if EarlyEnd::ONLY.contains(&reason) {
        return "none: there was no request".to_owned();
    }
    let failure = failure(reason).expect("a failure, or a row in ANSWERS");
    match (failure.status(), failure.cause) {
        (_, Cause::UpstreamStatus(_)) => "as sent".to_owned(),
        (_, Cause::RateLimited { .. } | Cause::PlacesTaken { .. }) => {
            "503, or as configured".to_owned()
        }
        (0, _) => "–".to_owned(),
        (status, _) => crate::wire_status(status).to_string(),
    }
}

#[test]
fn reasons_page() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reasons.md");
    let page = page();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &page).expect("docs/reasons.md");
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == page,
        "docs/reasons.md is not what the tables say; run this test with UPDATE=1"
    );
}

/// What people are told is what the table of failures decides.
#[test]
fn statuses_are_those_of_the_failures() {
    for reason in Reason::ALL {
        assert_eq!(reason.status(), status(*reason), "{}", reason.token());
    }
}

/// Every word is used: by a failure, or by an answer that is none.
#[test]
fn every_reason_has_a_use() {
    let failures: BTreeSet<Reason> = ALL
        .iter()
        .map(|&(phase, cause)| Failure::new(phase, cause).reason())
        .collect();
    for reason in Reason::ALL {
        let is_answer = ANSWERS.iter().any(|(answer, _)| answer == reason);
        let used = failures.contains(reason) || is_answer || EarlyEnd::ONLY.contains(reason);
        assert!(used, "{}", reason.token());
    }
}

/// A directive that the table names is one.
#[test]
fn directives_are_directives() {
    for reason in Reason::ALL {
        if let Some(name) = reason.directive() {
            assert!(
                kp_config::directives::named(name).next().is_some(),
                "{name}"
            );
        }
    }
}
