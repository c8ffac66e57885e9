//! The JSON Schema of the YAML form: every example is valid by it, typical mistakes are not. The validator here knows the
//! keywords that the schema uses, and no others.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use kp_config::directives::{self, Contexts};
use kp_config::schema::{contexts, schema};
use regex_automata::meta::Regex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// A schema and what was found wrong by it.
struct Validator {
    schema: Value,
}

impl Validator {
    fn of(context: &str) -> Self {
        let text = schema(context).unwrap();
        Self {
            schema: serde_json::from_str(&text).unwrap(),
        }
    }

    /// Whether a text in YAML is valid.
    fn accepts(&self, yaml: &str) -> bool {
        let value: Value = serde_yaml::from_str(yaml).unwrap();
        self.holds(&self.schema, &value)
    }

    fn holds(&self, schema: &Value, value: &Value) -> bool {
        let rules = match schema {
            Value::Bool(all) => return *all,
            Value::Object(rules) => rules,
            other => panic!("no schema: {other}"),
        };
        rules.iter().all(|(keyword, rule)| match keyword.as_str() {
            "$ref" => {
                let pointer = rule.as_str().unwrap().strip_prefix('#').unwrap();
                let found = self.schema.pointer(pointer);
                self.holds(
                    found.unwrap_or_else(|| panic!("{pointer} leads nowhere")),
                    value,
                )
            }
            "anyOf" => list(rule).iter().any(|one| self.holds(one, value)),
            "allOf" => list(rule).iter().all(|one| self.holds(one, value)),
            "enum" => list(rule).contains(value),
            "type" => match rule {
                Value::String(name) => is_of(value, name),
                names => list(names)
                    .iter()
                    .any(|name| is_of(value, name.as_str().unwrap())),
            },
            "pattern" => value
                .as_str()
                .is_none_or(|text| Regex::new(rule.as_str().unwrap()).unwrap().is_match(text)),
            "items" => value
                .as_array()
                .is_none_or(|values| values.iter().all(|one| self.holds(rule, one))),
            "minItems" => value
                .as_array()
                .is_none_or(|values| values.len() as u64 >= rule.as_u64().unwrap()),
            "maxItems" => value
                .as_array()
                .is_none_or(|values| values.len() as u64 <= rule.as_u64().unwrap()),
            "properties" => value.as_object().is_none_or(|map| {
                map.iter()
                    .all(|(key, one)| rule.get(key).is_none_or(|rule| self.holds(rule, one)))
            }),
            "additionalProperties" => value.as_object().is_none_or(|map| {
                let known = rules.get("properties");
                let others = map
                    .iter()
                    .filter(|(key, _)| known.is_none_or(|known| known.get(key).is_none()));
                others.into_iter().all(|(_, one)| self.holds(rule, one))
            }),
            "$schema" | "title" | "description" | "default" | "definitions" => true,
            other => panic!("the validator does not know {other}"),
        })
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn is_of(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        other => panic!("no type: {other}"),
    }
}

#[test]
fn every_example_is_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let main = Validator::of("main");
    let mut seen = 0;
    for folder in ["etc", "etc/examples"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "yaml") {
                seen += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                assert!(main.accepts(&text), "{}", path.display());
            }
        }
    }
    assert!(seen > 10);
}

#[test]
fn what_the_page_about_yaml_shows_is_valid() {
    let main = Validator::of("main");
    for yaml in [
        "{}",
        "events:\nhttp: ~",
        "http: { server: { listen: [80, '[::]:80'], location: { /: { return: [200, ok] } } } }",
        "http: { server: [{ listen: 80 }, { listen: 81 }, [{ set: $a b }, { if: { ($a): { set: $a c } } }]] }",
        "http: { upstream: { a: { least_conn: on, server: [a weight=2, [b, backup]] } }, keepalive_timeout: [65s, 60s] }",
        "http: { add_header: { X-A: a b, X-B: [c, always] }, error_page: [[500, 502, /50x.html], 404 /404.html] }",
        "http: { map: { $a $b: { default: 0, hostnames: , '~*x': y } }, types: { text/html: html htm, a/b: [c, d] } }",
        "- events: ~\n- http: { client_max_body_size: 0, send_timeout: 1m 30s, proxy_http_version: 1.0, sendfile: true }",
        "http: { server: { location: [{ /a: ~ }, { /b: { if: { ($arg_x): { break: } } } }] } }",
        "http: { log_format: [{ a: $uri }, [b, '$uri $host'], { c json: { at: $msec, of: { host: $host } } }] }",
        "include: a.yaml\nworker_processes: auto",
    ] {
        assert!(main.accepts(yaml), "{yaml}");
    }
}

#[test]
fn typical_mistakes_are_not_valid() {
    let main = Validator::of("main");
    for yaml in [
        "http: { servers: {} }",
        "server: { listen: 80 }",
        "http: { server: { location: { /: { proxypass: http://a } } } }",
        "http: { server: { location: { /: http://a } } }",
        "http: { server: { location: /a } }",
        "http: { upstream: { server: a } }",
        "http: { sendfile: maybe }",
        "http: { keepalive_requests: many }",
        "http: { client_max_body_size: 10mb }",
        "http: { send_timeout: soon }",
        "http: { upstream: { a: { least_conn: 3 } } }",
        "http: { server: { listen: { a: { b: c } } } }",
        "http: { keepalive_timeout: [1, 2, 3] }",
        "http: { proxy_http_version: http1 }",
        "worker_processes: { a: b }",
        "text",
        "http: { server: { return: [[200], [201]] } }",
    ] {
        assert!(!main.accepts(yaml), "{yaml}");
    }
}

#[test]
fn an_included_file_has_its_own_schema() {
    assert!(Validator::of("http").accepts("server: { listen: 80 }"));
    assert!(Validator::of("server").accepts("location: { /: { root: /a } }"));
    assert!(!Validator::of("server").accepts("server: { listen: 80 }"));
    assert!(Validator::of("if-in-location").accepts("return: 404"));
    assert!(schema("nowhere").is_none());
    assert_eq!(contexts().len(), Contexts::each().count());
}

/// Every name is offered where it may stand, and nowhere else.
#[test]
fn names_are_those_of_the_table() {
    let schema: Value = serde_json::from_str(&schema("main").unwrap()).unwrap();
    for (context, slug) in Contexts::each().zip(contexts()) {
        let offered = &schema["definitions"][format!("{slug}-mapping")]["properties"];
        let offered: BTreeSet<&str> = offered
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let entries = directives::all().filter(|entry| entry.contexts.contains(context));
        let mut wanted: BTreeSet<&str> = entries.map(|entry| entry.name).collect();
        if context == Contexts::MAP {
            wanted.extend(["hostnames", "volatile"]);
        }
        assert_eq!(offered, wanted, "{slug}");
    }
    assert!(schema.to_string().contains("client_max_body_size size"));
}
