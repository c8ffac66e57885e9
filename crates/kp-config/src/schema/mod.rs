//! `kp schema`: the YAML form as a JSON Schema (draft 7, which editors know), made from the table of directives.
//!
//! It refuses names that may not stand where they are, and values where the table's syntax says all that is possible. What
//! values mean beyond that is for `kp -t`.

mod json;

use crate::directives::{self, BlockKind, Contexts, Entry};
use crate::scope::Scope;
use json::Json;

/// Words of the table's syntax that stand for themselves; any other stands for something.
const LITERALS: [&str; 36] = [
    "1.0",
    "1.1",
    "all",
    "always",
    "any",
    "append",
    "auto",
    "build",
    "clean",
    "combined",
    "default",
    "edge",
    "epoll",
    "error",
    "fast",
    "graceful",
    "header",
    "info",
    "json",
    "last_byte",
    "msie6",
    "none",
    "notice",
    "off",
    "on",
    "optional",
    "optional_no_ca",
    "propagate",
    "safari",
    "start",
    "stderr",
    "v1",
    "v2",
    "warn",
    "debug",
    "crit",
];

/// The schema of a file that holds what stands in this context; `None` if there is no such context.
pub fn schema(context: &str) -> Option<String> {
    let root = Contexts::each().find(|known| name(*known) == context)?;
    let definitions = Contexts::each().flat_map(|context| {
        let slug = name(context);
        [
            (format!("{slug}-mapping"), mapping(context)),
            (slug, block(context)),
        ]
    });
    let rows = directives::all().map(|entry| (row_name(entry), property(entry, entry.contexts)));
    let definitions = definitions.chain(rows.filter(|(name, _)| name != "directive-if"));
    let schema = Json::map([
        (
            "$schema",
            Json::text("http://json-schema.org/draft-07/schema#"),
        ),
        (
            "title",
            Json::text(format!(
                "kp {}: configuration in YAML ({context})",
                env!("CARGO_PKG_VERSION")
            )),
        ),
        ("allOf", Json::List(vec![reference(&name(root))])),
        ("definitions", Json::Map(definitions.collect())),
    ]);
    Some(format!("{schema}\n"))
}

/// The contexts there are schemas of.
pub fn contexts() -> Vec<String> {
    Contexts::each().map(name).collect()
}

/// What a context is called in the schema: `if-in-server`.
fn name(context: Contexts) -> String {
    context.names().collect::<String>().replace(' ', "-")
}

/// What a row is called in the schema; several of one name are told apart by where they stand.
fn row_name(entry: &Entry) -> String {
    let outermost = entry.contexts.names().next().unwrap_or_default();
    match directives::named(entry.name).count() {
        1 => format!("directive-{}", entry.name),
        _ => format!(
            "directive-{}-in-{}",
            entry.name,
            outermost.replace(' ', "-")
        ),
    }
}

fn reference(name: &str) -> Json {
    Json::map([("$ref", Json::text(format!("#/definitions/{name}")))])
}

fn any_of(schemas: Vec<Json>) -> Json {
    Json::map([("anyOf", Json::List(schemas))])
}

fn list_of(items: Json) -> Json {
    Json::map([("type", Json::text("array")), ("items", items)])
}

fn mapping_to(values: Json) -> Json {
    Json::map([
        ("type", Json::text("object")),
        ("additionalProperties", values),
    ])
}

/// A text, a number or a truth value.
fn scalar() -> Json {
    Json::map([("type", Json::texts(["string", "number", "boolean"]))])
}

fn null() -> Json {
    Json::map([("type", Json::text("null"))])
}

/// The inside of a block: a mapping, a list of mappings, or nothing.
fn block(context: Contexts) -> Json {
    let mapping = format!("{}-mapping", name(context));
    any_of(vec![
        reference(&mapping),
        list_of(reference(&mapping)),
        null(),
    ])
}

fn mapping(context: Contexts) -> Json {
    let rows = directives::all().filter(|entry| entry.contexts.contains(context));
    let mut properties: Vec<(String, Json)> = rows
        .map(|entry| {
            // What an "if" holds depends on where it stands.
            let schema = match entry.name {
                "if" => property(entry, context),
                _ => reference(&row_name(entry)),
            };
            (entry.name.to_owned(), schema)
        })
        .collect();
    let others = if Scope::of(context).is_log_format() {
        any_of(vec![scalar(), null(), reference(&name(context))])
    } else if Scope::of(context).holds_entries() {
        any_of(vec![scalar(), list_of(scalar()), null()])
    } else {
        Json::Bool(false)
    };
    if context == Contexts::MAP {
        let switch = |name: &str| (name.to_owned(), any_of(vec![scalar(), null()]));
        properties.extend([switch("hostnames"), switch("volatile")]);
    }
    Json::map([
        ("type", Json::text("object")),
        ("properties", Json::Map(properties)),
        ("additionalProperties", others),
    ])
}

