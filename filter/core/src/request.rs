//! A request body → [`PromptRequest`]: what the indexer must know of it. Read once, never changed.
//!
//! Tolerant by design: the engine judges requests, we only want to know which blocks they will touch. Unknown members
//! never matter; of equal keys the last wins, as in the engine; a member of a wrong type makes the request unscored, with
//! a [`Reason`], and never an error. Only a body that is no JSON object at all cannot be asked about.

mod chat;
mod completions;
mod fields;
mod json;
mod media;

pub(crate) use json::Scanner;

use std::borrow::Cow;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::limits::{CACHE_SALT_BYTES_MAX, HEAD_BYTES, MODEL_BYTES_MAX, SEQUENCES_MAX};
use crate::outcome::Reason;
use crate::path::KnownPath;
use fields::{Field, Fields};
use json::Raw;

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
    /// `truncate_prompt_tokens`: keep the last n tokens; -1: as many as the model takes.
    pub truncate_prompt_tokens: Option<i64>,
    /// `n`, 1 to [`SEQUENCES_MAX`].
    pub sequences_per_prompt: u32,
    /// `stream`.
    pub stream: bool,
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
}

/// The prompt of one path's body, and the text that names its beginning.
struct Read<'a> {
    prompt: Prompt<'a>,
    head: Cow<'a, [u8]>,
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
        KnownPath::Responses | KnownPath::Messages | KnownPath::Embeddings | KnownPath::Tokenize => {
            not_rendered(&fields)
        }
    };
    let (add_special_tokens, truncate_prompt_tokens) = match tokenizer_switches(&fields) {
        Ok(switches) => switches,
        Err(reason) => {
            prompt = Prompt::Unscored(reason);
            (None, None)
        }
    };
    if model.unreadable || cache_salt.unreadable {
        prompt = Prompt::Unscored(Reason::UnsupportedField);
    }
    let key = match fields.given(Field::PromptCacheKey) {
        Some(raw) => raw.text.as_bytes(),
        None => head.get(..HEAD_BYTES).unwrap_or(&head),
    };
    let affinity = affinity(&model.text, &cache_salt.text, key);
    Ok(PromptRequest {
        path,
        prompt,
        affinity,
        model: model.text,
        cache_salt: cache_salt.text,
        max_output_tokens: max_output_tokens(&fields),
        add_special_tokens,
        truncate_prompt_tokens,
        sequences_per_prompt: count(&fields, Field::N).unwrap_or(1).clamp(1, SEQUENCES_MAX),
        stream: fields.given(Field::Stream).and_then(|raw| raw.as_bool()).unwrap_or(false),
        body_bytes: body.len() as u64,
    })
}

/// Paths whose prompts this version does not render. Their beginning still names an endpoint.
fn not_rendered<'a>(fields: &Fields<'a>) -> Read<'a> {
    let head = [Field::Messages, Field::Input, Field::Prompt]
        .into_iter()
        .find_map(|field| fields.given(field))
        .map_or("", |raw| raw.text);
    Read { prompt: Prompt::Unscored(Reason::NotRenderable), head: Cow::Borrowed(head.as_bytes()) }
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

fn tokenizer_switches(fields: &Fields<'_>) -> Result<(Option<bool>, Option<i64>), Reason> {
    let truncate = match fields.given(Field::TruncatePromptTokens) {
        None => None,
        Some(raw) => Some(raw.as_i64().filter(|n| *n >= -1).ok_or(Reason::UnsupportedField)?),
    };
    Ok((flag(fields, Field::AddSpecialTokens)?, truncate))
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

#[cfg(test)]
mod tests;
