//! Reads one YAML mapping key by key and collects what is wrong with it.
//!
//! A derived deserializer stops at the first mistake; an operator wants them all. So every getter returns a usable
//! value whatever it finds, and notes a [`Problem`] where the value is not the one that was written.

use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value as Json};
use serde_yaml_ng::{Mapping, Value};

use super::Hidden;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Of the key, such as `endpoints.static[0].address`.
    path: String,
    /// What was found there; None where it was missing.
    found: Option<String>,
    /// What to write in its place.
    remedy: String,
}

/// Every mistake so far.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<Problem>);

/// One mapping being read; keys that nobody asked for are mistakes.
pub(super) struct Fields {
    path: String,
    entries: Mapping,
    known: Vec<&'static str>,
}

/// Largest price or weight: far above any that means something, far below what its product with tokens could overflow with.
const WEIGHT_MAX: f64 = 1e9;

/// Longest value quoted in a message, in characters.
const QUOTED_MAX: usize = 80;

// === impl Problem ===

impl Problem {
    pub(crate) fn new(path: impl Into<String>, found: impl fmt::Display, remedy: impl Into<String>) -> Self {
        Self { path: path.into(), found: Some(found.to_string()), remedy: remedy.into() }
    }

    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Some(found) => write!(f, "{}: found {found}; {}", self.path, self.remedy),
            None => write!(f, "{}: missing; {}", self.path, self.remedy),
        }
    }
}

// === impl Problems ===

impl Problems {
    pub(super) fn note(&mut self, path: &str, found: Option<&Value>, remedy: impl Into<String>) {
        self.0.push(Problem { path: path.to_owned(), found: found.map(quoted), remedy: remedy.into() });
    }

    /// Whether one of them is with the key at `path`.
    pub(super) fn names(&self, path: &str) -> bool {
        self.0.iter().any(|problem| problem.path == path)
    }

    pub(super) fn into_result<T>(self, value: T) -> Result<T, Vec<Problem>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }
}

// === impl Fields ===

impl Fields {
    /// The mapping at `path`; null is an empty one.
    pub(super) fn of(path: impl Into<String>, value: Value, problems: &mut Problems) -> Self {
        let path = path.into();
        let entries = match value {
            Value::Mapping(entries) => entries,
            Value::Null => Mapping::new(),
            other => {
                problems.note(shown(&path), Some(&other), "expected a mapping of keys to values");
                Mapping::new()
            }
        };
        Self { path, entries, known: Vec::new() }
    }

