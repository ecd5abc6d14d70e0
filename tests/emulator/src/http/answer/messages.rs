//! The format of `/v1/messages`.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{App, Output, Shape, Usage, text_of};
use crate::core::Token;

pub(super) fn whole(app: &App, shape: &Shape, output: &Output, usage: &Usage) -> Value {
    json!({
        "id": shape.id, "type": "message", "role": "assistant", "model": shape.model,
        "content": [{"type": "text", "text": output.text(app)}],
        "stop_reason": "max_tokens", "stop_sequence": null, "usage": rendered(usage),
    })
}

/// What comes before the first token. The usage at that point is not known yet.
pub(super) fn opening(shape: &Shape) -> Vec<Bytes> {
    let message = json!({
        "id": shape.id, "type": "message", "role": "assistant", "model": shape.model, "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": rendered(&Usage::default()),
    });
    let block = json!({"type": "text", "text": ""});
    vec![
        event(&json!({"type": "message_start", "message": message})),
        event(&json!({"type": "content_block_start", "index": 0, "content_block": block})),
    ]
}

pub(super) fn token(app: &App, token: &Token) -> Vec<Bytes> {
    let delta = json!({"type": "text_delta", "text": text_of(app, token.token)});
    vec![event(&json!({"type": "content_block_delta", "index": 0, "delta": delta}))]
}

pub(super) fn closing(usage: &Usage) -> Vec<Bytes> {
    let delta = json!({"stop_reason": "max_tokens", "stop_sequence": null});
    vec![
        event(&json!({"type": "content_block_stop", "index": 0})),
        event(&json!({"type": "message_delta", "delta": delta, "usage": rendered(usage)})),
        event(&json!({"type": "message_stop"})),
    ]
}

/// Cached tokens are not among the input tokens.
fn rendered(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens.saturating_sub(usage.cached_tokens),
        "output_tokens": usage.completion_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
    })
}

fn event(data: &Value) -> Bytes {
    let kind = data["type"].as_str().unwrap_or_default();
    Bytes::from(format!("event: {kind}\ndata: {data}\n\n"))
}
