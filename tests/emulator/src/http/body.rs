//! Request bodies: what of them the emulator looks at. Unknown fields are ignored, as the engine does.

use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::chat;
use super::error::ApiError;
use crate::text::{ChatPrompt, Text};

/// Fields that completions and chat share.
#[derive(Debug, Deserialize)]
pub(super) struct CompletionBody {
    pub(super) model: Option<String>,
    prompt: Option<Box<RawValue>>,
    pub(super) max_tokens: Option<usize>,
    pub(super) n: Option<usize>,
    pub(super) stream: Option<bool>,
    pub(super) stream_options: Option<StreamOptions>,
    pub(super) return_token_ids: Option<bool>,
    pub(super) cache_salt: Option<String>,
    pub(super) session_id: Option<String>,
    pub(super) vllm_xargs: Option<Value>,
    pub(super) prompt_logprobs: Option<i64>,
    add_special_tokens: Option<bool>,
    truncate_prompt_tokens: Option<i64>,
    truncation_side: Option<String>,
}

/// Body of `/v1/chat/completions`.
#[derive(Debug, Deserialize)]
pub(super) struct ChatBody {
    pub(super) model: Option<String>,
    messages: Vec<Value>,
    tools: Option<Value>,
    chat_template_kwargs: Option<serde_json::Map<String, Value>>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
    pub(super) max_tokens: Option<usize>,
    pub(super) max_completion_tokens: Option<usize>,
    pub(super) n: Option<usize>,
    pub(super) stream: Option<bool>,
    pub(super) stream_options: Option<StreamOptions>,
    pub(super) return_token_ids: Option<bool>,
    pub(super) cache_salt: Option<String>,
    pub(super) session_id: Option<String>,
    pub(super) vllm_xargs: Option<Value>,
    pub(super) prompt_logprobs: Option<i64>,
    pub(super) kv_transfer_params: Option<KvTransferParams>,
    truncate_prompt_tokens: Option<i64>,
    truncation_side: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct StreamOptions {
    pub(super) include_usage: Option<bool>,
}

/// Token ids that replace template and tokenizer.
#[derive(Debug, Deserialize)]
pub(super) struct KvTransferParams {
    pub(super) prompt_token_ids: Option<Vec<u32>>,
}

/// Body of `/tokenize`: a prompt or messages.
#[derive(Debug, Deserialize)]
pub(super) struct TokenizeBody {
    pub(super) model: Option<String>,
    prompt: Option<String>,
    messages: Option<Vec<Value>>,
    tools: Option<Value>,
    chat_template_kwargs: Option<serde_json::Map<String, Value>>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
    add_special_tokens: Option<bool>,
}

/// Reads a JSON body.
pub(super) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::bad_request(format!("request body: {error}")))
}

/// The rank that a request is pinned to; a value that is no number is ignored.
pub(super) fn pinned_rank(headers: &HeaderMap) -> Option<usize> {
    headers.get("x-data-parallel-rank")?.to_str().ok()?.trim().parse().ok()
}

/// The session, from the body or its header.
pub(super) fn session(body: Option<String>, headers: &HeaderMap) -> Option<String> {
    body.or_else(|| Some(headers.get("x-session-id")?.to_str().ok()?.to_owned()))
}

/// Whether the request asks for the blocks of its hit to be published again.
pub(super) fn reports_hits(xargs: Option<&Value>) -> bool {
    xargs.and_then(|xargs| xargs.get("kv_cache_report_mode")?.as_str()) == Some("full")
}

impl CompletionBody {
    /// The prompts as token ids, in order.
    pub(super) fn prompts(&self, text: Option<&Text>) -> Result<Vec<Vec<u32>>, ApiError> {
        let raw = self.prompt.as_ref().ok_or_else(|| ApiError::bad_request("prompt is missing"))?.get();
        let prompts = four_forms(raw, text, self.add_special_tokens.unwrap_or(true))?;
        let side = self.truncation_side.as_deref();
        Ok(prompts.into_iter().map(|tokens| truncate(tokens, self.truncate_prompt_tokens, side)).collect())
    }
}

/// A text, texts, token ids, or lists of them.
pub(super) fn four_forms(raw: &str, text: Option<&Text>, special: bool) -> Result<Vec<Vec<u32>>, ApiError> {
    let encode = |prompt: &String| encode(text, prompt, special);
    if let Ok(prompt) = serde_json::from_str::<String>(raw) {
        Ok(vec![encode(&prompt)?])
    } else if let Ok(tokens) = serde_json::from_str::<Vec<u32>>(raw) {
        Ok(vec![tokens])
    } else if let Ok(prompts) = serde_json::from_str::<Vec<String>>(raw) {
        prompts.iter().map(encode).collect()
    } else if let Ok(prompts) = serde_json::from_str::<Vec<Vec<u32>>>(raw) {
        Ok(prompts)
    } else {
        Err(ApiError::bad_request("prompt is not a string, a list of token ids, or a list of those"))
    }
}

impl ChatBody {
    /// The prompt as token ids.
    pub(super) fn prompt(&mut self, text: Option<&Text>) -> Result<Vec<u32>, ApiError> {
        if let Some(tokens) = self.kv_transfer_params.take().and_then(|params| params.prompt_token_ids) {
            return Ok(tokens);
        }
        let chat = ChatPrompt {
            messages: chat::messages(&self.messages),
            tools: self.tools.take().map(|tools| chat::tools(&tools)),
            add_generation_prompt: self.add_generation_prompt.unwrap_or(true),
            continue_final_message: self.continue_final_message.unwrap_or(false),
            kwargs: self.chat_template_kwargs.take().unwrap_or_default(),
        };
        let tokens = loaded(text)?.encode_chat(&chat, false)?;
        Ok(truncate(tokens, self.truncate_prompt_tokens, self.truncation_side.as_deref()))
    }
}

impl TokenizeBody {
    pub(super) fn tokens(&mut self, text: Option<&Text>) -> Result<Vec<u32>, ApiError> {
        if let Some(prompt) = &self.prompt {
            return encode(text, prompt, self.add_special_tokens.unwrap_or(true));
        }
        let list =
            self.messages.as_ref().ok_or_else(|| ApiError::bad_request("prompt or messages is missing"))?;
        let chat = ChatPrompt {
            messages: chat::messages(list),
            tools: self.tools.take().map(|tools| chat::tools(&tools)),
            add_generation_prompt: self.add_generation_prompt.unwrap_or(true),
            continue_final_message: self.continue_final_message.unwrap_or(false),
            kwargs: self.chat_template_kwargs.take().unwrap_or_default(),
        };
        Ok(loaded(text)?.encode_chat(&chat, false)?)
    }
}

pub(super) fn loaded(text: Option<&Text>) -> Result<&Text, ApiError> {
    text.ok_or_else(|| {
        ApiError::bad_request("no tokenizer is loaded: send token ids, or start with --tokenizer")
    })
}

pub(super) fn encode(text: Option<&Text>, prompt: &str, special: bool) -> Result<Vec<u32>, ApiError> {
    Ok(loaded(text)?.encode(prompt, special)?)
}

/// Keeps the last tokens, or the first where the right side is to be cut off, as the engine does.
fn truncate(mut tokens: Vec<u32>, limit: Option<i64>, side: Option<&str>) -> Vec<u32> {
    if let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) {
        match side {
            Some("right") => tokens.truncate(limit),
            _ => drop(tokens.drain(..tokens.len().saturating_sub(limit))),
        }
    }
    tokens
}
