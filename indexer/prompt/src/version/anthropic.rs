//! What changed between releases on the way from a `/v1/messages` request to a chat.

use serde::{Deserialize, Serialize};

use super::EngineVersion;

/// Part of [`RenderingRules`](super::RenderingRules).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnthropicRules {
    /// `thinking` blocks become reasoning. From 0.17; before, they are refused.
    pub reads_thinking: bool,
    /// A tool's result is read block by block and named by `tool_use_id`. From 0.17; before, it is printed as Python
    /// prints it, and its name is lost.
    pub reads_tool_results: bool,
    /// `tool_choice` may be `none`. From 0.17; before, it is refused.
    pub allows_no_tool: bool,
    /// `redacted_thinking` blocks are skipped. From 0.18; before, they are refused.
    pub skips_redacted_thinking: bool,
    /// A block of the system prompt that begins with a billing header is dropped. From 0.18.
    pub drops_billing_blocks: bool,
    /// Messages without content that reach the template. Changed in 0.17 and 0.20.
    pub empty_messages: EmptyMessages,
    /// The deployment's default template arguments hold. From 0.19.
    pub applies_default_kwargs: bool,
    /// `chat_template_kwargs`. From 0.20.
    pub reads_template_kwargs: bool,
    /// `tool_reference` blocks are known. From 0.21; before, they are refused.
    pub reads_tool_references: bool,
    /// `defer_loading` of a tool. From 0.21.
    pub reads_defer_loading: bool,
    /// Messages with the role `system`. From 0.23 on; before, they are refused.
    pub inline_system: InlineSystem,
    /// A system prompt without text is none. From 0.23.
    pub drops_empty_system: bool,
    /// `output_config.effort` is the reasoning effort. From 0.23.
    pub reads_effort: bool,
    /// `strict` of a tool. From 0.24.
    pub reads_strict: bool,
    /// `thinking` is checked, and `disabled` sets the reasoning effort. From 0.31.
    pub reads_thinking_config: bool,
    /// Blocks that add and remove tools. From 0.32; before, they are refused.
    pub reads_tool_changes: bool,
}

/// What becomes of a message whose blocks leave no content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmptyMessages {
    /// It goes. Up to 0.16.
    Dropped,
    /// It stays. 0.17 to 0.19.
    Kept,
    /// It goes where it is the user's. From 0.20.
    UserDropped,
}

/// What becomes of system messages among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InlineSystem {
    /// The request is refused. Up to 0.22.
    Refused,
    /// They are put after the system prompt, headers and all. 0.23.
    Merged,
    /// They stay where they are if the engine has a `--chat-template` that takes them there, else they are merged. 0.24
    /// to 0.30.
    KeptByExplicitTemplate,
    /// They stay where they are if the model's template takes them there, else they are merged. From 0.31.
    KeptByTemplate,
}

impl AnthropicRules {
    pub(super) fn of(version: EngineVersion) -> Self {
        let empty_messages = if version.since(0, 20) {
            EmptyMessages::UserDropped
        } else if version.since(0, 17) {
            EmptyMessages::Kept
        } else {
            EmptyMessages::Dropped
        };
        let inline_system = if version.since(0, 31) {
            InlineSystem::KeptByTemplate
        } else if version.since(0, 24) {
            InlineSystem::KeptByExplicitTemplate
        } else if version.since(0, 23) {
            InlineSystem::Merged
        } else {
            InlineSystem::Refused
        };
        AnthropicRules {
            reads_thinking: version.since(0, 17),
            reads_tool_results: version.since(0, 17),
            allows_no_tool: version.since(0, 17),
            skips_redacted_thinking: version.since(0, 18),
            drops_billing_blocks: version.since(0, 18),
            empty_messages,
            applies_default_kwargs: version.since(0, 19),
            reads_template_kwargs: version.since(0, 20),
            reads_tool_references: version.since(0, 21),
            reads_defer_loading: version.since(0, 21),
            inline_system,
            drops_empty_system: version.since(0, 23),
            reads_effort: version.since(0, 23),
            reads_strict: version.since(0, 24),
            reads_thinking_config: version.since(0, 31),
            reads_tool_changes: version.since(0, 32),
        }
    }
}
