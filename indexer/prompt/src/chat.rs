//! `/v1/chat/completions`: from the request's JSON to the prompt text, as the engine does it.
//!
//! ```text
//! ChatRequest ─▶ ChatInput ─▶ messages, tools (validated, normalised) ─▶ Conversation ─▶ template ─▶ Rendered
//!   bytes          JSON        chat/messages.rs, parts.rs, tools.rs       chat/conversation.rs
//! ```
//!
//! The engine validates a request into typed models and rebuilds it before its template sees it: keys vanish, move or
//! become null, texts are joined, tool arguments are parsed. Each of those steps is here, switched by
//! [`RenderingRules`] where releases differ.

mod conversation;
mod developer;
mod form;
mod media;
mod messages;
mod parts;
mod tools;
mod variables;

use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};

use serde_json::{Map, Value as Json};

use crate::error::PromptError;
use crate::limits::DEEP_STACK_BYTES;
use crate::task::{Task, Truncate};
use crate::template::{ChatTemplate, Clock, ContentFormat};
use crate::values::Values;
use crate::version::RenderingRules;

pub(crate) use conversation::Conversation;
pub(crate) use media::is_in as has_media;
pub(crate) use parts::BILLING_HEADER;
pub(crate) use tools::dump_tool;
pub(crate) use variables::{Given, collect as collect_variables};

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
    /// The engine's default is true, for embeddings false.
    pub add_generation_prompt: Option<bool>,
    /// The engine's default is false.
    pub continue_final_message: Option<bool>,
    pub reasoning_effort: Option<&'a str>,
    /// The value of `tool_choice`, where given and not null.
    pub tool_choice: Option<&'a [u8]>,
    /// The engine's default for chats is false: the template writes special tokens.
    pub add_special_tokens: Option<bool>,
    pub truncate: Truncate,
    /// `kv_transfer_params.prompt_token_ids`, where given: releases that know it serve these in place of the messages.
    pub prompt_token_ids: Option<&'a [u32]>,
    pub task: Task,
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
    pub special_tokens: Vec<(String, String)>,
    pub clock: Arc<dyn Clock>,
}

/// A request as the renderer takes it, whichever endpoint it came by.
pub(crate) struct ChatInput<'a> {
    /// The value of `messages`.
    pub messages: Json,
    pub origin: Origin,
    /// As the template sees them.
    pub tools: Option<Vec<Json>>,
    pub variables: Map<String, Json>,
    /// What all of it is made of.
    pub values: Values,
    /// The request's own template, trusted or not.
    pub chat_template: Option<&'a str>,
    pub add_generation_prompt: bool,
    pub continue_final_message: bool,
    /// The request is known to hold media parts.
    pub has_media: bool,
}

/// Where messages come from: it decides how far the engine has checked and rebuilt them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The engine's model of chat requests.
    ChatModel,
    /// The engine's conversion from another API, whose messages it does not check again.
    Conversion,
}

/// The text of a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rendered {
    pub text: String,
    /// Bytes at the beginning of `text` that come before every medium. `None`: there are no media, `text` is all.
    pub before_media: Option<usize>,
}

/// The fields of `request`, parsed.
pub(crate) fn read<'a>(settings: &Settings, request: &ChatRequest<'a>) -> Result<ChatInput<'a>, PromptError> {
    let values = Values::default();
    let field = |name, bytes: Option<&[u8]>| bytes.map(|bytes| values.read(name, bytes)).transpose();
    let tools = tools::read(&settings.rules, field("tools", request.tools)?)?;
    let tool_choice = field("tool_choice", request.tool_choice)?;
    let given = Given {
        template_kwargs: field("chat_template_kwargs", request.template_kwargs)?,
        documents: field("documents", request.documents)?,
        reasoning_effort: request.reasoning_effort,
        add_generation_prompt: request.add_generation_prompt.unwrap_or(request.task == Task::Generate),
        continue_final_message: request.continue_final_message.unwrap_or(false),
    };
    if let Some(effort) = request.reasoning_effort
        && !settings.rules.reasoning_efforts.contains(effort)
    {
        return Err(PromptError::refused("reasoning_effort is none of the known efforts"));
    }
    Ok(ChatInput {
        messages: values.read("messages", request.messages)?,
        origin: Origin::ChatModel,
        tools: settings.shown_tools(tools, tool_choice.as_ref()),
        add_generation_prompt: given.add_generation_prompt,
        continue_final_message: given.continue_final_message,
        variables: variables::collect(settings, given, true)?,
        values,
        chat_template: request.chat_template,
        has_media: request.has_media,
    })
}

