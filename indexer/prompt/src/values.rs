//! The JSON of a request, with a limit on how many values it is made of.
//!
//! A value takes some hundred bytes of memory, and two in the text. So a body of the size that long conversations may have
//! could ask for gigabytes, if it held nothing but `0,0,0…`.

use std::cell::Cell;

use serde_json::{Map, Value as Json};

use crate::error::PromptError;
use crate::limits::{MAX_JSON_VALUES, MAX_PROMPT_BYTES};

/// Bytes that a value takes at least, with what parts it from the next one.
const VALUE_BYTES_MIN: usize = 2;

/// What the JSON of one request was made of so far, in all its fields and in the texts inside of them that are JSON.
#[derive(Debug, Default)]
pub(crate) struct Values {
    counted: Cell<usize>,
    /// Bytes of texts that were not looked at: they are too short to hold too much.
    bytes: Cell<usize>,
}

/// Why a text is not read.
#[derive(Debug)]
pub(crate) enum Unread {
    TooMany,
    /// The parser's message quotes nothing of the text.
    Syntax(serde_json::Error),
}

// === impl Values ===

impl Values {
    /// Parses a text that is JSON.
    pub(crate) fn parse(&self, text: &str) -> Result<Json, Unread> {
        if !self.admit(text) {
            return Err(Unread::TooMany);
        }
        serde_json::from_str(text).map_err(Unread::Syntax)
    }

    /// Parses one field of the body, with a limit on its size.
    pub(crate) fn read(&self, field: &'static str, bytes: &[u8]) -> Result<Json, PromptError> {
        if bytes.len() > MAX_PROMPT_BYTES {
            return Err(PromptError::too_large(field));
        }
        // Checked at once, the parser need not look at each text again: a third of its time.
        let Ok(text) = simdutf8::basic::from_utf8(bytes) else {
            return Err(PromptError::refused(format!("{field} is no JSON: it is not UTF-8")));
        };
        self.parse(text).map_err(|why| match why {
            Unread::TooMany => PromptError::too_many(field),
            Unread::Syntax(error) => PromptError::refused(format!("{field} is no JSON: {error}")),
        })
    }

    /// The same, of a field that is an object.
    pub(crate) fn read_object(
        &self,
        field: &'static str,
        bytes: &[u8],
    ) -> Result<Map<String, Json>, PromptError> {
        match self.read(field, bytes)? {
            Json::Object(object) => Ok(object),
            other => Err(PromptError::refused(format!("{field} is {}, expected an object", type_of(&other)))),
        }
    }

    /// Whether the values of `text` are not too many, with all before.
    fn admit(&self, text: &str) -> bool {
        let bytes = self.bytes.get().saturating_add(text.len());
        if bytes <= MAX_JSON_VALUES {
            self.bytes.set(bytes);
            return true;
        }
        let counted = self.counted.get().saturating_add(count(text));
        self.counted.set(counted);
        counted.saturating_add(self.bytes.get() / VALUE_BYTES_MIN) <= MAX_JSON_VALUES
    }
}

/// The values in `text`, if it is JSON: each begins the text, a list or an object, or comes behind a comma. An empty list or
/// object counts as one more.
fn count(text: &str) -> usize {
    let (mut values, mut rest) = (1, text);
    loop {
        let (outside, string) = rest.split_once('"').unwrap_or((rest, ""));
        values += outside.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
        match behind_string(string) {
            Some(behind) => rest = behind,
            None => return values,
        }
    }
}

/// What stands behind the end of a string, of which `text` is the rest.
fn behind_string(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        let (inside, behind) = rest.split_once('"')?;
        let backslashes = inside.bytes().rev().take_while(|byte| *byte == b'\\').count();
        if backslashes % 2 == 0 {
            return Some(behind);
        }
        rest = behind;
    }
}

/// Names a JSON value's type in messages, as JSON calls it.
pub(crate) fn type_of(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Values, and one more for each that is empty.
    fn counted(json: &Json) -> usize {
        match json {
            Json::Array(list) => 1 + list.len().max(1) - list.len() + list.iter().map(counted).sum::<usize>(),
            Json::Object(map) => 1 + map.len().max(1) - map.len() + map.values().map(counted).sum::<usize>(),
            _ => 1,
        }
    }

    fn any_json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<i32>().prop_map(Json::from),
            "[\\[\\]{},:\"\\\\a]{0,8}".prop_map(Json::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
                prop::collection::vec(("[\\[{,\"\\\\a]{0,4}", inner), 0..5)
                    .prop_map(|fields| Json::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn values_are_counted_outside_of_texts(json in any_json()) {
            prop_assert_eq!(count(&json.to_string()), counted(&json));
            prop_assert_eq!(count(&format!("{json:#}")), counted(&json));
        }

        #[test]
        fn what_is_no_json_is_counted_too(text in "[\\[\\]{},:\"\\\\a]{0,40}") {
            prop_assert!(count(&text) <= 1 + text.len());
        }
    }

    #[test]
    fn many_values_are_refused_before_they_are_read_and_long_texts_are_not() {
        let zeros = |count: usize| format!("[{}0]", "0,".repeat(count));
        let read = |text: &str| Values::default().read("tools", text.as_bytes());
        assert!(read(&zeros(MAX_JSON_VALUES - 2)).is_ok());
        let error = read(&zeros(MAX_JSON_VALUES - 1)).unwrap_err();
        assert_eq!(
            (error.reason(), error.to_string()),
            ("not_renderable", format!("tools has more JSON values than the limit of {MAX_JSON_VALUES}"),)
        );
        let text = json!("1, [2], {\"3\": 4}".repeat(MAX_JSON_VALUES / 4)).to_string();
        assert!(read(&text).is_ok());
    }

    #[test]
    fn fields_of_one_request_are_counted_together() {
        let values = Values::default();
        let half = format!("[{}0]", "0,".repeat(MAX_JSON_VALUES / 2));
        assert!(values.read("tools", half.as_bytes()).is_ok());
        assert!(values.parse("[1]").is_ok());
        assert!(matches!(values.parse(&half), Err(Unread::TooMany)));
        // Short ones count by their bytes, so that they need not be looked at.
        let values = Values::default();
        let list = format!("[{}0]", "0,".repeat(500));
        let taken = (0..).take_while(|_| values.parse(&list).is_ok()).count();
        assert!((MAX_JSON_VALUES / 510..=MAX_JSON_VALUES / 490).contains(&taken), "{taken}");
    }
}
