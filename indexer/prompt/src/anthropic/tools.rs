//! Tools → function tools, after the changes that system messages make to them.

use serde_json::{Map, Value as Json, json};

use super::blocks::is_tool_change;
use super::take_text;
use crate::chat::type_of;
use crate::error::PromptError;
use crate::version::AnthropicRules;

/// A tool that is checked.
#[derive(Clone)]
struct Tool {
    name: String,
    description: Option<String>,
    schema: Map<String, Json>,
    strict: Option<bool>,
    defer_loading: Option<bool>,
}

/// The tools in the form of a chat request; `None`: the request says nothing of tools.
pub(super) fn read(
    rules: &AnthropicRules,
    tools: Option<Json>,
    messages: &[Json],
) -> Result<Option<Vec<Json>>, PromptError> {
    let tools = match tools {
        None => None,
        Some(Json::Array(list)) => {
            Some(list.into_iter().map(|tool| Tool::read(rules, tool)).collect::<Result<Vec<_>, _>>()?)
        }
        Some(other) => {
            return Err(PromptError::refused(format!("tools is {}, expected a list", type_of(&other))));
        }
    };
    let changes: Vec<&Json> = messages
        .iter()
        .filter_map(|message| message.get("content")?.as_array())
        .flatten()
        .filter(|block| rules.reads_tool_changes && is_tool_change(block))
        .collect();
    let tools = if changes.is_empty() { tools } else { Some(changed(rules, tools, &changes)?) };
    Ok(tools.map(|tools| tools.into_iter().map(|tool| tool.into_function(rules)).collect()))
}

/// The tools in force at the end of the conversation.
fn changed(
    rules: &AnthropicRules,
    tools: Option<Vec<Tool>>,
    changes: &[&Json],
) -> Result<Vec<Tool>, PromptError> {
    // Of tools with the same name the last one counts, in the place of the first.
    let mut tools_by_name = Vec::new();
    for tool in tools.into_iter().flatten() {
        put(&mut tools_by_name, tool);
    }
    let mut removed: Vec<String> = Vec::new();
    for change in changes {
        let adds = change.get("type").is_some_and(|kind| kind == "tool_addition");
        let tool = change.get("tool").and_then(Json::as_object);
        let tool = tool.ok_or_else(|| PromptError::refused("a change of tools names no tool"))?;
        let name = match (tool.get("type").and_then(Json::as_str), tool.get("definition"), tool.get("name")) {
            (Some("tool_definition"), Some(definition), _) if adds => {
                let tool = Tool::read(rules, definition.clone())?;
                let name = tool.name.clone();
                put(&mut tools_by_name, tool);
                name
            }
            (Some("tool_reference"), _, Some(Json::String(name))) => {
                let tool = tools_by_name.iter_mut().find(|tool| tool.name == *name);
                let tool = tool
                    .ok_or_else(|| PromptError::refused("a change of tools names one that is not there"))?;
                if adds {
                    tool.defer_loading = None;
                }
                name.clone()
            }
            _ => return Err(PromptError::refused("a change of tools has the wrong form")),
        };
        removed.retain(|other| *other != name);
        if !adds {
            removed.push(name);
        }
    }
    tools_by_name.retain(|tool| !removed.contains(&tool.name));
    Ok(tools_by_name)
}

fn put(tools: &mut Vec<Tool>, tool: Tool) {
    match tools.iter_mut().find(|other| other.name == tool.name) {
        Some(other) => *other = tool,
        None => tools.push(tool),
    }
}

// === impl Tool ===

impl Tool {
    fn read(rules: &AnthropicRules, tool: Json) -> Result<Self, PromptError> {
        let Json::Object(mut tool) = tool else {
            return Err(PromptError::refused(format!("a tool is {}", type_of(&tool))));
        };
        let name = take_text(&mut tool, "name")?.ok_or_else(|| PromptError::refused("a tool has no name"))?;
        let description = take_text(&mut tool, "description")?;
        let Some(Json::Object(mut schema)) = tool.shift_remove("input_schema") else {
            return Err(PromptError::refused("a tool has no input_schema that is an object"));
        };
        schema.entry("type").or_insert_with(|| "object".into());
        let mut flag = |key: &str, is_read: bool| match tool.shift_remove(key).filter(|_| is_read) {
            None | Some(Json::Null) => Ok(None),
            Some(Json::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(PromptError::refused(format!("a tool's {key} is no boolean"))),
        };
        Ok(Tool {
            name,
            description,
            schema,
            strict: flag("strict", rules.reads_strict)?,
            defer_loading: flag("defer_loading", rules.reads_defer_loading)?,
        })
    }

    fn into_function(self, rules: &AnthropicRules) -> Json {
        let mut function = Map::from_iter([
            ("name".into(), self.name.into()),
            ("description".into(), self.description.into()),
            ("parameters".into(), self.schema.into()),
        ]);
        if rules.reads_strict {
            function.insert("strict".into(), self.strict.into());
        }
        if rules.reads_defer_loading {
            function.insert("defer_loading".into(), self.defer_loading.into());
        }
        json!({"type": "function", "function": function})
    }
}
