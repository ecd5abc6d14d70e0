//! What a template prints for a bare `{{ value }}`: Python's `str`, which for lists and maps shows their items by `repr`.

use std::fmt::Write;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, Output, State, escape_formatter};
use serde_json::Value as Json;

use super::python_number::{IN_TEXT, write_float};
use super::value::from_json;
use crate::limits::JSON_DEPTH;

/// The environment's formatter. Only floats, lists and maps print differently from the engine library's own way.
pub(super) fn format(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Number | ValueKind::Seq | ValueKind::Map => {
            let mut text = String::new();
            write_repr(&mut text, value, 0)?;
            out.write_str(&text).map_err(Error::from)
        }
        _ => escape_formatter(out, state, value),
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

fn write_repr(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > JSON_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "value is nested too deeply"));
    }
    match value.kind() {
        ValueKind::Number if !value.is_integer() => {
            let number = f64::try_from(value.clone())?;
            write_float(out, number, &IN_TEXT).map_err(Error::from)
        }
        ValueKind::String => {
            write_quoted(out, value.as_str().unwrap_or_default());
            Ok(())
        }
        // A tuple has round brackets, and whatever else calls itself a sequence its own form.
        ValueKind::Seq if !value.is_tuple() => {
            out.push('[');
            for (place, item) in value.try_iter()?.enumerate() {
                out.push_str(if place == 0 { "" } else { ", " });
                write_repr(out, &item, depth + 1)?;
            }
            out.push(']');
            Ok(())
        }
        ValueKind::Map => {
            out.push('{');
            for (place, key) in value.try_iter()?.enumerate() {
                out.push_str(if place == 0 { "" } else { ", " });
                write_repr(out, &key, depth + 1)?;
                out.push_str(": ");
                write_repr(out, &value.get_item(&key)?, depth + 1)?;
            }
            out.push('}');
            Ok(())
        }
        _ => write!(out, "{value}").map_err(Error::from),
    }
}

/// A text in quotes: single ones, unless it holds single and no double ones.
fn write_quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if char == quote => out.extend(['\\', quote]),
            _ if is_printable(char) => out.push(char),
            _ => write_escape(out, u32::from(char)),
        }
    }
    out.push(quote);
}

/// `\xNN`, `\uNNNN` or `\UNNNNNNNN`, the shortest that fits.
fn write_escape(out: &mut String, code: u32) {
    let _infallible = match code {
        ..=0xff => write!(out, "\\x{code:02x}"),
        0x100..=0xffff => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}

/// Python's `str.isprintable`: neither control, format, private or unassigned character, nor white space but a blank.
/// Rust's `escape_debug` of a text escapes the same characters, and at its start combining marks as well: a letter goes
/// before.
fn is_printable(char: char) -> bool {
    if char.is_ascii() {
        return !char.is_ascii_control();
    }
    let text: String = ['a', char].iter().collect();
    !text.escape_debug().any(|escaped| escaped == '\\')
}
