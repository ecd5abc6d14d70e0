//! The body of `/v1/messages` and `/v1/messages/count_tokens`: a conversation, with its system prompt beside it.

use super::fields::{Field, Fields};
use super::head::Head;
use super::media::{MESSAGES, Messages};
use super::members::{self, Members};
use super::{Prompt, Read};
use crate::json::{Raw, Scanner};
use crate::outcome::Reason;

/// The members that can reach the token ids, as in the contract.
const MEMBERS: [Field; 8] = [
    Field::System,
    Field::Messages,
    Field::Tools,
    Field::ToolChoice,
    Field::Thinking,
    Field::OutputConfig,
    Field::ChatTemplateKwargs,
    Field::KvTransferParams,
];

/// A text that begins so is another one in every request of a conversation, and engines leave it out.
const BILLING_HEADER: &str = "\"x-anthropic-billing-header";

pub(super) fn read<'a>(fields: &Fields<'a>) -> Read<'a> {
    let mut head = Head::default();
    if let Some(system) = fields.given(Field::System) {
        push_system(&mut head, system);
    }
    let prompt = messages(fields).and_then(|messages| {
        head.push(messages.head.as_bytes());
        prompt(fields, messages)
    });
    Read { prompt: prompt.unwrap_or_else(Prompt::Unscored), head }
}

fn push_system(head: &mut Head, system: Raw<'_>) {
    if !system.is_array() {
        head.push(system.text.as_bytes());
        return;
    }
    // It was read before, so there is no fault.
    _ = Scanner::new(system.text).array(|s, _| {
        let block = s.value()?;
        if !block.text.contains(BILLING_HEADER) {
            head.push(block.text.as_bytes());
        }
        Ok(())
    });
}

fn messages<'a>(fields: &Fields<'a>) -> Result<Messages<'a>, Reason> {
    let raw = fields.given(Field::Messages).ok_or(Reason::NoPrompt)?;
    if !raw.is_array() {
        return Err(Reason::BadPrompt);
    }
    let messages = Messages::read(raw.text, &MESSAGES).map_err(|_| Reason::BadPrompt)?;
    if messages.head.is_empty() { Err(Reason::NoPrompt) } else { Ok(messages) }
}

fn prompt<'a>(fields: &Fields<'a>, messages: Messages<'a>) -> Result<Prompt<'a>, Reason> {
    if fields.given(Field::System).is_some_and(|raw| !raw.is_string() && !raw.is_array()) {
        return Err(Reason::UnsupportedField);
    }
    members::objects_only(fields, &[Field::Thinking, Field::OutputConfig, Field::ChatTemplateKwargs])?;
    let has_media = messages.has_media;
    let json = members::object(fields, &MEMBERS, (Field::Messages, messages.json))?;
    Ok(Prompt::Messages(Members { json, has_media }))
}
