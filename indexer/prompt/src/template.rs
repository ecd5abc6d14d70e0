//! A chat template, compiled once, and the environment that renders it as the engine's Jinja does.
//!
//! In: the template's source and per request a [`Context`]. Out: the prompt text. The engine renders in
//! Python with Jinja's sandbox; what differs from there is made equal here: JSON and floats in Python's notation
//! ([`python_json`], [`python_repr`]), values that become texts ([`concatenation`], [`python_text`]), the functions that
//! model templates use ([`environment`]), the `generation` tag ([`generation_tag`]). [`survey`] reads from the template's
//! syntax tree what the engine reads from it.

mod clock;
mod concatenation;
mod environment;
mod generation_tag;
mod nesting;
mod python_json;
mod python_number;
mod python_repr;
mod python_text;
mod python_words;
mod survey;
mod tree;
mod value;

pub use clock::{Clock, FixedClock, SystemClock};
pub(crate) use environment::takes_later_system;
pub(crate) use python_json::python_dumps;
pub(crate) use python_repr::python_str;
pub(crate) use python_text::{is_python_space, python_strip};
pub use survey::ContentFormat;
pub(crate) use value::{from_json, from_map};

use std::borrow::Cow;
use std::sync::Arc;

use minijinja::machinery::parse;
use minijinja::value::Value;
use minijinja::{Environment, ErrorKind};

use crate::error::PromptError;
use crate::limits::{MAX_PROMPT_BYTES, MAX_TEMPLATE_BYTES};
use crate::version::ContentDetection;
use survey::Survey;
use tree::Tree;

/// Name under which a template is compiled; shows up in error messages only.
const NAME: &str = "chat_template";

/// A compiled template and what its syntax tells.
pub(crate) struct ChatTemplate {
    environment: Environment<'static>,
    survey: Survey,
}

/// Why a template's source cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompileError {
    #[error("has {bytes} bytes, more than the limit of {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error("line {line}: is nested too deeply")]
    TooDeep { line: u32 },
    #[error("{0}")]
    Syntax(String),
}

// === impl ChatTemplate ===

impl ChatTemplate {
    pub(crate) fn compile(
        source: &str,
        detection: ContentDetection,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CompileError> {
        if source.len() > MAX_TEMPLATE_BYTES {
            return Err(CompileError::TooLarge { bytes: source.len(), limit: MAX_TEMPLATE_BYTES });
        }
        let syntax = |error: minijinja::Error| CompileError::Syntax(describe(&error));
        let source = &*with_line_feeds(source);
        let rewritten = generation_tag::rewrite(source);
        let mut environment = environment::build(clock).map_err(syntax)?;
        nesting::check(&rewritten, environment.syntax().clone())?;
        let root = parse(&rewritten, NAME, environment.syntax().clone()).map_err(syntax)?;
        let tree = Tree::of(&root);
        let survey = Survey::of(source, &tree, detection);
        let compiled = concatenation::rewrite(&rewritten, &tree.concatenations);
        environment.add_template_owned(NAME, compiled.into_owned()).map_err(syntax)?;
        Ok(ChatTemplate { environment, survey })
    }

    pub(crate) fn content_format(&self) -> ContentFormat {
        self.survey.content_format
    }

    /// Whether the template mentions the role `developer`.
    pub(crate) fn knows_developer(&self) -> bool {
        self.survey.knows_developer
    }

    /// Whether the template mentions the field `content`, which a final message to be continued needs.
    pub(crate) fn mentions_content(&self) -> bool {
        self.survey.mentions_content
    }

    /// Renders `context`, a map with every variable of the template.
    pub(crate) fn render(&self, context: Value) -> Result<String, PromptError> {
        let text = self
            .environment
            .get_template(NAME)
            .and_then(|template| template.render(context))
            .map_err(|error| render_error(&error))?;
        if text.len() > MAX_PROMPT_BYTES {
            return Err(PromptError::too_large("rendered prompt"));
        }
        Ok(text)
    }
}

/// `source` with every kind of line end as a line feed, which is how the engine's Jinja reads a template: its text, and the
/// literals in it.
fn with_line_feeds(source: &str) -> Cow<'_, str> {
    if source.contains('\r') {
        Cow::Owned(source.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        Cow::Borrowed(source)
    }
}

/// Sorts a rendering's failure: what the template itself refused, the engine refuses too; anything else means only
/// that we cannot render it.
fn render_error(error: &minijinja::Error) -> PromptError {
    if environment::is_raised(error) {
        return PromptError::refused("the chat template raised an exception");
    }
    match error.kind() {
        // Texts in memory fail for no other reason than their length.
        ErrorKind::OutOfFuel | ErrorKind::WriteFailure => {
            PromptError::not_renderable("rendering exceeded its budget of work")
        }
        kind => PromptError::not_renderable(format!(
            "chat template failed in line {}: {kind}",
            error.line().unwrap_or_default()
        )),
    }
}

/// Kind, line and detail: enough to find a fault in a template's source.
fn describe(error: &minijinja::Error) -> String {
    let mut text = format!("line {}: {}", error.line().unwrap_or_default(), error.kind());
    if let Some(detail) = error.detail() {
        text.push_str(": ");
        text.push_str(detail);
    }
    text
}

#[cfg(test)]
mod tests;
