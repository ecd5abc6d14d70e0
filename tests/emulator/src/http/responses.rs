//! `/v1/responses`, and the memory that they go on from. It is this server's own and ends with it.

use std::collections::{HashMap, VecDeque};

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{self, Api};
use super::error::ApiError;
use super::generate::{self, Order};
use super::{App, body, chat, convert};
use crate::text::ChatPrompt;

/// Responses kept; the oldest are forgotten.
const RESPONSES_MAX: usize = 1000;

/// Body of `/v1/responses`.
#[derive(Debug, Deserialize)]
pub(super) struct ResponsesBody {
    model: Option<String>,
    input: Value,
    instructions: Option<String>,
    tools: Option<Value>,
    previous_response_id: Option<String>,
    max_output_tokens: Option<usize>,
    cache_salt: Option<String>,
    chat_template_kwargs: Option<serde_json::Map<String, Value>>,
    store: Option<bool>,
    stream: Option<bool>,
}

/// Responses that can be gone on from or asked for again.
#[derive(Debug, Default)]
pub(super) struct ResponseStore(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    by_id: HashMap<String, Stored>,
    /// Oldest first.
    ids: VecDeque<String>,
}

#[derive(Debug, Clone)]
struct Stored {
    /// The chat up to and with the answer, without instructions: each request has its own.
    messages: Vec<Value>,
    response: Value,
}

// === impl ResponseStore ===

impl ResponseStore {
    fn get(&self, id: &str) -> Result<Stored, ApiError> {
        self.0.lock().by_id.get(id).cloned().ok_or_else(|| ApiError::unknown_response(id))
    }

    fn put(&self, id: String, stored: Stored) {
        let mut kept = self.0.lock();
        if kept.ids.len() >= RESPONSES_MAX
            && let Some(oldest) = kept.ids.pop_front()
        {
            kept.by_id.remove(&oldest);
        }
        kept.ids.push_back(id.clone());
        kept.by_id.insert(id, stored);
    }
}

pub(super) async fn create(
    State(app): State<App>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let body: ResponsesBody = body::parse(&body)?;
    let lora = app.model(body.model.as_deref())?;
    let mut messages = match &body.previous_response_id {
        Some(id) => app.responses().get(id)?.messages,
        None => Vec::new(),
    };
    messages.extend(convert::input_items(&body.input));
    let instructions = body.instructions.iter().map(|text| json!({"role": "system", "content": text}));
    let prompt: Vec<Value> = instructions.chain(messages.iter().cloned()).collect();
    let chat = ChatPrompt {
        messages: chat::messages(&prompt),
        tools: body.tools.as_ref().map(|tools| chat::tools(&convert::response_tools(tools))),
        add_generation_prompt: true,
        continue_final_message: false,
        kwargs: body.chat_template_kwargs.unwrap_or_default(),
    };
    // Unlike chats, responses get the tokenizer's special tokens on top of the template's.
    let tokens = body::loaded(app.shared().text.as_ref())?.encode_chat(&chat, true)?;
    let max_tokens = body.max_output_tokens.unwrap_or(app.shared().config.default_max_tokens);
    let order = Order {
        salt: body.cache_salt,
        lora,
        rank: body::pinned_rank(&headers),
        stream: body.stream.unwrap_or(false),
        previous_response: body.previous_response_id,
        ..Order::new(Api::Responses, body.model, vec![tokens], max_tokens)
    };
    let begun = generate::begin(&app, order).await?;
    if body.store.unwrap_or(true) {
        let output = begun.outputs.iter().flatten();
        let text: String = output.map(|token| answer::text_of(&app, *token)).collect();
        messages.push(json!({"role": "assistant", "content": text}));
        let response = answer::response(&begun.shape, "completed", &text);
        app.responses().put(begun.shape.id.clone(), Stored { messages, response });
    }
    generate::answer(&app, begun).await
}

pub(super) async fn retrieve(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(app.responses().get(&id)?.response))
}