/// A directive: what may stand behind its key, and what an editor shows of it.
fn property(entry: &Entry, context: Contexts) -> Json {
    let Json::Map(mut schema) = value(entry, context) else {
        return scalar();
    };
    schema.insert(
        0,
        ("description".to_owned(), Json::text(description(entry))),
    );
    if let Some(default) = entry
        .default
        .filter(|default| entry.block.may_be_left_out() && !default.contains([' ', ';']))
    {
        schema.push(("default".to_owned(), Json::text(default)));
    }
    Json::Map(schema)
}

fn description(entry: &Entry) -> String {
    let space = if entry.syntax.is_empty() { "" } else { " " };
    let default = entry
        .default
        .map_or_else(String::new, |default| format!(" Default: {default}."));
    format!(
        "{}\n\nIn nginx's syntax: {}{space}{}.{default}",
        entry.doc, entry.name, entry.syntax
    )
}

fn value(entry: &Entry, context: Contexts) -> Json {
    match entry.block {
        BlockKind::None => simple(entry, None),
        BlockKind::Optional(inside) => simple(entry, Some(reference(&name(inside)))),
        _ => {
            let inside = Scope::of(context).inside(entry.name).context();
            let inside = reference(&inside.map_or_else(String::new, name));
            if entry.block_takes_args() {
                let mapping = mapping_to(inside);
                any_of(vec![mapping.clone(), list_of(mapping)])
            } else if entry.repeatable {
                any_of(vec![inside.clone(), list_of(inside)])
            } else {
                any_of(vec![inside])
            }
        }
    }
}

/// A directive without a block, or with one if it has an inside.
fn simple(entry: &Entry, inside: Option<Json>) -> Json {
    let one = occurrence(entry);
    let mut arguments = vec![
        ("type".to_owned(), Json::text("array")),
        ("items".to_owned(), scalar()),
    ];
    arguments.push(("minItems".to_owned(), Json::Number(entry.arity.min)));
    if let Some(max) = entry.arity.max {
        arguments.push(("maxItems".to_owned(), Json::Number(max)));
    }
    let arguments = Json::Map(arguments);
    // As in the front end: the list of "return" is its arguments.
    if !entry.repeatable || entry.name == "return" {
        return any_of([one, vec![arguments]].concat());
    }
    let values = [scalar(), list_of(scalar()), null()]
        .into_iter()
        .chain(inside);
    let pairs = mapping_to(any_of(values.collect()));
    let element = any_of([one.clone(), vec![arguments, pairs.clone()]].concat());
    any_of([one, vec![list_of(element), pairs]].concat())
}

/// One occurrence as a scalar.
fn occurrence(entry: &Entry) -> Vec<Json> {
    if entry.arity.max == Some(0) {
        let switch = vec![
            Json::Bool(true),
            Json::Bool(false),
            Json::text("on"),
            Json::text("off"),
            Json::Null,
        ];
        return vec![Json::map([("enum", Json::List(switch))])];
    }
    let mut schemas = match entry.arity.max {
        Some(1) => choices(entry.syntax),
        _ => vec![scalar()],
    };
    if entry.arity.min == 0 {
        schemas.push(null());
    }
    schemas
}

/// What one argument may be, where the syntax says all of it.
fn choices(syntax: &str) -> Vec<Json> {
    let mut words = Vec::new();
    let mut schemas = Vec::new();
    for alternative in syntax.split(" | ") {
        match alternative {
            "number" => schemas.push(number()),
            "size" => schemas.push(pattern("^([0-9]+[kKmMgG]?|.*\\$.*)$")),
            "time" => schemas.push(pattern("^(([0-9]+(ms|[smhdwMy])? ?)+|.*\\$.*)$")),
            word if LITERALS.contains(&word) => words.push(word),
            _ => return vec![scalar()],
        }
    }
    if !schemas.is_empty() {
        schemas.push(Json::map([("type", Json::text("integer"))]));
    }
    if !words.is_empty() {
        let mut values: Vec<Json> = words.iter().copied().map(Json::text).collect();
        for (word, value) in [("on", true), ("off", false)] {
            if words.contains(&word) {
                values.push(Json::Bool(value));
            }
        }
        // A version may be written as the number that it looks like.
        if words.contains(&"1.1") {
            schemas.push(Json::map([("type", Json::text("number"))]));
        }
        schemas.push(Json::map([("enum", Json::List(values))]));
    }
    schemas
}

fn number() -> Json {
    pattern("^[0-9]+$")
}

fn pattern(pattern: &str) -> Json {
    Json::map([
        ("type", Json::text("string")),
        ("pattern", Json::text(pattern)),
    ])
}