    /// Nothing is written here.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Something other than null is written under this key, which was not read yet.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|value| !value.is_null())
    }

    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The value of `key`; None where it is missing or null.
    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.entries.remove(key).filter(|value| !value.is_null())
    }

    pub(super) fn mapping(&mut self, key: &'static str, problems: &mut Problems) -> Self {
        let value = self.take(key).unwrap_or(Value::Null);
        Self::of(self.path_of(key), value, problems)
    }

    /// The items of the list at `key`, each with its path; a missing list is empty.
    pub(super) fn list(&mut self, key: &'static str, problems: &mut Problems) -> Vec<(String, Value)> {
        let path = self.path_of(key);
        match self.take(key) {
            None => Vec::new(),
            Some(Value::Sequence(items)) => {
                items.into_iter().enumerate().map(|(i, item)| (format!("{path}[{i}]"), item)).collect()
            }
            Some(other) => {
                problems.note(&path, Some(&other), "expected a list");
                Vec::new()
            }
        }
    }

    /// Text that parses as `T`; None where the key is missing or wrong.
    pub(super) fn parsed<T: FromStr>(
        &mut self,
        key: &'static str,
        remedy: &str,
        problems: &mut Problems,
    ) -> Option<T> {
        let value = self.take(key)?;
        let parsed = value.as_str().and_then(|text| text.parse().ok());
        if parsed.is_none() {
            problems.note(&self.path_of(key), Some(&value), remedy);
        }
        parsed
    }

    /// Text that is not empty; None where the key is missing or wrong.
    pub(super) fn text(&mut self, key: &'static str, problems: &mut Problems) -> Option<String> {
        text_of(&self.path_of(key), self.take(key)?, problems)
    }

    /// Like [`Self::text`]; a wrong value is not quoted.
    pub(super) fn hidden(&mut self, key: &'static str, problems: &mut Problems) -> Option<Hidden> {
        let value = self.take(key)?;
        let text = text_of(&self.path_of(key), value, &mut Problems::default()).map(Hidden::new);
        if text.is_none() {
            problems.note(
                &self.path_of(key),
                Some(&Value::from("something else")),
                "expected text that is not empty",
            );
        }
        text
    }

    /// The texts of the list at `key`, none of them empty; a missing list is empty.
    pub(super) fn texts(&mut self, key: &'static str, problems: &mut Problems) -> Vec<String> {
        let items = self.list(key, problems);
        items.into_iter().filter_map(|(path, item)| text_of(&path, item, problems)).collect()
    }

    /// Like [`Self::text`], for a key that must be there; what a missing one is read as does not matter then.
    pub(super) fn required_text(
        &mut self,
        key: &'static str,
        remedy: &str,
        problems: &mut Problems,
    ) -> String {
        match self.take(key) {
            Some(value) => text_of(&self.path_of(key), value, problems).unwrap_or_default(),
            None => {
                problems.note(&self.path_of(key), None, remedy);
                String::new()
            }
        }
    }

    /// A whole number within `min..=max`; `default` where the key is missing.
    pub(super) fn number(
        &mut self,
        key: &'static str,
        (min, max): (u64, u64),
        default: u64,
        problems: &mut Problems,
    ) -> u64 {
        let Some(value) = self.take(key) else { return default };
        match value.as_u64() {
            Some(number) if (min..=max).contains(&number) => number,
            _ => {
                problems.note(
                    &self.path_of(key),
                    Some(&value),
                    format!("expected a whole number from {min} to {max}"),
                );
                default
            }
        }
    }

    /// A port; None where the key is missing or wrong.
    pub(super) fn port(&mut self, key: &'static str, problems: &mut Problems) -> Option<u16> {
        let port = self.number(key, (1, u64::from(u16::MAX)), 0, problems);
        u16::try_from(port).ok().filter(|port| *port > 0)
    }

    /// A price or a weight, from 0 to [`WEIGHT_MAX`]; `default` where the key is missing.
    pub(super) fn weight(&mut self, key: &'static str, default: f64, problems: &mut Problems) -> f64 {
        self.within(key, (0.0, WEIGHT_MAX), default, problems)
    }

    /// A number from 0 to 1; `default` where the key is missing.
    pub(super) fn share(&mut self, key: &'static str, default: f64, problems: &mut Problems) -> f64 {
        self.within(key, (0.0, 1.0), default, problems)
    }

    /// A number within `min..=max`; `default` where the key is missing.
    pub(super) fn within(
        &mut self,
        key: &'static str,
        (min, max): (f64, f64),
        default: f64,
        problems: &mut Problems,
    ) -> f64 {
        let Some(value) = self.take(key) else { return default };
        match value.as_f64() {
            Some(number) if (min..=max).contains(&number) => number,
            _ => {
                let remedy = format!("expected a number from {min} to {max}");
                problems.note(&self.path_of(key), Some(&value), remedy);
                default
            }
        }
    }

    /// True or false; false where the key is missing.
    pub(super) fn flag(&mut self, key: &'static str, problems: &mut Problems) -> bool {
        let Some(value) = self.take(key) else { return false };
        value.as_bool().unwrap_or_else(|| {
            problems.note(&self.path_of(key), Some(&value), "expected true or false");
            false
        })
    }

    /// A mapping that is passed on as JSON; empty where the key is missing.
    pub(super) fn json(&mut self, key: &'static str, problems: &mut Problems) -> Map<String, Json> {
        let Some(value) = self.take(key) else { return Map::new() };
        match serde_json::to_value(&value) {
            Ok(Json::Object(object)) => object,
            _ => {
                problems.note(&self.path_of(key), Some(&value), "expected a mapping with text as keys");
                Map::new()
            }
        }
    }

    /// Every key that was not asked for is a mistake.
    pub(super) fn finish(self, problems: &mut Problems) {
        for (key, value) in &self.entries {
            let name = key.as_str().map_or_else(|| quoted(key), str::to_owned);
            let path = self.path_of(&name);
            // It may be a password under a misspelt key.
            let lower = name.to_ascii_lowercase();
            let is_secret = ["pas", "secret", "auth", "cred"].iter().any(|part| lower.contains(part));
            let hidden = Value::from("(hidden)");
            problems.note(
                &path,
                Some(if is_secret { &hidden } else { value }),
                format!("no such key; known here are {}", self.known.join(", ")),
            );
        }
    }
}

/// Text that is not empty. A whole number is taken as it is written; of any other the digits are lost that say nothing of a
/// number, but are a part of a version: 0.30 is 0.3.
fn text_of(path: &str, value: Value, problems: &mut Problems) -> Option<String> {
    match value {
        Value::String(text) if !text.trim().is_empty() => Some(text),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        Value::Number(_) => {
            let remedy = "write it in quotes, with all its digits: as a number 0.30 is the same as 0.3";
            problems.note(path, Some(&value), remedy);
            None
        }
        other => {
            problems.note(path, Some(&other), "expected text that is not empty");
            None
        }
    }
}

fn shown(path: &str) -> &str {
    if path.is_empty() { "the file" } else { path }
}

fn quoted(value: &Value) -> String {
    let text = match value {
        Value::String(text) => format!("{text:?}"),
        Value::Mapping(_) => "a mapping".to_owned(),
        Value::Sequence(_) => "a list".to_owned(),
        other => serde_yaml_ng::to_string(other).unwrap_or_default().trim_end().to_owned(),
    };
    match text.char_indices().nth(QUOTED_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
