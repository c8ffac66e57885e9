//! JSON as text, which is all that a schema needs.

use std::fmt::{self, Display, Formatter};

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Number(usize),
    Text(String),
    List(Vec<Self>),
    /// In this order.
    Map(Vec<(String, Self)>),
}

impl Json {
    /// A text.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A list of texts.
    pub(super) fn texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        Self::List(texts.into_iter().map(Self::text).collect())
    }

    /// A mapping.
    pub(super) fn map<const N: usize>(pairs: [(&str, Self); N]) -> Self {
        Self::Map(pairs.map(|(key, value)| (key.to_owned(), value)).into())
    }

    fn write(&self, indent: usize, out: &mut Formatter<'_>) -> fmt::Result {
        let inner = indent + 2;
        match self {
            Self::Null => out.write_str("null"),
            Self::Bool(value) => write!(out, "{value}"),
            Self::Number(value) => write!(out, "{value}"),
            Self::Text(text) => write_text(text, out),
            Self::List(values) if values.is_empty() => out.write_str("[]"),
            Self::Map(pairs) if pairs.is_empty() => out.write_str("{}"),
            Self::List(values) => {
                for (number, value) in values.iter().enumerate() {
                    write!(
                        out,
                        "{}\n{:inner$}",
                        if number == 0 { "[" } else { "," },
                        ""
                    )?;
                    value.write(inner, out)?;
                }
                write!(out, "\n{:indent$}]", "")
            }
            Self::Map(pairs) => {
                for (number, (key, value)) in pairs.iter().enumerate() {
                    write!(
                        out,
                        "{}\n{:inner$}",
                        if number == 0 { "{" } else { "," },
                        ""
                    )?;
                    write_text(key, out)?;
                    out.write_str(": ")?;
                    value.write(inner, out)?;
                }
                write!(out, "\n{:indent$}}}", "")
            }
        }
    }
}

impl Display for Json {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        self.write(0, out)
    }
}

fn write_text(text: &str, out: &mut Formatter<'_>) -> fmt::Result {
    out.write_str("\"")?;
    for character in text.chars() {
        match character {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            control if control.is_control() => write!(out, "\\u{:04x}", u32::from(control))?,
            other => write!(out, "{other}")?,
        }
    }
    out.write_str("\"")
}
