//! Wire messages → checked types, and decisions → wire messages. Pure.
//!
//! Limits are those of the contract; a message beyond one is refused by the field's name.

use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;
use warmpath_core::limits::{
    CACHE_SALT_BYTES_MAX, ENDPOINTS_MAX, MODEL_BYTES_MAX, PROMPTS_MAX, SEQUENCES_MAX, SHORT_TEXT_BYTES_MAX,
    TOKEN_IDS_MAX,
};
use warmpath_core::outcome;
use warmpath_core::path::KnownPath;
use warmpath_core::rank::Policy;
use warmpath_prompt::{Task, Truncate};
use warmpath_proto::v1::{
    self as wire, EndpointInfo, EndpointSet, Outcome, ScoreRequest, ScoreResponse, score_request,
};

use crate::answers::ResponseKey;
use crate::decide::{Chat, Decision, Members, Pick, Prompt, Question, Reason};
use crate::fleet::{Endpoint, Snapshot};

mod reports;
#[cfg(test)]
mod tests;

pub use reports::{event, report, reports};

/// Share of the filter's patience, in percent, after which the answer leaves: the rest is for the way back.
const ANSWER_BY_PERCENT: u32 = 75;

/// A message that the contract does not allow.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum Invalid {
    #[error("{field}: has {found}, more than the limit of {limit}")]
    TooMany { field: &'static str, found: usize, limit: usize },
    #[error("policy: unknown name {name:?}; expected one of {}", Policy::NAMES.join(", "))]
    Policy { name: String },
    #[error("{field}: is empty; leave the whole prompt out instead")]
    Empty { field: &'static str },
}

/// Checks a question. `policy` finds a policy by its name.
pub fn question(request: ScoreRequest, policy: &dyn Fn(&str) -> Option<Policy>) -> Result<Question, Invalid> {
    at_most("model, in bytes", request.model.len(), MODEL_BYTES_MAX)?;
    at_most("cache_salt, in bytes", request.cache_salt.len(), CACHE_SALT_BYTES_MAX)?;
    at_most("policy, in bytes", request.policy.len(), SHORT_TEXT_BYTES_MAX)?;
    at_most("sequences_per_prompt", request.sequences_per_prompt as usize, SEQUENCES_MAX as usize)?;
    let policy = match request.policy.as_str() {
        "" => None,
        name => Some(policy(name).ok_or_else(|| Invalid::Policy { name: name.to_owned() })?),
    };
    let patience = Duration::from_micros(request.deadline_us.into()) * ANSWER_BY_PERCENT / 100;
    Ok(Question {
        model: request.model,
        prompt: prompt(request.prompt, &request.not_scorable_reason)?,
        cache_salt: Some(request.cache_salt).filter(|salt| !salt.is_empty()),
        add_special_tokens: request.add_special_tokens,
        task: if request.path == KnownPath::Embeddings.name() { Task::Embed } else { Task::Generate },
        truncate: Truncate {
            tokens: request.truncate_prompt_tokens,
            side: request.truncation_side.as_deref().map(Into::into),
            max_output_tokens: Some(request.max_output_tokens),
        },
        previous_response: ResponseKey::new(request.previous_response_key),
        body_bytes: request.body_bytes,
        sequences_per_prompt: request.sequences_per_prompt.max(1),
        policy,
        group_key: request.group_key,
        answer_by: (!patience.is_zero()).then(|| Instant::now() + patience),
    })
}

fn prompt(prompt: Option<score_request::Prompt>, reason: &str) -> Result<Prompt, Invalid> {
    match prompt {
        None if reason.is_empty() => Ok(Prompt::Absent(Reason::Filter(outcome::Reason::NoPrompt))),
        None => Ok(Prompt::Absent(Reason::Filter(outcome::Reason::by_name(reason)))),
        Some(score_request::Prompt::Texts(texts)) => {
            at_most("texts", texts.texts.len(), PROMPTS_MAX)?;
            not_empty("texts", texts.texts.len())?;
            Ok(Prompt::Texts(texts.texts))
        }
        Some(score_request::Prompt::Tokens(tokens)) => {
            at_most("tokens", tokens.prompts.len(), PROMPTS_MAX)?;
            not_empty("tokens", tokens.prompts.len())?;
            let longest = tokens.prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(0);
            at_most("tokens.prompts.ids", longest, TOKEN_IDS_MAX)?;
            Ok(Prompt::Tokens(tokens.prompts.into_iter().map(|prompt| prompt.ids).collect()))
        }
        Some(score_request::Prompt::Chat(chat)) => {
            let effort = chat.reasoning_effort.as_ref().map_or(0, String::len);
            at_most("chat.reasoning_effort, in bytes", effort, SHORT_TEXT_BYTES_MAX)?;
            not_empty("chat.messages_json", chat.messages_json.len())?;
            let ids = chat.prompt_token_ids.map(|prompt| prompt.ids);
            at_most("chat.prompt_token_ids.ids", ids.as_ref().map_or(0, Vec::len), TOKEN_IDS_MAX)?;
            Ok(Prompt::Chat(Box::new(Chat {
                messages: chat.messages_json,
                tools: chat.tools_json,
                documents: chat.documents_json,
                template_kwargs: chat.template_kwargs_json,
                chat_template: chat.chat_template,
                add_generation_prompt: chat.add_generation_prompt,
                continue_final_message: chat.continue_final_message,
                reasoning_effort: chat.reasoning_effort,
                tool_choice: chat.tool_choice_json,
                has_media: chat.has_media,
                prompt_token_ids: ids,
            })))
        }
        Some(score_request::Prompt::Responses(responses)) => {
            not_empty("responses.members_json", responses.members_json.len())?;
            let (members, has_media) = (responses.members_json, responses.has_media);
            Ok(Prompt::Responses(Members { members, has_media }))
        }
        Some(score_request::Prompt::Messages(messages)) => {
            not_empty("messages.members_json", messages.members_json.len())?;
            let (members, has_media) = (messages.members_json, messages.has_media);
            Ok(Prompt::Messages(Members { members, has_media }))
        }
    }
}

/// The answer to a question; `endpoints` where the filter's own set is old.
pub fn score_response(decision: Decision, endpoints: Option<EndpointSet>) -> ScoreResponse {
    let outcome = if decision.verdict.is_scored() { Outcome::Scored } else { Outcome::LoadOnly };
    ScoreResponse {
        decision_id: decision.id.0,
        outcome: outcome.into(),
        reason: decision.verdict.reason().to_owned(),
        prompt_tokens: decision.prompt_tokens,
        reachable_tokens: decision.reachable_tokens,
        policy: decision.policy.to_owned(),
        candidates: decision.picks.into_iter().map(candidate).collect(),
        endpoints,
    }
}

fn candidate(pick: Pick) -> wire::Candidate {
    wire::Candidate {
        endpoint: pick.endpoint.to_string(),
        rank: pick.rank,
        cached_tokens: pick.candidate.cached_tokens,
        uncached_tokens: u32::try_from(pick.ranked.uncached_tokens).unwrap_or(u32::MAX),
        terms: Some(wire::CostTerms {
            cost: pick.ranked.cost,
            queued_tokens: pick.candidate.queued_tokens,
            active_sequences: pick.candidate.active_sequences,
            duplicated_tokens: pick.ranked.duplicated_tokens,
            pressure: pick.candidate.pressure,
            slowness: pick.candidate.slowness,
            penalty: pick.candidate.penalty,
            capacity: pick.candidate.capacity,
            ramp: pick.candidate.ramp,
            missing_tokens: pick.ranked.missing_tokens,
            recent_tokens: pick.candidate.recent_tokens,
            waiting_sequences: pick.candidate.waiting_sequences,
            away_tokens: pick.candidate.away_tokens,
        }),
    }
}

/// Every usable endpoint with its load.
pub fn endpoint_set(fleet: &Snapshot, active: impl Fn(&Endpoint) -> u64) -> EndpointSet {
    let endpoints = fleet
        .usable()
        .take(ENDPOINTS_MAX)
        .map(|endpoint| EndpointInfo {
            endpoint: endpoint.name.to_string(),
            ranks: endpoint.spec.ranks,
            active_sequences: u32::try_from(active(endpoint)).unwrap_or(u32::MAX),
        })
        .collect();
    EndpointSet { version: fleet.version, endpoints }
}

fn at_most(field: &'static str, found: usize, limit: usize) -> Result<(), Invalid> {
    if found > limit { Err(Invalid::TooMany { field, found, limit }) } else { Ok(()) }
}

fn not_empty(field: &'static str, len: usize) -> Result<(), Invalid> {
    if len == 0 { Err(Invalid::Empty { field }) } else { Ok(()) }
}
