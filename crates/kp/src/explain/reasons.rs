//! What `kp explain` tells of reasons: one by its token, all of one status, the list of them.

use kp_worker::{Reason, Side};
use std::fmt::Write;

/// The columns of a token in a table.
const TOKEN_COLUMNS: usize = 26;

/// What is known of the reason with this token.
pub(super) fn about(token: &str) -> Option<String> {
    let reason = Reason::ALL.iter().find(|reason| reason.token() == token)?;
    let side = reason.side().token();
    let mut out = format!("{token}, a reason\n\n  {}\n\n", reason.meaning());
    let _ = writeln!(out, "  likely    {}", reason.likely());
    let _ = writeln!(out, "  look at   {}", reason.look_at());
    if let Some(directive) = reason.directive() {
        let _ = writeln!(out, "  directive {directive}");
    }
    let _ = writeln!(out, "  status    {}", reason.status());
    let _ = writeln!(out, "  side      {side}");
    let metric = if reason.is_failure() {
        format!("kp_failures_total{{reason=\"{token}\",side=\"{side}\"}}")
    } else {
        format!("kp_configured_answers_total{{reason=\"{token}\"}}")
    };
    let _ = writeln!(out, "  metric    {metric}");
    Some(out)
}

/// The reasons that give a status; `None` where the word is no status.
pub(super) fn of_status(word: &str) -> Option<String> {
    let is_status = word.len() == 3 && word.parse().is_ok_and(|it| (100..=599).contains(&it));
    if !is_status {
        return None;
    }
    let numbered = |reason: &Reason| {
        let named = |text: &str| {
            let mut words = text.split(|one: char| !one.is_ascii_alphanumeric());
            words.any(|one| one == word)
        };
        named(reason.status()) || named(reason.meaning())
    };
    let mut out = String::new();
    for reason in Reason::ALL.iter().filter(|reason| numbered(reason)) {
        let token = reason.token();
        let _ = writeln!(out, "  {token:<TOKEN_COLUMNS$} {}", reason.meaning());
    }
    let mut out = if out.is_empty() {
        format!(
            "{word}: kp gives this status only where the configuration or an upstream says so\n"
        )
    } else {
        format!("{word}: kp gives this status for these reasons\n\n{out}")
    };
    let is_error = word >= "400";
    let decided: Vec<&str> = Reason::ALL
        .iter()
        .filter(|reason| decided_elsewhere(**reason, is_error) && !numbered(reason))
        .map(|reason| reason.token())
        .collect();
    let _ = writeln!(
        out,
        "\n  Where the configuration says so: {}.\n  \
         Where $kp_reason is \"-\" it is the upstream's own answer ($upstream_status), or a file.\n  \
         `kp explain REASON` tells what to look at.",
        decided.join(", ")
    );
    Some(out)
}

/// Whether the configuration chooses the status; those of limits are errors.
fn decided_elsewhere(reason: Reason, is_error: bool) -> bool {
    reason.status().ends_with(" says") || is_error && reason.status().ends_with("as configured")
}

/// Every token, by who is to blame.
pub(super) fn list(out: &mut String) {
    for (side, title) in [
        (Side::Client, "the client's"),
        (Side::Upstream, "the upstream's"),
        (Side::Own, "kp's own"),
        (Side::Config, "asked for by the configuration"),
    ] {
        let _ = writeln!(out, "\nReasons, {title}:");
        let tokens = Reason::ALL.iter().filter(|reason| reason.side() == side);
        kp_config::explain::wrapped(tokens.map(|reason| reason.token().to_owned()), out);
    }
}

/// The token that is meant by this name, if none of the other names is nearer.
pub(super) fn nearest(name: &str, others: &[&str]) -> Option<&'static str> {
    let token = |found: &str| {
        let mut tokens = Reason::ALL.iter().map(|reason| reason.token());
        tokens.find(|token| *token == found)
    };
    let names = others.iter().copied();
    let tokens = Reason::ALL.iter().map(|reason| reason.token());
    let found = kp_config::suggest::nearest(name, names.chain(tokens))?;
    token(found).filter(|found| !others.contains(found))
}

/// The tokens that have this in them.
pub(super) fn holding(part: &str) -> Vec<&'static str> {
    let tokens = Reason::ALL.iter().map(|reason| reason.token());
    tokens
        .filter(|token| !part.is_empty() && token.contains(part))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_all_that_its_table_knows() {
        let text = about("upstream_timeout").expect("a reason");
        for part in [
            "upstream_timeout, a reason\n",
            "Nothing of the response head came",
            "likely    The peer hangs",
            "look at   `$upstream_connect_time`",
            "directive proxy_read_timeout\n",
            "status    504\n",
            "metric    kp_failures_total{reason=\"upstream_timeout\",side=\"upstream\"}\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(about("upstream_timeouts"), None);
        // Asked for by the configuration: no failure.
        let text = about("page").expect("a reason");
        let metric = "metric    kp_configured_answers_total{reason=\"page\"}\n";
        assert!(text.contains(metric), "{text}");
    }

    #[test]
    fn a_status_names_its_reasons() {
        let text = of_status("502").expect("a status");
        assert!(
            text.contains("connect_failed ") && !text.contains("upstream_timeout"),
            "{text}"
        );
        assert!(
            text.contains("says so: rate_limited, connections_limited"),
            "{text}"
        );
        let text = of_status("503").expect("a status");
        assert!(text.contains("\n  rate_limited "), "{text}");
        assert!(of_status("497").expect("a status").contains("plain_http"));
        assert!(of_status("444").expect("a status").contains("return_close"));
        assert!(
            of_status("418")
                .expect("a status")
                .starts_with("418: kp gives this status only")
        );
        assert_eq!(
            (of_status("50"), of_status("999"), of_status("5xx")),
            (None, None, None)
        );
    }

    #[test]
    fn a_slip_finds_the_nearest_word() {
        assert_eq!(nearest("client_gon", &[]), Some("client_gone"));
        assert_eq!(nearest("retrun", &["return"]), None);
        assert_eq!(nearest("something", &["return"]), None);
        assert!(holding("certificate").contains(&"own_certificate"));
    }
}
