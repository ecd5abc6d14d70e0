//! The tools of a developer message.
//!
//! The engine's model of such messages checks and rebuilds them, the keys of a tool in its own order; where anything of the
//! message does not fit, another model takes it, which knows no tools and passes them on as they are.

use serde_json::{Map, Value as Json};

use super::Origin;
use crate::error::PromptError;

/// Keys of a function, in the order of the engine's model.
const FUNCTION_KEYS: [&str; 4] = ["name", "description", "parameters", "strict"];

/// The tools as the template sees them. `message` still has its content; null where there are none.
pub(super) fn take_tools(origin: Origin, message: &mut Map<String, Json>) -> Result<Json, PromptError> {
    let tools = match message.shift_remove("tools") {
        None | Some(Json::Null) => return Ok(Json::Null),
        Some(tools) => tools,
    };
    if message.get("tool_calls").is_some_and(|calls| !calls.is_null() && !calls.is_array()) {
        return Err(PromptError::unsupported(
            "messages",
            "have a developer message with tool calls that are no list",
        ));
    }
    // Only the model of chats knows tools.
    if origin == Origin::Conversion {
        return Ok(tools);
    }
    let rebuilt: Option<Option<Json>> = tools.as_array().map(|list| list.iter().map(rebuild).collect());
    match rebuilt.flatten() {
        Some(rebuilt) if has_known_keys(message) && !has_odd_strict(&tools) => Ok(rebuilt),
        Some(_) => Err(PromptError::unsupported(
            "messages",
            "have a developer message whose tools, content or other keys the engine may read in two ways",
        )),
        None => Ok(tools),
    }
}

/// Whether a tool's `strict` is something that the engine may take for a boolean.
fn has_odd_strict(tools: &Json) -> bool {
    let is_odd = |tool: &Json| {
        let strict = tool.get("function").and_then(|function| function.get("strict"));
        strict.is_some_and(|strict| strict.is_string() || strict.is_number())
    };
    tools.as_array().is_some_and(|list| list.iter().any(is_odd))
}

/// Whether everything beside the tools certainly fits the model that knows them.
fn has_known_keys(message: &Map<String, Json>) -> bool {
    let is_text_part = |part: &Json| {
        part.is_string()
            || part.get("type").is_some_and(|kind| kind == "text")
                && part.get("text").is_some_and(Json::is_string)
    };
    let content = match message.get("content") {
        None | Some(Json::String(_)) => true,
        Some(Json::Array(parts)) => parts.iter().all(is_text_part),
        Some(_) => false,
    };
    let is_absent = |key: &str| message.get(key).is_none_or(Json::is_null);
    let texts = ["tool_call_id", "reasoning", "task"];
    content
        && is_absent("tool_calls")
        && texts.iter().all(|key| is_absent(key) || message.get(*key).is_some_and(Json::is_string))
}

/// `None`: it does not fit.
fn rebuild(tool: &Json) -> Option<Json> {
    let (tool, function) = (tool.as_object()?, tool.get("function")?.as_object()?);
    let is_valid = |key: &str, value: &Json| match key {
        "name" | "description" => value.is_string(),
        "parameters" => value.is_object(),
        "strict" => !value.is_array() && !value.is_object(),
        _ => true,
    };
    if tool.get("type")? != "function"
        || !function.contains_key("name")
        || !function.iter().all(|(key, value)| is_valid(key, value))
    {
        return None;
    }
    let mut rebuilt = ordered(tool, &["function", "type"]);
    rebuilt.insert("function".into(), ordered(function, &FUNCTION_KEYS).into());
    Some(rebuilt.into())
}

/// `map` with `first` keys first, where it has them.
fn ordered(map: &Map<String, Json>, first: &[&str]) -> Map<String, Json> {
    let entry = |(key, value): (&String, &Json)| (key.clone(), value.clone());
    let known = first.iter().filter_map(|key| map.get_key_value(*key));
    let unknown = map.iter().filter(|(key, _)| !first.contains(&key.as_str()));
    known.chain(unknown).map(entry).collect()
}
