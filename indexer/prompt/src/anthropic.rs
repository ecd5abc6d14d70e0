//! `/v1/messages`: Anthropic's form of a chat, which the engine turns into a chat request of its own.
//!
//! ```text
//! MessagesRequest ─▶ Converted: system, messages, tools, effort ─┬▶ ChatInput ─▶ (as any chat, see chat.rs)
//!   members           anthropic/{system,messages,tools}.rs      └▶ (gpt-oss, see harmony.rs)
//! ```
//!
//! The conversion is the engine's, with what it changed between releases
//! ([`AnthropicRules`](crate::version::AnthropicRules)). It loses what chats have no place for: cache marks, signatures, the
//! media type of errors. What it makes passes the engine's model of chat requests, so it is read like one.

mod block;
mod messages;
mod system;
mod tools;

use serde_json::{Map, Value as Json};

use crate::chat::{self, ChatInput, Origin, Settings};
use crate::error::PromptError;
use crate::values::{Values, type_of};
use crate::version::AnthropicRules;

/// A request to `/v1/messages`, or to `/v1/messages/count_tokens`, which counts the same prompt.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessagesRequest<'a> {
    /// A JSON object with those members of the body that can reach the token ids: `system`, `messages`, `tools`,
    /// `tool_choice`, `thinking`, `output_config`, `chat_template_kwargs`, `kv_transfer_params`. Others are ignored.
    pub members: &'a [u8],
    /// The messages are known to hold media.
    pub has_media: bool,
}

/// What the model's templates decide about conversions. Found out when the model is loaded, as the engine does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conversion {
    /// System messages among the others join the system prompt.
    pub merges_inline_system: bool,
    /// The reasoning effort that stands for no thinking.
    pub disabled_effort: &'static str,
}

/// Efforts of this API, which the engine renders to find out what `none` means to a template.
pub(crate) const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];

/// What a thinking budget must have at least, in tokens.
const MIN_THINKING_BUDGET: i64 = 1024;

/// What the engine makes of a request, before the model's renderer decides what of it is shown.
pub(crate) struct Converted {
    /// Chat messages.
    pub messages: Vec<Json>,
    /// Function tools, as a chat request gives them.
    pub tools: Option<Vec<Json>>,
    /// `"none"`, where no tool may be called.
    pub choice: Option<Json>,
    pub effort: Option<&'static str>,
    template_kwargs: Option<Json>,
    /// The value of `kv_transfer_params`, which goes on as it is.
    pub transfer: Option<Json>,
    /// What all of it is made of.
    pub values: Values,
}

/// The chat request that the engine makes of `request`.
pub(crate) fn convert(
    rules: &AnthropicRules,
    conversion: Conversion,
    request: &MessagesRequest<'_>,
) -> Result<Converted, PromptError> {
    let values = Values::default();
    let mut members = values.read_object("members", request.members)?;
    let mut member = |name: &str| members.shift_remove(name).filter(|value| !value.is_null());
    let Some(Json::Array(messages)) = member("messages") else {
        return Err(PromptError::refused("messages is no list"));
    };
    let choice = read_choice(rules.allows_no_tool, member("tool_choice"))?;
    let tools = tools::read(rules, member("tools"), &messages)?;
    let effort = read_effort(rules, conversion, member("output_config"), member("thinking"))?;
    let template_kwargs = member("chat_template_kwargs").filter(|_| rules.reads_template_kwargs);
    if template_kwargs.as_ref().is_some_and(|kwargs| !kwargs.is_object()) {
        return Err(PromptError::refused("chat_template_kwargs is no object"));
    }
    let transfer = member("kv_transfer_params");
    let mut chat = Vec::new();
    let system = member("system");
    chat.extend(system::read(rules, conversion.merges_inline_system, system, &messages)?);
    for message in messages {
        messages::convert(rules, conversion.merges_inline_system, message, &mut chat)?;
    }
    Ok(Converted { messages: chat, tools, choice, effort, template_kwargs, transfer, values })
}

/// The tools as the engine's model of chat requests dumps them.
fn dump(settings: &Settings, tools: Vec<Json>) -> Result<Vec<Json>, PromptError> {
    tools.into_iter().map(|tool| chat::dump_tool(&settings.rules, tool)).collect()
}

/// `"none"` where the model must not call a tool; what else may be chosen does not reach the template.
fn read_choice(allows_none: bool, choice: Option<Json>) -> Result<Option<Json>, PromptError> {
    let Some(choice) = choice else { return Ok(None) };
    match choice.get("type").and_then(Json::as_str) {
        Some("auto" | "any") => Ok(None),
        Some("none") if allows_none => Ok(Some("none".into())),
        Some("tool") if choice.get("name").is_some_and(|name| name.is_string() && name != "") => Ok(None),
        _ => Err(PromptError::refused("tool_choice has none of the known types, or no name")),
    }
}

/// The reasoning effort: what `output_config` says, unless thinking is disabled.
fn read_effort(
    rules: &AnthropicRules,
    conversion: Conversion,
    output_config: Option<Json>,
    thinking: Option<Json>,
) -> Result<Option<&'static str>, PromptError> {
    let mut effort = None;
    if let Some(config) = output_config.filter(|_| rules.reads_effort) {
        let wanted = config.get("effort").filter(|effort| !effort.is_null());
        let known = |wanted: &Json| EFFORTS.into_iter().find(|effort| wanted == effort);
        effort = wanted.map(|wanted| known(wanted).ok_or(())).transpose().map_err(|()| {
            PromptError::refused("output_config has an effort that is none of the known ones")
        })?;
    }
    let Some(thinking) = thinking.filter(|_| rules.reads_thinking_config) else { return Ok(effort) };
    let budget = || thinking.get("budget_tokens").and_then(Json::as_i64);
    match thinking.get("type").and_then(Json::as_str) {
        Some("disabled") => Ok(Some(conversion.disabled_effort)),
        Some("adaptive") => Ok(effort),
        Some("enabled") if budget().is_some_and(|budget| budget >= MIN_THINKING_BUDGET) => Ok(effort),
        _ => Err(PromptError::refused("thinking has none of the known types, or too small a budget")),
    }
}

// === impl Converted ===

impl Converted {
    /// The chat that a template renders.
    pub(crate) fn into_chat(
        self,
        settings: &Settings,
        has_media: bool,
    ) -> Result<ChatInput<'static>, PromptError> {
        let tools = self.tools.map(|tools| dump(settings, tools)).transpose()?;
        let given = chat::Given {
            template_kwargs: self.template_kwargs,
            documents: None,
            reasoning_effort: self.effort,
            add_generation_prompt: true,
            continue_final_message: false,
        };
        let applies_defaults = settings.rules.anthropic.applies_default_kwargs;
        Ok(ChatInput {
            messages: Json::Array(self.messages),
            origin: Origin::ChatModel,
            tools: settings.shown_tools(tools, self.choice.as_ref()),
            variables: chat::collect_variables(settings, given, applies_defaults)?,
            values: self.values,
            chat_template: None,
            add_generation_prompt: true,
            continue_final_message: false,
            has_media,
        })
    }
}

/// Takes a text out of an object; null counts as absent.
fn take_text(from: &mut Map<String, Json>, key: &str) -> Result<Option<String>, PromptError> {
    match from.shift_remove(key) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text)),
        Some(other) => Err(PromptError::refused(format!("{key} is {}, expected a text", type_of(&other)))),
    }
}

#[cfg(test)]
mod tests;
