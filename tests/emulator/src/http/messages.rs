//! `/v1/messages` and its count of tokens.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::Api;
use super::error::ApiError;
use super::generate::{self, Order};
use super::{App, body, chat, convert};
use crate::text::ChatPrompt;

/// Body of both.
#[derive(Debug, Deserialize)]
pub(super) struct MessagesBody {
    model: Option<String>,
    #[serde(default)]
    system: Value,
    messages: Vec<Value>,
    tools: Option<Value>,
    max_tokens: Option<usize>,
    cache_salt: Option<String>,
    chat_template_kwargs: Option<serde_json::Map<String, Value>>,
    stream: Option<bool>,
}

impl MessagesBody {
    fn prompt(&self, app: &App) -> Result<Vec<u32>, ApiError> {
        let chat = ChatPrompt {
            messages: chat::messages(&convert::blocks(&self.system, &self.messages)),
            tools: self.tools.as_ref().map(|tools| chat::tools(&convert::message_tools(tools))),
            add_generation_prompt: true,
            continue_final_message: false,
            kwargs: self.chat_template_kwargs.clone().unwrap_or_default(),
        };
        Ok(body::loaded(app.shared().text.as_ref())?.encode_chat(&chat, false)?)
    }
}

pub(super) async fn create(
    State(app): State<App>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let body: MessagesBody = body::parse(&body)?;
    let lora = app.model(body.model.as_deref())?;
    let prompt = body.prompt(&app)?;
    let max_tokens = body.max_tokens.ok_or_else(|| ApiError::bad_request("max_tokens is missing"))?;
    let order = Order {
        salt: body.cache_salt,
        lora,
        rank: body::pinned_rank(&headers),
        stream: body.stream.unwrap_or(false),
        ..Order::new(Api::Messages, body.model, vec![prompt], max_tokens)
    };
    generate::serve(&app, order).await
}

pub(super) async fn count_tokens(State(app): State<App>, body: Bytes) -> Result<Json<Value>, ApiError> {
    let body: MessagesBody = body::parse(&body)?;
    app.model(body.model.as_deref())?;
    Ok(Json(json!({"input_tokens": body.prompt(&app)?.len()})))
}
