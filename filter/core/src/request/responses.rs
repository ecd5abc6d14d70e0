//! The body of `/v1/responses`: a text or a list of items, and what engines put before them.

use super::fields::{Field, Fields};
use super::head::Head;
use super::media::{Messages, RESPONSES};
use super::members::{self, Members};
use super::{Prompt, Read};
use crate::outcome::Reason;

/// The members that can reach the token ids, as in the contract.
const MEMBERS: [Field; 11] = [
    Field::Input,
    Field::Instructions,
    Field::Tools,
    Field::ToolChoice,
    Field::Reasoning,
    Field::Text,
    Field::Truncation,
    Field::ChatTemplateKwargs,
    Field::PreviousInputMessages,
    Field::Prompt,
    Field::KvTransferParams,
];

pub(super) fn read<'a>(fields: &Fields<'a>) -> Read<'a> {
    let mut head = Head::of(fields.given(Field::Instructions).map_or(b"", |raw| raw.text.as_bytes()));
    let prompt = input(fields).and_then(|input| {
        head.push(input.head.as_bytes());
        prompt(fields, input)
    });
    Read { prompt: prompt.unwrap_or_else(Prompt::Unscored), head }
}

fn input<'a>(fields: &Fields<'a>) -> Result<Messages<'a>, Reason> {
    let raw = fields.given(Field::Input).ok_or(Reason::NoPrompt)?;
    if raw.is_string() {
        return Ok(Messages::of_text(raw.text));
    }
    if !raw.is_array() {
        return Err(Reason::BadPrompt);
    }
    let items = Messages::read(raw.text, &RESPONSES).map_err(|_| Reason::BadPrompt)?;
    // What was said before makes a prompt too.
    let alone = [Field::Instructions, Field::PreviousResponseId, Field::PreviousInputMessages]
        .into_iter()
        .all(|field| fields.given(field).is_none());
    if items.head.is_empty() && alone { Err(Reason::NoPrompt) } else { Ok(items) }
}

fn prompt<'a>(fields: &Fields<'a>, input: Messages<'a>) -> Result<Prompt<'a>, Reason> {
    if input.has_embeds {
        return Err(Reason::PromptEmbeds);
    }
    if fields.given(Field::Instructions).is_some_and(|raw| !raw.is_string()) {
        return Err(Reason::UnsupportedField);
    }
    members::objects_only(fields, &[Field::ChatTemplateKwargs])?;
    let has_media = input.has_media;
    let json = members::object(fields, &MEMBERS, (Field::Input, input.json))?;
    Ok(Prompt::Responses(Members { json, has_media }))
}
