//! The system prompt: its blocks one after the other, without anything between them.

use serde_json::{Map, Value as Json};

use super::block::Block;
use crate::chat::BILLING_HEADER;
use crate::error::PromptError;
use crate::version::{AnthropicRules, InlineSystem};

/// The system message that goes first, if there is one. `messages` are looked at where theirs are merged into it.
pub(super) fn read(
    rules: &AnthropicRules,
    merges_inline: bool,
    system: Option<Json>,
    messages: &[Json],
) -> Result<Option<Json>, PromptError> {
    let mut texts = Vec::new();
    let is_given = match system {
        None => false,
        Some(Json::String(text)) => {
            let is_given = !text.is_empty();
            texts.extend(is_given.then_some(text));
            is_given
        }
        Some(Json::Array(blocks)) => {
            let is_given = !blocks.is_empty();
            texts.extend(block_texts(rules, blocks)?);
            is_given
        }
        Some(_) => return Err(PromptError::refused("system is neither a text nor a list of blocks")),
    };
    if merges_inline {
        for message in messages.iter().filter(|message| is_system(message)) {
            texts.extend(inline_text(rules, message.get("content").cloned())?);
        }
    }
    let is_kept = if rules.drops_empty_system { !texts.is_empty() } else { is_given };
    Ok(is_kept.then(|| message(texts.concat())))
}

/// A system message among the others, where it stays there; `None`: it has no text.
pub(super) fn read_inline(
    rules: &AnthropicRules,
    content: Option<Json>,
) -> Result<Option<Json>, PromptError> {
    let text = inline_text(rules, content)?;
    Ok(text.filter(|text| !text.is_empty()).map(message))
}

fn is_system(message: &Json) -> bool {
    message.get("role").is_some_and(|role| role == "system")
}

fn inline_text(rules: &AnthropicRules, content: Option<Json>) -> Result<Option<String>, PromptError> {
    match content {
        // The first release that took such messages dropped headers of blocks only, and kept empty texts.
        Some(Json::String(text)) if rules.inline_system == InlineSystem::Merged => Ok(Some(text)),
        Some(Json::String(text)) => {
            Ok((!text.starts_with(BILLING_HEADER) && !text.is_empty()).then_some(text))
        }
        Some(Json::Array(blocks)) => {
            let texts = block_texts(rules, blocks)?;
            Ok((!texts.is_empty()).then(|| texts.concat()))
        }
        _ => Err(PromptError::refused("a message's content is neither a text nor a list of blocks")),
    }
}

/// The texts of text blocks that have one and are no billing header.
fn block_texts(rules: &AnthropicRules, blocks: Vec<Json>) -> Result<Vec<String>, PromptError> {
    let mut texts = Vec::new();
    for block in blocks {
        if let Block::Text(text) = Block::read(rules, block)? {
            let is_header = rules.drops_billing_blocks && text.starts_with(BILLING_HEADER);
            texts.extend((!is_header && !text.is_empty()).then_some(text));
        }
    }
    Ok(texts)
}

fn message(text: String) -> Json {
    Map::from_iter([("role".into(), "system".into()), ("content".into(), text.into())]).into()
}
