//! The engine's release, and what changed between releases on the way from a request to its token ids.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

mod anthropic;
mod overrides;
mod responses;

pub use anthropic::{AnthropicRules, EmptyMessages, InlineSystem};
pub use overrides::OverrideError;
pub use responses::ResponsesRules;

/// A vLLM release, by its first two numbers: nothing that reaches the token ids is known to change in patch releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineVersion {
    pub major: u16,
    pub minor: u16,
}

/// Text that is no release number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("engine version \"{0}\" is not of the form MAJOR.MINOR, for example \"0.32\"")]
pub struct ParseVersionError(String);

impl EngineVersion {
    /// The newest release whose behaviour was compared with a real server. Assumed where none is configured.
    pub const LATEST_KNOWN: EngineVersion = EngineVersion::new(0, 32);

    pub const fn new(major: u16, minor: u16) -> Self {
        EngineVersion { major, minor }
    }

    fn since(self, major: u16, minor: u16) -> bool {
        self >= EngineVersion::new(major, minor)
    }
}

impl Default for EngineVersion {
    fn default() -> Self {
        EngineVersion::LATEST_KNOWN
    }
}

impl fmt::Display for EngineVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for EngineVersion {
    type Err = ParseVersionError;

    /// Accepts what engines report of themselves: `0.32`, `v0.32.0`, `0.32.1rc2+cpu`. Everything after the second
    /// number is ignored.
    fn from_str(text: &str) -> Result<Self, ParseVersionError> {
        let refuse = || ParseVersionError(text.chars().take(40).collect());
        let trimmed = text.trim();
        let mut numbers = trimmed.strip_prefix('v').unwrap_or(trimmed).splitn(3, '.');
        let major = numbers.next().and_then(|n| n.parse().ok()).ok_or_else(refuse)?;
        let minor = numbers.next().ok_or_else(refuse)?;
        let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
        let minor = minor.get(..digits).and_then(|n| n.parse().ok()).ok_or_else(refuse)?;
        Ok(EngineVersion { major, minor })
    }
}

/// What the engine does to a request before its template sees it, where releases differ. The releases named were read
/// from the sources of 0.13 to 0.32; behaviour before 0.13 is taken to be that of 0.13.
///
/// Derived from an [`EngineVersion`]; a deployment with a patched engine can be described by
/// [`overridden`](Self::overridden) rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenderingRules {
    /// How the engine finds out that a template wants content as parts. Widened in 0.22, narrowed again in 0.30.
    pub content_detection: ContentDetection,
    /// Unknown keys of a tool and of its function reach the template. Up to 0.26; dropped from 0.27.
    pub keeps_unknown_tool_keys: bool,
    /// `function.strict` is a known field, left out when null. From 0.24 (before: an unknown key).
    pub knows_strict: bool,
    /// `defer_loading` of a tool is a known field, passed on to its function, left out when null. From 0.21 (before:
    /// an unknown key).
    pub knows_defer_loading: bool,
    /// An empty `tools` list is refused. From 0.20.
    pub refuses_empty_tools: bool,
    /// A `developer` message becomes a system one where the template does not know the role, and all system messages
    /// are merged into one at the front. From 0.23.
    pub converts_developer: bool,
    /// What becomes of a past tool call's arguments that are no JSON object. Changed in 0.23 and 0.29.
    pub odd_arguments: OddArguments,
    /// A tool message made of text parts only becomes one text, in either content format. From 0.20.
    pub flattens_tool_content: bool,
    /// A text among the parts of a content becomes a part itself. From 0.18; before, it stays a text.
    pub wraps_bare_texts: bool,
    /// Parts of type `tool_reference` are known. From 0.21.
    pub knows_tool_reference: bool,
    /// Text parts keep the keys that no part type defines. From 0.26.
    pub keeps_unknown_part_keys: bool,
    /// `reasoning_content` of a message stands for `reasoning` where that is absent. Up to 0.15 and from 0.22.
    pub reads_reasoning_content: bool,
    /// A message's `task` reaches the template. From 0.20.
    pub passes_task: bool,
    /// Values of `reasoning_effort` that are not refused. More from 0.18 and 0.21.
    pub reasoning_efforts: ReasoningEfforts,
    /// `reasoning_effort` also sets `enable_thinking` where the request does not. From 0.22.
    pub effort_sets_thinking: bool,
    /// A field of the request wins over an entry of `chat_template_kwargs` of the same name. From 0.16; before, the
    /// entry wins.
    pub fields_win_over_kwargs: bool,
    /// A leading billing-header line of a system text is removed. From 0.32.
    pub strips_billing_header: bool,
    /// `truncate_prompt_tokens: -1` leaves room for `max_tokens` of output. Up to 0.31; from 0.32 for one token.
    pub fit_reserves_output: bool,
    /// `truncation_side` of completions and chats. From 0.22; before, it is ignored.
    pub reads_truncation_side: bool,
    /// `truncation_side` of embeddings. From 0.18; before, it is ignored.
    pub reads_embedding_truncation_side: bool,
    /// `kv_transfer_params.prompt_token_ids` of chats, messages and, but for gpt-oss, responses are served in place of what
    /// would be rendered. From 0.27.
    pub reads_prompt_token_ids: bool,
    /// Such ids must be a list that is not empty, and media in the request win over them. From 0.32; before, ids are
    /// served whatever the messages hold, and an empty list is none.
    pub checks_prompt_token_ids: bool,
    pub responses: ResponsesRules,
    pub anthropic: AnthropicRules,
}

