//! A content block → what a chat has a place for.

use serde_json::{Map, Value as Json};

use super::take_text;
use crate::error::PromptError;
use crate::values::type_of;
use crate::version::AnthropicRules;

/// A content block, as far as a chat has a place for it.
pub(super) enum Block {
    Text(String),
    /// A picture with a source.
    Image,
    ToolUse {
        id: Option<String>,
        name: String,
        /// JSON text.
        arguments: String,
    },
    ToolResult {
        id: String,
        content: Json,
    },
    Thinking(String),
    /// Says nothing to the model.
    Skipped,
}

/// The block changes the tools that the model is offered.
pub(super) fn is_tool_change(block: &Json) -> bool {
    block.get("type").is_some_and(|kind| kind == "tool_addition" || kind == "tool_removal")
}

// === impl Block ===

impl Block {
    pub(super) fn read(rules: &AnthropicRules, block: Json) -> Result<Self, PromptError> {
        let Json::Object(mut block) = block else {
            return Err(PromptError::refused(format!("a content block is {}", type_of(&block))));
        };
        let kind = take_text(&mut block, "type")?.unwrap_or_default();
        match kind.as_str() {
            "text" => Ok(Block::Text(take_text(&mut block, "text")?.unwrap_or_default())),
            "image" => match block.shift_remove("source") {
                Some(Json::Object(source)) if !source.is_empty() => Ok(Block::Image),
                None | Some(Json::Null | Json::Object(_)) => Ok(Block::Skipped),
                Some(_) => Err(PromptError::refused("an image block's source is no object")),
            },
            "tool_use" => Block::read_tool_use(&mut block),
            "tool_result" => {
                let key = if rules.reads_tool_results { "tool_use_id" } else { "id" };
                let id = take_text(&mut block, key)?.unwrap_or_default();
                let content = block.shift_remove("content").unwrap_or_default();
                Block::check_result(&content)?;
                Ok(Block::ToolResult { id, content })
            }
            "thinking" if rules.reads_thinking => {
                Ok(take_text(&mut block, "thinking")?.map_or(Block::Skipped, Block::Thinking))
            }
            "redacted_thinking" if rules.skips_redacted_thinking => Ok(Block::Skipped),
            "tool_reference" if rules.reads_tool_references => Ok(Block::Skipped),
            "tool_addition" | "tool_removal" if rules.reads_tool_changes => Ok(Block::Skipped),
            _ => Err(PromptError::refused("a content block has none of the known types")),
        }
    }

    fn read_tool_use(block: &mut Map<String, Json>) -> Result<Self, PromptError> {
        let arguments = match block.shift_remove("input") {
            None | Some(Json::Null) => Json::Object(Map::new()),
            Some(input @ Json::Object(_)) => input,
            Some(_) => return Err(PromptError::refused("a tool_use block's input is no object")),
        };
        Ok(Block::ToolUse {
            id: take_text(block, "id")?.filter(|id| !id.is_empty()),
            name: take_text(block, "name")?.unwrap_or_default(),
            arguments: arguments.to_string(),
        })
    }

    fn check_result(content: &Json) -> Result<(), PromptError> {
        let is_valid = match content {
            Json::Null | Json::String(_) => true,
            Json::Array(items) => items.iter().all(Json::is_object),
            Json::Bool(_) | Json::Number(_) | Json::Object(_) => false,
        };
        if is_valid {
            Ok(())
        } else {
            Err(PromptError::refused("a tool_result's content has the wrong form"))
        }
    }
}
