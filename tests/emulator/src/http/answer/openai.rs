//! The formats of `/v1/completions` and `/v1/chat/completions`.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Api, App, Output, Shape, Usage, text_of};
use crate::core::Token;

/// The whole answer.
pub(super) fn whole(app: &App, shape: &Shape, outputs: &[Output], usage: &Usage) -> Value {
    let choices = outputs.iter().enumerate().map(|(index, output)| choice(shape, app, index, output));
    let mut answer = envelope(shape, false, choices.collect());
    if let Some(fields) = answer.as_object_mut() {
        fields.insert("usage".into(), rendered(shape, usage));
        if shape.api == Api::Chat && shape.return_token_ids {
            fields.insert("prompt_token_ids".into(), json!(shape.prompts.first()));
        }
    }
    answer
}

/// The events of one token: chat begins a choice with an event of its role.
pub(super) fn token(app: &App, shape: &Shape, index: usize, token: &Token) -> Vec<Bytes> {
    let first = token.index == 0;
    let text = text_of(app, token.token);
    let finish = token.last.then_some("length");
    let mut choice = match shape.api {
        Api::Chat => json!({"index": index, "delta": {"content": text}}),
        Api::Completions | Api::Responses | Api::Messages => json!({"index": index, "text": text}),
    };
    if let Some(fields) = choice.as_object_mut() {
        fields.insert("logprobs".into(), Value::Null);
        fields.insert("finish_reason".into(), json!(finish));
        if shape.return_token_ids {
            fields.insert("token_ids".into(), json!([token.token]));
            if first && shape.api == Api::Completions {
                fields.insert("prompt_token_ids".into(), json!(prompt_of(shape, index)));
            }
        }
    }
    let mut chunks = Vec::new();
    if first && shape.api == Api::Chat {
        let delta = json!({"role": "assistant", "content": ""});
        let opening = json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": null});
        let mut chunk = envelope(shape, true, vec![opening]);
        if let Some(fields) = chunk.as_object_mut().filter(|_| shape.return_token_ids) {
            fields.insert("prompt_token_ids".into(), json!(prompt_of(shape, index)));
        }
        chunks.push(event(&chunk));
    }
    chunks.push(event(&envelope(shape, true, vec![choice])));
    chunks
}

/// What comes behind the last token.
pub(super) fn closing(shape: &Shape, usage: &Usage) -> Vec<Bytes> {
    let mut events = Vec::new();
    if shape.include_usage {
        let mut chunk = envelope(shape, true, Vec::new());
        if let Some(fields) = chunk.as_object_mut() {
            fields.insert("usage".into(), rendered(shape, usage));
        }
        events.push(event(&chunk));
    }
    events.push(Bytes::from_static(b"data: [DONE]\n\n"));
    events
}

fn event(json: &Value) -> Bytes {
    Bytes::from(format!("data: {json}\n\n"))
}

fn object(api: Api, streams: bool) -> &'static str {
    match (api, streams) {
        (Api::Chat, false) => "chat.completion",
        (Api::Chat, true) => "chat.completion.chunk",
        (Api::Completions | Api::Responses | Api::Messages, _) => "text_completion",
    }
}

fn envelope(shape: &Shape, streams: bool, choices: Vec<Value>) -> Value {
    json!({
        "id": shape.id, "object": object(shape.api, streams), "created": shape.created, "model": shape.model,
        "choices": choices,
    })
}

fn prompt_of(shape: &Shape, choice: usize) -> Option<&Vec<u32>> {
    shape.prompts.get(choice / shape.choices_per_prompt)
}

/// One finished choice of a whole answer.
fn choice(shape: &Shape, app: &App, index: usize, output: &Output) -> Value {
    let text = output.text(app);
    let mut choice = match shape.api {
        Api::Chat => json!({"index": index, "message": {"role": "assistant", "content": text}}),
        Api::Completions | Api::Responses | Api::Messages => json!({"index": index, "text": text}),
    };
    if let Some(fields) = choice.as_object_mut() {
        fields.insert("logprobs".into(), Value::Null);
        fields.insert("finish_reason".into(), "length".into());
        fields.insert("stop_reason".into(), Value::Null);
        if shape.return_token_ids {
            fields.insert("token_ids".into(), json!(output.0));
            if shape.api == Api::Completions {
                fields.insert("prompt_token_ids".into(), json!(prompt_of(shape, index)));
            }
        }
    }
    choice
}

fn rendered(shape: &Shape, usage: &Usage) -> Value {
    let details = shape.cached_tokens_in_usage.then(|| json!({"cached_tokens": usage.cached_tokens}));
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "completion_tokens": usage.completion_tokens,
        "prompt_tokens_details": details,
    })
}
