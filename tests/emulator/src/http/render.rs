//! The render endpoints: the token ids that a request would be served with.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use bytes::Bytes;
use serde_json::{Value, json};

use super::App;
use super::body::{self, ChatBody, CompletionBody};
use super::error::ApiError;

pub(super) async fn completions(State(app): State<App>, body: Bytes) -> Result<Json<Value>, ApiError> {
    offered(&app)?;
    let body: CompletionBody = body::parse(&body)?;
    app.model(body.model.as_deref())?;
    let prompts = body.prompts(app.shared().text.as_ref())?;
    let form = if names_token_ids(&app) { "token_ids" } else { "prompt_token_ids" };
    Ok(Json(prompts.into_iter().map(|ids| json!({form: ids})).collect()))
}

pub(super) async fn chat(State(app): State<App>, body: Bytes) -> Result<Json<Value>, ApiError> {
    offered(&app)?;
    let mut body: ChatBody = body::parse(&body)?;
    app.model(body.model.as_deref())?;
    let ids = body.prompt(app.shared().text.as_ref())?;
    // Older releases answer the conversation and the engine's prompts.
    let answer = if names_token_ids(&app) {
        json!({"token_ids": ids})
    } else {
        json!([[], [{"prompt_token_ids": ids}]])
    };
    Ok(Json(answer))
}

/// Since when they answer what the generate endpoint takes.
fn names_token_ids(app: &App) -> bool {
    app.shared().config.vllm_version.since(18)
}

fn offered(app: &App) -> Result<(), ApiError> {
    let config = &app.shared().config;
    if !config.vllm_version.since(15) {
        return Err(ApiError::not_offered(StatusCode::NOT_FOUND, "Not Found"));
    }
    if config.vllm_version.since(30) && !config.scale_out {
        return Err(ApiError::not_offered(StatusCode::FORBIDDEN, "start with --enable-scale-out"));
    }
    Ok(())
}
