//! `tojson` as the engine has it: Python's `json.dumps`, without HTML escaping.

use std::fmt::{self, Write};

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Error, ErrorKind};
use serde_json::Value as Json;

use super::python_number::{IN_JSON, write_float};
use super::value::{WideInteger, from_json};
use crate::bounded::Bounded;
use crate::limits::JSON_DEPTH;

/// The parameters of `json.dumps` that templates use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Style {
    /// Escape everything outside ASCII as `\uXXXX`.
    pub ensure_ascii: bool,
    /// Text of one level of indentation; `None` writes everything in one line.
    pub indent: Option<String>,
    /// Between items, between key and value. `None`: Python's default, which depends on the indentation.
    pub separators: Option<(String, String)>,
    pub sort_keys: bool,
}

/// The filter: `tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`, positional or by name.
pub(super) fn tojson(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let style = Style::from_arguments(&args, &kwargs)?;
    kwargs.assert_all_used()?;
    dumps(value, &style)
}

/// `json.dumps` of what Python's JSON reader makes of `json`; `None`: the text is too long or too deep.
pub(crate) fn python_dumps(json: &Json) -> Option<String> {
    dumps(&from_json(json), &Style { ensure_ascii: true, ..Style::default() }).ok()
}

/// `json.dumps(value, …)`. Fails where Python does: values that JSON has no form for.
pub(super) fn dumps(value: &Value, style: &Style) -> Result<String, Error> {
    let mut writer = Writer { out: Bounded::prompt(), style };
    writer.value(value, 0)?;
    Ok(writer.out.into_string())
}

struct Writer<'a> {
    /// Indentation, and values that stand in others more than once, make long texts of short ones.
    out: Bounded,
    style: &'a Style,
}

// === impl Style ===

impl Style {
    fn from_arguments(positional: &[Value], kwargs: &Kwargs) -> Result<Self, Error> {
        const NAMES: [&str; 4] = ["ensure_ascii", "indent", "separators", "sort_keys"];
        if positional.len() > NAMES.len() {
            return Err(Error::from(ErrorKind::TooManyArguments));
        }
        let mut arguments = NAMES.iter().enumerate().map(|(place, name)| match positional.get(place) {
            Some(value) => Ok(Some(value.clone())),
            None => kwargs.get::<Option<Value>>(name),
        });
        let mut next = || arguments.next().transpose().map(Option::flatten);
        let (ensure_ascii, indent, separators, sort_keys) = (next()?, next()?, next()?, next()?);
        let is_true = |value: Option<Value>| value.is_some_and(|value| value.is_true());
        Ok(Style {
            ensure_ascii: is_true(ensure_ascii),
            indent: indent.map_or(Ok(None), |value| read_indent(&value))?,
            separators: separators.map_or(Ok(None), |value| read_separators(&value))?,
            sort_keys: is_true(sort_keys),
        })
    }

    fn item_separator(&self) -> &str {
        match (&self.separators, &self.indent) {
            (Some((item, _)), _) => item,
            (None, Some(_)) => ",",
            (None, None) => ", ",
        }
    }

    fn key_separator(&self) -> &str {
        self.separators.as_ref().map_or(": ", |(_, key)| key)
    }
}

/// A number of blanks or the text itself, as in Python; nothing but line breaks for a negative number.
fn read_indent(value: &Value) -> Result<Option<String>, Error> {
    /// Wider indentation than any layout needs; bounds what a template can allocate.
    const WIDEST: usize = 64;
    if value.is_none() || value.is_undefined() {
        return Ok(None);
    }
    let indent = match value.as_str() {
        Some(text) => text.to_owned(),
        None => {
            let width = i64::try_from(value.clone())?.max(0);
            " ".repeat(usize::try_from(width).unwrap_or(WIDEST).min(WIDEST + 1))
        }
    };
    if indent.len() > WIDEST {
        return Err(invalid(format!("indent is wider than {WIDEST}")));
    }
    Ok(Some(indent))
}

fn read_separators(value: &Value) -> Result<Option<(String, String)>, Error> {
    if value.is_none() || value.is_undefined() {
        return Ok(None);
    }
    let mut texts = value.try_iter()?.map(|text| text.as_str().map(str::to_owned));
    match (texts.next().flatten(), texts.next().flatten(), texts.next()) {
        (Some(item), Some(key), None) => Ok(Some((item, key))),
        _ => Err(invalid("separators is not a pair of texts")),
    }
}

