//! `/v1/completions` and `/v1/chat/completions`: from a body to jobs on a rank, from tokens to an answer.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;

use super::answer::{self, Api, Shape};
use super::body::{self, ChatBody, CompletionBody};
use super::error::ApiError;
use super::{App, unix_seconds};
use crate::core::Lora;
use crate::rank::Job;

/// Choices of one request, so that a small body cannot ask for endless work.
const CHOICES_MAX: usize = 1024;

/// A request, read and checked.
struct Order {
    api: Api,
    model: Option<String>,
    prompts: Vec<Vec<u32>>,
    choices_per_prompt: usize,
    max_tokens: usize,
    salt: Option<String>,
    lora: Option<Lora>,
    session: Option<String>,
    reads_cache: bool,
    reports_hits: bool,
    rank: Option<usize>,
    stream: bool,
    include_usage: bool,
    return_token_ids: bool,
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
        model: body.model,
    };
    serve(&app, order).await
}

async fn serve(app: &App, order: Order) -> Result<Response, ApiError> {
    let (shared, version) = (app.shared(), app.shared().config.vllm_version);
    let choices = order.prompts.len().saturating_mul(order.choices_per_prompt);
    if !(1..=CHOICES_MAX).contains(&choices) {
        return Err(ApiError::bad_request(format!("{choices} choices: ask for 1 to {CHOICES_MAX}")));
    }
    if order.salt.as_deref() == Some("") {
        return Err(ApiError::bad_request("cache_salt is empty: give at least one character"));
    }
    let rank = app.rank(order.rank)?;
    let words = shared.text.as_ref().map(|text| text.words()).unwrap_or_default();
    let mut tickets = Vec::with_capacity(choices);
    for prompt in &order.prompts {
        for choice in 0..order.choices_per_prompt {
            let job = Job {
                prompt: prompt.clone(),
                output: answer::output_tokens(prompt, choice, order.max_tokens, words),
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
        id: format!("{}-{:016x}", order.api.id_prefix(), app.request_number()),
        created: unix_seconds() as u64,
        model: order.model.unwrap_or_else(|| shared.config.model.clone()),
        prompts: order.prompts,
        choices_per_prompt: order.choices_per_prompt,
        return_token_ids: order.return_token_ids,
        cached_tokens_in_usage: !shared.config.no_prompt_tokens_details,
    };
    if order.stream {
        Ok(answer::stream(app.clone(), shape, tickets, order.include_usage))
    } else {
        answer::whole(app, &shape, tickets).await
    }
}
