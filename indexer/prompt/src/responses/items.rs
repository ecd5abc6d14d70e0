//! Items → messages. Several items can make one message: reasoning, text and calls of the assistant's.

use serde_json::{Map, Value as Json, json};

use super::item::Item;
use crate::error::PromptError;
use crate::version::ResponsesRules;

/// States in which the last item is to be continued.
const OPEN_STATES: [&str; 2] = ["in_progress", "incomplete"];

/// The messages that `instructions` and the value of `input` become.
pub(super) fn convert(
    rules: &ResponsesRules,
    instructions: Option<String>,
    input: Json,
) -> Result<Vec<Json>, PromptError> {
    let mut messages = Vec::new();
    if let Some(text) = instructions.filter(|text| !text.is_empty()) {
        messages.push(json!({"role": "system", "content": text}));
    }
    match input {
        Json::String(text) => messages.push(json!({"role": "user", "content": text})),
        Json::Array(items) => {
            let mut own = Vec::new();
            for item in items {
                add(rules, Item::read(rules, item)?, &mut own);
            }
            messages.extend(own.into_iter().map(Json::Object));
        }
        _ => return Err(PromptError::refused("input is neither a text nor a list of items")),
    }
    Ok(messages)
}

/// Whether the model is to go on with the last item.
pub(super) fn is_continued(input: &Json) -> bool {
    let Some(last) = input.as_array().and_then(|items| items.last()) else { return false };
    let kind = last.get("type").and_then(Json::as_str).unwrap_or("message");
    let status = last.get("status").and_then(Json::as_str).unwrap_or_default();
    ["message", "reasoning"].contains(&kind) && OPEN_STATES.contains(&status)
}

/// Adds an item to the assistant's message at the end, where there is one that lacks it, else as a message of its own.
fn add(rules: &ResponsesRules, item: Item, messages: &mut Vec<Map<String, Json>>) {
    let last = messages.last_mut().filter(|last| last.get("role").is_some_and(|role| role == "assistant"));
    let (key, value) = match item {
        Item::CallOutput { call_id, output } => {
            let mut message = Map::from_iter([("role".into(), "tool".into())]);
            message.insert("content".into(), output);
            message.insert("tool_call_id".into(), call_id);
            return messages.push(message);
        }
        Item::Message(message) => match first_text(rules, &message) {
            Some(text) => ("content", text.into()),
            None => return messages.push(message),
        },
        Item::OutputText(text) => ("content", text.into()),
        Item::Reasoning(text) => ("reasoning", text.into()),
        Item::Call { call_id, name, arguments, is_mcp } => {
            let call = json!({
                "id": call_id, "function": {"name": name, "arguments": arguments}, "type": "function",
            });
            let follows = rules.merges_items || is_mcp;
            if let Some(last) = last.filter(|last| follows && (rules.merges_items || has(last, "reasoning")))
            {
                if let Some(Json::Array(calls)) = last.get_mut("tool_calls").filter(|_| rules.merges_items) {
                    calls.push(call);
                } else {
                    last.insert("tool_calls".into(), Json::Array(vec![call]));
                }
                return;
            }
            return messages.push(assistant("tool_calls", Json::Array(vec![call])));
        }
    };
    match last.filter(|last| rules.merges_items && !has(last, key)) {
        Some(last) => drop(last.insert(key.into(), value)),
        None => messages.push(assistant(key, value)),
    }
}

/// The text that is all the engine takes of an assistant's message in the easy form; `None`: it takes the whole message.
fn first_text(rules: &ResponsesRules, message: &Map<String, Json>) -> Option<String> {
    if !rules.merges_plain_messages || message.get("role")? != "assistant" {
        return None;
    }
    let content = message.get("content")?;
    content.as_str().or_else(|| content.as_array()?.first()?.get("text")?.as_str()).map(str::to_owned)
}

fn has(message: &Map<String, Json>, key: &str) -> bool {
    message.get(key).is_some_and(|value| !value.is_null())
}

fn assistant(key: &str, value: Json) -> Map<String, Json> {
    Map::from_iter([("role".into(), "assistant".into()), (key.into(), value)])
}
