//! JSON of a request → values of the template engine, with types as Python's JSON reader gives them.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Object, ObjectRepr, Value};
use serde_json::{Map, Number, Value as Json};

/// An integer beyond 128 bits: Python's integers have no limit, so it must be printed digit by digit.
#[derive(Debug)]
pub(super) struct WideInteger(pub(super) String);

impl Object for WideInteger {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A template value that equals what Python's `json.loads` makes of the same text.
pub(crate) fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => from_number(number),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(from_json).collect(),
        Json::Object(map) => from_map(map),
    }
}

/// Keeps the order of the keys, as Python's dict does.
pub(crate) fn from_map(map: &Map<String, Json>) -> Value {
    Value::from_pairs(map.iter().map(|(key, value)| (Value::from(key.as_str()), from_json(value))))
}

/// A number written with a fraction or an exponent is a float, any other an integer, whatever its value.
fn from_number(number: &Number) -> Value {
    let text = number.as_str();
    if text.contains(['.', 'e', 'E']) {
        // A literal out of range reads as infinity in both languages.
        return Value::from(text.parse::<f64>().unwrap_or(f64::NAN));
    }
    if let Ok(integer) = text.parse::<i64>() {
        Value::from(integer)
    } else if let Ok(integer) = text.parse::<u64>() {
        Value::from(integer)
    } else if let Ok(integer) = text.parse::<i128>() {
        Value::from(integer)
    } else {
        Value::from_object(WideInteger(text.to_owned()))
    }
}
