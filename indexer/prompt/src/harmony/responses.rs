//! `/v1/responses` as a harmony conversation, where it does not go on from an earlier response.

use std::collections::HashMap;
use std::rc::Rc;

use serde_json::{Map, Value as Json};

use super::conversation::{Channel, Conversation, Developer, Effort, Message, System};
use super::json;
use super::rules::HarmonyRules;
use super::tools;
use crate::error::PromptError;
use crate::values::Values;

const FIELD: &str = "input";

/// Members that the engine reads in ways that are not known here.
const UNKNOWN_MEMBERS: [&str; 2] = ["previous_input_messages", "prompt"];

/// `members` is a JSON object with the members of the body that can reach the ids.
pub(super) fn read(rules: &HarmonyRules, members: &[u8]) -> Result<Conversation, PromptError> {
    if !rules.makes_instructions {
        return Err(PromptError::not_renderable("responses of engines before 0.23 are not known"));
    }
    let mut members = Values::default().read_object("body", members)?;
    // Its default, which null is not, never cuts.
    if members.get("truncation").is_some_and(|truncation| truncation != "disabled") {
        return Err(PromptError::unsupported("truncation", "may cut the prompt"));
    }
    members.retain(|_, value| !value.is_null());
    for member in UNKNOWN_MEMBERS {
        if members.contains_key(member) {
            return Err(PromptError::unsupported(member, "is not supported for this model"));
        }
    }
    if let Some(choice) = members.get("tool_choice").filter(|_| !rules.takes_any_tool_choice)
        && choice != "auto"
        && choice != "none"
    {
        return Err(PromptError::refused("tool_choice is neither auto nor none"));
    }
    let effort = read_effort(members.shift_remove("reasoning"))?;
    let tools = members.shift_remove("tools").map(|tools| tools::read_flat(rules, tools)).transpose()?;
    let mut developer = Developer {
        instructions: json::take_text("body", &mut members, "instructions")?,
        tools: tools.unwrap_or_default(),
    };
    let input = match members.shift_remove("input") {
        Some(Json::String(text)) => Input::Text(text),
        Some(items) => Input::Items(read_items(items)?),
        None => return Err(PromptError::refused("there is no input")),
    };
    let messages = match input {
        Input::Text(text) => vec![Message::Plain { role: "user", parts: vec![text] }],
        Input::Items(items) => {
            let mut items = items.into_iter().peekable();
            if developer.instructions.is_none()
                && let Some(Item::Instructions(parts)) =
                    items.next_if(|item| matches!(item, Item::Instructions(_)))
            {
                developer.instructions = (!parts.is_empty()).then(|| parts.concat());
            }
            convert(items)?
        }
    };
    let has_instructions = developer.instructions.as_ref().is_some_and(|text| !text.is_empty());
    let has_developer = has_instructions || !developer.tools.is_empty();
    let first = has_developer.then_some(Message::Developer(developer));
    Ok(Conversation {
        system: System { effort, has_commentary: true },
        messages: first.into_iter().chain(messages).collect(),
        is_chat: false,
    })
}

enum Input {
    Text(String),
    Items(Vec<Item>),
}

/// An item of `input`.
enum Item {
    /// Of a system or developer message: its texts.
    Instructions(Vec<String>),
    User(Vec<String>),
    Assistant(Vec<String>),
    Reasoning(Vec<String>),
    Call {
        id: String,
        name: String,
        arguments: String,
    },
    Answer {
        call_id: String,
        output: String,
    },
}

fn read_effort(reasoning: Option<Json>) -> Result<Effort, PromptError> {
    const REASONING: &str = "reasoning";
    let Some(reasoning) = reasoning else { return Ok(Effort::default()) };
    let effort = json::take_text(REASONING, &mut json::into_object(REASONING, reasoning)?, "effort")?;
    match effort {
        None => Ok(Effort::default()),
        Some(effort) => Effort::parse(&effort)
            .ok_or_else(|| PromptError::refused("reasoning.effort is none of low, medium and high")),
    }
}

