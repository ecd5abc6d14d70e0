//! `/v1/chat/completions`, and the chats that `/v1/messages` becomes, as harmony conversations.

use std::collections::HashMap;
use std::rc::Rc;

use serde_json::{Map, Value as Json};

use super::conversation::{Channel, Conversation, Developer, Effort, Message, System};
use super::json;
use super::rules::HarmonyRules;
use super::tools::{self, FunctionTool};
use crate::anthropic::Converted;
use crate::chat::ChatRequest;
use crate::error::PromptError;
use crate::template::python_dumps;
use crate::values::Values;

const FIELD: &str = "messages";

/// Keys that only the client library's own type of an assistant message has. Where one is given, the engine may read
/// the message as that type, which knows no reasoning and keeps lists in another form.
const FOREIGN_KEYS: [&str; 3] = ["audio", "function_call", "refusal"];

/// What `content` holds.
#[derive(Clone, Debug, PartialEq)]
enum Content {
    Absent,
    Text(String),
    /// The texts of its parts.
    Parts(Vec<String>),
}

/// Reads a conversation's messages one after the other.
struct Reader<'a> {
    rules: &'a HarmonyRules,
    /// Names of the called functions by the ids of their calls, of the whole conversation; the last call wins.
    names: HashMap<String, Rc<str>>,
}

/// A chat request as the encoding takes it, whichever endpoint it came by.
struct Given {
    messages: Json,
    /// Null counts as absent.
    tools: Option<Json>,
    choice: Option<Json>,
    effort: Option<String>,
}

pub(super) fn read(
    rules: &HarmonyRules,
    exclude_tools_when_none: bool,
    request: &ChatRequest<'_>,
) -> Result<Conversation, PromptError> {
    if request.has_media {
        return Err(PromptError::Media);
    }
    if request.add_generation_prompt == Some(true) && request.continue_final_message == Some(true) {
        return Err(PromptError::refused("continue_final_message needs add_generation_prompt to be false"));
    }
    let values = Values::default();
    let tools = request.tools.map(|bytes| values.read("tools", bytes)).transpose()?;
    let has_no_tool = tools.as_ref().and_then(Json::as_array).is_some_and(Vec::is_empty);
    if has_no_tool && rules.refuses_empty_tools {
        return Err(PromptError::refused("tools is an empty list"));
    }
    let given = Given {
        messages: values.read(FIELD, request.messages)?,
        tools,
        choice: request.tool_choice.map(|bytes| values.read("tool_choice", bytes)).transpose()?,
        effort: request.reasoning_effort.map(str::to_owned),
    };
    given.into_conversation(rules, exclude_tools_when_none)
}

/// Of a request to `/v1/messages`.
pub(super) fn read_converted(
    rules: &HarmonyRules,
    exclude_tools_when_none: bool,
    mut converted: Converted,
) -> Result<Conversation, PromptError> {
    for message in &mut converted.messages {
        for call in message.get_mut("tool_calls").and_then(Json::as_array_mut).into_iter().flatten() {
            print_arguments(&converted.values, call)?;
        }
    }
    let given = Given {
        messages: converted.messages.into(),
        tools: converted.tools.map(Json::from),
        choice: converted.choice,
        effort: converted.effort.map(str::to_owned),
    };
    given.into_conversation(rules, exclude_tools_when_none)
}

/// The engine prints the arguments of such a call, which were an object, in its own way.
fn print_arguments(values: &Values, call: &mut Json) -> Result<(), PromptError> {
    if let Some(Json::String(arguments)) =
        call.get_mut("function").and_then(|function| function.get_mut("arguments"))
    {
        let printed = python_dumps(&values.read("arguments", arguments.as_bytes())?);
        *arguments = printed.ok_or_else(|| PromptError::too_large("arguments"))?;
    }
    Ok(())
}

fn read_messages(
    rules: &HarmonyRules,
    messages: Vec<Map<String, Json>>,
    tools: Vec<FunctionTool>,
    shows_tools: bool,
) -> Result<Vec<Message>, PromptError> {
    let mut given = messages.into_iter().peekable();
    let mut developer = Developer::default();
    // Older engines make a developer message, if an empty one, of tools that they do not show.
    let mut has_developer = !rules.makes_instructions && !tools.is_empty();
    if shows_tools {
        developer.tools = tools;
    }
    if rules.makes_instructions {
        let is_leading = |message: &Map<String, Json>| {
            message.get("role").is_some_and(|role| role == "system" || role == "developer")
        };
        if let Some(mut leading) = given.next_if(is_leading) {
            developer.instructions = Content::take(rules, &mut leading, Flattened::Yes)?.flatten();
        }
        has_developer = !developer.tools.is_empty()
            || developer.instructions.as_ref().is_some_and(|text| !text.is_empty());
    }
    let rest: Vec<_> = given.collect();
    let reader = Reader { rules, names: call_names(&rest) };
    let mut messages: Vec<Message> =
        has_developer.then_some(Message::Developer(developer)).into_iter().collect();
    for message in rest {
        reader.read(message, &mut messages)?;
    }
    Ok(messages)
}