/// Values of `reasoning_effort` that are not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEfforts {
    /// `low`, `medium` and `high`. Up to 0.17.
    LowToHigh,
    /// Also `none`. 0.18 to 0.20.
    NoneToHigh,
    /// Also `minimal`, `xhigh` and `max`. From 0.21.
    All,
}

/// What becomes of a past tool call's arguments that are no JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OddArguments {
    /// Lists, numbers and null reach the template; text that is no JSON fails the request. Up to 0.22.
    Kept,
    /// The same, but null becomes `{}`. 0.23 to 0.28.
    NullEmptied,
    /// All become `{}`. From 0.29.
    Emptied,
}

/// How an engine finds out that a template loops over the content of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentDetection {
    /// Loops over `message.content`. Up to 0.21.
    Messages,
    /// Also loops over any variable named `content`. 0.22 to 0.29.
    ContentVariable,
    /// Such loops only outside macros, and loops over a macro's parameter that is given a message's content. From 0.30.
    MacroParameters,
}

impl RenderingRules {
    pub fn of(version: EngineVersion) -> Self {
        let content_detection = if version.since(0, 30) {
            ContentDetection::MacroParameters
        } else if version.since(0, 22) {
            ContentDetection::ContentVariable
        } else {
            ContentDetection::Messages
        };
        let odd_arguments = if version.since(0, 29) {
            OddArguments::Emptied
        } else if version.since(0, 23) {
            OddArguments::NullEmptied
        } else {
            OddArguments::Kept
        };
        let reasoning_efforts = if version.since(0, 21) {
            ReasoningEfforts::All
        } else if version.since(0, 18) {
            ReasoningEfforts::NoneToHigh
        } else {
            ReasoningEfforts::LowToHigh
        };
        RenderingRules {
            content_detection,
            keeps_unknown_tool_keys: !version.since(0, 27),
            knows_strict: version.since(0, 24),
            knows_defer_loading: version.since(0, 21),
            refuses_empty_tools: version.since(0, 20),
            converts_developer: version.since(0, 23),
            odd_arguments,
            flattens_tool_content: version.since(0, 20),
            wraps_bare_texts: version.since(0, 18),
            knows_tool_reference: version.since(0, 21),
            keeps_unknown_part_keys: version.since(0, 26),
            reads_reasoning_content: !version.since(0, 16) || version.since(0, 22),
            passes_task: version.since(0, 20),
            reasoning_efforts,
            effort_sets_thinking: version.since(0, 22),
            fields_win_over_kwargs: version.since(0, 16),
            strips_billing_header: version.since(0, 32),
            fit_reserves_output: !version.since(0, 32),
            reads_truncation_side: version.since(0, 22),
            reads_embedding_truncation_side: version.since(0, 18),
            reads_prompt_token_ids: version.since(0, 27),
            checks_prompt_token_ids: version.since(0, 32),
            responses: ResponsesRules::of(version),
            anthropic: AnthropicRules::of(version),
        }
    }
}

