//! The body of `/v1/completions`: `prompt` as a text, texts, token ids, or lists of token ids.

use std::borrow::Cow;

use super::fields::{Field, Fields};
use super::head::Head;
use super::{Prompt, Read};
use crate::json::{Fault, Raw, Scanner};
use crate::limits::{HEAD_BYTES, PROMPTS_MAX, TOKEN_IDS_MAX};
use crate::outcome::Reason;

pub(super) fn read<'a>(fields: &Fields<'a>) -> Read<'a> {
    let given = fields.given(Field::Prompt);
    // They come first, whatever else is given; an empty list of them is none.
    let is_empty = |raw: Raw<'_>| raw.is_array() && raw.first_inside() == Some(b']');
    if fields.given(Field::PromptEmbeds).is_some_and(|raw| !is_empty(raw)) {
        return Read::unscored(Reason::PromptEmbeds, given.map_or("", |raw| raw.text));
    }
    texts_or_ids(given)
}

/// A prompt in one of the four forms.
pub(super) fn texts_or_ids(given: Option<Raw<'_>>) -> Read<'_> {
    let prompt = given.ok_or(Reason::NoPrompt).and_then(prompt).unwrap_or_else(Prompt::Unscored);
    let head = match &prompt {
        Prompt::Texts(texts) => Head::of(texts.first().map_or(b"", |text| text.as_bytes())),
        Prompt::Tokens(prompts) => {
            let ids = prompts.first().into_iter().flatten().take(HEAD_BYTES / 4);
            Head::of(&ids.flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>())
        }
        _ => Head::of(given.map_or(b"", |raw| raw.text.as_bytes())),
    };
    Read { prompt, head }
}

fn prompt(raw: Raw<'_>) -> Result<Prompt<'_>, Reason> {
    if !raw.is_array() {
        return Ok(Prompt::Texts(vec![text(raw)?]));
    }
    match raw.first_inside() {
        Some(b'"') => list(raw, PROMPTS_MAX, Reason::TooManyPrompts, text).map(Prompt::Texts),
        Some(b'[') => list(raw, PROMPTS_MAX, Reason::TooManyPrompts, token_ids).map(Prompt::Tokens),
        Some(b'-' | b'0'..=b'9') => token_ids(raw).map(|ids| Prompt::Tokens(vec![ids])),
        Some(b']') | None => Err(Reason::NoPrompt),
        Some(_) => Err(Reason::BadPrompt),
    }
}

fn text(raw: Raw<'_>) -> Result<Cow<'_, str>, Reason> {
    let text = raw.as_str().ok_or(Reason::BadPrompt)?.map_err(|_| Reason::LoneSurrogate)?;
    if text.is_empty() { Err(Reason::NoPrompt) } else { Ok(text) }
}

/// The token ids of a JSON array of integers.
pub(super) fn token_ids(raw: Raw<'_>) -> Result<Vec<u32>, Reason> {
    if !raw.is_array() {
        return Err(Reason::BadPrompt);
    }
    let ids = list(raw, TOKEN_IDS_MAX, Reason::TooManyTokens, |raw| {
        if raw.text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
            raw.as_i64().and_then(|id| u32::try_from(id).ok()).ok_or(Reason::TokenOutOfRange)
        } else {
            Err(Reason::BadPrompt)
        }
    })?;
    if ids.is_empty() { Err(Reason::NoPrompt) } else { Ok(ids) }
}

/// The elements of an array, each read by `read`.
fn list<'a, T>(
    raw: Raw<'a>,
    max: usize,
    too_many: Reason,
    read: impl Fn(Raw<'a>) -> Result<T, Reason>,
) -> Result<Vec<T>, Reason> {
    let mut values = Vec::new();
    let mut failed = None;
    let walked = Scanner::new(raw.text).array(|s, index| {
        let value = s.value()?;
        if failed.is_none() {
            match if index < max { read(value) } else { Err(too_many) } {
                Ok(value) => values.push(value),
                Err(reason) => failed = Some(reason),
            }
        }
        Ok(())
    });
    match (walked, failed) {
        (Ok(()), None) => Ok(values),
        (Ok(()), Some(reason)) => Err(reason),
        (Err(Fault::Syntax { .. } | Fault::Depth { .. }), _) => Err(Reason::BadPrompt),
    }
}
