//! `status`: a page that shows how kp is, and the JSON behind it.
//!
//! The page is one document without data in it: its script asks the same location for JSON, so that nothing that was counted
//! or configured ever meets a parser of markup. The policy that goes with it allows this one script and this one style, by
//! their hashes, and requests to kp alone.

use super::View;
use crate::overview::{Moment, overview};
use kp_proxy::Rendered;

macro_rules! style {
    () => {
        include_str!("status/style.css")
    };
}

macro_rules! script {
    () => {
        concat!(
            include_str!("status/parts.js"),
            include_str!("status/charts.js"),
            include_str!("status/status.js"),
        )
    };
}

const DOCUMENT: &str = concat!(
    include_str!("status/head.html"),
    "<style>",
    style!(),
    "</style>",
    include_str!("status/body.html"),
    "<script>",
    script!(),
    "</script>\n",
);

/// What the page may do; a test says how the hashes are.
const POLICY: &str = concat!(
    "default-src 'none'; style-src 'sha256-g/QWe4oAyhb24OYhG1UcDnkVOsw1AsWvK2OdpZZ1dzc='; ",
    "script-src 'sha256-aCaJMr6DfwRCzn58ueApUptr6wNstJvrV1McPT6F8jk='; ",
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

const SAFETY: &[(&str, &str)] = &[
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
];

/// What a request wants to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// The page.
    Document,
    /// The data, and the samples after this moment.
    Data { history_since: Option<u64> },
}

impl Wish {
    /// From the URI and the arguments.
    pub(super) fn of(uri: &[u8], args: &[u8]) -> Self {
        let argument = |name: &[u8]| {
            args.split(|byte| *byte == b'&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix(b"="))
        };
        if !uri.ends_with(b".json") && argument(b"format") != Some(b"json") {
            return Self::Document;
        }
        let since = argument(b"since").and_then(|since| std::str::from_utf8(since).ok());
        Self::Data {
            history_since: since.and_then(|since| since.parse().ok()),
        }
    }
}

/// Fulfils it, on a thread: with a thousand peers the data take a few milliseconds.
pub(super) fn render(wish: Wish, view: &View) -> Rendered {
    let (media_type, body) = match wish {
        Wish::Document => ("text/html; charset=utf-8", DOCUMENT.as_bytes().to_vec()),
        Wish::Data { history_since } => {
            let now = Moment {
                mono_ms: view.now_ms,
                unix_ms: view.now_unix_ms,
            };
            let picture = overview(view.config, view.tls, &view.shm, now, history_since);
            // Numbers and texts: nothing that could fail.
            let body = serde_json::to_vec(&picture).unwrap_or_default();
            ("application/json", body)
        }
    };
    Rendered {
        status: 200,
        media_type,
        fields: SAFETY,
        body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kp_shm::Counter;
    use sha2::{Digest, Sha256};

    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    fn hash(text: &str) -> String {
        let digest = Sha256::digest(text.as_bytes());
        let mut encoded = String::new();
        for three in digest.chunks(3) {
            let bits = three
                .iter()
                .fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
            let bits = bits << (8 * (3 - three.len()));
            for at in 0..4 {
                let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
                encoded.push(if at <= three.len() {
                    digit as char
                } else {
                    '='
                });
            }
        }
        format!("'sha256-{encoded}'")
    }

    #[test]
    fn the_policy_allows_this_style_and_this_script() {
        for (what, text) in [("style-src", style!()), ("script-src", script!())] {
            let rule = format!("{what} {};", hash(text));
            assert!(POLICY.contains(&rule), "write into POLICY: {rule}");
        }
        assert_eq!(
            hash("abc"),
            "'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='"
        );
    }

    #[test]
    fn the_document_names_no_other_resource() {
        // The namespace of SVG is a name, not an address.
        let document = DOCUMENT.replace("http://www.w3.org/2000/svg", "");
        for text in [
            "http://",
            "https://",
            "src=",
            "@import",
            "url(",
            "innerHTML",
            "insertAdjacent",
        ] {
            assert!(!document.contains(text), "{text}");
        }
        assert!(!script!().contains("</script"), "the script ends in itself");
    }

    /// The script reads counters by name: a name that is no more would show nothing, and nobody would notice.
    #[test]
    fn the_script_asks_for_counters_that_are_there() {
        let known = |name: &str| Counter::ALL.iter().any(|counter| counter.name() == name);
        let script = script!();
        let after = |lead: &str| -> Vec<&str> {
            let pieces = script.split(lead).skip(1);
            let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
            pieces
                .map(|piece| piece.split(is_end).next().unwrap_or(""))
                .collect()
        };
        let listed = script.split_once("const LIMITED = [").unwrap().1;
        let listed = listed.split_once("];").unwrap().0.lines();
        let mut names: Vec<&str> = listed.filter_map(|line| line.split('"').nth(1)).collect();
        names.extend(after("total(\""));
        names.extend(after("totals."));
        assert!(names.len() > 15, "{names:?}");
        for name in names {
            assert!(known(name), "{name}");
        }
    }

    #[test]
    fn what_is_wanted_is_in_the_target() {
        let data = |history_since| Wish::Data { history_since };
        for (uri, args, wish) in [
            ("/status", "", Wish::Document),
            ("/status/", "format=html&since=4", Wish::Document),
            ("/status", "format=jsonx", Wish::Document),
            ("/status", "xformat=json", Wish::Document),
            ("/status", "a&format=json", data(None)),
            ("/status", "format=json&since=17", data(Some(17))),
            ("/status.json", "", data(None)),
            ("/x/status.json", "since=0", data(Some(0))),
            ("/status.json", "since=-1", data(None)),
        ] {
            assert_eq!(
                Wish::of(uri.as_bytes(), args.as_bytes()),
                wish,
                "{uri}?{args}"
            );
        }
    }
}
