//! The template's variables besides messages, tools and special tokens.

use serde_json::{Map, Value as Json};

use super::Settings;
use crate::error::PromptError;
use crate::values::type_of;

/// Entries of `chat_template_kwargs` that the engine's renderer takes as parameters of its own.
const NOT_VARIABLES: [&str; 5] = ["conversation", "messages", "tools", "tokenize", "chat_template"];

/// Parameters that the request has fields for, with values of the renderer's own.
const GENERATION_FLAGS: [&str; 2] = ["add_generation_prompt", "continue_final_message"];

/// What a request says of variables.
pub(crate) struct Given<'a> {
    /// The value of `chat_template_kwargs`.
    pub template_kwargs: Option<Json>,
    pub documents: Option<Json>,
    /// One that the engine does not refuse.
    pub reasoning_effort: Option<&'a str>,
    pub add_generation_prompt: bool,
    pub continue_final_message: bool,
}

/// Defaults of the deployment, then the request's `chat_template_kwargs`, then its own fields (or the other way round,
/// by release). `documents` is always there. `applies_defaults`: some endpoints of some releases leave the first out.
pub(crate) fn collect(
    settings: &Settings,
    given: Given<'_>,
    applies_defaults: bool,
) -> Result<Map<String, Json>, PromptError> {
    let flags = [given.add_generation_prompt, given.continue_final_message];
    let kwargs = read_kwargs(given.template_kwargs, flags)?;
    let fields = read_fields(settings, given.documents, given.reasoning_effort, &kwargs);
    let mut variables = if applies_defaults { settings.default_template_kwargs.clone() } else { Map::new() };
    let (first, last) =
        if settings.rules.fields_win_over_kwargs { (kwargs, fields) } else { (fields, kwargs) };
    variables.extend(first);
    variables.extend(last);
    check_documents(variables.entry("documents").or_insert(Json::Null))?;
    Ok(variables)
}

fn read_kwargs(kwargs: Option<Json>, flags: [bool; 2]) -> Result<Map<String, Json>, PromptError> {
    const FIELD: &str = "chat_template_kwargs";
    let kwargs = match kwargs {
        Some(Json::Object(kwargs)) => kwargs,
        None | Some(Json::Null) => Map::new(),
        Some(other) => {
            return Err(PromptError::refused(format!("{FIELD} is {}, expected an object", type_of(&other))));
        }
    };
    if let Some(name) = NOT_VARIABLES.iter().find(|name| kwargs.contains_key(**name)) {
        return Err(PromptError::unsupported(FIELD, format!("sets \"{name}\", which is no variable")));
    }
    // Whether the field or the entry wins has changed between releases; both saying the same is clear.
    for (name, flag) in GENERATION_FLAGS.iter().zip(flags) {
        if kwargs.get(*name).is_some_and(|entry| *entry != Json::Bool(flag)) {
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
    documents: Option<Json>,
    reasoning_effort: Option<&str>,
    kwargs: &Map<String, Json>,
) -> Map<String, Json> {
    let mut fields = Map::new();
    if let Some(documents) = documents.filter(|documents| !documents.is_null()) {
        fields.insert("documents".into(), documents);
    }
    if let Some(effort) = reasoning_effort {
        fields.insert("reasoning_effort".into(), effort.into());
        if settings.rules.effort_sets_thinking && !kwargs.contains_key("enable_thinking") {
            fields.insert("enable_thinking".into(), (effort != "none").into());
        }
    }
    fields
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
