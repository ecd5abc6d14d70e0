//! A conversation in the form that a template takes, and its rendering.
//!
//! This is the border between what the engine does itself and what it leaves to its template library: the same as the
//! arguments of `apply_chat_template` there.

use minijinja::value::Value;
use serde_json::{Map, Value as Json};

use crate::error::PromptError;
use crate::template::{ChatTemplate, from_json, from_map, is_python_space, python_strip};

/// Appended to the last message to find its end in the rendered text. The blank shows whether the template trims.
const END_MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// What a template renders.
pub(crate) struct Conversation {
    /// Never empty; keys in the order in which a template may print them.
    pub messages: Vec<Map<String, Json>>,
    pub tools: Option<Vec<Json>>,
    /// Every other variable, except special tokens and the flag below.
    pub variables: Map<String, Json>,
    pub add_generation_prompt: bool,
    /// Leave the last message open. Excludes `add_generation_prompt`.
    pub continue_final_message: bool,
}

// === impl Conversation ===

impl Conversation {
    /// `special_tokens` are variables that an entry of the same name in `variables` hides.
    pub(crate) fn render(
        mut self,
        template: &ChatTemplate,
        special_tokens: &[(String, String)],
    ) -> Result<String, PromptError> {
        let last_text = match (self.continue_final_message, self.messages.last_mut()) {
            (false, _) => None,
            (true, Some(last)) if template.mentions_content() => Some(mark_end(last)?),
            (true, _) => return Err(PromptError::refused("there is no final message to continue")),
        };
        let rendered = template.render(self.context(special_tokens))?;
        match last_text {
            None => Ok(rendered),
            Some(text) => cut_at_mark(rendered, &text),
        }
    }

    fn context(&self, special_tokens: &[(String, String)]) -> Value {
        let mut context: Vec<(Value, Value)> = special_tokens
            .iter()
            .filter(|(name, _)| !self.variables.contains_key(name))
            .map(|(name, token)| (Value::from(name.as_str()), Value::from(token.as_str())))
            .collect();
        context.extend(
            self.variables.iter().map(|(name, value)| (Value::from(name.as_str()), from_json(value))),
        );
        let tools = self.tools.as_ref().map(|tools| tools.iter().map(from_json).collect::<Value>());
        context.push((Value::from("messages"), self.messages.iter().map(from_map).collect()));
        context.push((Value::from("tools"), tools.unwrap_or(Value::from(()))));
        context.push((Value::from("add_generation_prompt"), Value::from(self.add_generation_prompt)));
        Value::from_pairs(context)
    }
}

/// Appends the mark to the message's text, or to its last part with one. Returns the text without the mark.
fn mark_end(message: &mut Map<String, Json>) -> Result<String, PromptError> {
    let text = match message.get_mut("content") {
        Some(Json::String(text)) => Some(text),
        Some(Json::Array(parts)) => parts.iter_mut().rev().find_map(|part| match part.get_mut("text") {
            Some(Json::String(text)) => Some(text),
            _ => None,
        }),
        _ => None,
    };
    let text = text.ok_or_else(|| PromptError::refused("the final message has no text to continue"))?;
    let before = text.clone();
    text.push_str(END_MARK);
    Ok(before)
}

/// Cuts `rendered` where the last message ends. A template that trims texts loses the mark's blank; then the blanks
/// before the mark are the message's own and go too.
fn cut_at_mark(mut rendered: String, last_text: &str) -> Result<String, PromptError> {
    let place = rendered.rfind(END_MARK.trim_end());
    let place = place.filter(|_| rendered.contains(python_strip(last_text)));
    let place = place.ok_or_else(|| PromptError::refused("the template does not print the final message"))?;
    let is_whole = rendered.get(place..).is_some_and(|end| end.starts_with(END_MARK));
    rendered.truncate(place);
    if !is_whole {
        let end = rendered.trim_end_matches(is_python_space).len();
        rendered.truncate(end);
    }
    Ok(rendered)
}
