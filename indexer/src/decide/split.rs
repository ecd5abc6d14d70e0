//! Which policy a request goes by: the one that it names, or its part of a split. Pure.
//!
//! What belongs together (the key that the filter gives, the same on every gateway) goes by one policy on every indexer,
//! so that the arms of a comparison do not share a conversation. Where nothing is told, or the configuration says so,
//! each request is drawn for itself.

use warmpath_core::rank::Policy;

use crate::config::{PolicyConfig, SplitBy};

/// The policy that a request goes by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) policy: Policy,
    pub(super) from: From,
}

/// How a request came to its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// It names it.
    Request,
    /// There is no other.
    Configuration,
    /// Drawn; so many percent of the requests that name none go by it.
    Split(u64),
}

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
    pub(super) fn choose(&self, key: u64, lot: u64) -> Choice {
        let drawn = match self.by {
            SplitBy::Key if key != 0 => mixed(key),
            SplitBy::Key | SplitBy::Request => lot,
        };
        let percent = drawn % 100;
        let mut begin = 0;
        for (end, policy) in &self.parts {
            if percent < *end {
                return Choice { policy: *policy, from: From::Split(end - begin) };
            }
            begin = *end;
        }
        let from =
            if self.parts.is_empty() { From::Configuration } else { From::Split(100 - begin.min(100)) };
        Choice { policy: self.rest, from }
    }
}

// === impl Choice ===

impl Choice {
    pub(super) fn named(policy: Policy) -> Self {
        Self { policy, from: From::Request }
    }
}

// === impl From ===

impl From {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Configuration => "configuration",
            Self::Split(_) => "split",
        }
    }

    pub(super) fn percent(self) -> Option<u64> {
        match self {
            Self::Split(percent) => Some(percent),
            Self::Request | Self::Configuration => None,
        }
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
            *counts.entry(split.choose(key, lot(key)).policy.name()).or_default() += 1;
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
    fn it_is_told_how_a_request_came_to_its_policy() {
        let split =
            split("{ split: [{ name: least_load, percent: 10 }, { name: round_robin, percent: 25 }] }");
        let from = |percent| {
            let choice = split.choose(0, percent);
            (choice.policy.name(), choice.from.name(), choice.from.percent())
        };
        assert_eq!(from(9), ("least_load", "split", Some(10)));
        assert_eq!(from(10), ("round_robin", "split", Some(25)));
        assert_eq!(from(35), ("cost", "split", Some(65)));
        let only = self::split("{ name: sticky }").choose(7, 0);
        assert_eq!((only.from.name(), only.from.percent()), ("configuration", None));
    }

    #[test]
    fn a_key_stays_with_its_policy_whatever_the_lot() {
        let split = split("{ split: [{ name: least_load, percent: 50 }] }");
        for key in 1..100 {
            assert_eq!(split.choose(key, 0), split.choose(key, 99));
        }
        assert_ne!(split.choose(0, 0), split.choose(0, 99), "without a key it is drawn");
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
