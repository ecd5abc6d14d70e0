//! The format of `/v1/responses`.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{App, Output, Shape, Usage, text_of};
use crate::core::Token;

/// The whole answer, or what the last event of a stream holds.
pub(super) fn whole(app: &App, shape: &Shape, output: &Output, usage: &Usage) -> Value {
    let mut response = response(shape, "completed", &output.text(app));
    if let Some(fields) = response.as_object_mut() {
        let details = shape.cached_tokens_in_usage.then(|| json!({"cached_tokens": usage.cached_tokens}));
        let usage = json!({
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": details,
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        });
        fields.insert("usage".into(), usage);
    }
    response
}

/// What comes before the first token.
pub(super) fn opening(shape: &Shape) -> Vec<Bytes> {
    let response = response(shape, "in_progress", "");
    vec![event("response.created", &json!({"response": response}))]
}

pub(super) fn token(app: &App, shape: &Shape, token: &Token) -> Vec<Bytes> {
    let delta = json!({"item_id": item_id(shape), "output_index": 0, "delta": text_of(app, token.token)});
    vec![event("response.output_text.delta", &delta)]
}

pub(super) fn closing(app: &App, shape: &Shape, output: &Output, usage: &Usage) -> Vec<Bytes> {
    vec![event("response.completed", &json!({"response": whole(app, shape, output, usage)}))]
}

/// A response without its usage.
pub(in crate::http) fn response(shape: &Shape, status: &str, text: &str) -> Value {
    let output = match status {
        "completed" => json!([{
            "id": item_id(shape), "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }]),
        _ => json!([]),
    };
    json!({
        "id": shape.id, "object": "response", "created_at": shape.created, "model": shape.model, "status": status,
        "output": output, "previous_response_id": shape.previous_response,
    })
}

fn item_id(shape: &Shape) -> String {
    shape.id.replacen("resp_", "msg_", 1)
}

fn event(kind: &str, fields: &Value) -> Bytes {
    let mut data = json!({"type": kind});
    if let (Some(data), Some(fields)) = (data.as_object_mut(), fields.as_object()) {
        data.extend(fields.clone());
    }
    Bytes::from(format!("event: {kind}\ndata: {data}\n\n"))
}
