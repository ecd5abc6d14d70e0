//! The body of `/v1/chat/completions`: a conversation, or token ids that stand for it.

use std::borrow::Cow;

use super::fields::{Field, Fields};
use super::json::{Raw, Scanner, unescape};
use super::media::digest_media;
use super::{ChatPrompt, Prompt, Read, completions, flag};
use crate::limits::SHORT_TEXT_BYTES_MAX;
use crate::outcome::Reason;

pub(super) fn read<'a>(fields: &Fields<'a>) -> Read<'a> {
    let unscored = |reason, head: &'a str| Read {
        prompt: Prompt::Unscored(reason),
        head: Cow::Borrowed(head.as_bytes()),
    };
    let Some(raw) = fields.given(Field::Messages) else { return unscored(Reason::NoPrompt, "") };
    if !raw.is_array() {
        return unscored(Reason::BadPrompt, raw.text);
    }
    let Ok(messages) = digest_media(raw.text) else { return unscored(Reason::BadPrompt, raw.text) };
    if messages.head.is_empty() {
        return unscored(Reason::NoPrompt, "");
    }
    let head = Cow::Borrowed(messages.head.as_bytes());
    let prompt = match served_ids(fields, messages.has_media) {
        Some(ids) => ids.map(|ids| Prompt::Tokens(vec![ids])),
        None if raw.lone_surrogate => Err(Reason::LoneSurrogate),
        None => conversation(fields, messages.json, messages.has_media),
    };
    Read { prompt: prompt.unwrap_or_else(Prompt::Unscored), head }
}

fn conversation<'a>(
    fields: &Fields<'a>,
    messages: Cow<'a, str>,
    has_media: bool,
) -> Result<Prompt<'a>, Reason> {
    let json = |field| match fields.given(field) {
        Some(raw) if raw.lone_surrogate => Err(Reason::LoneSurrogate),
        other => Ok(other.map(|raw| raw.text)),
    };
    let template_kwargs = match fields.given(Field::ChatTemplateKwargs) {
        Some(raw) if !raw.is_object() => return Err(Reason::UnsupportedField),
        _ => json(Field::ChatTemplateKwargs)?,
    };
    let reasoning_effort = text(fields.given(Field::ReasoningEffort))?;
    if reasoning_effort.as_ref().is_some_and(|effort| effort.len() > SHORT_TEXT_BYTES_MAX) {
        return Err(Reason::UnsupportedField);
    }
    Ok(Prompt::Chat(Box::new(ChatPrompt {
        messages,
        tools: json(Field::Tools)?,
        documents: json(Field::Documents)?,
        template_kwargs,
        tool_choice: json(Field::ToolChoice)?,
        chat_template: text(fields.given(Field::ChatTemplate))?,
        add_generation_prompt: flag(fields, Field::AddGenerationPrompt)?,
        continue_final_message: flag(fields, Field::ContinueFinalMessage)?,
        reasoning_effort,
        has_media,
    })))
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

/// The ids in `kv_transfer_params.prompt_token_ids`, which engines serve in place of the messages, except with `echo`
/// or media.
fn served_ids(fields: &Fields<'_>, has_media: bool) -> Option<Result<Vec<u32>, Reason>> {
    let params = fields.given(Field::KvTransferParams).filter(Raw::is_object)?;
    let echo = fields.given(Field::Echo).and_then(|raw| raw.as_bool()).unwrap_or(false);
    let mut ids = None;
    Scanner::new(params.text)
        .object(|s, key| {
            let value = s.value()?;
            if unescape(key).is_ok_and(|key| key == "prompt_token_ids") {
                ids = Some(value).filter(|value| !value.is_null());
            }
            Ok(())
        })
        .ok()?;
    ids.filter(|_| !echo && !has_media).map(completions::token_ids)
}
