//! Answers of the generating endpoints, whole or as server-sent events. Each format has a module of its own.

use std::collections::VecDeque;

use axum::Json;
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use serde_json::Value;

mod messages;
mod openai;
mod responses;

pub(super) use responses::response;

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
    Responses,
    Messages,
}

impl Api {
    /// How the ids of its answers begin.
    pub(super) fn id_prefix(self) -> &'static str {
        match self {
            Self::Completions => "cmpl-",
            Self::Chat => "chatcmpl-",
            Self::Responses => "resp_",
            Self::Messages => "msg_",
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
    /// Of a stream, where its format leaves it out otherwise.
    pub(super) include_usage: bool,
    pub(super) previous_response: Option<String>,
}

/// Sums for the usage object.
#[derive(Debug, Default)]
struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    cached_tokens: usize,
}

/// The tokens of one choice so far.
#[derive(Debug, Clone, Default)]
struct Output(Vec<u32>);

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
    let mut progress = Progress::new(shape, tickets.len());
    let mut tokens = merged(tickets);
    while let Some((choice, token)) = tokens.next().await {
        progress.take(shape, choice, &token);
    }
    if progress.open > 0 {
        return Err(RankError::Gone.into());
    }
    Ok(Json(shape.whole(app, &progress)).into_response())
}

/// Answers with one event per token.
pub(super) fn stream(app: App, shape: Shape, tickets: Vec<Ticket>) -> Response {
    let events = Events {
        app,
        progress: Progress::new(&shape, tickets.len()),
        tokens: merged(tickets),
        ready: shape.opening().into(),
        shape,
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

/// What has been generated so far.
#[derive(Debug)]
struct Progress {
    outputs: Vec<Output>,
    /// Choices without their last token.
    open: usize,
    usage: Usage,
}

impl Progress {
    fn new(shape: &Shape, choices: usize) -> Self {
        let prompt_tokens = shape.prompts.iter().map(Vec::len).sum();
        Self {
            outputs: vec![Output::default(); choices],
            open: choices,
            usage: Usage { prompt_tokens, ..Usage::default() },
        }
    }

    fn take(&mut self, shape: &Shape, choice: usize, token: &Token) {
        self.usage.completion_tokens += 1;
        // A prompt with several choices counts once, with its first choice.
        if token.index == 0 && choice.is_multiple_of(shape.choices_per_prompt) {
            self.usage.cached_tokens += token.cached_tokens;
        }
        if let Some(output) = self.outputs.get_mut(choice) {
            output.0.push(token.token);
        }
        self.open = self.open.saturating_sub(usize::from(token.last));
    }

    /// The output where there is only one.
    fn output(&self) -> Output {
        self.outputs.first().cloned().unwrap_or_default()
    }
}

/// A stream of server-sent events under way.
struct Events {
    app: App,
    shape: Shape,
    tokens: BoxStream<'static, (usize, Token)>,
    progress: Progress,
    ready: VecDeque<Bytes>,
}

impl Events {
    /// The next piece of the body; an error, which cuts the connection, if the rank went away.
    async fn next(mut self) -> Option<(Result<Bytes, RankError>, Self)> {
        if self.ready.is_empty() {
            let Some((choice, token)) = self.tokens.next().await else {
                return (self.progress.open > 0).then(|| {
                    self.progress.open = 0;
                    (Err(RankError::Gone), self)
                });
            };
            self.take(choice, &token);
        }
        let piece = self.ready.pop_front()?;
        Some((Ok(piece), self))
    }

    fn take(&mut self, choice: usize, token: &Token) {
        self.progress.take(&self.shape, choice, token);
        self.ready.extend(self.shape.token(&self.app, choice, token));
        if token.last && self.progress.open == 0 {
            self.ready.extend(self.shape.closing(&self.app, &self.progress));
        }
    }
}

// === impl Shape ===

impl Shape {
    fn whole(&self, app: &App, progress: &Progress) -> Value {
        let Progress { outputs, usage, .. } = progress;
        match self.api {
            Api::Completions | Api::Chat => openai::whole(app, self, outputs, usage),
            Api::Responses => responses::whole(app, self, &progress.output(), usage),
            Api::Messages => messages::whole(app, self, &progress.output(), usage),
        }
    }

    fn opening(&self) -> Vec<Bytes> {
        match self.api {
            Api::Completions | Api::Chat => Vec::new(),
            Api::Responses => responses::opening(self),
            Api::Messages => messages::opening(self),
        }
    }

    fn token(&self, app: &App, choice: usize, token: &Token) -> Vec<Bytes> {
        match self.api {
            Api::Completions | Api::Chat => openai::token(app, self, choice, token),
            Api::Responses => responses::token(app, self, token),
            Api::Messages => messages::token(app, token),
        }
    }

    fn closing(&self, app: &App, progress: &Progress) -> Vec<Bytes> {
        match self.api {
            Api::Completions | Api::Chat => openai::closing(self, &progress.usage),
            Api::Responses => responses::closing(app, self, &progress.output(), &progress.usage),
            Api::Messages => messages::closing(&progress.usage),
        }
    }
}

// === impl Output ===

impl Output {
    fn text(&self, app: &App) -> String {
        self.0.iter().map(|token| text_of(app, *token)).collect()
    }
}

/// Text of one token.
pub(super) fn text_of(app: &App, token: u32) -> String {
    match &app.shared().text {
        Some(text) => text.decode(token),
        None => PLAIN_TOKEN.to_owned(),
    }
}
