//! The functions that a request offers.

use serde_json::{Map, Value as Json};

use super::json;
use super::rules::HarmonyRules;
use crate::error::PromptError;

const FIELD: &str = "tools";

/// A function as the model is told of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FunctionTool {
    pub name: String,
    pub description: String,
    /// A JSON schema, its numbers as the engine prints them.
    pub parameters: Option<Json>,
}

/// The `tools` of a chat: `{"type": "function", "function": {…}}`.
pub(super) fn read_nested(rules: &HarmonyRules, tools: Json) -> Result<Vec<FunctionTool>, PromptError> {
    let tools = json::into_list(FIELD, tools)?;
    let read = |tool| {
        let mut tool = json::into_object(FIELD, tool)?;
        if tool.get("type").is_some_and(|kind| kind != "function") {
            return Err(PromptError::refused("a tool has a type other than \"function\""));
        }
        let function = tool.shift_remove("function").unwrap_or_default();
        function_tool(rules, json::into_object(FIELD, function)?)
    };
    tools.into_iter().map(read).collect()
}

/// The `tools` of `/v1/responses`: `{"type": "function", "name": …}`. Other types are tools of the engine's server,
/// whose descriptions are not known here.
pub(super) fn read_flat(rules: &HarmonyRules, tools: Json) -> Result<Vec<FunctionTool>, PromptError> {
    let read = |tool| {
        let tool = json::into_object(FIELD, tool)?;
        if tool.get("type").is_none_or(|kind| kind != "function") {
            return Err(PromptError::unsupported(FIELD, "hold other tools than functions"));
        }
        function_tool(rules, tool)
    };
    json::into_list(FIELD, tools)?.into_iter().map(read).collect()
}

fn function_tool(rules: &HarmonyRules, mut given: Map<String, Json>) -> Result<FunctionTool, PromptError> {
    let name = json::need_text(FIELD, &mut given, "name")?;
    let description = match json::take_text(FIELD, &mut given, "description")? {
        None if rules.allows_no_description => String::new(),
        None => return Err(PromptError::refused("a tool lacks its description")),
        Some(description) => description,
    };
    let parameters = match given.shift_remove("parameters") {
        None | Some(Json::Null) => None,
        Some(mut schema @ Json::Object(_)) => {
            json::normalize_numbers(FIELD, rules.signs_exponents, &mut schema)?;
            Some(schema)
        }
        Some(_) => return Err(PromptError::refused("the parameters of a tool are no object")),
    };
    Ok(FunctionTool { name, description, parameters })
}
