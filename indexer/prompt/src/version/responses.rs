//! What changed between releases on the way from a `/v1/responses` request to a chat.

use serde::{Deserialize, Serialize};

use super::EngineVersion;

/// Part of [`RenderingRules`](super::RenderingRules).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResponsesRules {
    /// A reasoning item's content goes before its summary, and the first of several counts. From 0.18; before, a
    /// single summary, else a single content.
    pub prefers_reasoning_content: bool,
    /// No tools are no tools. From 0.20; before, the template gets an empty list.
    pub drops_empty_tools: bool,
    /// A `tool_choice` that asks for tools that are not there is refused. From 0.20.
    pub checks_tool_choice: bool,
    /// Missing `id`, `status` and `annotations` of an assistant's message with parts are filled in, and its first part
    /// is its text. From 0.21; before, all of them must be there.
    pub completes_messages: bool,
    /// Calls, reasoning and texts of the assistant that follow one another become one message. From 0.22.
    pub merges_items: bool,
    /// `chat_template_kwargs`, and the deployment's default ones. From 0.22; before, neither reaches the template.
    pub reads_template_kwargs: bool,
    /// A message with the role `assistant` and nothing else is merged too; its first text stays, the rest goes. From
    /// 0.25.
    pub merges_plain_messages: bool,
    /// The namespace of a call becomes part of its name. From 0.25.
    pub reads_namespaces: bool,
    /// Function tools take the form that they have in chats; others are dropped. From 0.27. Before, all tools were
    /// printed with every key that the engine's installed `openai` library knows, which is not known here.
    pub converts_tools: bool,
    /// Tools are shown although `tool_choice` is `none`, as in chats. From 0.27; before, never.
    pub shows_unchosen_tools: bool,
    /// Custom tools and their calls become functions with one text as argument. From 0.32.
    pub reads_custom_tools: bool,
}

impl ResponsesRules {
    pub(super) fn of(version: EngineVersion) -> Self {
        ResponsesRules {
            prefers_reasoning_content: version.since(0, 18),
            drops_empty_tools: version.since(0, 20),
            checks_tool_choice: version.since(0, 20),
            completes_messages: version.since(0, 21),
            merges_items: version.since(0, 22),
            reads_template_kwargs: version.since(0, 22),
            merges_plain_messages: version.since(0, 25),
            reads_namespaces: version.since(0, 25),
            converts_tools: version.since(0, 27),
            shows_unchosen_tools: version.since(0, 27),
            reads_custom_tools: version.since(0, 32),
        }
    }
}
