//! `/v1/embeddings`: prompts are computed and cached, and nothing is generated.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::answer::Api;
use super::error::ApiError;
use super::generate::{self, Order};
use super::{App, body};

/// Numbers of an embedding; they are all the same.
const DIMENSIONS: usize = 4;

/// Body of `/v1/embeddings`.
#[derive(Debug, Deserialize)]
pub(super) struct EmbeddingsBody {
    model: Option<String>,
    input: Box<RawValue>,
    add_special_tokens: Option<bool>,
    cache_salt: Option<String>,
}

pub(super) async fn create(
    State(app): State<App>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let body: EmbeddingsBody = body::parse(&body)?;
    let lora = app.model(body.model.as_deref())?;
    let special = body.add_special_tokens.unwrap_or(true);
    let prompts = body::four_forms(body.input.get(), app.shared().text.as_ref(), special)?;
    let prompt_tokens: usize = prompts.iter().map(Vec::len).sum();
    // The one token stands for the end of the prompt: it comes with the step that completes it, and is never cached.
    let order = Order {
        salt: body.cache_salt,
        lora,
        rank: body::pinned_rank(&headers),
        ..Order::new(Api::Completions, body.model.clone(), prompts, 1)
    };
    let begun = generate::begin(&app, order).await?;
    let (count, id) = (begun.outputs.len(), begun.shape.id.clone());
    generate::answer(&app, begun).await?;
    let data = (0..count)
        .map(|index| json!({"object": "embedding", "index": index, "embedding": vec![0.5; DIMENSIONS]}));
    Ok(Json(json!({
        "id": id, "object": "list", "model": body.model, "data": data.collect::<Vec<_>>(),
        "usage": {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens, "completion_tokens": 0,
                  "prompt_tokens_details": null},
    })))
}
