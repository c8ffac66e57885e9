//! Texts as words of nginx and as scalars of YAML, so that reading them gives the same texts again.

use std::fmt::Write;

/// A word in nginx's syntax: bare where that is possible, else in quotes.
pub(super) fn word(text: &str) -> String {
    if is_bare(text) {
        return text.to_owned();
    }
    quoted_word(text)
}

/// A word in nginx's syntax, in quotes.
pub(super) fn quoted_word(text: &str) -> String {
    let quote = if text.contains('"') && !text.contains('\'') {
        '\''
    } else {
        '"'
    };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        // A backslash stays one, except in front of what would take it for an escape.
        let escapes = |next: &char| matches!(next, '"' | '\'' | '\\' | 't' | 'r' | 'n');
        let doubled = character == '\\' && characters.peek().is_none_or(escapes);
        if doubled || character == quote {
            out.push('\\');
        }
        out.push(character);
    }
    out.push(quote);
    out
}

/// Whether a word needs no quotes in nginx's syntax.
pub(super) fn is_bare(text: &str) -> bool {
    let Some(first) = text.chars().next() else {
        return false;
    };
    if matches!(first, '"' | '\'' | '#' | '}' | '\u{feff}') {
        return false;
    }
    let mut before = ' ';
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\t' | '\r' | '\n' | ';' => return false,
            '{' if before != '$' => return false,
            '\\' => match characters.next() {
                None
                | Some(
                    '"' | '\'' | '\\' | 't' | 'r' | 'n' | ' ' | '\t' | '\r' | '\n' | ';' | '{',
                ) => return false,
                Some(_) => {}
            },
            _ => {}
        }
        before = if character == '\\' { ' ' } else { character };
    }
    true
}

/// Words of nginx with blanks between them.
pub(super) fn words<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    let words: Vec<String> = texts.into_iter().map(word).collect();
    words.join(" ")
}

/// A scalar of YAML that is this text and nothing else: plain where that is possible, else quoted. `flow`: inside `[ ]`.
pub(super) fn scalar(text: &str, flow: bool) -> String {
    if is_plain(text, flow) {
        text.to_owned()
    } else {
        quoted(text)
    }
}

/// The text in YAML's quotes.
fn quoted(text: &str) -> String {
    let unusual = text.chars().any(is_unusual);
    if !unusual && text.contains(['"', '\\']) && !text.contains('\'') {
        return format!("'{text}'");
    }
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            unusual if is_unusual(unusual) => {
                let code = u32::from(unusual);
                let _ = match code {
                    ..=0xff => write!(out, "\\x{code:02X}"),
                    0x100..=0xffff => write!(out, "\\u{code:04X}"),
                    _ => write!(out, "\\U{code:08X}"),
                };
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// What some reader of YAML takes for a truth value or for nothing.
const WORDS_OF_YAML: [&str; 9] = ["null", "true", "false", "on", "off", "yes", "no", "y", "n"];

fn is_plain(text: &str, flow: bool) -> bool {
    let begins = |first: char| {
        first.is_alphanumeric() || matches!(first, '/' | '$' | '.' | '_' | '^' | '(' | '\\')
    };
    let special = |word: &str| text.eq_ignore_ascii_case(word);
    text.starts_with(begins)
        && !text.starts_with("...")
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.chars().any(is_unusual)
        && !(flow && text.contains([',', '[', ']', '{', '}', '?']))
        // Before the `,` or `]` that follows, some readers take it for the mark of a list.
        && !(flow && text.ends_with(" -"))
        && !WORDS_OF_YAML.iter().any(|word| special(word))
}

/// Characters that a reader of YAML may refuse, fold or lose.
fn is_unusual(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{feff}' | '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}'
        )
}

#[cfg(test)]
mod tests {
    use super::{scalar, word};

    #[test]
    fn words_are_quoted_where_nginx_needs_it() {
        for (text, expected) in [
            ("/a", "/a"),
            ("\\.php$", "\\.php$"),
            ("${host}x", "${host}x"),
            ("a b", "\"a b\""),
            ("", "\"\""),
            ("^/[0-9]{3}/", "\"^/[0-9]{3}/\""),
            ("say \"x\"", "'say \"x\"'"),
            ("\"'", "\"\\\"'\""),
            ("a\\", "\"a\\\\\""),
            ("a\\n b", "\"a\\\\n b\""),
            ("a\\d b", "\"a\\d b\""),
            ("#x", "\"#x\""),
            ("x#", "x#"),
            ("a\"b", "a\"b"),
        ] {
            assert_eq!(word(text), expected);
        }
    }

    #[test]
    fn scalars_are_quoted_where_yaml_needs_it() {
        for (text, flow, expected) in [
            ("0644", false, "0644"),
            ("http://a", true, "http://a"),
            ("a, b", false, "a, b"),
            ("a, b", true, "\"a, b\""),
            // Some readers of YAML take it for the mark of a key.
            ("/a?", true, "\"/a?\""),
            ("a -", false, "a -"),
            ("a -", true, "\"a -\""),
            ("a-", true, "a-"),
            ("[::]:80", false, "\"[::]:80\""),
            ("*.a", false, "\"*.a\""),
            ("on", false, "\"on\""),
            ("No", false, "\"No\""),
            ("~", false, "\"~\""),
            ("a: b", false, "\"a: b\""),
            ("a #b", false, "\"a #b\""),
            ("a#b", false, "a#b"),
            ("a\nb", false, "\"a\\nb\""),
            ("= /x", false, "\"= /x\""),
            ("~ \\.php$", false, "'~ \\.php$'"),
            ("it's \"x\"", false, "it's \"x\""),
            ("'\"", false, "\"'\\\"\""),
            ("ü", false, "ü"),
            ("\u{85}\u{1f}\u{feff}", false, "\"\\x85\\x1F\\uFEFF\""),
        ] {
            assert_eq!(scalar(text, flow), expected);
        }
    }
}