fn read_items(items: Json) -> Result<Vec<Item>, PromptError> {
    let read = |item| {
        let mut item = json::into_object(FIELD, item)?;
        let kind = json::take_text(FIELD, &mut item, "type")?;
        match kind.as_deref() {
            None | Some("message") => read_message(item),
            Some("reasoning") => {
                let content = item.shift_remove("content").unwrap_or_default();
                let texts = if content.is_null() { Vec::new() } else { texts(content, "reasoning_text")? };
                Ok(Item::Reasoning(texts))
            }
            Some("function_call") => Ok(Item::Call {
                id: json::need_text(FIELD, &mut item, "call_id")?,
                name: need_name(&mut item)?,
                arguments: json::need_text(FIELD, &mut item, "arguments")?,
            }),
            Some("function_call_output") => Ok(Item::Answer {
                call_id: json::need_text(FIELD, &mut item, "call_id")?,
                output: json::need_text(FIELD, &mut item, "output")?,
            }),
            Some(_) => Err(PromptError::unsupported(FIELD, "holds items of a type that is not supported")),
        }
    };
    json::into_list(FIELD, items)?.into_iter().map(read).collect()
}

/// Newer engines take the head of a call apart again, which fails where the name reads like a special token.
fn need_name(item: &mut Map<String, Json>) -> Result<String, PromptError> {
    let name = json::need_text(FIELD, item, "name")?;
    if name.contains("<|") {
        return Err(PromptError::unsupported(FIELD, "holds a call whose name reads like a special token"));
    }
    Ok(name)
}

fn read_message(mut item: Map<String, Json>) -> Result<Item, PromptError> {
    let role = json::need_text(FIELD, &mut item, "role")?;
    let part_type = if role == "assistant" { "output_text" } else { "input_text" };
    let texts = match item.shift_remove("content").unwrap_or_default() {
        Json::String(text) => vec![text],
        // A list of the assistant's parts is taken for one that the engine made itself, or refused.
        Json::Array(_)
            if role == "assistant" && !(item.contains_key("id") && item.contains_key("status")) =>
        {
            return Err(PromptError::unsupported(
                FIELD,
                "holds parts of the assistant's without id and status",
            ));
        }
        parts => texts(parts, part_type)?,
    };
    match role.as_str() {
        "system" | "developer" => Ok(Item::Instructions(texts)),
        "user" => Ok(Item::User(texts)),
        "assistant" => Ok(Item::Assistant(texts)),
        _ => Err(PromptError::refused("input holds a message of an unknown role")),
    }
}

/// The texts of a list of parts of one type; other types are read in ways that are not known.
fn texts(parts: Json, part_type: &str) -> Result<Vec<String>, PromptError> {
    let text = |part| {
        let mut part = json::into_object(FIELD, part)?;
        if part.get("type").is_none_or(|kind| kind != part_type) {
            return Err(PromptError::unsupported(FIELD, "holds parts that are no texts of their item"));
        }
        json::need_text(FIELD, &mut part, "text")
    };
    json::into_list(FIELD, parts)?.into_iter().map(text).collect()
}

/// An answer belongs to the last call before it that has its id.
fn convert(items: impl Iterator<Item = Item>) -> Result<Vec<Message>, PromptError> {
    let mut names = HashMap::new();
    let mut messages = Vec::new();
    for item in items {
        match item {
            Item::Instructions(texts) => {
                let instructions = Some(texts.concat()).filter(|text| !text.is_empty());
                if instructions.is_some() {
                    messages.push(Message::Developer(Developer { instructions, tools: Vec::new() }));
                }
            }
            Item::User(parts) => messages.push(Message::Plain { role: "user", parts }),
            Item::Assistant(parts) => messages.push(Message::Said { channel: Channel::Final, parts }),
            Item::Reasoning(texts) if texts.is_empty() => {}
            Item::Reasoning(texts) => messages.push(Message::said(Channel::Analysis, texts.join("\n"))),
            Item::Call { id, name, arguments } => {
                names.insert(id, Rc::<str>::from(name.as_str()));
                messages.push(Message::Call { name, arguments });
            }
            Item::Answer { call_id, output } => {
                let name = names.get(&call_id).cloned();
                let name =
                    name.ok_or_else(|| PromptError::refused("input holds an output without its call"))?;
                messages.push(Message::Answer { name, text: output });
            }
        }
    }
    Ok(messages)
}