// === impl Writer ===

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > JSON_DEPTH {
            return Err(invalid("value is nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => self.put("null"),
            ValueKind::Bool => self.put(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq => self.list(value, depth),
            ValueKind::Map => self.map(value, depth),
            ValueKind::Plain => match value.downcast_object_ref::<WideInteger>() {
                Some(integer) => self.put(&integer.0),
                None => Err(not_serializable(value)),
            },
            _ => Err(not_serializable(value)),
        }
    }

    fn number(&mut self, value: &Value) -> Result<(), Error> {
        if value.is_integer() {
            return write!(self.out, "{value}").map_err(cannot_write);
        }
        let number = f64::try_from(value.clone())?;
        write_float(&mut self.out, number, &IN_JSON).map_err(cannot_write)
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.put("[")?;
        let mut empty = true;
        for item in value.try_iter()? {
            self.before_item(empty, depth + 1)?;
            self.value(&item, depth + 1)?;
            empty = false;
        }
        self.after_items(empty, depth)?;
        self.put("]")
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.style.sort_keys {
            keys.sort();
        }
        self.put("{")?;
        let empty = keys.is_empty();
        for (place, key) in keys.iter().enumerate() {
            self.before_item(place == 0, depth + 1)?;
            self.key(key)?;
            self.put(self.style.key_separator())?;
            self.value(&value.get_item(key)?, depth + 1)?;
        }
        self.after_items(empty, depth)?;
        self.put("}")
    }

    /// JSON has only text keys; Python turns the other plain types into text.
    fn key(&mut self, key: &Value) -> Result<(), Error> {
        match key.kind() {
            ValueKind::String => self.string(key.as_str().unwrap_or_default()),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                self.put("\"")?;
                self.value(key, 0)?;
                self.put("\"")
            }
            _ => Err(invalid("keys must be text, numbers, booleans or none")),
        }
    }

    fn before_item(&mut self, first: bool, depth: usize) -> Result<(), Error> {
        if !first {
            self.put(self.style.item_separator())?;
        }
        self.new_line(depth)
    }

    fn after_items(&mut self, empty: bool, depth: usize) -> Result<(), Error> {
        if empty { Ok(()) } else { self.new_line(depth) }
    }

    fn new_line(&mut self, depth: usize) -> Result<(), Error> {
        let Some(indent) = &self.style.indent else { return Ok(()) };
        let mut write = || {
            self.out.write_str("\n")?;
            (0..depth).try_for_each(|_| self.out.write_str(indent))
        };
        write().map_err(cannot_write)
    }

    fn string(&mut self, text: &str) -> Result<(), Error> {
        write_string(&mut self.out, text, self.style.ensure_ascii).map_err(cannot_write)
    }

    fn put(&mut self, text: &str) -> Result<(), Error> {
        self.out.write_str(text).map_err(cannot_write)
    }
}

fn write_string(out: &mut impl Write, text: &str, ensure_ascii: bool) -> fmt::Result {
    let is_escaped = |char: char| char < ' ' || char == '"' || char == '\\' || ensure_ascii && char > '~';
    out.write_str("\"")?;
    // Each piece ends with the only character in it that may need an escape.
    for piece in text.split_inclusive(is_escaped) {
        let last = piece.chars().next_back().filter(|char| is_escaped(*char));
        let plain = piece.len() - last.map_or(0, char::len_utf8);
        out.write_str(piece.get(..plain).unwrap_or_default())?;
        if let Some(char) = last {
            write_escape(out, char)?;
        }
    }
    out.write_str("\"")
}

fn write_escape(out: &mut impl Write, char: char) -> fmt::Result {
    match char {
        '"' => out.write_str("\\\""),
        '\\' => out.write_str("\\\\"),
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        '\u{8}' => out.write_str("\\b"),
        '\u{c}' => out.write_str("\\f"),
        other => {
            let mut units = [0; 2];
            other.encode_utf16(&mut units).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))
        }
    }
}

fn invalid(why: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

fn not_serializable(value: &Value) -> Error {
    invalid(format!("value of kind {} has no JSON form", value.kind()))
}

fn cannot_write(_: fmt::Error) -> Error {
    Error::from(ErrorKind::WriteFailure)
}