fn call_names(messages: &[Map<String, Json>]) -> HashMap<String, Rc<str>> {
    let calls = messages.iter().filter_map(|message| message.get("tool_calls")?.as_array()).flatten();
    let named = calls.filter_map(|call| {
        Some((call.get("id")?.as_str()?.to_owned(), call.get("function")?.get("name")?.as_str()?.into()))
    });
    named.collect()
}

// === impl Given ===

impl Given {
    fn into_conversation(
        self,
        rules: &HarmonyRules,
        exclude_tools_when_none: bool,
    ) -> Result<Conversation, PromptError> {
        let effort = match self.effort {
            None => Effort::default(),
            Some(effort) => Effort::parse(&effort)
                .ok_or_else(|| PromptError::refused("reasoning_effort is none of low, medium and high"))?,
        };
        let tools = self.tools.filter(|tools| !tools.is_null());
        let tools = tools.map(|tools| tools::read_nested(rules, tools)).transpose()?;
        let is_none = self.choice.is_some_and(|choice| choice == "none");
        let shows_tools = tools.is_some() && !(is_none && exclude_tools_when_none);
        let messages = json::into_list(FIELD, self.messages)?;
        let messages = messages
            .into_iter()
            .map(|message| json::into_object(FIELD, message))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Conversation {
            system: System { effort, has_commentary: shows_tools || !rules.hides_commentary },
            messages: read_messages(rules, messages, tools.unwrap_or_default(), shows_tools)?,
            is_chat: true,
        })
    }
}

// === impl Reader ===

