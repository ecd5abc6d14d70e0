//! A request → what the filter would know of it, as JSON. Sizes and settings, the names that the client gave, and never
//! the prompt itself: whoever looks at the page has pasted it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use warmpath_core::outcome::{Outcome, Reason};
use warmpath_core::path::Target;
use warmpath_core::request::{self, ChatPrompt, Members, Prompt, PromptRequest, Side};

/// What becomes of a request, as far as it is decided before an indexer is asked.
#[derive(Serialize)]
struct Reading {
    /// `scored` where the indexer is asked with the prompt, `load_only` where it is asked without, `passed` otherwise.
    outcome: &'static str,
    /// Why not `scored`.
    reason: Option<&'static str>,
    /// Absent where the request passes unread.
    request: Option<Request>,
}

/// Members that stand for tokens are given by their size, in bytes or tokens.
#[derive(Serialize)]
struct Request {
    path: &'static str,
    model: String,
    prompt: Option<Size>,
    has_cache_salt: bool,
    max_output_tokens: u32,
    add_special_tokens: Option<bool>,
    truncate_prompt_tokens: Option<i64>,
    truncation_side: Option<&'static str>,
    sequences_per_prompt: u32,
    /// As many hexadecimal digits as a 64-bit number has: JavaScript's numbers would lose some.
    previous_response: Option<String>,
    keeps_response: bool,
    body_bytes: u64,
    /// In the same form.
    affinity: String,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Size {
    /// Of each text.
    Texts {
        bytes: Vec<usize>,
    },
    /// Of each list of ids.
    Tokens {
        counts: Vec<usize>,
    },
    Chat(Box<ChatSize>),
    Responses(MembersSize),
    Messages(MembersSize),
}

#[derive(Serialize)]
struct ChatSize {
    /// Of each message as JSON, payloads of media left out. Absent where they cannot be told apart.
    message_bytes: Option<Vec<usize>>,
    tools_bytes: Option<usize>,
    documents_bytes: Option<usize>,
    template_kwargs_bytes: Option<usize>,
    tool_choice_bytes: Option<usize>,
    chat_template_bytes: Option<usize>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
    reasoning_effort: Option<String>,
    has_media: bool,
    /// How many ids the client gave beside the messages.
    prompt_token_ids: Option<usize>,
}

#[derive(Serialize)]
struct MembersSize {
    /// Of each member that can reach the token ids, as JSON. Absent where they cannot be told apart.
    member_bytes: Option<BTreeMap<String, usize>>,
    has_media: bool,
}

/// What the filter would know of a request: a JSON object. Any input has an answer; `reason` says what is wrong with it.
pub fn extract(method: &str, path: &str, body: &[u8]) -> String {
    let reading = read(method, path, body).unwrap_or_else(passed);
    serde_json::to_string(&reading).unwrap_or_default()
}

fn read(method: &str, path: &str, body: &[u8]) -> Result<Reading, Reason> {
    let request = match Target::read(method.as_bytes(), path.as_bytes())? {
        Target::Prompt(path) => request::extract(path, body)?,
        Target::Stored(response) => PromptRequest::about(response),
    };
    let reason = match &request.prompt {
        Prompt::Unscored(reason) => Some(*reason),
        _ => None,
    };
    let outcome = if reason.is_some() { Outcome::LoadOnly } else { Outcome::Scored };
    Ok(Reading {
        outcome: outcome.name(),
        reason: reason.map(Reason::name),
        request: Some(Request::from(&request)),
    })
}

fn passed(reason: Reason) -> Reading {
    Reading { outcome: Outcome::Passed.name(), reason: Some(reason.name()), request: None }
}

impl From<&PromptRequest<'_>> for Request {
    fn from(request: &PromptRequest<'_>) -> Self {
        Self {
            path: request.path.name(),
            model: request.model.to_string(),
            prompt: Size::of(&request.prompt),
            has_cache_salt: !request.cache_salt.is_empty(),
            max_output_tokens: request.max_output_tokens,
            add_special_tokens: request.add_special_tokens,
            truncate_prompt_tokens: request.truncate_prompt_tokens,
            truncation_side: request.truncation_side.map(Side::name),
            sequences_per_prompt: request.sequences_per_prompt,
            previous_response: request.previous_response.map(|key| hex(key.get())),
            keeps_response: request.keeps_response,
            body_bytes: request.body_bytes,
            affinity: hex(request.affinity),
        }
    }
}

impl Size {
    /// None where nothing stands for tokens.
    fn of(prompt: &Prompt<'_>) -> Option<Self> {
        Some(match prompt {
            Prompt::Texts(texts) => Self::Texts { bytes: texts.iter().map(|text| text.len()).collect() },
            Prompt::Tokens(prompts) => Self::Tokens { counts: prompts.iter().map(Vec::len).collect() },
            Prompt::Chat(chat) => Self::Chat(Box::new(ChatSize::from(&**chat))),
            Prompt::Responses(members) => Self::Responses(MembersSize::from(members)),
            Prompt::Messages(members) => Self::Messages(MembersSize::from(members)),
            Prompt::Unscored(_) => return None,
        })
    }
}

impl From<&ChatPrompt<'_>> for ChatSize {
    fn from(chat: &ChatPrompt<'_>) -> Self {
        let messages = serde_json::from_str::<Vec<&RawValue>>(&chat.messages).ok();
        Self {
            message_bytes: messages.map(|all| all.iter().map(|message| message.get().len()).collect()),
            tools_bytes: chat.tools.map(str::len),
            documents_bytes: chat.documents.map(str::len),
            template_kwargs_bytes: chat.template_kwargs.map(str::len),
            tool_choice_bytes: chat.tool_choice.map(str::len),
            chat_template_bytes: chat.chat_template.as_ref().map(|template| template.len()),
            add_generation_prompt: chat.add_generation_prompt,
            continue_final_message: chat.continue_final_message,
            reasoning_effort: chat.reasoning_effort.as_ref().map(ToString::to_string),
            has_media: chat.has_media,
            prompt_token_ids: chat.prompt_token_ids.as_ref().map(Vec::len),
        }
    }
}

impl From<&Members> for MembersSize {
    fn from(members: &Members) -> Self {
        let each = serde_json::from_str::<BTreeMap<String, &RawValue>>(&members.json).ok();
        Self {
            member_bytes: each
                .map(|all| all.into_iter().map(|(name, value)| (name, value.get().len())).collect()),
            has_media: members.has_media,
        }
    }
}

fn hex(number: u64) -> String {
    format!("{number:016x}")
}
