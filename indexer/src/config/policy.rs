//! The section `policy`: which policy ranks which request, and with which parameters.

use serde::Serialize;
use serde_yaml_ng::Value;
use warmpath_core::rank::{Blend, CostWeights, Policy, Sticky};

use super::defaults;
use super::fields::{Fields, Problems};

/// The whole of a split, in percent.
const PERCENT_MAX: u64 = 100;

/// Bounds of the slow start: off, to an hour.
const SLOW_START_MS: (u64, u64) = (0, 3_600_000);

/// How endpoints are ranked, unless a request names another policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyConfig {
    pub name: &'static str,
    /// λ, used by the cost policy.
    pub lambda: f64,
    /// μ in tokens, used by the cost policy.
    pub mu_tokens: f64,
    /// κ, used by the cost policy.
    pub memory: f64,
    /// θ, used by the cost policy.
    pub behind: f64,
    /// ρ, used by the cost policy.
    pub recent: f64,
    /// η, used by the cost policy.
    pub agree: f64,
    /// Used by the policy `weighted`.
    pub weights: WeightsConfig,
    /// Used by the policy `sticky`.
    pub sticky: StickyConfig,
    /// What a token that an engine holds in a slower medium only counts, of one that it has at hand: 0 to 1.
    pub slower_media: f64,
    /// How long a new endpoint takes less than its full load; 0: it takes all at once.
    pub slow_start_ms: u64,
    /// Where this indexer's gateways are.
    pub zone: Option<String>,
    /// What an endpoint in another zone costs, in tokens.
    pub other_zone_tokens: f64,
    /// Parts of the requests that go by other policies.
    pub split: Vec<SplitShare>,
    pub split_by: SplitBy,
}

/// As [`Blend`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WeightsConfig {
    pub prefix: f64,
    pub queue: f64,
    pub kv: f64,
    pub no_hit: f64,
}

/// As [`Sticky`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StickyConfig {
    pub share: f64,
    pub gate_tokens: u64,
}

/// A part of the requests that goes by this policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SplitShare {
    pub name: &'static str,
    /// Of the requests that name no policy.
    pub percent: u64,
}

/// What belongs together in a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SplitBy {
    /// What the filter says belongs together: by a header, a cache key or the beginning of the prompt.
    Key,
    /// Nothing: each request is drawn for itself.
    Request,
}

// === impl PolicyConfig ===

impl PolicyConfig {
    /// The policy to rank with.
    pub fn policy(&self) -> Policy {
        self.named(self.name).unwrap_or(Policy::COST)
    }

    /// Another policy by its name, with the configured parameters.
    pub fn named(&self, name: &str) -> Option<Policy> {
        Some(match Policy::by_name(name)? {
            Policy::Cost(_) => Policy::Cost(CostWeights {
                lambda: self.lambda,
                mu: self.mu_tokens,
                memory: self.memory,
                behind: self.behind,
                recent: self.recent,
                agree: self.agree,
            }),
            Policy::Weighted { name: "weighted", .. } => {
                let WeightsConfig { prefix, queue, kv, no_hit } = self.weights;
                Policy::Weighted { name: "weighted", blend: Blend { prefix, queue, kv, no_hit } }
            }
            Policy::Sticky(_) => {
                let StickyConfig { share, gate_tokens } = self.sticky;
                Policy::Sticky(Sticky { share, gate_tokens })
            }
            other => other,
        })
    }
}

/// The parameters of a policy, by the keys that they have in the section; none of one that has none.
pub fn parameters(policy: &Policy) -> Vec<(&'static str, f64)> {
    match policy {
        Policy::Cost(CostWeights { lambda, mu, memory, behind, recent, agree }) => vec![
            ("lambda", *lambda),
            ("mu_tokens", *mu),
            ("memory", *memory),
            ("behind", *behind),
            ("recent", *recent),
            ("agree", *agree),
        ],
        Policy::Weighted { blend: Blend { prefix, queue, kv, no_hit }, .. } => {
            vec![("prefix", *prefix), ("queue", *queue), ("kv", *kv), ("no_hit", *no_hit)]
        }
        Policy::Sticky(Sticky { share, gate_tokens }) => {
            vec![("share", *share), ("gate_tokens", *gate_tokens as f64)]
        }
        Policy::RoundRobin
        | Policy::PowerOfTwo
        | Policy::LeastLoad
        | Policy::LongestPrefix
        | Policy::NewTimesBatch => Vec::new(),
    }
}

