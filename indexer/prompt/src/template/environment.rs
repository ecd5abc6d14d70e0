//! The Jinja environment of the engine: white-space rules, functions, filters and tests that templates rely on.

use std::sync::Arc;

use jiff::fmt::strtime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, context};

use super::clock::Clock;
use super::{nesting, python_json, python_repr, python_text, python_words};
use crate::limits::{RENDER_DEPTH, RENDER_FUEL};

/// Marks an error that the template itself raised.
#[derive(Debug, thiserror::Error)]
#[error("raised by the template")]
struct Raised;

/// Whether the template refused the conversation (`raise_exception`), as it does in the engine.
pub(super) fn is_raised(error: &Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<Raised>() {
            return true;
        }
        cause = error.source();
    }
    false
}

pub(super) fn build(clock: Arc<dyn Clock>) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(RENDER_FUEL));
    environment.set_recursion_limit(RENDER_DEPTH);
    environment.set_formatter(python_repr::format);
    environment.add_filter("tojson", python_json::tojson);
    python_text::add_to(&mut environment);
    python_words::add_to(&mut environment);
    environment.add_test("sequence", is_sequence);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", move |layout: &str| strftime(&*clock, layout));
    Ok(environment)
}

/// Whether the template takes a system message that is not the first one, as the engine finds out: it renders one, with
/// nothing of what its own environment adds to plain Jinja. A template that calls `raise_exception` there fails because
/// plain Jinja has no such function; so does one that calls another of its functions anywhere.
///
/// Compiles and renders the template once more, so it is asked when a model is loaded, not for a request's own template.
pub(crate) fn takes_later_system(source: &str) -> bool {
    let render = || {
        let mut environment = Environment::new();
        environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
        nesting::check(source, environment.syntax().clone())
            .map_err(|error| Error::new(ErrorKind::SyntaxError, error.to_string()))?;
        environment.set_fuel(Some(RENDER_FUEL));
        environment.set_recursion_limit(RENDER_DEPTH);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", python_json::tojson);
        environment.add_test("sequence", is_sequence);
        let message = |role| context! { role, content => "t" };
        let messages = ["system", "user", "system", "user"].map(message);
        environment.render_str(source, context! { messages, add_generation_prompt => false })
    };
    render().is_ok()
}

/// In Jinja everything with a length and items is a sequence: texts and maps too, and slices, which are iterables here.
fn is_sequence(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Seq | ValueKind::String | ValueKind::Map => true,
        ValueKind::Iterable => value.len().is_some(),
        _ => false,
    }
}

fn raise_exception(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.to_owned()).with_source(Raised))
}

/// `datetime.now().strftime(layout)`: local time without a zone.
fn strftime(clock: &dyn Clock, layout: &str) -> Result<String, Error> {
    strtime::format(layout, clock.now())
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {error}")))
}
