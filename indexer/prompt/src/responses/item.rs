//! One item of the input, checked.

use serde_json::{Map, Value as Json};

use super::names::{self, CUSTOM_INPUT};
use crate::error::PromptError;
use crate::values::type_of;
use crate::version::ResponsesRules;

/// An item that the engine makes a message of, or a part of one.
pub(super) enum Item {
    /// A message that goes on as it is.
    Message(Map<String, Json>),
    /// A text of the assistant's, as the API itself gives it out.
    OutputText(String),
    Call {
        call_id: String,
        name: String,
        /// JSON text.
        arguments: String,
        /// It follows a reasoning item in the same message in releases that merge no other items.
        is_mcp: bool,
    },
    CallOutput {
        call_id: Json,
        output: Json,
    },
    Reasoning(String),
}

/// Roles of messages.
const ROLES: [&str; 4] = ["user", "assistant", "system", "developer"];

/// Ids of calls that were made on a server's tools begin so.
const MCP_PREFIX: &str = "mcp_";

/// States of an item.
const STATES: [&str; 3] = ["in_progress", "completed", "incomplete"];

// === impl Item ===

impl Item {
    pub(super) fn read(rules: &ResponsesRules, item: Json) -> Result<Self, PromptError> {
        let Json::Object(mut item) = item else {
            return Err(PromptError::refused(format!("an input item is {}", type_of(&item))));
        };
        let kind = optional_text(&item, "type")?.map(str::to_owned);
        match kind.as_deref() {
            Some("function_call") => read_call(rules, &item),
            Some("function_call_output") => read_output(&mut item),
            Some("reasoning") => read_reasoning(rules, &item),
            Some("custom_tool_call") if rules.reads_custom_tools => read_custom_call(&item),
            Some("custom_tool_call_output") if rules.reads_custom_tools => read_output(&mut item),
            None | Some("message") => read_message(rules, item),
            Some(_) => Err(PromptError::refused("an input item has a type that the engine does not take")),
        }
    }
}

fn read_call(rules: &ResponsesRules, item: &Map<String, Json>) -> Result<Item, PromptError> {
    check_state(item)?;
    let name = text(item, "name")?;
    let name = match optional_text(item, "namespace")? {
        Some(namespace) if rules.reads_namespaces && !namespace.is_empty() => names::flat(namespace, name),
        _ => name.to_owned(),
    };
    Ok(Item::Call {
        call_id: text(item, "call_id")?.to_owned(),
        name,
        arguments: text(item, "arguments")?.to_owned(),
        is_mcp: optional_text(item, "id")?.is_some_and(|id| id.starts_with(MCP_PREFIX)),
    })
}

fn read_custom_call(item: &Map<String, Json>) -> Result<Item, PromptError> {
    let input = Map::from_iter([(CUSTOM_INPUT.into(), text(item, "input")?.into())]);
    Ok(Item::Call {
        call_id: text(item, "call_id")?.to_owned(),
        name: text(item, "name")?.to_owned(),
        arguments: Json::Object(input).to_string(),
        is_mcp: false,
    })
}

fn read_output(item: &mut Map<String, Json>) -> Result<Item, PromptError> {
    let output = item.shift_remove("output").unwrap_or_default();
    if !output.is_string() && !output.as_array().is_some_and(|parts| parts.iter().all(Json::is_object)) {
        return Err(PromptError::refused("the output of a call is neither a text nor a list of parts"));
    }
    Ok(Item::CallOutput { call_id: item.shift_remove("call_id").unwrap_or_default(), output })
}

fn read_reasoning(rules: &ResponsesRules, item: &Map<String, Json>) -> Result<Item, PromptError> {
    check_state(item)?;
    if item.get("encrypted_content").is_some_and(|content| !content.is_null() && content != "") {
        return Err(PromptError::refused("a reasoning item has encrypted content"));
    }
    let summary = reasoning_texts(item.get("summary"), "summary_text")?
        .ok_or_else(|| PromptError::refused("a reasoning item has no summary"))?;
    let content = reasoning_texts(item.get("content"), "reasoning_text")?.unwrap_or_default();
    let text = if rules.prefers_reasoning_content {
        content.first().or(summary.first())
    } else {
        let single = |texts: &[String]| if let [text] = texts { Some(text.clone()) } else { None };
        return Ok(Item::Reasoning(single(&summary).or_else(|| single(&content)).unwrap_or_default()));
    };
    Ok(Item::Reasoning(text.cloned().unwrap_or_default()))
}

