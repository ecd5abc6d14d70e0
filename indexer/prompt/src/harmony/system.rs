//! The texts of the two messages that the encoding composes itself.

use super::conversation::{Developer, System};
use super::tools::FunctionTool;
use super::typescript;

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

pub(super) fn developer_text(developer: &Developer) -> String {
    let mut sections = Vec::new();
    if let Some(instructions) = &developer.instructions {
        sections.push(format!("# Instructions\n\n{instructions}"));
    }
    if !developer.tools.is_empty() {
        sections.push(tools_section(&developer.tools));
    }
    sections.join("\n\n")
}

fn tools_section(tools: &[FunctionTool]) -> String {
    let mut text = String::from("# Tools\n\n## functions\n\nnamespace functions {\n\n");
    for tool in tools {
        for line in tool.description.lines() {
            text.push_str(&format!("// {line}\n"));
        }
        let arguments = tool.parameters.as_ref().map(typescript::type_of);
        let arguments = arguments.map(|kind| format!("_: {kind}")).unwrap_or_default();
        text.push_str(&format!("type {} = ({arguments}) => any;\n\n", tool.name));
    }
    text + "} // namespace functions"
}
