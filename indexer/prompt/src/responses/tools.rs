//! Tools in their flat form → function tools as chats have them.

use serde_json::{Map, Value as Json, json};

use super::names::{self, CUSTOM_INPUT};
use crate::chat::{self, Settings};
use crate::error::PromptError;
use crate::limits::MAX_PROMPT_BYTES;
use crate::values::type_of;

/// What the model is told of a custom tool's only argument.
const CUSTOM_INPUT_DESCRIPTION: &str = "The freeform text payload for this tool.";

/// Types of tools that engines know but show no template.
const HIDDEN_TYPES: [&str; 14] = [
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "file_search",
    "code_interpreter",
    "image_generation",
    "local_shell",
    "shell",
    "mcp",
    "computer",
    "computer_use_preview",
    "apply_patch",
    "tool_search",
];

/// The tools that the template sees.
pub(super) fn read(
    settings: &Settings,
    tools: Option<Json>,
    choice: Option<Json>,
) -> Result<Option<Vec<Json>>, PromptError> {
    let rules = &settings.rules.responses;
    let list = match tools {
        None => Vec::new(),
        Some(Json::Array(list)) => list,
        Some(other) => {
            return Err(PromptError::refused(format!("tools is {}, expected a list", type_of(&other))));
        }
    };
    check_choice(rules.checks_tool_choice, &list, choice.as_ref())?;
    let none_chosen = choice.as_ref().is_some_and(|choice| choice == "none");
    if list.is_empty() {
        // Without tools the choice is set to none, whatever it was, but only where it was set at all.
        let is_shown = !rules.drops_empty_tools && !none_chosen;
        return Ok(is_shown.then(Vec::new));
    }
    if none_chosen && !rules.shows_unchosen_tools {
        return Ok(None);
    }
    if !rules.converts_tools {
        return Err(PromptError::unsupported(
            "tools",
            "are printed by this engine release as its openai library has them",
        ));
    }
    let mut functions = Vec::new();
    for tool in list {
        read_tool(settings, tool, None, &mut functions)?;
    }
    Ok(settings.shown_tools(Some(functions), choice.as_ref()))
}

fn check_choice(needs_tools: bool, tools: &[Json], choice: Option<&Json>) -> Result<(), PromptError> {
    let Some(choice) = choice else { return Ok(()) };
    let is_known = match choice {
        Json::String(choice) => match choice.as_str() {
            "auto" | "none" => true,
            "required" => !(needs_tools && tools.is_empty()),
            _ => false,
        },
        Json::Object(choice) => {
            let is_function = choice.get("type").is_some_and(|kind| kind == "function" || kind == "custom");
            let wanted = choice.get("name").and_then(Json::as_str);
            !(is_function && needs_tools)
                || wanted.is_some_and(|wanted| tools.iter().any(|tool| offers(tool, wanted)))
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) => false,
    };
    if is_known { Ok(()) } else { Err(PromptError::refused("tool_choice is none of the known choices")) }
}

/// Whether `wanted` names the tool, or one in its namespace.
fn offers(tool: &Json, wanted: &str) -> bool {
    let name = tool.get("name").and_then(Json::as_str).unwrap_or_default();
    let inner = tool.get("tools").and_then(Json::as_array).into_iter().flatten();
    let mut inner_names = inner.filter_map(|tool| tool.get("name")?.as_str());
    // What is left of a flat name.
    let wanted_here = names::inside(name, wanted);
    name == wanted || inner_names.any(|inner| inner == wanted || Some(inner) == wanted_here)
}

/// Adds the functions that a tool stands for.
fn read_tool(
    settings: &Settings,
    tool: Json,
    namespace: Option<&str>,
    functions: &mut Vec<Json>,
) -> Result<(), PromptError> {
    let Json::Object(mut tool) = tool else {
        return Err(PromptError::refused(format!("a tool is {}", type_of(&tool))));
    };
    let kind = tool.shift_remove("type").unwrap_or_default();
    let kind = kind.as_str().unwrap_or_default();
    match (kind, namespace) {
        ("function", _) => {
            if let (Some(namespace), Some(Json::String(name))) = (namespace, tool.get_mut("name")) {
                *name = names::flat(namespace, name);
            }
            add_function(settings, tool, functions)
        }
        (_, Some(_)) => Ok(()),
        ("custom", None) if settings.rules.responses.reads_custom_tools => {
            add_function(settings, custom_function(&tool)?, functions)
        }
        ("custom", None) => Ok(()),
        ("namespace", None) => {
            let namespace = tool.get("name").and_then(Json::as_str).unwrap_or_default().to_owned();
            let Some(Json::Array(inner)) = tool.shift_remove("tools") else {
                return Err(PromptError::refused("a namespace has no list of tools"));
            };
            // Its name goes before each of theirs, so the names can be many times as long as the request.
            if inner.len().saturating_mul(namespace.len()) > MAX_PROMPT_BYTES {
                return Err(PromptError::too_large("tools"));
            }
            inner.into_iter().try_for_each(|tool| read_tool(settings, tool, Some(&namespace), functions))
        }
        (kind, None) if HIDDEN_TYPES.contains(&kind) => Ok(()),
        _ => Err(PromptError::refused("a tool has none of the known types")),
    }
}

fn add_function(
    settings: &Settings,
    function: Map<String, Json>,
    functions: &mut Vec<Json>,
) -> Result<(), PromptError> {
    let tool = json!({"type": "function", "function": function});
    functions.push(chat::dump_tool(&settings.rules, tool)?);
    Ok(())
}

/// A function with one text as argument, which the model is shown for a tool that takes free text.
fn custom_function(tool: &Map<String, Json>) -> Result<Map<String, Json>, PromptError> {
    if tool.get("format").and_then(|format| format.get("type")).is_some_and(|kind| kind == "grammar") {
        return Err(PromptError::refused("a custom tool has a grammar"));
    }
    let name = tool.get("name").cloned().unwrap_or_default();
    let description = tool.get("description").cloned().unwrap_or_default();
    Ok(Map::from_iter([
        ("name".into(), name),
        ("description".into(), description),
        (
            "parameters".into(),
            json!({
                "type": "object",
                "properties": {CUSTOM_INPUT: {"type": "string", "description": CUSTOM_INPUT_DESCRIPTION}},
                "required": [CUSTOM_INPUT],
                "additionalProperties": false,
            }),
        ),
    ]))
}
