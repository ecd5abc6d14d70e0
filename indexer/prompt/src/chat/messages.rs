//! The messages of a request as the template sees them.

use serde_json::{Map, Value as Json};

use super::Origin;
use super::developer;
use super::form::Form;
use super::media::View;
use super::parts::{self, Part};
use crate::error::PromptError;
use crate::template::ContentFormat;
use crate::values::{Unread, type_of};
use crate::version::OddArguments;

/// A message in the making: its role and its keys in the engine's order.
struct Message {
    role: String,
    fields: Map<String, Json>,
}

// === impl Form ===

impl Form<'_> {
    /// The value of `messages`, checked and rebuilt.
    pub(super) fn read(&self, messages: Json, view: View) -> Result<Vec<Map<String, Json>>, PromptError> {
        let Json::Array(list) = messages else {
            return Err(PromptError::refused(format!("messages is {}, expected a list", type_of(&messages))));
        };
        if list.is_empty() {
            return Err(PromptError::refused("messages is an empty list"));
        }
        let messages =
            list.into_iter().map(|message| self.message(message, view)).collect::<Result<Vec<_>, _>>()?;
        let messages = self.convert_developer(messages);
        Ok(messages.into_iter().map(|message| message.fields).collect())
    }

    fn message(&self, message: Json, view: View) -> Result<Message, PromptError> {
        let Json::Object(mut given) = message else {
            return Err(PromptError::refused(format!("a message is {}", type_of(&message))));
        };
        let Some(Json::String(role)) = given.shift_remove("role") else {
            return Err(PromptError::refused("a message has no role"));
        };
        let tools = (role == "developer").then(|| self.developer_tools(&mut given)).transpose()?;
        let parts = parts::read(self, &role, given.shift_remove("content"))?;
        let mut fields = Map::new();
        fields.insert("role".into(), role.as_str().into());
        let content = if role == "tool" {
            self.tool_content(parts, view)
        } else {
            parts::write(self.content, parts, view)
        };
        fields.insert("content".into(), content);
        match role.as_str() {
            "assistant" => self.assistant_fields(&mut given, &mut fields)?,
            "tool" => copy(&mut given, &mut fields, "tool_call_id", |_| true),
            _ => {}
        }
        match given.shift_remove("name") {
            None => {}
            Some(name @ Json::String(_)) => drop(fields.insert("name".into(), name)),
            Some(_) => return Err(PromptError::refused("the name of a message is no text")),
        }
        if self.rules.passes_task {
            copy(&mut given, &mut fields, "task", Json::is_string);
        }
        if let Some(tools) = tools {
            fields.insert("tools".into(), tools);
        }
        Ok(Message { role, fields })
    }

    /// Newer engines make one text of a tool's answer, whatever the template wants, unless it refers to tools.
    fn tool_content(&self, parts: Vec<Part>, view: View) -> Json {
        let flatten = self.rules.flattens_tool_content && parts.iter().all(Part::is_text);
        if flatten && self.content == ContentFormat::Parts {
            let texts: Vec<&str> = parts.iter().map(Part::as_text).collect();
            return texts.join("\n").into();
        }
        parts::write(self.content, parts, view)
    }

    fn assistant_fields(
        &self,
        given: &mut Map<String, Json>,
        fields: &mut Map<String, Json>,
    ) -> Result<(), PromptError> {
        match given.shift_remove("tool_calls") {
            None | Some(Json::Null) => {}
            Some(Json::Array(calls)) if calls.is_empty() => {}
            Some(Json::Array(calls)) => {
                let calls =
                    calls.into_iter().map(|call| self.tool_call(call)).collect::<Result<Json, _>>()?;
                fields.insert("tool_calls".into(), calls);
            }
            Some(other) => {
                return Err(PromptError::refused(format!(
                    "tool_calls is {}, expected a list",
                    type_of(&other)
                )));
            }
        }
        let mut reasoning = given.shift_remove("reasoning").unwrap_or_default();
        if reasoning.is_null() && self.rules.reads_reasoning_content {
            reasoning = given.shift_remove("reasoning_content").unwrap_or_default();
        }
        if !reasoning.is_null() {
            // Templates use either name.
            fields.insert("reasoning".into(), reasoning.clone());
            fields.insert("reasoning_content".into(), reasoning);
        }
        Ok(())
    }

    fn tool_call(&self, call: Json) -> Result<Json, PromptError> {
        match self.origin {
            Origin::ChatModel => self.checked_tool_call(call),
            Origin::Conversion => self.converted_tool_call(call),
        }
    }

    /// A past tool call that the engine made itself: its arguments parsed, else as it is.
    fn converted_tool_call(&self, call: Json) -> Result<Json, PromptError> {
        let mut call = call;
        match call.get_mut("function").and_then(|function| function.get_mut("arguments")) {
            Some(arguments) if arguments.is_string() => {
                *arguments = self.arguments(arguments.as_str().unwrap_or_default())?;
                Ok(call)
            }
            _ => Err(PromptError::refused("a tool call has no function with arguments as text")),
        }
    }

    /// A past tool call: keys in the order of the engine's model (`id`, `function` with `arguments` first, `type`),
    /// then unknown ones; the arguments parsed.
    fn checked_tool_call(&self, call: Json) -> Result<Json, PromptError> {
        let Json::Object(mut given) = call else {
            return Err(PromptError::refused(format!("a tool call is {}", type_of(&call))));
        };
        let (Some(Json::String(id)), Some(Json::Object(mut function)), Some(kind)) =
            (given.shift_remove("id"), given.shift_remove("function"), given.shift_remove("type"))
        else {
            return Err(PromptError::refused("a tool call lacks one of id, function and type"));
        };
        if kind != "function" {
            return Err(PromptError::refused("a tool call has a type other than \"function\""));
        }
        let (Some(Json::String(name)), Some(Json::String(arguments))) =
            (function.shift_remove("name"), function.shift_remove("arguments"))
        else {
            return Err(PromptError::refused(
                "a tool call's function lacks its name or its arguments as text",
            ));
        };
        let mut dumped_function = Map::new();
        dumped_function.insert("arguments".into(), self.arguments(&arguments)?);
        dumped_function.insert("name".into(), name.into());
        dumped_function.extend(function);
        let mut dumped = Map::new();
        dumped.insert("id".into(), id.into());
        dumped.insert("function".into(), Json::Object(dumped_function));
        dumped.insert("type".into(), kind);
        dumped.extend(given);
        Ok(Json::Object(dumped))
    }

    /// Numbers keep the form they are written in: whether `1e3` is a float shows when the template prints it.
    fn arguments(&self, text: &str) -> Result<Json, PromptError> {
        let empty = Json::Object(Map::new());
        if text.is_empty() {
            return Ok(empty);
        }
        match (self.values.parse(text), self.rules.odd_arguments) {
            (Ok(arguments @ Json::Object(_)), _) => Ok(arguments),
            (Err(Unread::TooMany), _) => Err(PromptError::too_many("arguments")),
            (_, OddArguments::Emptied) | (Ok(Json::Null), OddArguments::NullEmptied) => Ok(empty),
            (Ok(other), OddArguments::Kept | OddArguments::NullEmptied) => Ok(other),
            (Err(Unread::Syntax(error)), _) => {
                Err(PromptError::refused(format!("arguments of a tool call are no JSON: {error}")))
            }
        }
    }

    /// Null where there are none, or where the message will not keep them.
    fn developer_tools(&self, given: &mut Map<String, Json>) -> Result<Json, PromptError> {
        if self.rules.converts_developer && !self.template_knows_developer {
            return Ok(Json::Null);
        }
        developer::take_tools(self.origin, given)
    }

    /// Where the template does not know the role `developer`, such messages become system messages, and all system
    /// messages one, in front.
    fn convert_developer(&self, mut messages: Vec<Message>) -> Vec<Message> {
        let has_developer = messages.iter().any(|message| message.role == "developer");
        if !self.rules.converts_developer || self.template_knows_developer || !has_developer {
            return messages;
        }
        for message in messages.iter_mut().filter(|message| message.role == "developer") {
            message.role = "system".into();
            message.fields.insert("role".into(), "system".into());
            message.fields.shift_remove("tools");
        }
        let in_front = messages.first().is_some_and(|message| message.role == "system");
        let count = messages.iter().filter(|message| message.role == "system").count();
        if in_front && count == 1 {
            return messages;
        }
        let (system, mut others): (Vec<_>, Vec<_>) =
            messages.into_iter().partition(|message| message.role == "system");
        let texts: Vec<String> = system.iter().map(Message::text).filter(|text| !text.is_empty()).collect();
        others.insert(0, Message::system(texts.join("\n\n")));
        others
    }
}

// === impl Message ===

impl Message {
    fn system(text: String) -> Self {
        let fields = Map::from_iter([("role".into(), "system".into()), ("content".into(), text.into())]);
        Message { role: "system".into(), fields }
    }

    /// The text of a message in either content format.
    fn text(&self) -> String {
        match self.fields.get("content") {
            Some(Json::String(text)) => text.clone(),
            Some(Json::Array(parts)) => {
                let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
                texts.join("\n")
            }
            _ => String::new(),
        }
    }
}

/// Moves `key` where it is there and valid; the engine ignores an invalid one.
fn copy(from: &mut Map<String, Json>, to: &mut Map<String, Json>, key: &str, is_valid: fn(&Json) -> bool) {
    if let Some(value) = from.shift_remove(key).filter(is_valid) {
        to.insert(key.into(), value);
    }
}
