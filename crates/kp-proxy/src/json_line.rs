//! Lines of `log_format NAME json { … }`: one JSON object, whatever a client or an upstream sends.
//!
//! A value that is one variable alone has the type that this variable has by nature ([`JsonType`]), and is `null` where the
//! variable has no value. Whatever cannot be a number of JSON is no number either: `null`.

use crate::log_escape::{escape_appended, escape_json, json_string};
use crate::program::Program;
use crate::{Context, Exchange, vars};
use kp_config::json_types::JsonType;
use kp_config::model::{JsonField, JsonValue};
use kp_config::template::{Part, Template, Variable};

/// Digits before the point that every reader of JSON takes.
const DIGITS_MAX: usize = 20;

/// Appends the object of these fields.
pub(crate) fn write_object(
    out: &mut Vec<u8>,
    fields: &[JsonField],
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) {
    out.push(b'{');
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json_string(out, field.name.as_bytes());
        out.push(b':');
        match &field.value {
            JsonValue::Object(fields) => write_object(out, fields, exchange, program, context),
            JsonValue::Text(template) => {
                out.push(b'"');
                let start = out.len();
                vars::evaluate(template, exchange, program, context, out);
                escape_appended(out, start, escape_json);
                out.push(b'"');
            }
            JsonValue::One(template, JsonType::Texts | JsonType::Numbers) => {
                write_attempts(out, template, exchange);
            }
            JsonValue::One(template, kind) => {
                let start = out.len();
                let mut found = false;
                for part in &template.parts {
                    found |= vars::evaluate_part(part, exchange, program, context, out);
                }
                finish_value(out, start, found, *kind);
            }
        }
    }
    out.push(b'}');
}

/// Makes JSON of the value that was appended since `start`.
fn finish_value(out: &mut Vec<u8>, start: usize, found: bool, kind: JsonType) {
    let is_there = found
        && match kind {
            JsonType::Number => is_number(out, start),
            _ => true,
        };
    if !is_there {
        out.truncate(start);
        out.extend_from_slice(b"null");
        return;
    }
    match kind {
        JsonType::Number => {}
        JsonType::Flag(yes) => {
            let value = out.get(start..) == Some(yes.as_bytes());
            out.truncate(start);
            out.extend_from_slice(if value { b"true" } else { b"false" });
        }
        JsonType::Text | JsonType::Texts | JsonType::Numbers => {
            out.insert(start, b'"');
            escape_appended(out, start + 1, escape_json);
            out.push(b'"');
        }
    }
}

/// Makes what was appended since `start` a number of JSON, which begins with no `0` that says nothing (RFC 8259, section 6);
/// false where it is none.
fn is_number(out: &mut Vec<u8>, start: usize) -> bool {
    let value = out.get(start..).unwrap_or_default();
    let mut halves = value.splitn(2, |byte| *byte == b'.');
    let whole = halves.next().unwrap_or_default();
    let all_digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if !all_digits(whole) || !halves.next().is_none_or(all_digits) {
        return false;
    }
    let zeros = whole.iter().take_while(|byte| **byte == b'0').count();
    let needless = zeros.min(whole.len() - 1);
    if whole.len() - needless > DIGITS_MAX {
        return false;
    }
    out.drain(start..start + needless);
    true
}

/// A list with one value for each attempt.
fn write_attempts(out: &mut Vec<u8>, template: &Template, exchange: &Exchange) {
    out.push(b'[');
    if let [Part::Variable(Variable::Builtin(builtin))] = template.parts.as_slice()
        && let Some(write) = vars::of_attempt(*builtin)
    {
        let numbers = JsonType::of_builtin(*builtin) == JsonType::Numbers;
        for (index, attempt) in exchange.attempts.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            let start = out.len();
            write(attempt, out);
            let kind = if numbers {
                JsonType::Number
            } else {
                JsonType::Text
            };
            finish_value(out, start, true, kind);
        }
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(value: &[u8], found: bool, kind: JsonType) -> String {
        let mut out = b"x".to_vec();
        out.extend_from_slice(value);
        finish_value(&mut out, 1, found, kind);
        String::from_utf8(out.split_off(1)).expect("UTF-8")
    }

    #[test]
    fn values_by_type() {
        for (value, expected) in [
            ("200", "200"),
            ("000", "0"),
            ("007", "7"),
            ("0.120", "0.120"),
            ("1700000000.001", "1700000000.001"),
            ("", "null"),
            ("-", "null"),
            ("1.", "null"),
            (".5", "null"),
            ("1.2.3", "null"),
            ("1e5", "null"),
            ("99999999999999999999", "99999999999999999999"),
            ("999999999999999999999", "null"),
        ] {
            assert_eq!(
                finished(value.as_bytes(), true, JsonType::Number),
                expected,
                "{value}"
            );
        }
        assert_eq!(finished(b"1", false, JsonType::Number), "null");
        assert_eq!(finished(b"on", true, JsonType::Flag("on")), "true");
        assert_eq!(finished(b"", true, JsonType::Flag("on")), "false");
        assert_eq!(finished(b"", false, JsonType::Flag("on")), "null");
        assert_eq!(
            finished(b"a\"\xff\n", true, JsonType::Text),
            "\"a\\\"\u{fffd}\\n\""
        );
        assert_eq!(finished(b"", true, JsonType::Text), "\"\"");
    }

    proptest::proptest! {
        /// Whatever the bytes are, a value of each type is JSON of that type or `null`.
        #[test]
        fn any_bytes_give_a_value_of_the_type(value: Vec<u8>, found: bool) {
            let parse = |kind| -> serde_json::Value {
                serde_json::from_str(&finished(&value, found, kind)).expect("JSON")
            };
            let number = parse(JsonType::Number);
            proptest::prop_assert!(number.is_number() || number.is_null());
            let flag = parse(JsonType::Flag("on"));
            proptest::prop_assert!(flag.is_boolean() || !found);
            let text = parse(JsonType::Text);
            proptest::prop_assert!(text.is_string() || !found);
        }

        #[test]
        fn any_digits_give_a_number_that_everyone_can_read(value in "[0-9]{0,400}(\\.[0-9]{0,5})?") {
            let text = finished(value.as_bytes(), true, JsonType::Number);
            let parsed: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            proptest::prop_assert!(parsed.is_number() || parsed.is_null());
        }
    }
}
