//! `/v1/responses`: a conversation as a list of items, which the engine turns into chat messages.
//!
//! ```text
//! ResponsesRequest ─▶ items, instructions, tools, effort ─▶ ChatInput ─▶ (as any chat, see chat.rs)
//!   members            responses/{items,item,tools}.rs
//! ```
//!
//! The messages go to the template without passing the engine's model of chat requests, so their keys stay in the order
//! in which the conversion makes them. What follows on a previous response is not here: only the engine that made it
//! knows it.

mod item;
mod items;
mod names;
mod tools;

use serde_json::Value as Json;

use crate::chat::{self, ChatInput, Origin, Settings};
use crate::error::PromptError;
use crate::values::Values;

/// A request to `/v1/responses` that goes on from no other response.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResponsesRequest<'a> {
    /// A JSON object with those members of the body that can reach the token ids: `input`, `instructions`, `tools`,
    /// `tool_choice`, `reasoning`, `truncation`, `chat_template_kwargs`, `kv_transfer_params`, `prompt`. Others are ignored.
    pub members: &'a [u8],
    /// `max_output_tokens`, where known: it makes room where the prompt is truncated.
    pub max_output_tokens: Option<u32>,
    /// The input is known to hold media.
    pub has_media: bool,
}

/// What the engine makes of a request.
pub(crate) struct Converted {
    pub chat: ChatInput<'static>,
    /// The prompt is cut to the model's length.
    pub is_truncated: bool,
    /// The value of `kv_transfer_params`.
    pub transfer: Option<Json>,
}

pub(crate) fn read(settings: &Settings, request: &ResponsesRequest<'_>) -> Result<Converted, PromptError> {
    let rules = &settings.rules.responses;
    let values = Values::default();
    let mut members = values.read_object("members", request.members)?;
    let mut member = |name: &str| members.shift_remove(name).filter(|value| !value.is_null());
    if member("prompt").is_some() {
        return Err(PromptError::refused("prompt is set, which engines do not take"));
    }
    let input = member("input").ok_or_else(|| PromptError::refused("there is no input"))?;
    let is_continued = items::is_continued(&input);
    let instructions = match member("instructions") {
        None => None,
        Some(Json::String(text)) => Some(text),
        Some(_) => return Err(PromptError::refused("instructions is no text")),
    };
    let messages = items::convert(rules, instructions, input)?;
    let tools = tools::read(settings, member("tools"), member("tool_choice"))?;
    let effort = read_effort(member("reasoning"))?;
    // Its default, which null is not, means that a prompt that is too long is an error.
    let is_truncated = match members.shift_remove("truncation") {
        None => false,
        Some(truncation) if truncation == "disabled" => false,
        Some(truncation) if truncation == "auto" || truncation.is_null() => true,
        Some(_) => return Err(PromptError::refused("truncation is neither \"auto\" nor \"disabled\"")),
    };
    let template_kwargs = members.shift_remove("chat_template_kwargs");
    let given = chat::Given {
        template_kwargs: template_kwargs.filter(|_| rules.reads_template_kwargs),
        documents: None,
        reasoning_effort: effort.as_deref(),
        add_generation_prompt: !is_continued,
        continue_final_message: is_continued,
    };
    let chat = ChatInput {
        messages: Json::Array(messages),
        origin: Origin::Conversion,
        tools,
        variables: chat::collect_variables(settings, given, rules.reads_template_kwargs)?,
        values,
        chat_template: None,
        add_generation_prompt: !is_continued,
        continue_final_message: is_continued,
        has_media: request.has_media,
    };
    let transfer = members.shift_remove("kv_transfer_params");
    Ok(Converted { chat, is_truncated, transfer })
}

/// Efforts that the library with the request's types knows. It is not the engine's own and has a release of its own.
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

fn read_effort(reasoning: Option<Json>) -> Result<Option<String>, PromptError> {
    let Some(reasoning) = reasoning else { return Ok(None) };
    if !reasoning.is_object() {
        return Err(PromptError::refused("reasoning is no object"));
    }
    match reasoning.get("effort") {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(effort)) if EFFORTS.contains(&effort.as_str()) => Ok(Some(effort.clone())),
        Some(_) => Err(PromptError::refused("reasoning has an effort that is none of the known ones")),
    }
}

#[cfg(test)]
mod tests;
