//! Filters and methods that take any value for a text, or look at white space, as Python does.

use std::fmt::Write;

use minijinja::value::{Kwargs, Rest, Value, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State, filters};
use minijinja_contrib::pycompat;

use super::python_repr::{text_of, write_text};
use super::python_words;
use crate::bounded::Bounded;

/// Digits of the width of a field, at most.
const WIDTH_DIGITS_MAX: usize = 4;

/// Adds them to `environment`, in place of the engine library's.
pub(super) fn add_to(environment: &mut Environment<'_>) {
    environment.add_filter("string", string);
    environment.add_filter("join", join);
    environment.add_filter("trim", trim);
    environment.add_filter("format", format);
    let of_texts = [
        ("upper", Value::from_function(filters::upper)),
        ("lower", Value::from_function(filters::lower)),
        ("title", Value::from_function(filters::title)),
        ("replace", Value::from_function(filters::replace)),
    ];
    for (name, filter) in of_texts {
        environment.add_filter(name, move |state: &mut State, value: Value, args: Rest<Value>| {
            let mut arguments = vec![as_text(value)?];
            arguments.extend(args.iter().cloned());
            filter.call(state, &arguments)
        });
    }
    environment.set_unknown_method_callback(method);
}

/// Python's `str.strip`.
pub(crate) fn python_strip(text: &str) -> &str {
    text.trim_matches(is_python_space)
}

/// Python's white space: Unicode's, and the four separators of ASCII.
pub(crate) fn is_python_space(char: char) -> bool {
    char.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&char)
}

fn as_text(value: Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::String {
        return Ok(value);
    }
    Ok(Value::from(&*text_of(&value)?))
}

fn string(value: Value) -> Result<Value, Error> {
    as_text(value)
}

/// `join(d='', attribute=none)`.
fn join(state: &State, value: Value, args: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let argument = |place: usize, name| match args.get(place) {
        Some(value) => Ok(Some(value.clone())),
        None => kwargs.get::<Option<Value>>(name),
    };
    let (separator, attribute) = (argument(0, "d")?, argument(1, "attribute")?);
    kwargs.assert_all_used()?;
    if args.len() > 2 {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    let separator = separator.as_ref().map(text_of).transpose()?.unwrap_or_default();
    let attribute = attribute.filter(|attribute| !attribute.is_none());
    let mut out = Bounded::prompt();
    for (place, item) in value.try_iter()?.enumerate() {
        state.consume_fuel(1)?;
        if place > 0 {
            out.write_str(&separator)?;
        }
        let item = attribute.as_ref().map_or(Ok(item.clone()), |attribute| look_up(item, attribute))?;
        write_text(&mut out, &item)?;
    }
    Ok(out.into_string())
}

/// `a.b` of an item, or what it has at a place.
fn look_up(item: Value, attribute: &Value) -> Result<Value, Error> {
    match attribute.as_str() {
        Some(path) => path.split('.').try_fold(item, |item, name| match name.parse::<usize>() {
            Ok(place) => item.get_item(&Value::from(place)),
            Err(_) => item.get_attr(name),
        }),
        None => item.get_item(attribute),
    }
}

fn trim(state: &mut State, value: Value, args: Rest<Value>) -> Result<Value, Error> {
    let value = as_text(value)?;
    if args.is_empty() {
        return Ok(Value::from(python_strip(value.as_str().unwrap_or_default())));
    }
    let mut arguments = vec![value];
    arguments.extend(args.iter().cloned());
    Value::from_function(filters::trim).call(state, &arguments)
}

/// `text % arguments`.
fn format(state: &mut State, value: Value, args: Rest<Value>) -> Result<Value, Error> {
    let mut arguments = vec![as_text(value)?];
    for argument in args.iter() {
        arguments.push(formattable(argument)?);
    }
    Value::from_function(filters::format).call(state, &arguments)
}

/// Methods of Python's texts, lists and maps.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match (value.as_str(), name, args) {
        (Some(text), "strip", []) => Ok(Value::from(python_strip(text))),
        (Some(text), "lstrip", []) => Ok(Value::from(text.trim_start_matches(is_python_space))),
        (Some(text), "rstrip", []) => Ok(Value::from(text.trim_end_matches(is_python_space))),
        (Some(text), "isspace", []) => Ok(Value::from(!text.is_empty() && text.chars().all(is_python_space))),
        (Some(text), "split", []) => {
            Ok(text.split(is_python_space).filter(|word| !word.is_empty()).map(Value::from).collect())
        }
        (Some(text), "title", []) => python_words::title(text).map(Value::from),
        (Some(text), "capitalize", []) => Ok(Value::from(python_words::capitalize(text))),
        (Some(text), "splitlines", _) => {
            let (keeps_ends,): (Option<bool>,) = from_args(args)?;
            Ok(python_words::lines(text, keeps_ends.unwrap_or(false)).into_iter().map(Value::from).collect())
        }
        (Some(text), "format", _) => {
            // The width of a field is made before it is paid for.
            if text.as_bytes().windows(WIDTH_DIGITS_MAX + 1).any(|run| run.iter().all(u8::is_ascii_digit)) {
                return Err(Error::new(ErrorKind::InvalidOperation, "layout with a wide field"));
            }
            let mut arguments = Vec::with_capacity(args.len());
            for argument in args {
                arguments.push(formattable(argument)?);
            }
            if text.contains(':')
                && arguments.iter().zip(args).any(|(ours, given)| ours.kind() != given.kind())
            {
                return Err(Error::new(ErrorKind::InvalidOperation, "layout of a value that is made a text"));
            }
            pycompat::unknown_method_callback(state, value, name, &arguments)
        }
        _ => pycompat::unknown_method_callback(state, value, name, args),
    }
}

/// A value that the engine library prints as Python does, or the text that Python prints.
fn formattable(value: &Value) -> Result<Value, Error> {
    if value.is_kwargs() {
        let named = Kwargs::try_from(value.clone())?;
        let named = named.args().map(|name| Ok((name.to_owned(), formattable(&named.get::<Value>(name)?)?)));
        return Ok(Value::from(named.collect::<Result<Kwargs, Error>>()?));
    }
    match value.kind() {
        ValueKind::Undefined | ValueKind::None | ValueKind::Bool | ValueKind::String => Ok(value.clone()),
        ValueKind::Number if *text_of(value)? == value.to_string() => Ok(value.clone()),
        _ => as_text(value.clone()),
    }
}
