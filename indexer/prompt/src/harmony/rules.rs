//! What changed between engine releases on the way from a request to its harmony prompt.

use crate::version::{EngineVersion, RenderingRules};

/// The releases named were read from the sources of 0.16 to 0.32; 0.16, 0.23 and 0.32 were compared by running them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HarmonyRules {
    /// The `commentary` channel is not offered where the request has no tools. Up to 0.16.
    pub hides_commentary: bool,
    /// System and developer texts become instructions of developer messages, the leading one merged with the tools.
    /// From 0.23; before, they stay messages of their role, behind the tools.
    pub makes_instructions: bool,
    /// A tool may lack its description. From 0.24; before, that fails.
    pub allows_no_description: bool,
    /// Analysis is dropped before the last final message, whatever follows it. From 0.25 for all requests; before, for
    /// chats only.
    pub drops_all_analysis: bool,
    /// `/v1/responses` takes any `tool_choice`. From 0.32; before, `auto` and `none`.
    pub takes_any_tool_choice: bool,
    /// The recipient of a tool's answer stands behind the channel. From 0.31; before, behind the author.
    pub recipient_behind_channel: bool,
    /// Large numbers in schemas are printed as `1e+21`. From 0.31; before, as `1e21`.
    pub signs_exponents: bool,
    /// See [`RenderingRules`].
    pub refuses_empty_tools: bool,
    /// See [`RenderingRules`].
    pub reads_reasoning_content: bool,
}

impl HarmonyRules {
    /// `general`: the rules that hold for chats of every family, which a deployment may have replaced. `None`: the renderer
    /// of that release is not known.
    pub(super) fn of(version: EngineVersion, general: &RenderingRules) -> Option<Self> {
        let since = |minor| version >= EngineVersion::new(0, minor);
        since(16).then_some(HarmonyRules {
            hides_commentary: !since(17),
            makes_instructions: since(23),
            allows_no_description: since(24),
            drops_all_analysis: since(25),
            takes_any_tool_choice: since(32),
            recipient_behind_channel: since(31),
            signs_exponents: since(31),
            refuses_empty_tools: general.refuses_empty_tools,
            reads_reasoning_content: general.reads_reasoning_content,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(minor: u16) -> HarmonyRules {
        let version = EngineVersion::new(0, minor);
        HarmonyRules::of(version, &RenderingRules::of(version)).unwrap()
    }

    #[test]
    fn rules_turn_at_their_release_and_not_before() {
        type Rule = fn(&HarmonyRules) -> bool;
        let table: [(u16, Rule); 7] = [
            (17, |r| !r.hides_commentary),
            (23, |r| r.makes_instructions),
            (24, |r| r.allows_no_description),
            (25, |r| r.drops_all_analysis),
            (31, |r| r.recipient_behind_channel),
            (31, |r| r.signs_exponents),
            (32, |r| r.takes_any_tool_choice),
        ];
        for (row, (minor, rule)) in table.iter().enumerate() {
            assert!(!rule(&rules(minor - 1)), "row {row} before");
            assert!(rule(&rules(*minor)), "row {row} at its release");
        }
    }

    #[test]
    fn releases_that_were_not_read_have_no_rules() {
        let of = |version| HarmonyRules::of(version, &RenderingRules::of(version));
        assert_eq!(of(EngineVersion::new(0, 15)), None);
        assert!(of(EngineVersion::new(1, 0)).is_some());
    }
}
