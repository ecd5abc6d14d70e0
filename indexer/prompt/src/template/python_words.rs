//! Filters and methods that lay a text out or change the case of its letters, as Python does.

use std::fmt::Write;

use minijinja::value::{Kwargs, Rest, Value};
use minijinja::{Environment, Error, ErrorKind};

use super::python_repr::text_of;
use crate::bounded::Bounded;

/// Adds them to `environment`, in place of the engine library's. What it has and Python prints otherwise is taken out.
pub(super) fn add_to(environment: &mut Environment<'_>) {
    environment.add_filter("indent", indent);
    environment.add_filter("escape", escape);
    environment.add_filter("e", escape);
    environment.add_filter("capitalize", |value: Value| Ok::<_, Error>(capitalize(&text_of(&value)?)));
    environment.remove_filter("pprint");
}

/// `indent(width=4, first=false, blank=false)` of a text; `width`: blanks, or what stands in their place.
fn indent(value: Value, args: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let argument = |place: usize, name| match args.get(place) {
        Some(value) => Ok(Some(value.clone())),
        None => kwargs.get::<Option<Value>>(name),
    };
    let (width, first, blank) = (argument(0, "width")?, argument(1, "first")?, argument(2, "blank")?);
    kwargs.assert_all_used()?;
    if args.len() > 3 {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    let text = value.as_str().ok_or_else(|| unknown("indent of what is no text"))?;
    let indentation = match width {
        None => " ".repeat(4),
        Some(width) => match width.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::from(u16::try_from(width)?)),
        },
    };
    let is_true = |flag: Option<Value>| flag.is_some_and(|flag| flag.is_true());
    let (first, blank) = (is_true(first), is_true(blank));
    let mut out = Bounded::prompt();
    let closed = format!("{text}\n");
    for (number, line) in lines(&closed, false).into_iter().enumerate() {
        if number > 0 {
            out.write_str("\n")?;
        }
        let is_indented = if number == 0 { first } else { blank || !line.is_empty() };
        out.write_str(if is_indented { &indentation } else { "" })?;
        out.write_str(line)?;
    }
    Ok(out.into_string())
}

/// The characters of HTML, in the notation of Python's `markupsafe`. What is escaped already stays.
fn escape(value: Value) -> Result<Value, Error> {
    if value.is_safe() {
        return Ok(value);
    }
    let mut out = Bounded::prompt();
    for piece in text_of(&value)?.split_inclusive(['&', '<', '>', '"', '\'']) {
        let (plain, escaped) = match piece.as_bytes().last() {
            Some(b'&') => (piece.strip_suffix('&'), "&amp;"),
            Some(b'<') => (piece.strip_suffix('<'), "&lt;"),
            Some(b'>') => (piece.strip_suffix('>'), "&gt;"),
            Some(b'"') => (piece.strip_suffix('"'), "&#34;"),
            Some(b'\'') => (piece.strip_suffix('\''), "&#39;"),
            _ => (None, ""),
        };
        out.write_str(plain.unwrap_or(piece))?;
        out.write_str(escaped)?;
    }
    Ok(Value::from_safe_string(out.into_string()))
}

/// `str.capitalize`.
pub(super) fn capitalize(text: &str) -> String {
    let Some(first) = text.chars().next() else { return String::new() };
    // The case of a sigma depends on what stands before it.
    let lower = text.to_lowercase();
    let first_lower: usize = first.to_lowercase().map(char::len_utf8).sum();
    let mut out = String::with_capacity(text.len());
    push_title(&mut out, first);
    out.push_str(lower.get(first_lower..).unwrap_or_default());
    out
}

/// `str.title`: a letter behind another one is small, any other is large.
pub(super) fn title(text: &str) -> Result<String, Error> {
    let mut out = String::with_capacity(text.len());
    let mut follows_letter = false;
    for char in text.chars() {
        if char == 'Σ' {
            return Err(unknown("title of a text with a large sigma"));
        }
        if follows_letter {
            out.extend(char.to_lowercase());
        } else {
            push_title(&mut out, char);
        }
        follows_letter = char.is_lowercase() || char.is_uppercase() || title_digraph(char).is_some();
    }
    Ok(out)
}

/// A letter as the first one of a title: large, and where it is large as several, only the first of them.
fn push_title(out: &mut String, char: char) {
    if let Some(digraph) = title_digraph(char) {
        out.push(digraph);
    } else if matches!(char, '\u{10d0}'..='\u{10ff}') {
        // Georgian has large letters, but no titles.
        out.push(char);
    } else {
        let mut upper = char.to_uppercase();
        out.extend(upper.next());
        out.extend(upper.flat_map(char::to_lowercase));
    }
}

fn title_digraph(char: char) -> Option<char> {
    match char {
        'Ǆ' | 'ǅ' | 'ǆ' => Some('ǅ'),
        'Ǉ' | 'ǈ' | 'ǉ' => Some('ǈ'),
        'Ǌ' | 'ǋ' | 'ǌ' => Some('ǋ'),
        'Ǳ' | 'ǲ' | 'ǳ' => Some('ǲ'),
        _ => None,
    }
}

fn unknown(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}

/// Python's `str.splitlines`.
pub(super) fn lines(text: &str, keeps_ends: bool) -> Vec<&str> {
    const ENDS: [char; 10] =
        ['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'];
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.find(ENDS) {
        let behind = rest.get(end..).unwrap_or_default();
        let width =
            if behind.starts_with("\r\n") { 2 } else { behind.chars().next().map_or(0, char::len_utf8) };
        let line_end = if keeps_ends { end + width } else { end };
        lines.extend(rest.get(..line_end));
        rest = rest.get(end + width..).unwrap_or_default();
    }
    lines.extend((!rest.is_empty()).then_some(rest));
    lines
}
