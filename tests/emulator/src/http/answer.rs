//! Answers of the two generating endpoints, whole or as server-sent events.

use std::collections::VecDeque;

use axum::Json;
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use serde_json::{Value, json};

use super::App;
use super::error::ApiError;
use crate::core::Token;
use crate::rank::{RankError, Ticket};

/// Text of a generated token when no tokenizer is loaded.
const PLAIN_TOKEN: &str = " tok";
/// Range of generated ids when no tokenizer is loaded: clear of the special ids of common vocabularies.
const PLAIN_IDS: std::ops::Range<u64> = 1_000..100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    Completions,
    Chat,
}

impl Api {
    pub(super) fn id_prefix(self) -> &'static str {
        match self {
            Self::Completions => "cmpl",
            Self::Chat => "chatcmpl",
        }
    }

    fn object(self, streams: bool) -> &'static str {
        match (self, streams) {
            (Self::Completions, _) => "text_completion",
            (Self::Chat, false) => "chat.completion",
            (Self::Chat, true) => "chat.completion.chunk",
        }
    }
}

/// Everything about an answer but its tokens.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) api: Api,
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: String,
    pub(super) prompts: Vec<Vec<u32>>,
    pub(super) choices_per_prompt: usize,
    pub(super) return_token_ids: bool,
    pub(super) cached_tokens_in_usage: bool,
}

/// Sums for the usage object.
#[derive(Debug, Default)]
struct Usage {
    completion_tokens: usize,
    cached_tokens: usize,
}

