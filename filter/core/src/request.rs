//! A request body → [`PromptRequest`]: what the indexer must know of it. Read once, never changed.
//!
//! Tolerant by design: the engine judges requests, we only want to know which blocks they will touch. Unknown members
//! never matter; of equal keys the last wins, as in the engine; a member of a wrong type makes the request unscored, with
//! a [`Reason`], and never an error. Only a body that is no JSON object at all cannot be asked about.

mod chat;
mod completions;
mod embeddings;
mod fields;
mod head;
mod media;
mod members;
mod messages;
mod responses;

pub use members::Members;

use std::borrow::Cow;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::json::{self, Raw};
use crate::limits::{CACHE_SALT_BYTES_MAX, MODEL_BYTES_MAX, SEQUENCES_MAX};
use crate::outcome::Reason;
use crate::path::KnownPath;
use crate::response::ResponseKey;
use fields::{Field, Fields};
use head::Head;

/// One request, as far as it matters for routing. Borrows from the body where nothing had to be unescaped.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptRequest<'a> {
    /// The path it came by.
    pub path: KnownPath,
    /// `model`; empty where it is absent or no text.
    pub model: Cow<'a, str>,
    /// The prompt, or why there is none.
    pub prompt: Prompt<'a>,
    /// `cache_salt`; empty where absent.
    pub cache_salt: Cow<'a, str>,
    /// The larger bound that the body gives for the output, in tokens; 0: none.
    pub max_output_tokens: u32,
    /// `add_special_tokens`.
    pub add_special_tokens: Option<bool>,
    /// `truncate_prompt_tokens`: keep n tokens; -1: as many as the model takes.
    pub truncate_prompt_tokens: Option<i64>,
    /// `truncation_side`: where tokens are cut off.
    pub truncation_side: Option<Side>,
    /// `n`, 1 to [`SEQUENCES_MAX`].
    pub sequences_per_prompt: u32,
    /// The response that this request goes on from, or asks about.
    pub previous_response: Option<ResponseKey>,
    /// The engine is asked to keep its response, so that others may go on from it.
    pub keeps_response: bool,
    /// Size of the body.
    pub body_bytes: u64,
    /// Chooses an endpoint when no indexer answers: requests with the same model, salt and beginning have the same.
    pub affinity: u64,
}

/// What stands for the tokens of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt<'a> {
    /// Texts to be tokenized; at least one, at most [`crate::limits::PROMPTS_MAX`].
    Texts(Vec<Cow<'a, str>>),
    /// Token ids, used as they are; at least one prompt, none of them empty.
    Tokens(Vec<Vec<u32>>),
    /// A conversation to be rendered.
    Chat(Box<ChatPrompt<'a>>),
    /// A `/v1/responses` request, of which engines make a conversation.
    Responses(Members),
    /// A `/v1/messages` request, of which engines make a conversation.
    Messages(Members),
    /// Nothing that tokens could be known of.
    Unscored(Reason),
}

/// A conversation. JSON members are slices of the body, but for the payloads of media.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatPrompt<'a> {
    /// `messages`: a JSON array.
    pub messages: Cow<'a, str>,
    /// `tools`: any JSON value but null.
    pub tools: Option<&'a str>,
    /// `documents`: any JSON value but null.
    pub documents: Option<&'a str>,
    /// `chat_template_kwargs`: a JSON object.
    pub template_kwargs: Option<&'a str>,
    /// `tool_choice`: any JSON value but null.
    pub tool_choice: Option<&'a str>,
    /// `chat_template`.
    pub chat_template: Option<Cow<'a, str>>,
    /// `add_generation_prompt`.
    pub add_generation_prompt: Option<bool>,
    /// `continue_final_message`.
    pub continue_final_message: Option<bool>,
    /// `reasoning_effort`.
    pub reasoning_effort: Option<Cow<'a, str>>,
    /// The messages hold image, audio or video parts.
    pub has_media: bool,
    /// `kv_transfer_params.prompt_token_ids`, where the messages are text alone and `echo` is not set: ids that newer
    /// engines serve in place of the messages. Not empty.
    pub prompt_token_ids: Option<Vec<u32>>,
}

