//! Messages made of blocks → chat messages.

use serde_json::{Map, Value as Json, json};

use super::block::{Block, is_tool_change};
use super::{system, take_text};
use crate::error::PromptError;
use crate::template::python_str;
use crate::values::type_of;
use crate::version::{AnthropicRules, EmptyMessages, InlineSystem};

/// A message in the making.
#[derive(Default)]
struct Parts {
    content: Vec<Json>,
    tool_calls: Vec<Json>,
    reasoning: Option<String>,
}

/// Adds to `chat` what the engine makes of `message`: the answers of tools that it holds, then the message itself.
pub(super) fn convert(
    rules: &AnthropicRules,
    merges_inline_system: bool,
    message: Json,
    chat: &mut Vec<Json>,
) -> Result<(), PromptError> {
    let Json::Object(mut message) = message else {
        return Err(PromptError::refused(format!("a message is {}", type_of(&message))));
    };
    let role = take_text(&mut message, "role")?.unwrap_or_default();
    let content = message.shift_remove("content");
    match role.as_str() {
        "user" | "assistant" => {}
        "system" if rules.inline_system != InlineSystem::Refused => {
            if !merges_inline_system {
                chat.extend(system::read_inline(rules, content)?);
            }
            return Ok(());
        }
        _ => return Err(PromptError::refused("a message has none of the known roles")),
    }
    let mut fields = Map::from_iter([("role".into(), role.as_str().into())]);
    match content {
        Some(Json::String(text)) => drop(fields.insert("content".into(), text.into())),
        Some(Json::Array(blocks)) => read_blocks(rules, &role, blocks, chat)?.write(&mut fields),
        _ => return Err(PromptError::refused("a message's content is neither a text nor a list of blocks")),
    }
    let is_empty = fields.len() == 1;
    let is_dropped = match rules.empty_messages {
        EmptyMessages::Kept => false,
        EmptyMessages::Dropped => is_empty,
        EmptyMessages::UserDropped => role == "user" && !fields.contains_key("content"),
    };
    if !is_dropped {
        chat.push(Json::Object(fields));
    }
    Ok(())
}

fn read_blocks(
    rules: &AnthropicRules,
    role: &str,
    blocks: Vec<Json>,
    chat: &mut Vec<Json>,
) -> Result<Parts, PromptError> {
    let mut parts = Parts::default();
    for block in blocks {
        if is_tool_change(&block) {
            return Err(PromptError::refused("a message other than a system message changes tools"));
        }
        match Block::read(rules, block)? {
            Block::Text(text) if text.is_empty() => {}
            Block::Text(text) => parts.content.push(json!({"type": "text", "text": text})),
            Block::Image => parts.content.push(image_part()),
            Block::ToolUse { id, name, arguments } => {
                let id = id.ok_or_else(|| {
                    PromptError::unsupported("messages", "have a tool_use block without an id")
                })?;
                parts.tool_calls.push(json!({
                    "id": id, "type": "function", "function": {"name": name, "arguments": arguments},
                }));
            }
            Block::ToolResult { id, content } if role == "user" && rules.reads_tool_results => {
                answer(rules, &id, content, chat)?;
            }
            Block::ToolResult { id, content } if role == "user" => {
                chat.push(tool_message(&id, printed(&content).into()));
            }
            Block::ToolResult { content, .. } => {
                let text = format!("Tool result: {}", printed(&content));
                parts.content.push(json!({"type": "text", "text": text}));
            }
            Block::Thinking(text) => parts.reasoning.get_or_insert_default().push_str(&text),
            Block::Skipped => {}
        }
    }
    Ok(parts)
}

/// The messages that a tool's result becomes: its texts, then its pictures in a user message, then the tools that it
/// refers to.
fn answer(rules: &AnthropicRules, id: &str, content: Json, chat: &mut Vec<Json>) -> Result<(), PromptError> {
    let (mut texts, mut images, mut references) = (Vec::new(), Vec::new(), Vec::new());
    match content {
        Json::String(text) => texts.push(text),
        Json::Array(items) => {
            for item in items {
                let Json::Object(mut item) = item else {
                    return Err(PromptError::refused("a tool_result holds something that is no block"));
                };
                match item.get("type").and_then(Json::as_str) {
                    Some("text") => texts.push(take_text(&mut item, "text")?.unwrap_or_default()),
                    Some("image") => images.push(image_part()),
                    Some("tool_reference") if rules.reads_tool_references => {
                        let name = |key| item.get(key).and_then(Json::as_str).filter(|name| !name.is_empty());
                        let name = name("tool_name").or_else(|| name("name"));
                        references.extend(name.map(|name| json!({"type": "tool_reference", "name": name})));
                    }
                    _ => {}
                }
            }
        }
        Json::Null => {}
        _ => return Err(PromptError::refused("a tool_result's content is neither a text nor a list")),
    }
    chat.push(tool_message(id, texts.join("\n").into()));
    if !images.is_empty() {
        chat.push(json!({"role": "user", "content": images}));
    }
    if !references.is_empty() {
        chat.push(tool_message(id, references.into()));
    }
    Ok(())
}

fn tool_message(id: &str, content: Json) -> Json {
    json!({"role": "tool", "tool_call_id": id, "content": content})
}

/// What it shows does not matter: only where it stands.
fn image_part() -> Json {
    json!({"type": "image_url", "image_url": {"url": ""}})
}

/// As Python prints it; nothing where there is nothing.
fn printed(content: &Json) -> String {
    let is_empty = content.is_null() || content.as_array().is_some_and(Vec::is_empty);
    if is_empty { String::new() } else { python_str(content) }
}

// === impl Parts ===

impl Parts {
    /// A single text is a content by itself.
    fn write(self, fields: &mut Map<String, Json>) {
        if let Some(reasoning) = self.reasoning {
            fields.insert("reasoning".into(), reasoning.into());
        }
        if !self.tool_calls.is_empty() {
            fields.insert("tool_calls".into(), self.tool_calls.into());
        }
        let single = if let [part] = self.content.as_slice() { part.get("text").cloned() } else { None };
        if !self.content.is_empty() {
            fields.insert("content".into(), single.unwrap_or(Json::Array(self.content)));
        }
    }
}
