//! Which models' chats are not rendered from a Jinja template by the engine, but by code of their own.

use std::path::Path;

use serde_json::{Map, Value as Json};

use crate::tokenizer::HuggingFace;

/// How the engine makes text of this model's chats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChatRenderer {
    /// As the model's files tell.
    #[default]
    Detect,
    /// By the Jinja template, whatever the files tell (the engine's `--tokenizer-mode hf`).
    Jinja,
}

/// The renderer that the engine picks for a model by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Jinja,
    /// gpt-oss: messages of the harmony encoding, with today's date.
    Harmony,
    /// Mistral's own tokenizer files, for which the engine prefers Mistral's own library.
    Mistral,
    /// A model type with a renderer of its own.
    Own(&'static str),
}

/// `model_type` values of `config.json` with a renderer of their own.
const OWN_RENDERER: [&str; 5] = ["deepseek_v32", "deepseek_v4", "kimi_k3", "inkling", "cohere_command3"];

/// Tokens that together only the harmony encoding has.
const HARMONY_TOKENS: [&str; 4] = ["<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"];

// === impl Family ===

impl Family {
    /// `config` is the model's `config.json`, empty where there is none.
    pub(super) fn detect(dir: &Path, config: &Map<String, Json>, tokenizer: &HuggingFace) -> Self {
        let model_type = config.get("model_type").and_then(Json::as_str).unwrap_or_default();
        if let Some(own) = OWN_RENDERER.iter().find(|own| **own == model_type) {
            return Family::Own(own);
        }
        // The engine goes by the model's type alone; without a config.json the tokens tell.
        let has_tokens = || HARMONY_TOKENS.iter().all(|token| tokenizer.token_id(token).is_some());
        if model_type == "gpt_oss" || model_type.is_empty() && has_tokens() {
            return Family::Harmony;
        }
        if dir.join("tekken.json").exists() {
            return Family::Mistral;
        }
        Family::Jinja
    }

    /// Why this family has no chat template.
    pub(super) fn describe(self) -> String {
        match self {
            Family::Jinja => "the model has no chat template".into(),
            Family::Harmony => "the model uses the harmony encoding, not a chat template".into(),
            Family::Mistral => "the engine uses the model's tekken.json, not a chat template".into(),
            Family::Own(model_type) => format!("the engine has a renderer of its own for {model_type}"),
        }
    }
}