/// A side of a list of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The beginning.
    Left,
    /// The end.
    Right,
}

impl Side {
    /// Its name in bodies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
        }
    }
}

impl PromptRequest<'_> {
    /// A request about a response that an engine keeps: it has no body that matters.
    pub fn about(response: ResponseKey) -> Self {
        Self {
            path: KnownPath::Responses,
            model: Cow::Borrowed(""),
            prompt: Prompt::Unscored(Reason::NoPrefill),
            cache_salt: Cow::Borrowed(""),
            max_output_tokens: 0,
            add_special_tokens: None,
            truncate_prompt_tokens: None,
            truncation_side: None,
            sequences_per_prompt: 1,
            previous_response: Some(response),
            keeps_response: false,
            body_bytes: 0,
            affinity: affinity_of_response(response),
        }
    }
}

/// The prompt of one path's body, and what it begins with.
struct Read<'a> {
    prompt: Prompt<'a>,
    head: Head,
}

impl Read<'_> {
    fn unscored(reason: Reason, head: &str) -> Self {
        Self { prompt: Prompt::Unscored(reason), head: Head::of(head.as_bytes()) }
    }
}

/// Reads the body of a request. The error says why it can only be passed through.
pub fn extract(path: KnownPath, body: &[u8]) -> Result<PromptRequest<'_>, Reason> {
    let json = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let first = json.iter().find(|b| !b.is_ascii_whitespace()).ok_or(Reason::EmptyBody)?;
    if *first != b'{' {
        return Err(Reason::NotJson);
    }
    let text = std::str::from_utf8(json).map_err(|_| Reason::Unreadable)?;
    let fields = Fields::read(text).map_err(|fault| match fault {
        json::Fault::Syntax { .. } => Reason::Unreadable,
        json::Fault::Depth { .. } => Reason::TooDeep,
    })?;

    let model = short_text(fields.given(Field::Model), MODEL_BYTES_MAX)?;
    let cache_salt = short_text(fields.given(Field::CacheSalt), CACHE_SALT_BYTES_MAX)?;
    let Read { mut prompt, head } = match path {
        KnownPath::Chat => chat::read(&fields),
        KnownPath::Completions => completions::read(&fields),
        KnownPath::Responses => responses::read(&fields),
        KnownPath::Messages => messages::read(&fields),
        KnownPath::Embeddings => embeddings::read(&fields),
        KnownPath::CountTokens => messages::read(&fields),
        KnownPath::Tokenize if fields.given(Field::Messages).is_some() => chat::read(&fields),
        KnownPath::Tokenize => completions::read(&fields),
    };
    let switches = Switches::read(path, &fields);
    let previous_response = previous_response(path, &fields);
    if !path.prefills() {
        prompt = Prompt::Unscored(Reason::NoPrefill);
    } else if switches.is_err() || previous_response.is_err() || model.unreadable || cache_salt.unreadable {
        prompt = Prompt::Unscored(Reason::UnsupportedField);
    }
    let (switches, previous_response) = (switches.unwrap_or_default(), previous_response.unwrap_or_default());
    let affinity = match (fields.given(Field::PromptCacheKey), previous_response) {
        (Some(key), _) => affinity(&model.text, &cache_salt.text, key.text.as_bytes()),
        (None, Some(response)) => affinity_of_response(response),
        (None, None) => affinity(&model.text, &cache_salt.text, head.bytes()),
    };
    Ok(PromptRequest {
        path,
        prompt,
        affinity,
        model: model.text,
        cache_salt: cache_salt.text,
        max_output_tokens: max_output_tokens(&fields),
        add_special_tokens: switches.add_special_tokens,
        truncate_prompt_tokens: switches.truncate_prompt_tokens,
        truncation_side: switches.truncation_side,
        sequences_per_prompt: sequences_per_prompt(path, &fields),
        previous_response,
        keeps_response: path == KnownPath::Responses
            && fields.given(Field::Store).and_then(|raw| raw.as_bool()).unwrap_or(true),
        body_bytes: body.len() as u64,
    })
}

/// A text that names something, or nothing where it is absent or no text.
struct ShortText<'a> {
    text: Cow<'a, str>,
    /// Something was given that is no text.
    unreadable: bool,
}

