//! The template's variables besides messages, tools and special tokens.

use serde_json::{Map, Value as Json};

use super::{ChatRequest, Settings, parse_json, type_of};
use crate::error::PromptError;

/// Entries of `chat_template_kwargs` that the engine's renderer takes as parameters of its own.
const NOT_VARIABLES: [&str; 5] = ["conversation", "messages", "tools", "tokenize", "chat_template"];

/// Parameters that the request has fields for, with values of the renderer's own.
const GENERATION_FLAGS: [&str; 2] = ["add_generation_prompt", "continue_final_message"];

/// Defaults of the deployment, then the request's `chat_template_kwargs`, then its own fields (or the other way round,
/// by release). `documents` is always there.
pub(super) fn collect(
    settings: &Settings,
    request: &ChatRequest<'_>,
) -> Result<Map<String, Json>, PromptError> {
    let kwargs = read_kwargs(request)?;
    let fields = read_fields(settings, request, &kwargs)?;
    let mut variables = settings.default_template_kwargs.clone();
    let (first, last) =
        if settings.rules.fields_win_over_kwargs { (kwargs, fields) } else { (fields, kwargs) };
    variables.extend(first);
    variables.extend(last);
    check_documents(variables.entry("documents").or_insert(Json::Null))?;
    Ok(variables)
}

fn read_kwargs(request: &ChatRequest<'_>) -> Result<Map<String, Json>, PromptError> {
    const FIELD: &str = "chat_template_kwargs";
    let Some(bytes) = request.template_kwargs else { return Ok(Map::new()) };
    let kwargs = match parse_json(FIELD, bytes)? {
        Json::Object(kwargs) => kwargs,
        Json::Null => Map::new(),
        other => {
            return Err(PromptError::refused(format!("{FIELD} is {}, expected an object", type_of(&other))));
        }
    };
    if let Some(name) = NOT_VARIABLES.iter().find(|name| kwargs.contains_key(**name)) {
        return Err(PromptError::unsupported(FIELD, format!("sets \"{name}\", which is no variable")));
    }
    // Whether the field or the entry wins has changed between releases; both saying the same is clear.
    let values =
        [request.add_generation_prompt.unwrap_or(true), request.continue_final_message.unwrap_or(false)];
    for (name, value) in GENERATION_FLAGS.iter().zip(values) {
        if kwargs.get(*name).is_some_and(|entry| *entry != Json::Bool(value)) {
            return Err(PromptError::unsupported(
                FIELD,
                format!("sets \"{name}\" against the field of that name"),
            ));
        }
    }
    Ok(kwargs.into_iter().filter(|(name, _)| !GENERATION_FLAGS.contains(&name.as_str())).collect())
}

/// The variables that the request's own fields make.
fn read_fields(
    settings: &Settings,
    request: &ChatRequest<'_>,
    kwargs: &Map<String, Json>,
) -> Result<Map<String, Json>, PromptError> {
    let mut fields = Map::new();
    if let Some(bytes) = request.documents {
        let documents = parse_json("documents", bytes)?;
        if !documents.is_null() {
            fields.insert("documents".into(), documents);
        }
    }
    if let Some(effort) = request.reasoning_effort {
        if !settings.rules.reasoning_efforts.contains(&effort) {
            return Err(PromptError::refused("reasoning_effort is none of the known efforts"));
        }
        fields.insert("reasoning_effort".into(), effort.into());
        if settings.rules.effort_sets_thinking && !kwargs.contains_key("enable_thinking") {
            fields.insert("enable_thinking".into(), (effort != "none").into());
        }
    }
    Ok(fields)
}

/// The engine takes a list of objects with texts, or nothing.
fn check_documents(documents: &Json) -> Result<(), PromptError> {
    if documents.is_null() {
        return Ok(());
    }
    let is_document =
        |document: &Json| document.as_object().is_some_and(|fields| fields.values().all(Json::is_string));
    match documents.as_array() {
        Some(list) if list.iter().all(is_document) => Ok(()),
        _ => Err(PromptError::refused("documents is no list of objects with texts")),
    }
}
