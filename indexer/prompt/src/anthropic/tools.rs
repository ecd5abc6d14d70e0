//! Tools → function tools, after the changes that system messages make to them.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value as Json, json};

use super::block::is_tool_change;
use super::take_text;
use crate::error::PromptError;
use crate::values::type_of;
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

/// Tools while changes are made to them. A client may send hundreds of thousands of both, so each is looked up by its name.
#[derive(Default)]
struct Offered {
    /// Those that were removed stay in their places: they may come back.
    tools: Vec<Tool>,
    /// By name.
    places: HashMap<String, usize>,
    removed: HashSet<String>,
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
    let mut offered = Offered::default();
    for tool in tools.into_iter().flatten() {
        offered.put(tool);
    }
    for change in changes {
        offered.change(rules, change)?;
    }
    Ok(offered.into_tools())
}

// === impl Offered ===

impl Offered {
    /// Of tools with the same name the last one counts, in the place of the first.
    fn put(&mut self, tool: Tool) {
        match self.places.get(&tool.name).and_then(|place| self.tools.get_mut(*place)) {
            Some(other) => *other = tool,
            None => {
                self.places.insert(tool.name.clone(), self.tools.len());
                self.tools.push(tool);
            }
        }
    }

    fn change(&mut self, rules: &AnthropicRules, change: &Json) -> Result<(), PromptError> {
        let adds = change.get("type").is_some_and(|kind| kind == "tool_addition");
        let tool = change.get("tool").and_then(Json::as_object);
        let tool = tool.ok_or_else(|| PromptError::refused("a change of tools names no tool"))?;
        let name = match (tool.get("type").and_then(Json::as_str), tool.get("definition"), tool.get("name")) {
            (Some("tool_definition"), Some(definition), _) if adds => {
                let tool = Tool::read(rules, definition.clone())?;
                let name = tool.name.clone();
                self.put(tool);
                name
            }
            (Some("tool_reference"), _, Some(Json::String(name))) => {
                let tool = self.places.get(name).and_then(|place| self.tools.get_mut(*place));
                let tool = tool
                    .ok_or_else(|| PromptError::refused("a change of tools names one that is not there"))?;
                if adds {
                    tool.defer_loading = None;
                }
                name.clone()
            }
            _ => return Err(PromptError::refused("a change of tools has the wrong form")),
        };
        if adds {
            self.removed.remove(&name);
        } else {
            self.removed.insert(name);
        }
        Ok(())
    }

    fn into_tools(self) -> Vec<Tool> {
        let Offered { mut tools, removed, .. } = self;
        tools.retain(|tool| !removed.contains(&tool.name));
        tools
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
