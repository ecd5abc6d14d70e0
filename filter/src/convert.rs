//! The core's types ↔ the messages of the contract.

use prost::Message;
use warmpath_core::outcome::Reason;
use warmpath_core::report::{EndCause, Event, What};
use warmpath_core::request::{ChatPrompt, Members, Prompt};
use warmpath_core::response::ResponseKey;
use warmpath_core::ring::{EndpointSet, Place};
use warmpath_core::session::{Ask, Candidate, Reply};
use warmpath_proto::v1;

/// A question, encoded.
pub(crate) fn score_request(ask: Ask<'_>) -> Vec<u8> {
    let request = ask.request;
    let (prompt, not_scorable_reason) = match request.prompt {
        Prompt::Unscored(reason) => (None, reason.name().to_owned()),
        scorable => (prompt(scorable), String::new()),
    };
    v1::ScoreRequest {
        model: request.model.into_owned(),
        cache_salt: request.cache_salt.into_owned(),
        max_output_tokens: request.max_output_tokens,
        add_special_tokens: request.add_special_tokens,
        truncate_prompt_tokens: request.truncate_prompt_tokens,
        body_bytes: request.body_bytes,
        sequences_per_prompt: request.sequences_per_prompt,
        endpoints_version: ask.endpoints_version,
        policy: ask.policy,
        group_key: ask.group,
        deadline_us: u32::try_from(ask.timeout_us).unwrap_or(u32::MAX),
        not_scorable_reason,
        path: request.path.name().to_owned(),
        truncation_side: request.truncation_side.map(|side| side.name().to_owned()),
        previous_response_key: request.previous_response.map_or(0, ResponseKey::get),
        prompt,
    }
    .encode_to_vec()
}

fn prompt(prompt: Prompt<'_>) -> Option<v1::score_request::Prompt> {
    Some(match prompt {
        Prompt::Texts(texts) => v1::score_request::Prompt::Texts(v1::TextPrompts {
            texts: texts.into_iter().map(|text| text.into_owned()).collect(),
        }),
        Prompt::Tokens(prompts) => v1::score_request::Prompt::Tokens(v1::TokenPrompts {
            prompts: prompts.into_iter().map(|ids| v1::TokenIds { ids }).collect(),
        }),
        Prompt::Chat(chat) => v1::score_request::Prompt::Chat(conversation(*chat)),
        Prompt::Responses(Members { json, has_media }) => {
            let members_json = json.into_bytes();
            v1::score_request::Prompt::Responses(v1::ResponsesPrompt { members_json, has_media })
        }
        Prompt::Messages(Members { json, has_media }) => {
            let members_json = json.into_bytes();
            v1::score_request::Prompt::Messages(v1::MessagesPrompt { members_json, has_media })
        }
        Prompt::Unscored(_) => return None,
    })
}

fn conversation(chat: ChatPrompt<'_>) -> v1::ChatPrompt {
    let json = |slice: Option<&str>| slice.map(|text| text.as_bytes().to_vec());
    v1::ChatPrompt {
        messages_json: chat.messages.into_owned().into_bytes(),
        tools_json: json(chat.tools),
        documents_json: json(chat.documents),
        template_kwargs_json: json(chat.template_kwargs),
        tool_choice_json: json(chat.tool_choice),
        chat_template: chat.chat_template.map(|text| text.into_owned()),
        add_generation_prompt: chat.add_generation_prompt,
        continue_final_message: chat.continue_final_message,
        reasoning_effort: chat.reasoning_effort.map(|text| text.into_owned()),
        has_media: chat.has_media,
        prompt_token_ids: chat.prompt_token_ids.map(|ids| v1::TokenIds { ids }),
    }
}

/// An answer, decoded; none where it is no such message.
pub(crate) fn reply(bytes: &[u8]) -> Option<Reply> {
    let response = v1::ScoreResponse::decode(bytes).ok()?;
    let scored = response.outcome() == v1::Outcome::Scored;
    let candidates = response.candidates.into_iter().map(|candidate| Candidate {
        place: Place { endpoint: candidate.endpoint, rank: candidate.rank },
        cached_tokens: candidate.cached_tokens,
    });
    Some(Reply {
        decision_id: response.decision_id,
        candidates: candidates.collect(),
        load_only: !scored,
        reason: (!scored || !response.reason.is_empty()).then(|| Reason::by_name(&response.reason)),
        prompt_tokens: response.prompt_tokens,
        policy: response.policy,
        endpoints: response.endpoints.map(endpoint_set),
    })
}

fn endpoint_set(set: v1::EndpointSet) -> EndpointSet {
    let endpoints = set.endpoints.into_iter().map(|info| (info.endpoint, info.ranks)).collect();
    EndpointSet { version: set.version, endpoints }
}

/// A batch of reports, encoded.
pub(crate) fn report_request(events: Vec<Event>) -> Vec<u8> {
    v1::ReportRequest { events: events.into_iter().map(event).collect() }.encode_to_vec()
}

fn event(event: Event) -> v1::Event {
    let what = match event.what {
        What::FirstByte { endpoint, http_status } => {
            v1::event::What::FirstByte(v1::FirstByte { endpoint, http_status })
        }
        What::Alive => v1::event::What::Alive(v1::Alive {}),
        What::End(end) => v1::event::What::End(v1::End {
            endpoint: end.endpoint,
            http_status: end.http_status,
            cause: match end.cause {
                EndCause::Complete => v1::EndCause::Complete,
                EndCause::UpstreamReset => v1::EndCause::UpstreamReset,
                EndCause::ClientReset => v1::EndCause::ClientReset,
            }
            .into(),
            cached_tokens: end.usage.cached_tokens,
            prompt_tokens: end.usage.prompt_tokens,
            completion_tokens: end.usage.completion_tokens,
            attempts: end.attempts,
            fallback_reason: end.fallback_reason.map(|r| r.name().to_owned()).unwrap_or_default(),
            response_key: end.response.map_or(0, ResponseKey::get),
        }),
    };
    v1::Event { decision_id: event.decision_id, elapsed_us: event.elapsed_us, what: Some(what) }
}