impl Reader<'_> {
    /// Appends what `message` becomes.
    fn read(&self, mut message: Map<String, Json>, out: &mut Vec<Message>) -> Result<(), PromptError> {
        if message.contains_key("author") {
            return Err(PromptError::unsupported(FIELD, "hold one in the encoding's own form"));
        }
        match json::need_text(FIELD, &mut message, "role")?.as_str() {
            "assistant" => self.read_assistant(message, out),
            _ if message.contains_key("tool_calls") => {
                Err(PromptError::unsupported(FIELD, "hold tool calls that are not the assistant's"))
            }
            "tool" => {
                let text = Content::take(self.rules, &mut message, Flattened::Yes)?.flatten();
                let id = json::take_text(FIELD, &mut message, "tool_call_id")?.unwrap_or_default();
                let name = self.names.get(&id).cloned().unwrap_or_else(|| "".into());
                out.push(Message::Answer { name, text: text.unwrap_or_default() });
                Ok(())
            }
            "user" => {
                let parts = Content::take(self.rules, &mut message, Flattened::No)?.into_parts();
                out.push(Message::Plain { role: "user", parts });
                Ok(())
            }
            "system" => self.read_instructions("system", message, out),
            "developer" => self.read_instructions("developer", message, out),
            _ => Err(PromptError::refused("a message has a role that the encoding does not know")),
        }
    }

    fn read_instructions(
        &self,
        role: &'static str,
        mut message: Map<String, Json>,
        out: &mut Vec<Message>,
    ) -> Result<(), PromptError> {
        if !self.rules.makes_instructions {
            let parts = Content::take(self.rules, &mut message, Flattened::No)?.into_parts();
            out.push(Message::Plain { role, parts });
            return Ok(());
        }
        let instructions = Content::take(self.rules, &mut message, Flattened::Yes)?.flatten();
        if instructions.is_some() {
            out.push(Message::Developer(Developer { instructions, tools: Vec::new() }));
        }
        Ok(())
    }

    fn read_assistant(
        &self,
        mut message: Map<String, Json>,
        out: &mut Vec<Message>,
    ) -> Result<(), PromptError> {
        let is_foreign = FOREIGN_KEYS.iter().any(|key| message.contains_key(*key));
        if message.get("content").is_some_and(Json::is_null) {
            message.shift_remove("content");
        }
        let reasoning = self.take_reasoning(&mut message)?;
        if reasoning.is_some() && is_foreign {
            return Err(PromptError::unsupported(FIELD, "hold reasoning beside keys that may hide it"));
        }
        let analysis = reasoning.map(|text| Message::said(Channel::Analysis, text));
        let calls = self.take_calls(&mut message)?;
        if calls.is_empty() {
            let parts = Content::take(self.rules, &mut message, Flattened::No)?.into_parts();
            out.extend(analysis);
            if parts.first().is_some_and(|first| !first.is_empty()) {
                out.push(Message::Said { channel: Channel::Final, parts });
            }
            return Ok(());
        }
        let preamble = Content::take(self.rules, &mut message, Flattened::Yes)?.flatten();
        let preamble = preamble.filter(|text| !text.is_empty());
        out.extend(preamble.map(|text| Message::said(Channel::Commentary, text)));
        out.extend(analysis);
        out.extend(calls);
        Ok(())
    }

    /// Empty reasoning is none.
    fn take_reasoning(&self, message: &mut Map<String, Json>) -> Result<Option<String>, PromptError> {
        let mut reasoning = json::take_text(FIELD, message, "reasoning")?;
        if reasoning.is_none() && self.rules.reads_reasoning_content {
            reasoning = json::take_text(FIELD, message, "reasoning_content")?;
        }
        Ok(reasoning.filter(|text| !text.is_empty()))
    }

    fn take_calls(&self, message: &mut Map<String, Json>) -> Result<Vec<Message>, PromptError> {
        match message.shift_remove("tool_calls") {
            None => Ok(Vec::new()),
            Some(Json::Null) if self.rules.makes_instructions => Ok(Vec::new()),
            Some(calls) => {
                json::into_list("tool_calls", calls)?.into_iter().map(|call| self.call(call)).collect()
            }
        }
    }

    /// The arguments stay as they are written.
    fn call(&self, call: Json) -> Result<Message, PromptError> {
        const CALL: &str = "a tool call";
        let mut call = json::into_object(CALL, call)?;
        json::need_text(CALL, &mut call, "id")?;
        if json::need_text(CALL, &mut call, "type")? != "function" {
            return Err(PromptError::unsupported(FIELD, "hold calls of other tools than functions"));
        }
        let mut function = json::into_object(CALL, call.shift_remove("function").unwrap_or_default())?;
        let name = json::need_text(CALL, &mut function, "name")?;
        let arguments = json::need_text(CALL, &mut function, "arguments")?;
        // Newer engines take the head apart again, which fails where the name reads like a special token.
        if name.contains("<|") {
            return Err(PromptError::unsupported(FIELD, "hold a call whose name reads like a special token"));
        }
        Ok(Message::Call { name, arguments })
    }
}

// === impl Content ===

/// Whether the engine joins the parts of a content to one text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flattened {
    Yes,
    No,
}

impl Content {
    fn take(
        rules: &HarmonyRules,
        message: &mut Map<String, Json>,
        flattened: Flattened,
    ) -> Result<Self, PromptError> {
        let parts = match message.shift_remove("content") {
            None => return Ok(Content::Absent),
            Some(Json::String(text)) => return Ok(Content::Text(text)),
            Some(Json::Array(parts)) => parts,
            Some(_) => {
                return Err(PromptError::refused("the content of a message is neither text nor parts"));
            }
        };
        let is_foreign = FOREIGN_KEYS.iter().any(|key| message.contains_key(*key));
        if flattened == Flattened::Yes && (is_foreign || parts.is_empty() && !rules.makes_instructions) {
            return Err(PromptError::unsupported(FIELD, "hold parts that the engine may not read"));
        }
        Ok(Content::Parts(parts.into_iter().map(part).collect::<Result<_, _>>()?))
    }

    /// The text; `None` where there is none, not even an empty one.
    fn flatten(self) -> Option<String> {
        match self {
            Content::Absent => None,
            Content::Text(text) => Some(text),
            Content::Parts(parts) if parts.is_empty() => None,
            Content::Parts(parts) => Some(parts.concat()),
        }
    }

    fn into_parts(self) -> Vec<String> {
        match self {
            Content::Absent => Vec::new(),
            Content::Text(text) => vec![text],
            Content::Parts(parts) => parts,
        }
    }
}

/// The text of a text part; other parts are read in ways that are not known.
fn part(part: Json) -> Result<String, PromptError> {
    if part.is_string() {
        return Err(PromptError::unsupported(FIELD, "hold texts among parts"));
    }
    let mut part = json::into_object("content", part)?;
    if part.get("type").is_none_or(|kind| kind != "text") {
        return Err(PromptError::unsupported(FIELD, "hold parts that are no texts"));
    }
    json::need_text("content", &mut part, "text")
}
