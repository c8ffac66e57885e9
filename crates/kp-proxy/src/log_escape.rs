//! Escaping of values in log lines: nginx's, JSON's, and what keeps an error log line one line.
//!
//! JSON text is always valid UTF-8: a byte that is no part of a UTF-8 sequence becomes U+FFFD, so that one odd `User-Agent`
//! never costs a line (nginx writes the raw byte).

/// How a value is escaped.
pub(crate) type Escaping = fn(&mut Vec<u8>, &[u8]);

/// Copies text so that it cannot break the line or confuse a terminal: control bytes and invalid UTF-8 as `\xXX`.
pub(crate) fn visible(out: &mut String, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() {
                let mut bytes = [0; 4];
                character
                    .encode_utf8(&mut bytes)
                    .bytes()
                    .for_each(|byte| hexadecimal(out, byte));
            } else {
                out.push(character);
            }
        }
        chunk
            .invalid()
            .iter()
            .for_each(|&byte| hexadecimal(out, byte));
    }
}

fn hexadecimal(out: &mut String, byte: u8) {
    out.push_str("\\x");
    out.push(char::from(HEX[usize::from(byte >> 4)]));
    out.push(char::from(HEX[usize::from(byte & 15)]));
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Appends a JSON string with its quotes.
pub fn json_string(out: &mut Vec<u8>, value: &[u8]) {
    out.push(b'"');
    let start = out.len();
    out.extend_from_slice(value);
    escape_appended(out, start, escape_json);
    out.push(b'"');
}

/// Escapes what was appended since `start`. Nearly always there is nothing to do.
pub(crate) fn escape_appended(out: &mut Vec<u8>, start: usize, escape: Escaping) {
    let value = out.get(start..).unwrap_or_default();
    // Without leaving early, so that many bytes are looked at in one step.
    if value
        .iter()
        .fold(true, |plain, &byte| plain & is_plain(byte))
    {
        return;
    }
    let value = out.split_off(start);
    escape(out, &value);
}

/// What neither escaping changes.
fn is_plain(byte: u8) -> bool {
    byte.wrapping_sub(b' ') <= b'~' - b' ' && byte != b'"' && byte != b'\\'
}

pub(crate) fn escape_default(out: &mut Vec<u8>, value: &[u8]) {
    for &byte in value {
        if is_plain(byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[
                b'\\',
                b'x',
                HEX[usize::from(byte >> 4)],
                HEX[usize::from(byte & 15)],
            ]);
        }
    }
}

pub(crate) fn escape_json(out: &mut Vec<u8>, value: &[u8]) {
    for chunk in value.utf8_chunks() {
        for &byte in chunk.valid().as_bytes() {
            match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\t' => out.extend_from_slice(b"\\t"),
                0x08 => out.extend_from_slice(b"\\b"),
                0x0c => out.extend_from_slice(b"\\f"),
                ..=0x1f | 0x7f => {
                    let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                    out.extend_from_slice(b"\\u00");
                    out.extend_from_slice(&digits);
                }
                _ => out.push(byte),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(value: &[u8]) -> Vec<u8> {
        let mut out = b"x".to_vec();
        out.extend_from_slice(value);
        escape_appended(&mut out, 1, escape_json);
        out.split_off(1)
    }

    fn plain(value: &[u8]) -> String {
        let mut out = value.to_vec();
        escape_appended(&mut out, 0, escape_default);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn default_escaping() {
        assert_eq!(plain(b"GET / HTTP/1.1"), "GET / HTTP/1.1");
        assert_eq!(
            plain(b"a\"b\\c\td\x7f\xff~"),
            "a\\x22b\\x5Cc\\x09d\\x7F\\xFF~"
        );
    }

    #[test]
    fn json_escaping() {
        assert_eq!(json(b"a\"b\\c\td"), b"a\\\"b\\\\c\\td");
        assert_eq!(json(b"x\x1b[31m\x01\x7f"), b"x\\u001B[31m\\u0001\\u007F");
        assert_eq!(json("\u{2028}é".as_bytes()), "\u{2028}é".as_bytes());
        assert_eq!(json(b"\xff\xfe\xc3\xa9"), "\u{fffd}\u{fffd}é".as_bytes());
        assert_eq!(json(b"\xe2\x80"), "\u{fffd}".as_bytes());
    }

    proptest::proptest! {
        /// Any bytes give a valid JSON string that says what was valid in them.
        #[test]
        fn json_is_always_json(value: Vec<u8>) {
            let text = String::from_utf8(json(&value)).expect("UTF-8");
            let parsed: String = serde_json::from_str(&format!("\"{text}\"")).expect("JSON");
            proptest::prop_assert_eq!(parsed, String::from_utf8_lossy(&value));
        }

        /// The default escaping gives one printable line that tells every byte.
        #[test]
        fn default_is_reversible(value: Vec<u8>) {
            let text = plain(&value);
            proptest::prop_assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')));
            let mut back = Vec::new();
            let mut rest = text.as_bytes();
            while let [first, tail @ ..] = rest {
                if *first == b'\\' {
                    let digits = std::str::from_utf8(&rest[2..4]).expect("digits");
                    back.push(u8::from_str_radix(digits, 16).expect("hexadecimal"));
                    rest = &rest[4..];
                } else {
                    back.push(*first);
                    rest = tail;
                }
            }
            proptest::prop_assert_eq!(back, value);
        }
    }

    #[test]
    fn error_log_text_stays_on_its_line() {
        let mut out = String::new();
        visible(&mut out, b"GET /\x1b[0m\xff\n\xc3\xa9 HTTP/1.1");
        assert_eq!(out, "GET /\\x1B[0m\\xFF\\x0Aé HTTP/1.1");
    }
}
