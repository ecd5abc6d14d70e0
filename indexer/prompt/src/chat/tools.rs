//! Tools as the template sees them: dumped from the engine's validated model, so that their keys have the model's order
//! and absent ones may be null.

use serde_json::{Map, Value as Json};

use crate::error::PromptError;
use crate::values::type_of;
use crate::version::RenderingRules;

/// The value of `tools` as the template sees it.
pub(super) fn read(rules: &RenderingRules, tools: Option<Json>) -> Result<Option<Vec<Json>>, PromptError> {
    let list = match tools {
        Some(Json::Array(list)) => list,
        None | Some(Json::Null) => return Ok(None),
        Some(other) => {
            return Err(PromptError::refused(format!("tools is {}, expected a list", type_of(&other))));
        }
    };
    if list.is_empty() && rules.refuses_empty_tools {
        return Err(PromptError::refused("tools is an empty list"));
    }
    list.into_iter().map(|tool| dump_tool(rules, tool)).collect::<Result<_, _>>().map(Some)
}

/// A tool after the engine's model of chat requests.
pub(crate) fn dump_tool(rules: &RenderingRules, tool: Json) -> Result<Json, PromptError> {
    let mut given = into_object(tool, "a tool")?;
    match given.shift_remove("type") {
        None => {}
        Some(kind) if kind == "function" => {}
        Some(_) => return Err(PromptError::refused("a tool has a type other than \"function\"")),
    }
    let function = given.shift_remove("function").unwrap_or_default();
    let defer_loading = if rules.knows_defer_loading {
        optional(&mut given, "defer_loading", Json::is_boolean, "a tool's defer_loading")?
    } else {
        None
    };
    let mut dumped = Map::new();
    dumped.insert("type".into(), "function".into());
    dumped.insert("function".into(), dump_function(rules, function, defer_loading.as_ref())?);
    insert_some(&mut dumped, "defer_loading", defer_loading);
    if rules.keeps_unknown_tool_keys {
        dumped.extend(given);
    }
    Ok(Json::Object(dumped))
}

/// `defer_loading` is the tool's; it holds for a function that has none of its own.
fn dump_function(
    rules: &RenderingRules,
    function: Json,
    defer_loading: Option<&Json>,
) -> Result<Json, PromptError> {
    let mut given = into_object(function, "a tool's function")?;
    let name = given.shift_remove("name").filter(Json::is_string);
    let name = name.ok_or_else(|| PromptError::refused("a tool's function has no name"))?;
    let mut dumped = Map::new();
    dumped.insert("name".into(), name);
    for (key, is_valid, what) in [
        ("description", Json::is_string as fn(&Json) -> bool, "a function's description"),
        ("parameters", Json::is_object, "a function's parameters"),
    ] {
        let value = optional(&mut given, key, is_valid, what)?;
        dumped.insert(key.into(), value.unwrap_or_default());
    }
    if rules.knows_strict {
        let strict = optional(&mut given, "strict", Json::is_boolean, "a function's strict")?;
        insert_some(&mut dumped, "strict", strict);
    }
    if rules.knows_defer_loading {
        let own = optional(&mut given, "defer_loading", Json::is_boolean, "a function's defer_loading")?;
        insert_some(&mut dumped, "defer_loading", own.or_else(|| defer_loading.cloned()));
    }
    if rules.keeps_unknown_tool_keys {
        dumped.extend(given);
    }
    Ok(Json::Object(dumped))
}

fn into_object(json: Json, what: &str) -> Result<Map<String, Json>, PromptError> {
    match json {
        Json::Object(map) => Ok(map),
        other => Err(PromptError::refused(format!("{what} is {}, expected an object", type_of(&other)))),
    }
}

/// Takes `key` out; null counts as absent.
fn optional(
    given: &mut Map<String, Json>,
    key: &str,
    is_valid: impl Fn(&Json) -> bool,
    what: &str,
) -> Result<Option<Json>, PromptError> {
    match given.shift_remove(key) {
        None | Some(Json::Null) => Ok(None),
        Some(value) if is_valid(&value) => Ok(Some(value)),
        Some(value) => Err(PromptError::refused(format!("{what} is {}", type_of(&value)))),
    }
}

fn insert_some(map: &mut Map<String, Json>, key: &str, value: Option<Json>) {
    if let Some(value) = value {
        map.insert(key.into(), value);
    }
}