/// The prompt text of `input`. `choose` gives the model's template for requests with or without tools.
pub(crate) fn render<'t>(
    settings: &Settings,
    choose: impl FnOnce(bool) -> Option<&'t ChatTemplate>,
    input: ChatInput<'_>,
) -> Result<Rendered, PromptError> {
    let own_template = request_template(settings, &input)?;
    let template = match &own_template {
        Some(template) => template,
        None => choose(input.tools.is_some()).ok_or_else(no_template)?,
    };
    if input.add_generation_prompt && input.continue_final_message {
        return Err(PromptError::refused("continue_final_message needs add_generation_prompt to be false"));
    }
    let form = form::Form {
        rules: &settings.rules,
        values: &input.values,
        origin: input.origin,
        content: settings.content_format.unwrap_or(template.content_format()),
        template_knows_developer: template.knows_developer(),
    };
    let conversation = |messages, tools, variables| Conversation {
        messages,
        tools,
        variables,
        add_generation_prompt: input.add_generation_prompt,
        continue_final_message: input.continue_final_message,
    };
    let special_tokens = &settings.special_tokens;
    let render = |conversation: Conversation| match &own_template {
        Some(template) => on_deep_stack(|| conversation.render(template, special_tokens)),
        None => conversation.render(template, special_tokens),
    };
    if !input.has_media && !input.messages.as_array().is_some_and(|messages| media::is_in(messages)) {
        let messages = form.read(input.messages, media::View::Shown)?;
        let text = render(conversation(messages, input.tools, input.variables))?;
        return Ok(Rendered { text, before_media: None });
    }
    let shown = form.read(input.messages.clone(), media::View::Shown)?;
    let marked = form.read(input.messages, media::View::Marked)?;
    if shown == marked {
        // Media were announced that are not among the parts known here.
        return Err(PromptError::Media);
    }
    let shown = conversation(shown, input.tools.clone(), input.variables.clone());
    let marked = render(conversation(marked, input.tools, input.variables))?;
    let text = render(shown)?;
    let before_media = Some(media::common_prefix(&text, &marked));
    Ok(Rendered { text, before_media })
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

/// Renders where there is stack enough for whatever a request's own template makes: values in each other, one for every few
/// steps that it may take, which are dropped by a function that calls itself. Of the stack only what is used takes memory.
fn on_deep_stack(render: impl FnOnce() -> Result<String, PromptError> + Send) -> Result<String, PromptError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("own-template".into()).stack_size(DEEP_STACK_BYTES);
        match thread.spawn_scoped(scope, render).map(ScopedJoinHandle::join) {
            Ok(Ok(rendered)) => rendered,
            Ok(Err(_)) => Err(PromptError::not_renderable("the request's own template failed")),
            Err(_) => Err(PromptError::not_renderable("no thread for the request's own template")),
        }
    })
}

/// The request's own template, compiled, where it has one and the engine trusts it.
fn request_template(settings: &Settings, input: &ChatInput<'_>) -> Result<Option<ChatTemplate>, PromptError> {
    let Some(source) = input.chat_template else { return Ok(None) };
    if !settings.trust_request_template {
        return Err(PromptError::unsupported("chat_template", "is not trusted by the engine"));
    }
    ChatTemplate::compile(source, settings.rules.content_detection, Arc::clone(&settings.clock))
        .map(Some)
        .map_err(|error| PromptError::unsupported("chat_template", error.to_string()))
}

// === impl Settings ===

impl Settings {
    /// The tools that the template sees of those that the request has: none where the deployment hides them.
    pub(crate) fn shown_tools(
        &self,
        tools: Option<Vec<Json>>,
        tool_choice: Option<&Json>,
    ) -> Option<Vec<Json>> {
        let hidden = self.exclude_tools_when_none && tool_choice.is_some_and(|choice| choice == "none");
        if hidden { None } else { tools }
    }
}

#[cfg(test)]
mod tests;
