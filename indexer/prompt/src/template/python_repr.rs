//! What a template prints for a bare `{{ value }}`, and what a value is wherever a text is wanted: Python's `str`, which for
//! lists and maps shows their items by `repr`.

use std::borrow::Cow;
use std::fmt::{self, Write};

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, Output, State, escape_formatter};
use serde_json::Value as Json;

use super::python_number::{IN_TEXT, write_float};
use super::value::{WideInteger, from_json};
use crate::bounded::Bounded;
use crate::limits::JSON_DEPTH;

/// The environment's formatter.
pub(super) fn format(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined | ValueKind::None | ValueKind::Bool | ValueKind::String => {
            escape_formatter(out, state, value)
        }
        _ => out.write_str(&text_of(value)?).map_err(Error::from),
    }
}

/// `str(value)`. Fails where that is not known.
pub(super) fn text_of(value: &Value) -> Result<Cow<'_, str>, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.into());
    }
    // Values may stand in each other more than once, so the text may be of any length.
    let mut text = Bounded::prompt();
    write_text(&mut text, value)?;
    Ok(text.into_string().into())
}

/// Writes `str(value)`.
pub(super) fn write_text(out: &mut impl Write, value: &Value) -> Result<(), Error> {
    match (value.as_str(), value.kind()) {
        (Some(text), _) => out.write_str(text).map_err(Error::from),
        (None, ValueKind::Undefined) => Ok(()),
        (None, _) => write_repr(out, value, 0),
    }
}

/// `str(value)` of what Python's JSON reader makes of `json`.
pub(crate) fn python_str(json: &Json) -> String {
    if let Json::String(text) = json {
        return text.clone();
    }
    let mut text = String::new();
    match write_repr(&mut text, &from_json(json), 0) {
        Ok(()) => text,
        // Only nesting beyond what a JSON reader takes.
        Err(_) => String::new(),
    }
}

fn write_repr(out: &mut impl Write, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > JSON_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "value is nested too deeply"));
    }
    match value.kind() {
        ValueKind::Number if !value.is_integer() => {
            let number = f64::try_from(value.clone())?;
            write_float(out, number, &IN_TEXT)?;
        }
        ValueKind::String if value.is_safe() => {
            out.write_str("Markup(")?;
            write_quoted(out, value.as_str().unwrap_or_default())?;
            out.write_str(")")?;
        }
        ValueKind::String => write_quoted(out, value.as_str().unwrap_or_default())?,
        ValueKind::Undefined => out.write_str("Undefined")?,
        // Slices and products of lists are iterables here. What is none in Python and has a length here, such as a range,
        // no template prints.
        ValueKind::Seq | ValueKind::Iterable if value.len().is_some() => {
            let (open, close) = if value.is_tuple() { ("(", ")") } else { ("[", "]") };
            out.write_str(open)?;
            for (place, item) in value.try_iter()?.enumerate() {
                out.write_str(if place == 0 { "" } else { ", " })?;
                write_repr(out, &item, depth + 1)?;
            }
            // A pair of brackets around one value makes no tuple.
            out.write_str(if value.is_tuple() && value.len() == Some(1) { "," } else { "" })?;
            out.write_str(close)?;
        }
        ValueKind::Map => {
            out.write_str("{")?;
            for (place, key) in value.try_iter()?.enumerate() {
                out.write_str(if place == 0 { "" } else { ", " })?;
                write_repr(out, &key, depth + 1)?;
                out.write_str(": ")?;
                write_repr(out, &value.get_item(&key)?, depth + 1)?;
            }
            out.write_str("}")?;
        }
        ValueKind::None | ValueKind::Bool | ValueKind::Number => write!(out, "{value}")?,
        _ if value.downcast_object_ref::<WideInteger>().is_some() => write!(out, "{value}")?,
        // Functions, namespaces and the like: what Python prints holds an address, or is a form of its own.
        kind => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("the text of a value of type {kind} is not known"),
            ));
        }
    }
    Ok(())
}

/// A text in quotes: single ones, unless it holds single and no double ones.
fn write_quoted(out: &mut impl Write, text: &str) -> fmt::Result {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let is_escaped = |char: char| char == '\\' || char == quote || !is_printable(char);
    out.write_char(quote)?;
    // Each piece ends with the only character in it that may need an escape.
    for piece in text.split_inclusive(is_escaped) {
        let last = piece.chars().next_back().filter(|char| is_escaped(*char));
        let plain = piece.len() - last.map_or(0, char::len_utf8);
        out.write_str(piece.get(..plain).unwrap_or_default())?;
        if let Some(char) = last {
            write_escape(out, char)?;
        }
    }
    out.write_char(quote)
}

/// `\xNN`, `\uNNNN` or `\UNNNNNNNN`, the shortest that fits, where there is no name.
fn write_escape(out: &mut impl Write, char: char) -> fmt::Result {
    match (char, u32::from(char)) {
        ('\\' | '\'' | '"', _) => write!(out, "\\{char}"),
        ('\n', _) => out.write_str("\\n"),
        ('\r', _) => out.write_str("\\r"),
        ('\t', _) => out.write_str("\\t"),
        (_, code @ ..=0xff) => write!(out, "\\x{code:02x}"),
        (_, code @ 0x100..=0xffff) => write!(out, "\\u{code:04x}"),
        (_, code) => write!(out, "\\U{code:08x}"),
    }
}

/// Python's `str.isprintable`: neither control, format, private or unassigned character, nor white space but a blank.
/// Rust's `escape_debug` of a text escapes the same characters, and at its start combining marks as well: a letter goes
/// before. Letters and numbers are printable, and most of what is asked for.
fn is_printable(char: char) -> bool {
    if char.is_ascii() {
        return !char.is_ascii_control();
    }
    char.is_alphanumeric() || is_printable_by_escapes(char)
}

fn is_printable_by_escapes(char: char) -> bool {
    // Room for the letter and four bytes.
    let mut bytes = *b"a    ";
    let [_, behind @ ..] = &mut bytes;
    let len = 1 + char.encode_utf8(behind).len();
    let text = bytes.get(..len).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default();
    !text.escape_debug().any(|escaped| escaped == '\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_numbers_are_printable_by_their_escapes_too() {
        let letters = (char::MIN..=char::MAX).filter(|char| !char.is_ascii() && char.is_alphanumeric());
        assert_eq!(letters.filter(|char| !is_printable_by_escapes(*char)).collect::<String>(), "");
    }
}
