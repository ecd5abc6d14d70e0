//! Which policy a request goes by: the one that it names, or its part of a split. Pure.
//!
//! What belongs together (the key that the filter gives, the same on every gateway) goes by one policy on every indexer,
//! so that the arms of a comparison do not share a conversation. Where nothing is told, or the configuration says so,
//! each request is drawn for itself.

use warmpath_core::rank::Policy;

use crate::config::{PolicyConfig, SplitBy};

/// The configured policies and their parts.
#[derive(Clone, Debug)]
pub(super) struct Split {
    rest: Policy,
    /// Each with the end of its part, in percent of all.
    parts: Vec<(u64, Policy)>,
    by: SplitBy,
}

// === impl Split ===

impl Split {
    pub(super) fn new(config: &PolicyConfig) -> Self {
        let mut end = 0;
        let parts = config.split.iter().filter_map(|share| {
            end += share.percent;
            Some((end, config.named(share.name)?))
        });
        Self { parts: parts.collect(), rest: config.policy(), by: config.split_by }
    }

    /// The policy of a request with this key; 0: none. `lot` decides where no key does.
    pub(super) fn policy(&self, key: u64, lot: u64) -> Policy {
        let drawn = match self.by {
            SplitBy::Key if key != 0 => mixed(key),
            SplitBy::Key | SplitBy::Request => lot,
        };
        let percent = drawn % 100;
        self.parts.iter().find(|(end, _)| percent < *end).map_or(self.rest, |(_, policy)| *policy)
    }
}

/// The finalizer of SplitMix64. The key is a hash already; but which endpoint it falls on in a gateway's fallback must say
/// nothing about its part here.
fn mixed(key: u64) -> u64 {
    let key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn split(policy: &str) -> Split {
        Split::new(&Config::parse(&format!("policy: {policy}")).unwrap().policy)
    }

    /// How many of the keys 1 to 10,000 go by each policy.
    fn shares(split: &Split, lot: impl Fn(u64) -> u64) -> Vec<(&'static str, usize)> {
        let mut counts = std::collections::BTreeMap::new();
        for key in 1..=10_000 {
            *counts.entry(split.policy(key, lot(key)).name()).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    #[test]
    fn parts_are_as_large_as_they_say_and_the_rest_goes_by_the_policy() {
        let split = split(
            "{ name: cost, split: [{ name: least_load, percent: 10 }, { name: round_robin, percent: 25 }] }",
        );
        let shares = shares(&split, |_| 0);
        let expected = [("cost", 6500), ("least_load", 1000), ("round_robin", 2500)];
        for ((name, count), (expected_name, expected)) in shares.into_iter().zip(expected) {
            assert_eq!(name, expected_name);
            assert!(count.abs_diff(expected) < 200, "{name}: {count}");
        }
    }

    #[test]
    fn a_key_stays_with_its_policy_whatever_the_lot() {
        let split = split("{ split: [{ name: least_load, percent: 50 }] }");
        for key in 1..100 {
            assert_eq!(split.policy(key, 0), split.policy(key, 99));
        }
        assert_ne!(split.policy(0, 0), split.policy(0, 99), "without a key it is drawn");
    }

    #[test]
    fn requests_are_drawn_where_the_configuration_says_so() {
        let split = split("{ split: [{ name: least_load, percent: 50 }], split_by: request }");
        assert_eq!(shares(&split, |_| 3), [("least_load", 10_000)]);
    }

    #[test]
    fn nothing_to_split_is_the_policy_for_all() {
        assert_eq!(shares(&split("{ name: round_robin }"), |key| key), [("round_robin", 10_000)]);
    }
}