/// Checks the section.
pub(super) fn checked(mut fields: Fields, p: &mut Problems) -> PolicyConfig {
    let cost = CostWeights::DEFAULT;
    let policy = PolicyConfig {
        name: name(&mut fields, p).unwrap_or(defaults::POLICY),
        lambda: fields.weight("lambda", cost.lambda, p),
        mu_tokens: fields.weight("mu_tokens", cost.mu, p),
        memory: fields.weight("memory", cost.memory, p),
        behind: fields.weight("behind", cost.behind, p),
        recent: fields.weight("recent", cost.recent, p),
        agree: fields.weight("agree", cost.agree, p),
        weights: weights(fields.mapping("weights", p), p),
        sticky: sticky(fields.mapping("sticky", p), p),
        slower_media: fields.share("slower_media", defaults::SLOWER_MEDIA, p),
        slow_start_ms: fields.number("slow_start_ms", SLOW_START_MS, defaults::SLOW_START_MS, p),
        zone: fields.text("zone", p),
        other_zone_tokens: fields.weight("other_zone_tokens", defaults::OTHER_ZONE_TOKENS, p),
        split: split(&mut fields, p),
        split_by: split_by(&mut fields, p),
    };
    fields.finish(p);
    policy
}

/// None: not written, or no policy.
fn name(fields: &mut Fields, p: &mut Problems) -> Option<&'static str> {
    let name = fields.text("name", p)?;
    let known = Policy::NAMES.into_iter().find(|known| *known == name);
    if known.is_none() {
        let remedy = format!("expected one of {}", Policy::NAMES.join(", "));
        p.note(&fields.path_of("name"), Some(&Value::String(name)), remedy);
    }
    known
}

fn weights(mut fields: Fields, p: &mut Problems) -> WeightsConfig {
    let Blend { prefix, queue, kv, no_hit } = Blend::DEFAULT;
    let weights = WeightsConfig {
        prefix: fields.weight("prefix", prefix, p),
        queue: fields.weight("queue", queue, p),
        kv: fields.weight("kv", kv, p),
        no_hit: fields.weight("no_hit", no_hit, p),
    };
    fields.finish(p);
    weights
}

fn sticky(mut fields: Fields, p: &mut Problems) -> StickyConfig {
    let Sticky { share, gate_tokens } = Sticky::default();
    let sticky = StickyConfig {
        share: fields.share("share", share, p),
        gate_tokens: fields.number("gate_tokens", (0, 1 << 40), gate_tokens, p),
    };
    fields.finish(p);
    sticky
}

fn split(fields: &mut Fields, p: &mut Problems) -> Vec<SplitShare> {
    let mut total = 0;
    let path = fields.path_of("split");
    let shares: Vec<SplitShare> = fields
        .list("split", p)
        .into_iter()
        .filter_map(|(path, item)| {
            let mut fields = Fields::of(path, item, p);
            let name = name(&mut fields, p);
            let percent = fields.number("percent", (1, PERCENT_MAX), 1, p);
            total += percent;
            if name.is_none() {
                p.note(&fields.path_of("name"), None, "write the policy of this part");
            }
            fields.finish(p);
            Some(SplitShare { name: name?, percent })
        })
        .collect();
    if total > PERCENT_MAX {
        let remedy = format!("the parts add up to more than {PERCENT_MAX} percent");
        p.note(&path, Some(&Value::from(total)), remedy);
    }
    shares
}

fn split_by(fields: &mut Fields, p: &mut Problems) -> SplitBy {
    match fields.text("split_by", p).as_deref() {
        None | Some("key") => SplitBy::Key,
        Some("request") => SplitBy::Request,
        Some(other) => {
            let found = Value::String(other.to_owned());
            p.note(&fields.path_of("split_by"), Some(&found), "expected key or request");
            SplitBy::Key
        }
    }
}
