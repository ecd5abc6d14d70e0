//! The texts of the two messages that the encoding composes itself.

use std::fmt::{self, Write};

use super::conversation::{Developer, System};
use super::tools::FunctionTool;
use super::typescript;
use crate::bounded::Bounded;
use crate::error::PromptError;

/// Who the model was trained to be told it is: the format puts these words first in every prompt, whatever it runs on.
const IDENTITY: &str = "You are ChatGPT, a large language model trained by OpenAI.";
const KNOWLEDGE_CUTOFF: &str = "2024-06";

/// `date` is the engine's, as it prints it.
pub(super) fn system_text(system: System, date: &str, offers_functions: bool) -> String {
    let channels = if system.has_commentary { "analysis, commentary, final" } else { "analysis, final" };
    let effort = system.effort.as_str();
    let mut text = format!(
        "{IDENTITY}\nKnowledge cutoff: {KNOWLEDGE_CUTOFF}\nCurrent date: {date}\n\nReasoning: {effort}\n\n# Valid channels: {channels}. Channel must be included for every message."
    );
    if offers_functions {
        text.push_str("\nCalls to these tools must go to the commentary channel: 'functions'.");
    }
    text
}

pub(super) fn developer_text(developer: &Developer) -> Result<String, PromptError> {
    let mut text = Bounded::prompt();
    write_developer(&mut text, developer).map_err(|fmt::Error| PromptError::too_large("prompt"))?;
    Ok(text.into_string())
}

fn write_developer(out: &mut Bounded, developer: &Developer) -> fmt::Result {
    if let Some(instructions) = &developer.instructions {
        write!(out, "# Instructions\n\n{instructions}")?;
    }
    if developer.tools.is_empty() {
        return Ok(());
    }
    if developer.instructions.is_some() {
        out.write_str("\n\n")?;
    }
    out.write_str("# Tools\n\n## functions\n\nnamespace functions {\n\n")?;
    developer.tools.iter().try_for_each(|tool| write_tool(out, tool))?;
    out.write_str("} // namespace functions")
}

fn write_tool(out: &mut Bounded, tool: &FunctionTool) -> fmt::Result {
    for line in tool.description.lines() {
        writeln!(out, "// {line}")?;
    }
    write!(out, "type {} = (", tool.name)?;
    if let Some(schema) = &tool.parameters {
        out.write_str("_: ")?;
        typescript::write_type(out, schema)?;
    }
    out.write_str(") => any;\n\n")
}
