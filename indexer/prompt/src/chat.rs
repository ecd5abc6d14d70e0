//! `/v1/chat/completions`: from the request's JSON to the prompt text, as the engine does it.
//!
//! ```text
//! ChatRequest ─▶ messages, tools (validated, normalised by RenderingRules) ─▶ Conversation ─▶ template ─▶ text
//!   bytes         chat/messages.rs, chat/parts.rs, chat/tools.rs               chat/conversation.rs
//! ```
//!
//! The engine validates a request into typed models and rebuilds it before its template sees it: keys vanish, move or
//! become null, texts are joined, tool arguments are parsed. Each of those steps is here, switched by
//! [`RenderingRules`] where releases differ.

mod conversation;
mod messages;
mod parts;
mod tools;
mod variables;

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use crate::error::PromptError;
use crate::limits::MAX_PROMPT_BYTES;
use crate::request::Truncate;
use crate::template::{ChatTemplate, Clock, ContentFormat};
use crate::version::RenderingRules;

pub(crate) use conversation::Conversation;

/// The fields of a chat request that reach its token ids. JSON fields are slices of the body.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChatRequest<'a> {
    /// The value of `messages`: a JSON array.
    pub messages: &'a [u8],
    /// The value of `tools`, where given and not null.
    pub tools: Option<&'a [u8]>,
    /// The value of `documents`, where given and not null.
    pub documents: Option<&'a [u8]>,
    /// The value of `chat_template_kwargs`, where given and not null.
    pub template_kwargs: Option<&'a [u8]>,
    /// `chat_template`: used only where the engine trusts it.
    pub chat_template: Option<&'a str>,
    /// The engine's default is true.
    pub add_generation_prompt: Option<bool>,
    /// The engine's default is false.
    pub continue_final_message: Option<bool>,
    pub reasoning_effort: Option<&'a str>,
    /// The value of `tool_choice`, where given and not null.
    pub tool_choice: Option<&'a [u8]>,
    /// The engine's default for chats is false: the template writes special tokens.
    pub add_special_tokens: Option<bool>,
    pub truncate: Truncate,
    /// The messages are known to hold media parts.
    pub has_media: bool,
}

/// A conversation in the template's own form; see [`ModelPrompt::render_template`](crate::ModelPrompt::render_template).
#[derive(Clone, Copy, Debug, Default)]
pub struct TemplateInput<'a> {
    /// A JSON array of objects.
    pub messages: &'a [u8],
    /// A JSON array.
    pub tools: Option<&'a [u8]>,
    /// A JSON object with the other variables.
    pub variables: Option<&'a [u8]>,
    pub add_generation_prompt: bool,
    pub continue_final_message: bool,
}

/// What is the same for every chat of a model.
pub(crate) struct Settings {
    pub rules: RenderingRules,
    /// `None`: as the template asks.
    pub content_format: Option<ContentFormat>,
    pub trust_request_template: bool,
    pub default_template_kwargs: Map<String, Json>,
    pub exclude_tools_when_none: bool,
    /// Variables with the tokenizer's special tokens.
    pub special_tokens: Vec<(&'static str, String)>,
    pub clock: Arc<dyn Clock>,
}

/// The prompt text of `request`. `choose` gives the model's template for requests with or without tools.
pub(crate) fn render<'t>(
    settings: &Settings,
    choose: impl FnOnce(bool) -> Option<&'t ChatTemplate>,
    request: &ChatRequest<'_>,
) -> Result<String, PromptError> {
    if request.has_media {
        return Err(PromptError::Media { kind: "media".into() });
    }
    let tools = tools::read(settings, request.tools, request.tool_choice)?;
    let own_template = request_template(settings, request)?;
    let template = match &own_template {
        Some(template) => template,
        None => choose(tools.is_some()).ok_or_else(no_template)?,
    };
    let conversation = read(settings, template, request, tools)?;
    conversation.render(template, &settings.special_tokens)
}

/// The text of a conversation that is already in the template's form.
pub(crate) fn render_template<'t>(
    settings: &Settings,
    choose: impl FnOnce(bool) -> Option<&'t ChatTemplate>,
    input: &TemplateInput<'_>,
) -> Result<String, PromptError> {
    let malformed = |_| PromptError::refused("messages, tools or variables have the wrong form");
    let messages: Vec<Map<String, Json>> = serde_json::from_slice(input.messages).map_err(malformed)?;
    let tools: Option<Vec<Json>> = input.tools.map(serde_json::from_slice).transpose().map_err(malformed)?;
    let mut variables: Map<String, Json> =
        input.variables.map(serde_json::from_slice).transpose().map_err(malformed)?.unwrap_or_default();
    variables.entry("documents").or_insert(Json::Null);
    let template = choose(tools.is_some()).ok_or_else(no_template)?;
    let conversation = Conversation {
        messages,
        tools,
        variables,
        add_generation_prompt: input.add_generation_prompt,
        continue_final_message: input.continue_final_message,
    };
    conversation.render(template, &settings.special_tokens)
}

fn no_template() -> PromptError {
    PromptError::not_renderable("the model has a chat template for requests with tools only")
}

/// Everything of `request` that the template sees.
fn read(
    settings: &Settings,
    template: &ChatTemplate,
    request: &ChatRequest<'_>,
    tools: Option<Vec<Json>>,
) -> Result<Conversation, PromptError> {
    let form = messages::Form {
        rules: &settings.rules,
        content: settings.content_format.unwrap_or(template.content_format()),
        template_knows_developer: template.knows_developer(),
    };
    let messages = form.read(parse_json("messages", request.messages)?)?;
    let add_generation_prompt = request.add_generation_prompt.unwrap_or(true);
    let continue_final_message = request.continue_final_message.unwrap_or(false);
    if add_generation_prompt && continue_final_message {
        return Err(PromptError::refused("continue_final_message needs add_generation_prompt to be false"));
    }
    let variables = variables::collect(settings, request)?;
    Ok(Conversation { messages, tools, variables, add_generation_prompt, continue_final_message })
}

/// The request's own template, compiled, where it has one and the engine trusts it.
fn request_template(
    settings: &Settings,
    request: &ChatRequest<'_>,
) -> Result<Option<ChatTemplate>, PromptError> {
    let Some(source) = request.chat_template else { return Ok(None) };
    if !settings.trust_request_template {
        return Err(PromptError::unsupported("chat_template", "is not trusted by the engine"));
    }
    ChatTemplate::compile(source, settings.rules.content_detection, Arc::clone(&settings.clock))
        .map(Some)
        .map_err(|error| PromptError::unsupported("chat_template", error.to_string()))
}

/// Parses one field of the body, with a limit on its size.
fn parse_json(field: &'static str, bytes: &[u8]) -> Result<Json, PromptError> {
    if bytes.len() > MAX_PROMPT_BYTES {
        return Err(PromptError::TooLarge { what: field, bytes: bytes.len(), limit: MAX_PROMPT_BYTES });
    }
    serde_json::from_slice(bytes).map_err(|error| {
        // The parser's message quotes nothing of the text.
        PromptError::refused(format!("{field} is no JSON: {error}"))
    })
}

/// Names a JSON value's type in messages, as JSON calls it.
fn type_of(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests;