fn short_text<'a>(raw: Option<Raw<'a>>, bytes_max: usize) -> Result<ShortText<'a>, Reason> {
    let read = match raw.map(|raw| raw.as_str()) {
        None => ShortText { text: Cow::Borrowed(""), unreadable: false },
        Some(Some(Ok(text))) => ShortText { text, unreadable: false },
        Some(None | Some(Err(_))) => ShortText { text: Cow::Borrowed(""), unreadable: true },
    };
    if read.text.len() > bytes_max { Err(Reason::FieldTooLong) } else { Ok(read) }
}

/// Members that change how a text becomes tokens.
#[derive(Default)]
struct Switches {
    add_special_tokens: Option<bool>,
    truncate_prompt_tokens: Option<i64>,
    truncation_side: Option<Side>,
}

impl Switches {
    /// On paths where engines do not know them they are unknown members like others.
    fn read(path: KnownPath, fields: &Fields<'_>) -> Result<Self, Reason> {
        if !matches!(path, KnownPath::Chat | KnownPath::Completions | KnownPath::Embeddings) {
            return Ok(Self::default());
        }
        let truncate_prompt_tokens = match fields.given(Field::TruncatePromptTokens) {
            None => None,
            Some(raw) => Some(raw.as_i64().filter(|n| *n >= -1).ok_or(Reason::UnsupportedField)?),
        };
        let truncation_side = match fields.given(Field::TruncationSide).map(|raw| raw.as_str()) {
            None => None,
            Some(Some(Ok(side))) if side == Side::Left.name() => Some(Side::Left),
            Some(Some(Ok(side))) if side == Side::Right.name() => Some(Side::Right),
            Some(_) => return Err(Reason::UnsupportedField),
        };
        let add_special_tokens = flag(fields, Field::AddSpecialTokens)?;
        Ok(Self { add_special_tokens, truncate_prompt_tokens, truncation_side })
    }
}

/// The response that the request goes on from.
fn previous_response(path: KnownPath, fields: &Fields<'_>) -> Result<Option<ResponseKey>, Reason> {
    match fields.given(Field::PreviousResponseId).filter(|_| path == KnownPath::Responses) {
        None => Ok(None),
        Some(raw) => match raw.as_str() {
            Some(Ok(id)) => Ok(ResponseKey::of(id.as_bytes())),
            Some(Err(_)) | None => Err(Reason::UnsupportedField),
        },
    }
}

/// A boolean that changes the prompt.
fn flag(fields: &Fields<'_>, field: Field) -> Result<Option<bool>, Reason> {
    match fields.given(field) {
        None => Ok(None),
        Some(raw) => raw.as_bool().map(Some).ok_or(Reason::UnsupportedField),
    }
}

fn max_output_tokens(fields: &Fields<'_>) -> u32 {
    [Field::MaxCompletionTokens, Field::MaxTokens, Field::MaxOutputTokens]
        .into_iter()
        .find_map(|field| count(fields, field))
        .unwrap_or(0)
}

fn sequences_per_prompt(path: KnownPath, fields: &Fields<'_>) -> u32 {
    let known = matches!(path, KnownPath::Chat | KnownPath::Completions);
    let given = if known { count(fields, Field::N) } else { None };
    given.unwrap_or(1).clamp(1, SEQUENCES_MAX)
}

/// A number of things: negative ones are none, huge ones as many as fit.
fn count(fields: &Fields<'_>, field: Field) -> Option<u32> {
    let number = fields.given(field)?.as_i64()?;
    Some(u32::try_from(number.max(0)).unwrap_or(u32::MAX))
}

/// The key is fixed, so that every worker and every proxy sends a prompt to the same endpoint. It may be crafted: the
/// load bound of the fallback keeps that harmless.
fn affinity(model: &str, salt: &str, key: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    for part in [model.as_bytes(), salt.as_bytes(), key] {
        hasher.write_u64(part.len() as u64);
        hasher.write(part);
    }
    hasher.finish()
}

/// Requests about one response go to one endpoint, whatever else they say.
fn affinity_of_response(response: ResponseKey) -> u64 {
    affinity("", "", &response.get().to_le_bytes())
}

#[cfg(test)]
mod tests;
