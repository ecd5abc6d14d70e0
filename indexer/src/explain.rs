//! A client's own body → the question that a gateway would have asked about it. Pure.
//!
//! The filter and this module read bodies with the same code; only what lies between (the wire) is left out.

use std::time::Duration;

use tokio::time::Instant;
use warmpath_core::outcome;
use warmpath_core::path::KnownPath;
use warmpath_core::rank::Policy;
use warmpath_core::request::{self, ChatPrompt, PromptRequest};
use warmpath_prompt::{Task, Truncate};

use crate::decide::{Chat, Members, Prompt, Question, Reason};

/// Nobody waits for an explanation as a request waits; beyond this the pool is needed for requests.
const PATIENCE: Duration = Duration::from_secs(10);

/// None of the paths that carry a prompt; or the reason why the body is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unexplained {
    #[error("the path is none of {}", paths())]
    Path,
    #[error("the body cannot be read ({}): such a request passes without the indexer", .0.name())]
    Body(outcome::Reason),
}

/// The question about this body, sent to `path`.
pub fn question(path: &str, body: &[u8], policy: Option<Policy>) -> Result<Question, Unexplained> {
    let path = KnownPath::ALL.into_iter().find(|known| known.name() == path).ok_or(Unexplained::Path)?;
    let request = request::extract(path, body).map_err(Unexplained::Body)?;
    Ok(asked(request, policy))
}

fn asked(request: PromptRequest<'_>, policy: Option<Policy>) -> Question {
    Question {
        model: request.model.into_owned(),
        prompt: prompt(request.prompt),
        cache_salt: Some(request.cache_salt.into_owned()).filter(|salt| !salt.is_empty()),
        task: if request.path == KnownPath::Embeddings { Task::Embed } else { Task::Generate },
        add_special_tokens: request.add_special_tokens,
        truncate: Truncate {
            tokens: request.truncate_prompt_tokens,
            side: request.truncation_side.map(|side| side.name().into()),
            max_output_tokens: Some(request.max_output_tokens),
        },
        previous_response: request
            .previous_response
            .and_then(|response| crate::answers::ResponseKey::new(response.get())),
        body_bytes: request.body_bytes,
        sequences_per_prompt: request.sequences_per_prompt.max(1),
        policy,
        group_key: request.affinity,
        answer_by: Some(Instant::now() + PATIENCE),
    }
}

fn prompt(prompt: request::Prompt<'_>) -> Prompt {
    let members = |members: request::Members| Members {
        members: members.json.into_bytes(),
        has_media: members.has_media,
    };
    match prompt {
        request::Prompt::Texts(texts) => Prompt::Texts(texts.into_iter().map(|t| t.into_owned()).collect()),
        request::Prompt::Tokens(prompts) => Prompt::Tokens(prompts),
        request::Prompt::Chat(conversation) => Prompt::Chat(Box::new(chat(*conversation))),
        request::Prompt::Responses(request) => Prompt::Responses(members(request)),
        request::Prompt::Messages(request) => Prompt::Messages(members(request)),
        request::Prompt::Unscored(reason) => Prompt::Absent(Reason::Filter(reason)),
    }
}

fn chat(chat: ChatPrompt<'_>) -> Chat {
    let json = |slice: Option<&str>| slice.map(|text| text.as_bytes().to_vec());
    Chat {
        messages: chat.messages.into_owned().into_bytes(),
        tools: json(chat.tools),
        documents: json(chat.documents),
        template_kwargs: json(chat.template_kwargs),
        chat_template: chat.chat_template.map(|text| text.into_owned()),
        add_generation_prompt: chat.add_generation_prompt,
        continue_final_message: chat.continue_final_message,
        reasoning_effort: chat.reasoning_effort.map(|text| text.into_owned()),
        tool_choice: json(chat.tool_choice),
        has_media: chat.has_media,
        prompt_token_ids: chat.prompt_token_ids,
    }
}

fn paths() -> String {
    KnownPath::ALL.map(KnownPath::name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_becomes_the_question_that_a_gateway_asks() {
        let body = br#"{"model":"m","messages":[{"role":"user","content":"hi"}],"n":2,"max_tokens":7,
            "tools":[{"type":"function"}],"chat_template_kwargs":{"a":1},"cache_salt":"s"}"#;
        let question = question("/v1/chat/completions", body, None).unwrap();
        assert_eq!((question.model.as_str(), question.cache_salt.as_deref()), ("m", Some("s")));
        assert_eq!((question.sequences(), question.truncate.max_output_tokens), (2, Some(7)));
        let Prompt::Chat(chat) = question.prompt else { panic!("{:?}", question.prompt) };
        assert_eq!(chat.messages, br#"[{"role":"user","content":"hi"}]"#);
        assert_eq!(chat.tools.as_deref(), Some(br#"[{"type":"function"}]"#.as_slice()));
        assert_eq!(chat.template_kwargs.as_deref(), Some(br#"{"a":1}"#.as_slice()));
    }

    #[test]
    fn what_is_no_request_is_refused_with_its_reason() {
        let refused = |path, body: &[u8]| question(path, body, None).unwrap_err();
        assert_eq!(refused("/v1/models", b"{}"), Unexplained::Path);
        let error = refused("/v1/completions", b"[]");
        assert!(matches!(error, Unexplained::Body(_)) && error.to_string().contains('('), "{error}");
    }
}
