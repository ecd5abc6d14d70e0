//! `/v1/completions` and `/v1/chat/completions`; and for all endpoints the way from prompts to jobs on a rank, and from
//! tokens to an answer.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;

use super::answer::{self, Api, Shape};
use super::body::{self, ChatBody, CompletionBody};
use super::error::ApiError;
use super::{App, unix_seconds};
use crate::core::Lora;
use crate::rank::{Job, Ticket};

/// Choices of one request, so that a small body cannot ask for endless work.
const CHOICES_MAX: usize = 1024;

/// A request, read and checked.
pub(super) struct Order {
    pub(super) api: Api,
    pub(super) model: Option<String>,
    pub(super) prompts: Vec<Vec<u32>>,
    pub(super) choices_per_prompt: usize,
    pub(super) max_tokens: usize,
    pub(super) salt: Option<String>,
    pub(super) lora: Option<Lora>,
    pub(super) session: Option<String>,
    pub(super) reads_cache: bool,
    pub(super) reports_hits: bool,
    pub(super) rank: Option<usize>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) return_token_ids: bool,
    pub(super) previous_response: Option<String>,
}

/// An order whose prompts are being computed.
pub(super) struct Begun {
    pub(super) shape: Shape,
    pub(super) tickets: Vec<Ticket>,
    /// What each ticket will bring.
    pub(super) outputs: Vec<Vec<u32>>,
    stream: bool,
}

impl Order {
    /// A request for one answer of up to `max_tokens` tokens, with nothing special asked for.
    pub(super) fn new(api: Api, model: Option<String>, prompts: Vec<Vec<u32>>, max_tokens: usize) -> Self {
        Self {
            api,
            model,
            prompts,
            choices_per_prompt: 1,
            max_tokens,
            salt: None,
            lora: None,
            session: None,
            reads_cache: true,
            reports_hits: false,
            rank: None,
            stream: false,
            include_usage: false,
            return_token_ids: false,
            previous_response: None,
        }
    }
}

pub(super) async fn completions(
    State(app): State<App>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let body: CompletionBody = body::parse(&body)?;
    let lora = app.model(body.model.as_deref())?;
    let prompts = body.prompts(app.shared().text.as_ref())?;
    let order = Order {
        api: Api::Completions,
        prompts,
        choices_per_prompt: body.n.unwrap_or(1),
        max_tokens: body.max_tokens.unwrap_or(app.shared().config.default_max_tokens),
        salt: body.cache_salt,
        lora,
        session: body::session(body.session_id, &headers),
        reads_cache: body.prompt_logprobs.is_none(),
        reports_hits: body::reports_hits(body.vllm_xargs.as_ref()),
        rank: body::pinned_rank(&headers),
        stream: body.stream.unwrap_or(false),
        include_usage: body.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
        return_token_ids: body.return_token_ids.unwrap_or(false),
        previous_response: None,
        model: body.model,
    };
    serve(&app, order).await
}

pub(super) async fn chat(
    State(app): State<App>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let mut body: ChatBody = body::parse(&body)?;
    let lora = app.model(body.model.as_deref())?;
    let prompt = body.prompt(app.shared().text.as_ref())?;
    let max_tokens = body.max_completion_tokens.or(body.max_tokens);
    let order = Order {
        api: Api::Chat,
        prompts: vec![prompt],
        choices_per_prompt: body.n.unwrap_or(1),
        max_tokens: max_tokens.unwrap_or(app.shared().config.default_max_tokens),
        salt: body.cache_salt,
        lora,
        session: body::session(body.session_id, &headers),
        reads_cache: body.prompt_logprobs.is_none(),
        reports_hits: body::reports_hits(body.vllm_xargs.as_ref()),
        rank: body::pinned_rank(&headers),
        stream: body.stream.unwrap_or(false),
        include_usage: body.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
        return_token_ids: body.return_token_ids.unwrap_or(false),
        previous_response: None,
        model: body.model,
    };
    serve(&app, order).await
}

pub(super) async fn serve(app: &App, order: Order) -> Result<Response, ApiError> {
    answer(app, begin(app, order).await?).await
}

/// Gives all prompts to a rank.
pub(super) async fn begin(app: &App, order: Order) -> Result<Begun, ApiError> {
    let (shared, version) = (app.shared(), app.shared().config.vllm_version);
    let choices = order.prompts.len().saturating_mul(order.choices_per_prompt);
    if !(1..=CHOICES_MAX).contains(&choices) {
        return Err(ApiError::bad_request(format!("{choices} choices: ask for 1 to {CHOICES_MAX}")));
    }
    if order.salt.as_deref() == Some("") {
        return Err(ApiError::bad_request("cache_salt is empty: give at least one character"));
    }
    let rank = app.rank(order.rank)?;
    // One too many is refused like any larger number, and takes no memory.
    let max_tokens = order.max_tokens.min(shared.config.context_len() + 1);
    let words = shared.text.as_ref().map(|text| text.words()).unwrap_or_default();
    let (mut tickets, mut outputs) = (Vec::with_capacity(choices), Vec::with_capacity(choices));
    for prompt in &order.prompts {
        for choice in 0..order.choices_per_prompt {
            let output = answer::output_tokens(prompt, choice, max_tokens, words);
            outputs.push(output.clone());
            let job = Job {
                prompt: prompt.clone(),
                output,
                salt: order.salt.clone(),
                lora: order.lora.clone(),
                session: order.session.clone().filter(|_| version.has_sessions()),
                reads_cache: order.reads_cache,
                reports_hits: order.reports_hits && version.reports_hits(),
            };
            tickets.push(rank.submit(job).await?);
        }
    }
    let shape = Shape {
        api: order.api,
        id: app.answer_id(order.api),
        created: unix_seconds() as u64,
        model: order.model.unwrap_or_else(|| shared.config.model.clone()),
        prompts: order.prompts,
        choices_per_prompt: order.choices_per_prompt,
        return_token_ids: order.return_token_ids,
        cached_tokens_in_usage: !shared.config.no_prompt_tokens_details,
        include_usage: order.include_usage,
        previous_response: order.previous_response,
    };
    Ok(Begun { shape, tickets, outputs, stream: order.stream })
}

/// Answers with what comes.
pub(super) async fn answer(app: &App, begun: Begun) -> Result<Response, ApiError> {
    let Begun { shape, tickets, stream, .. } = begun;
    if stream {
        Ok(answer::stream(app.clone(), shape, tickets))
    } else {
        answer::whole(app, &shape, tickets).await
    }
}