/// The texts of parts of one type; `None`: there is no list.
fn reasoning_texts(list: Option<&Json>, kind: &str) -> Result<Option<Vec<String>>, PromptError> {
    let wrong = || PromptError::refused("a reasoning item's texts have the wrong form");
    match list {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Array(parts)) => {
            let text = |part: &Json| {
                let is_right = part.get("type").is_some_and(|given| given == kind);
                part.get("text")
                    .and_then(Json::as_str)
                    .filter(|_| is_right)
                    .map(str::to_owned)
                    .ok_or_else(wrong)
            };
            parts.iter().map(text).collect::<Result<_, _>>().map(Some)
        }
        Some(_) => Err(wrong()),
    }
}

/// A message: one that the API gave out (an assistant's, with parts and a state), or one in the easy form.
fn read_message(rules: &ResponsesRules, item: Map<String, Json>) -> Result<Item, PromptError> {
    let role = text(&item, "role")?;
    if !ROLES.contains(&role) {
        return Err(PromptError::refused("a message has none of the known roles"));
    }
    let content = item.get("content");
    let is_output = |parts: &[Json]| parts.iter().any(|part| part_is(part, &["output_text", "refusal"]));
    match content {
        Some(Json::String(_)) => Ok(Item::Message(item)),
        Some(Json::Array(parts)) if role == "assistant" && is_output(parts) => {
            read_output_message(rules, &item, parts)
        }
        // An empty message of the API's own has no first part.
        Some(Json::Array(parts))
            if role == "assistant"
                && parts.is_empty()
                && item.contains_key("type")
                && rules.completes_messages =>
        {
            Err(PromptError::refused("a message of the assistant's has no parts"))
        }
        Some(Json::Array(parts)) if parts.iter().all(|part| part_is(part, &INPUT_PARTS)) => {
            Ok(Item::Message(item))
        }
        _ => Err(PromptError::refused("a message's content has none of the known forms")),
    }
}

/// Parts of a message in the easy form.
const INPUT_PARTS: [&str; 4] = ["input_text", "input_image", "input_file", "input_audio"];

fn read_output_message(
    rules: &ResponsesRules,
    item: &Map<String, Json>,
    parts: &[Json],
) -> Result<Item, PromptError> {
    let is_typed = item.contains_key("type");
    check_state(item)?;
    let has_annotations = parts.iter().all(|part| part.get("annotations").is_some_and(Json::is_array));
    let is_complete = item.contains_key("id") && item.contains_key("status") && has_annotations;
    if !(is_complete || rules.completes_messages && is_typed) {
        return Err(PromptError::refused("a message of the assistant's lacks its id, status or annotations"));
    }
    match parts.first().and_then(|part| part.get("text")).and_then(Json::as_str) {
        Some(text) => Ok(Item::OutputText(text.to_owned())),
        None => Err(PromptError::refused("a message of the assistant's begins with no text")),
    }
}

fn part_is(part: &Json, kinds: &[&str]) -> bool {
    part.get("type").and_then(Json::as_str).is_some_and(|kind| kinds.contains(&kind))
}

fn check_state(item: &Map<String, Json>) -> Result<(), PromptError> {
    match optional_text(item, "status")? {
        Some(status) if !STATES.contains(&status) => {
            Err(PromptError::refused("an item has none of the known states"))
        }
        _ => Ok(()),
    }
}

/// Null counts as absent.
fn optional_text<'a>(item: &'a Map<String, Json>, key: &str) -> Result<Option<&'a str>, PromptError> {
    match item.get(key) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text)),
        Some(other) => Err(PromptError::refused(format!("{key} of an item is {}", type_of(other)))),
    }
}

fn text<'a>(item: &'a Map<String, Json>, key: &str) -> Result<&'a str, PromptError> {
    optional_text(item, key)?.ok_or_else(|| PromptError::refused(format!("an item has no {key}")))
}
