//! The body of `/v1/chat/completions`: a conversation, and the token ids that newer engines serve in place of it.

use std::borrow::Cow;

use super::completions::token_ids;
use super::fields::{Field, Fields};
use super::head::Head;
use super::media::{CHAT, Messages};
use super::{ChatPrompt, Prompt, Read, flag};
use crate::json::{Raw, Scanner, unescape};
use crate::limits::SHORT_TEXT_BYTES_MAX;
use crate::outcome::Reason;

pub(super) fn read<'a>(fields: &Fields<'a>) -> Read<'a> {
    let Some(raw) = fields.given(Field::Messages) else { return Read::unscored(Reason::NoPrompt, "") };
    let messages = match messages(raw) {
        Ok(messages) => messages,
        Err(reason) => return Read::unscored(reason, raw.text),
    };
    let head = Head::of(messages.head.as_bytes());
    let prompt = conversation(fields, messages).and_then(|chat| {
        Ok(Prompt::Chat(Box::new(ChatPrompt {
            tools: json(fields, Field::Tools)?,
            documents: json(fields, Field::Documents)?,
            tool_choice: json(fields, Field::ToolChoice)?,
            reasoning_effort: reasoning_effort(fields)?,
            ..chat
        })))
    });
    Read { prompt: prompt.unwrap_or_else(Prompt::Unscored), head }
}

/// The messages of a conversation: a list that is not empty.
pub(super) fn messages(raw: Raw<'_>) -> Result<Messages<'_>, Reason> {
    if !raw.is_array() {
        return Err(Reason::BadPrompt);
    }
    let messages = Messages::read(raw.text, &CHAT).map_err(|_| Reason::BadPrompt)?;
    if messages.head.is_empty() {
        Err(Reason::NoPrompt)
    } else if raw.lone_surrogate {
        Err(Reason::LoneSurrogate)
    } else {
        Ok(messages)
    }
}

/// A conversation with the members that every path takes which takes conversations.
pub(super) fn conversation<'a>(
    fields: &Fields<'a>,
    messages: Messages<'a>,
) -> Result<ChatPrompt<'a>, Reason> {
    if messages.has_embeds {
        return Err(Reason::PromptEmbeds);
    }
    let template_kwargs = match fields.given(Field::ChatTemplateKwargs) {
        Some(raw) if !raw.is_object() => return Err(Reason::UnsupportedField),
        _ => json(fields, Field::ChatTemplateKwargs)?,
    };
    Ok(ChatPrompt {
        prompt_token_ids: forwarded_ids(fields, &messages)?,
        messages: messages.json,
        has_media: messages.has_media,
        template_kwargs,
        chat_template: text(fields.given(Field::ChatTemplate))?,
        add_generation_prompt: flag(fields, Field::AddGenerationPrompt)?,
        continue_final_message: flag(fields, Field::ContinueFinalMessage)?,
        tools: None,
        documents: None,
        tool_choice: None,
        reasoning_effort: None,
    })
}

fn json<'a>(fields: &Fields<'a>, field: Field) -> Result<Option<&'a str>, Reason> {
    match fields.given(field) {
        Some(raw) if raw.lone_surrogate => Err(Reason::LoneSurrogate),
        other => Ok(other.map(|raw| raw.text)),
    }
}

fn text(raw: Option<Raw<'_>>) -> Result<Option<Cow<'_, str>>, Reason> {
    match raw {
        None => Ok(None),
        Some(raw) => match raw.as_str() {
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => Err(Reason::LoneSurrogate),
            None => Err(Reason::UnsupportedField),
        },
    }
}

fn reasoning_effort<'a>(fields: &Fields<'a>) -> Result<Option<Cow<'a, str>>, Reason> {
    match text(fields.given(Field::ReasoningEffort))? {
        Some(effort) if effort.len() > SHORT_TEXT_BYTES_MAX => Err(Reason::UnsupportedField),
        effort => Ok(effort),
    }
}

/// The ids in `kv_transfer_params.prompt_token_ids`. An engine that knows them refuses a request whose ids cannot be read,
/// and one that does not never looks at them. Whether those that do serve them beside `echo`, or beside parts that are
/// neither text nor known media, depends on their release.
fn forwarded_ids(fields: &Fields<'_>, messages: &Messages<'_>) -> Result<Option<Vec<u32>>, Reason> {
    let Some(params) = fields.given(Field::KvTransferParams).filter(Raw::is_object) else { return Ok(None) };
    let mut ids = None;
    let scanned = Scanner::new(params.text).object(|s, key| {
        let value = s.value()?;
        if unescape(key).is_ok_and(|key| key == "prompt_token_ids") {
            ids = Some(value).filter(|value| !value.is_null());
        }
        Ok(())
    });
    let Some(ids) = ids.filter(|_| scanned.is_ok()).and_then(|ids| token_ids(ids).ok()) else {
        return Ok(None);
    };
    let echo = fields.given(Field::Echo).and_then(|raw| raw.as_bool()).unwrap_or(false);
    if echo || !(messages.only_text || messages.has_media) {
        return Err(Reason::UnsupportedField);
    }
    Ok(Some(ids))
}