/// The tokens that a prompt will get: pseudo-random, the same for the same prompt and choice.
pub(super) fn output_tokens(prompt: &[u32], choice: usize, count: usize, words: &[u32]) -> Vec<u32> {
    let mix = |state: u64, value: u64| {
        let mut z = (state ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let seed = prompt.iter().fold(choice as u64, |state, token| mix(state, u64::from(*token)));
    let one = |index: usize| {
        let random = mix(seed, index as u64);
        let plain = PLAIN_IDS.start + random % (PLAIN_IDS.end - PLAIN_IDS.start);
        let word = words.get((random % words.len().max(1) as u64) as usize);
        word.copied().unwrap_or(plain as u32)
    };
    (0..count).map(one).collect()
}

/// Waits for all tokens and answers at once.
pub(super) async fn whole(app: &App, shape: &Shape, tickets: Vec<Ticket>) -> Result<Response, ApiError> {
    let mut outputs: Vec<Vec<u32>> = tickets.iter().map(|_| Vec::new()).collect();
    let mut usage = Usage::default();
    let mut finished = 0;
    let mut tokens = merged(tickets);
    while let Some((choice, token)) = tokens.next().await {
        usage.count(shape, choice, &token);
        finished += usize::from(token.last);
        if let Some(output) = outputs.get_mut(choice) {
            output.push(token.token);
        }
    }
    if finished < outputs.len() {
        return Err(RankError::Gone.into());
    }
    let choices = outputs.iter().enumerate().map(|(index, output)| shape.choice(app, index, output));
    let mut answer = shape.envelope(false, choices.collect());
    if let Some(fields) = answer.as_object_mut() {
        fields.insert("usage".into(), usage.render(shape));
        if shape.api == Api::Chat && shape.return_token_ids {
            fields.insert("prompt_token_ids".into(), json!(shape.prompts.first()));
        }
    }
    Ok(Json(answer).into_response())
}

/// Answers with one event per token.
pub(super) fn stream(app: App, shape: Shape, tickets: Vec<Ticket>, include_usage: bool) -> Response {
    let events = Events {
        app,
        open: tickets.len(),
        tokens: merged(tickets),
        usage: Usage::default(),
        include_usage,
        shape,
        ready: VecDeque::new(),
    };
    let body = stream::unfold(events, Events::next);
    ([(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")], Body::from_stream(body)).into_response()
}

/// The tokens of all choices as they come, with the choice's index.
fn merged(tickets: Vec<Ticket>) -> BoxStream<'static, (usize, Token)> {
    let one = |(index, ticket): (usize, Ticket)| {
        let tokens = stream::unfold(ticket, |mut ticket| async move { Some((ticket.next().await?, ticket)) });
        tokens.map(move |token| (index, token)).boxed()
    };
    stream::select_all(tickets.into_iter().enumerate().map(one)).boxed()
}

/// A stream of server-sent events under way.
struct Events {
    app: App,
    shape: Shape,
    tokens: BoxStream<'static, (usize, Token)>,
    /// Choices without their last token.
    open: usize,
    usage: Usage,
    include_usage: bool,
    ready: VecDeque<Bytes>,
}

impl Events {
    /// The next piece of the body; an error, which cuts the connection, if the rank went away.
    async fn next(mut self) -> Option<(Result<Bytes, RankError>, Self)> {
        if self.ready.is_empty() {
            let Some((choice, token)) = self.tokens.next().await else {
                return (self.open > 0).then(|| {
                    self.open = 0;
                    (Err(RankError::Gone), self)
                });
            };
            self.take(choice, &token);
        }
        let piece = self.ready.pop_front()?;
        Some((Ok(piece), self))
    }

    fn take(&mut self, choice: usize, token: &Token) {
        self.usage.count(&self.shape, choice, token);
        for chunk in self.shape.chunks(&self.app, choice, token) {
            self.ready.push_back(event(&chunk));
        }
        if !token.last {
            return;
        }
        self.open -= 1;
        if self.open == 0 {
            if self.include_usage {
                let mut chunk = self.shape.envelope(true, Vec::new());
                if let Some(fields) = chunk.as_object_mut() {
                    fields.insert("usage".into(), self.usage.render(&self.shape));
                }
                self.ready.push_back(event(&chunk));
            }
            self.ready.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        }
    }
}

fn event(json: &Value) -> Bytes {
    Bytes::from(format!("data: {json}\n\n"))
}

// === impl Shape ===

impl Shape {
    fn envelope(&self, streams: bool, choices: Vec<Value>) -> Value {
        json!({
            "id": self.id, "object": self.api.object(streams), "created": self.created, "model": self.model,
            "choices": choices,
        })
    }

    fn prompt_of(&self, choice: usize) -> Option<&Vec<u32>> {
        self.prompts.get(choice / self.choices_per_prompt)
    }

    /// One finished choice of a whole answer.
    fn choice(&self, app: &App, index: usize, output: &[u32]) -> Value {
        let text: String = output.iter().map(|token| text_of(app, *token)).collect();
        let mut choice = match self.api {
            Api::Completions => json!({"index": index, "text": text}),
            Api::Chat => json!({"index": index, "message": {"role": "assistant", "content": text}}),
        };
        if let Some(fields) = choice.as_object_mut() {
            fields.insert("logprobs".into(), Value::Null);
            fields.insert("finish_reason".into(), "length".into());
            fields.insert("stop_reason".into(), Value::Null);
            if self.return_token_ids {
                fields.insert("token_ids".into(), json!(output));
                if self.api == Api::Completions {
                    fields.insert("prompt_token_ids".into(), json!(self.prompt_of(index)));
                }
            }
        }
        choice
    }

    /// The events of one token: chat begins a choice with an event of its role.
    fn chunks(&self, app: &App, index: usize, token: &Token) -> Vec<Value> {
        let first = token.index == 0;
        let text = text_of(app, token.token);
        let finish = token.last.then_some("length");
        let mut choice = match self.api {
            Api::Completions => json!({"index": index, "text": text}),
            Api::Chat => json!({"index": index, "delta": {"content": text}}),
        };
        if let Some(fields) = choice.as_object_mut() {
            fields.insert("logprobs".into(), Value::Null);
            fields.insert("finish_reason".into(), json!(finish));
            if self.return_token_ids {
                fields.insert("token_ids".into(), json!([token.token]));
                if first && self.api == Api::Completions {
                    fields.insert("prompt_token_ids".into(), json!(self.prompt_of(index)));
                }
            }
        }
        let mut chunks = Vec::new();
        if first && self.api == Api::Chat {
            let delta = json!({"role": "assistant", "content": ""});
            let opening = json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": null});
            let mut chunk = self.envelope(true, vec![opening]);
            if let Some(fields) = chunk.as_object_mut().filter(|_| self.return_token_ids) {
                fields.insert("prompt_token_ids".into(), json!(self.prompt_of(index)));
            }
            chunks.push(chunk);
        }
        chunks.push(self.envelope(true, vec![choice]));
        chunks
    }
}

// === impl Usage ===

impl Usage {
    fn count(&mut self, shape: &Shape, choice: usize, token: &Token) {
        self.completion_tokens += 1;
        // A prompt with several choices counts once, with its first choice.
        if token.index == 0 && choice.is_multiple_of(shape.choices_per_prompt) {
            self.cached_tokens += token.cached_tokens;
        }
    }

    fn render(&self, shape: &Shape) -> Value {
        let prompt_tokens: usize = shape.prompts.iter().map(Vec::len).sum();
        let details = shape.cached_tokens_in_usage.then(|| json!({"cached_tokens": self.cached_tokens}));
        json!({
            "prompt_tokens": prompt_tokens,
            "total_tokens": prompt_tokens + self.completion_tokens,
            "completion_tokens": self.completion_tokens,
            "prompt_tokens_details": details,
        })
    }
}

fn text_of(app: &App, token: u32) -> String {
    match &app.shared().text {
        Some(text) => text.decode(token),
        None => PLAIN_TOKEN.to_owned(),
    }
}