impl ReasoningEfforts {
    pub fn contains(self, effort: &str) -> bool {
        let allowed: &[&str] = match self {
            ReasoningEfforts::LowToHigh => &["low", "medium", "high"],
            ReasoningEfforts::NoneToHigh => &["none", "low", "medium", "high"],
            ReasoningEfforts::All => &["none", "minimal", "low", "medium", "high", "xhigh", "max"],
        };
        allowed.contains(&effort)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_what_engines_report() {
        for (text, want) in [
            ("0.32", (0, 32)),
            ("0.32.0", (0, 32)),
            ("v0.16.0rc1", (0, 16)),
            (" 0.9.2 ", (0, 9)),
            ("1.0+cpu", (1, 0)),
        ] {
            assert_eq!(text.parse(), Ok(EngineVersion::new(want.0, want.1)), "{text}");
        }
    }

    #[test]
    fn version_that_is_none_is_refused_with_the_form_wanted() {
        for text in ["", "latest", "0", "0.", "0.x", "-1.2", "0.99999999999"] {
            let error = text.parse::<EngineVersion>().unwrap_err();
            assert!(error.to_string().contains("MAJOR.MINOR"), "{error}");
        }
    }

    #[test]
    fn versions_compare_by_number_not_by_text() {
        assert!(EngineVersion::new(0, 9) < EngineVersion::new(0, 10));
        assert!(EngineVersion::new(0, 33) < EngineVersion::new(1, 0));
    }

    #[test]
    fn switches_turn_at_their_release_and_not_before() {
        type Switch = fn(&RenderingRules) -> bool;
        let table: [(u16, Switch); 53] = [
            (22, |r| r.content_detection != ContentDetection::Messages),
            (30, |r| r.content_detection == ContentDetection::MacroParameters),
            (27, |r| !r.keeps_unknown_tool_keys),
            (24, |r| r.knows_strict),
            (21, |r| r.knows_defer_loading),
            (20, |r| r.refuses_empty_tools),
            (23, |r| r.converts_developer),
            (23, |r| r.odd_arguments != OddArguments::Kept),
            (29, |r| r.odd_arguments == OddArguments::Emptied),
            (20, |r| r.flattens_tool_content),
            (18, |r| r.wraps_bare_texts),
            (21, |r| r.knows_tool_reference),
            (26, |r| r.keeps_unknown_part_keys),
            (16, |r| !r.reads_reasoning_content),
            (22, |r| r.reads_reasoning_content),
            (20, |r| r.passes_task),
            (18, |r| r.reasoning_efforts.contains("none")),
            (21, |r| r.reasoning_efforts.contains("max")),
            (22, |r| r.effort_sets_thinking),
            (16, |r| r.fields_win_over_kwargs),
            (32, |r| r.strips_billing_header),
            (32, |r| !r.fit_reserves_output),
            (22, |r| r.reads_truncation_side),
            (18, |r| r.reads_embedding_truncation_side),
            (27, |r| r.reads_prompt_token_ids),
            (32, |r| r.checks_prompt_token_ids),
            (18, |r| r.responses.prefers_reasoning_content),
            (20, |r| r.responses.drops_empty_tools),
            (20, |r| r.responses.checks_tool_choice),
            (21, |r| r.responses.completes_messages),
            (22, |r| r.responses.merges_items),
            (22, |r| r.responses.reads_template_kwargs),
            (25, |r| r.responses.merges_plain_messages),
            (25, |r| r.responses.reads_namespaces),
            (27, |r| r.responses.converts_tools),
            (27, |r| r.responses.shows_unchosen_tools),
            (32, |r| r.responses.reads_custom_tools),
            (17, |r| r.anthropic.reads_thinking),
            (17, |r| r.anthropic.reads_tool_results),
            (17, |r| r.anthropic.allows_no_tool),
            (17, |r| r.anthropic.empty_messages != EmptyMessages::Dropped),
            (18, |r| r.anthropic.skips_redacted_thinking),
            (18, |r| r.anthropic.drops_billing_blocks),
            (19, |r| r.anthropic.applies_default_kwargs),
            (20, |r| r.anthropic.empty_messages == EmptyMessages::UserDropped),
            (20, |r| r.anthropic.reads_template_kwargs),
            (21, |r| r.anthropic.reads_tool_references),
            (21, |r| r.anthropic.reads_defer_loading),
            (23, |r| r.anthropic.inline_system != InlineSystem::Refused),
            (24, |r| r.anthropic.inline_system == InlineSystem::KeptByExplicitTemplate),
            (24, |r| r.anthropic.reads_strict),
            (31, |r| r.anthropic.inline_system == InlineSystem::KeptByTemplate),
            (31, |r| r.anthropic.reads_thinking_config),
        ];
        for (row, (minor, switch)) in table.iter().enumerate() {
            assert!(!switch(&RenderingRules::of(EngineVersion::new(0, minor - 1))), "row {row} before");
            assert!(switch(&RenderingRules::of(EngineVersion::new(0, *minor))), "row {row} at its release");
        }
    }
}
