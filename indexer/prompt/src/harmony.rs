//! gpt-oss: chats in the harmony encoding, which the engine writes itself instead of running a template.
//!
//! ```text
//! chat, messages, responses ─▶ Conversation ─▶ Pieces ─▶ text or ids
//! harmony/chat.rs              conversation.rs  render.rs  pieces.rs
//! harmony/responses.rs         (analysis of earlier turns dropped)
//! ```
//!
//! What differs from a template: special tokens are written as tokens, never parsed out of text, so `<|end|>` in a
//! message stays seven characters; each part of a content is encoded alone; the system message carries the date.
//! Fields that only templates read (`chat_template_kwargs`, `documents`, `add_generation_prompt`) have no effect, and
//! nothing is truncated.
//!
//! See `docs/decisions/0007-harmony.md` for why this is our own code and how it is compared with the engine's.

mod chat;
mod conversation;
mod json;
mod pieces;
mod render;
mod responses;
mod rules;
mod system;
mod tools;
mod typescript;

use std::sync::Arc;

use crate::anthropic::Converted;
use crate::chat::ChatRequest;
use crate::error::PromptError;
use crate::template::Clock;
use crate::tokenizer::HuggingFace;
use crate::version::{EngineVersion, RenderingRules};

pub(crate) use pieces::Pieces;
use rules::HarmonyRules;

/// Renders the requests to one gpt-oss model.
pub(crate) struct Harmony {
    rules: HarmonyRules,
    /// The engine's `--exclude-tools-when-tool-choice-none`.
    exclude_tools_when_none: bool,
    clock: Arc<dyn Clock>,
}

/// Tokens of the encoding and their ids. The engine brings the vocabulary with its harmony library, so a model whose
/// own tokenizer differs from it cannot be predicted.
const KNOWN_IDS: [(&str, u32); 5] = [
    ("<|channel|>", 200_005),
    ("<|start|>", 200_006),
    ("<|end|>", 200_007),
    ("<|message|>", 200_008),
    ("<|call|>", 200_012),
];

// === impl Harmony ===

impl Harmony {
    /// `general`: the release's rules, with what the deployment says against them. Fails where the engine's release or the model's tokenizer is none whose ids are known.
    pub(crate) fn new(
        version: EngineVersion,
        general: &RenderingRules,
        tokenizer: &HuggingFace,
        exclude_tools_when_none: bool,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, PromptError> {
        let rules = HarmonyRules::of(version, general).ok_or_else(|| {
            PromptError::not_renderable("the harmony renderer of engines before 0.16 is not known")
        })?;
        let same_ids = KNOWN_IDS.iter().all(|(token, id)| tokenizer.token_id(token) == Some(*id));
        if !same_ids || !tokenizer.added_tokens().iter().all(|token| pieces::reads_as_special(token)) {
            return Err(PromptError::not_renderable("the tokenizer is not the one of the harmony encoding"));
        }
        Ok(Harmony { rules, exclude_tools_when_none, clock })
    }

    /// The prompt of a `/v1/chat/completions` request.
    pub(crate) fn chat(&self, request: &ChatRequest<'_>) -> Result<Pieces, PromptError> {
        let conversation = chat::read(&self.rules, self.exclude_tools_when_none, request)?;
        render::render(&self.rules, conversation, &self.date())
    }

    /// The prompt of a `/v1/messages` request, after the engine's conversion.
    pub(crate) fn messages(&self, converted: Converted) -> Result<Pieces, PromptError> {
        let conversation = chat::read_converted(&self.rules, self.exclude_tools_when_none, converted)?;
        render::render(&self.rules, conversation, &self.date())
    }

    /// The prompt of a `/v1/responses` request: a JSON object with the members that can reach the ids.
    pub(crate) fn responses(&self, members: &[u8]) -> Result<Pieces, PromptError> {
        let conversation = responses::read(&self.rules, members)?;
        render::render(&self.rules, conversation, &self.date())
    }

    /// The engine's local date, as it prints it.
    fn date(&self) -> String {
        self.clock.now().date().strftime("%Y-%m-%d").to_string()
    }
}

#[cfg(test)]
mod tests;
