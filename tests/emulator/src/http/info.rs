//! The small endpoints of the engine.

use axum::Json;
use axum::extract::State;
use bytes::Bytes;
use serde_json::{Value, json};

use super::App;
use super::body::{self, TokenizeBody};
use super::error::ApiError;

pub(super) async fn version(State(app): State<App>) -> Json<Value> {
    Json(json!({"version": app.shared().config.vllm_version.to_string()}))
}

pub(super) async fn models(State(app): State<App>) -> Json<Value> {
    let config = &app.shared().config;
    let created = app.0.started_unix as u64;
    let model = |id: &str, parent: Option<&str>| {
        json!({
            "id": id, "object": "model", "created": created, "owned_by": "vllm", "root": id, "parent": parent,
            "max_model_len": config.context_len(),
        })
    };
    let base = std::iter::once(model(&config.model, None));
    let adapters = config.loras.iter().map(|lora| model(lora, Some(&config.model)));
    Json(json!({"object": "list", "data": base.chain(adapters).collect::<Vec<_>>()}))
}

pub(super) async fn tokenize(State(app): State<App>, body: Bytes) -> Result<Json<Value>, ApiError> {
    let mut body: TokenizeBody = body::parse(&body)?;
    app.model(body.model.as_deref())?;
    let tokens = body.tokens(app.shared().text.as_ref())?;
    Ok(Json(
        json!({"count": tokens.len(), "max_model_len": app.shared().config.context_len(), "tokens": tokens}),
    ))
}

/// Answers 200 even when a rank was busy, as the engine does; the body says so.
pub(super) async fn reset_prefix_cache(State(app): State<App>) -> Result<Json<Value>, ApiError> {
    let mut success = true;
    for rank in app.ranks() {
        success &= rank.reset_prefix_cache().await?;
    }
    Ok(Json(json!({"success": success})))
}
