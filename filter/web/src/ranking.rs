//! Candidates and a policy as JSON → the ranking that an indexer would make, with everything its costs are made of.

use serde::{Deserialize, Serialize};
use warmpath_core::limits::ENDPOINTS_MAX;
use warmpath_core::rank::{self, Blend, CostWeights, Demand, Policy, Sticky};

/// Costs that differ by less are equal, unless given: one block of 16 tokens.
const TIE_TOKENS_DEFAULT: u32 = 16;

/// Why a question cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum RankError {
    /// No JSON of the right form.
    #[error("{field}: {why}")]
    Form {
        /// The path of the member that does not fit.
        field: String,
        /// What was expected there.
        why: String,
    },
    /// A name that is no policy.
    #[error("policy.name: expected one of {expected}, got {given:?}")]
    Policy {
        /// Every name.
        expected: String,
        /// What was given.
        given: String,
    },
    /// A number outside of its range.
    #[error("{field}: expected {expected}, got {given}")]
    Range {
        /// The path of the member.
        field: String,
        /// The range in words.
        expected: &'static str,
        /// What was given.
        given: f64,
    },
    /// More candidates than a set of endpoints may have.
    #[error("candidates: expected at most {ENDPOINTS_MAX}, got {given}")]
    Many {
        /// How many were given.
        given: usize,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    policy: Rule,
    request: Request,
    candidates: Vec<Candidate>,
    /// Rankings made so far, for `round_robin`.
    #[serde(default)]
    turn: u64,
    /// Chooses among equal candidates.
    #[serde(default)]
    seed: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    name: String,
    lambda: Option<f64>,
    mu: Option<f64>,
    memory: Option<f64>,
    behind: Option<f64>,
    recent: Option<f64>,
    agree: Option<f64>,
    weights: Option<Weights>,
    sticky: Option<StickyRule>,
}

/// Of the policy `weighted`; what is not given weighs nothing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Weights {
    #[serde(default)]
    prefix: f64,
    #[serde(default)]
    queue: f64,
    #[serde(default)]
    kv: f64,
    #[serde(default)]
    no_hit: f64,
}

/// Of the policy `sticky`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StickyRule {
    share: Option<f64>,
    gate_tokens: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    prompt_tokens: u32,
    #[serde(default)]
    further_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
    tie_tokens: Option<u32>,
}

/// As [`rank::Candidate`], with the name that it has in the answer. What is not given is that of an idle endpoint.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Candidate {
    name: String,
    #[serde(default)]
    cached_tokens: u32,
    #[serde(default)]
    queued_tokens: u64,
    #[serde(default)]
    waiting_sequences: u32,
    #[serde(default)]
    active_sequences: u32,
    #[serde(default)]
    kv_usage: f64,
    room_tokens: Option<u64>,
    #[serde(default)]
    pressure: f64,
    #[serde(default = "reference")]
    slowness: f64,
    #[serde(default = "reference")]
    capacity: f64,
    #[serde(default = "reference")]
    ramp: f64,
    #[serde(default)]
    recent_tokens: f64,
    #[serde(default)]
    away_tokens: f64,
    #[serde(default)]
    penalty: f64,
    #[serde(default)]
    last_cold: u64,
}

#[derive(Serialize)]
struct Answer<'a> {
    policy: &'static str,
    /// The weights of the cost, where the policy has them.
    lambda: Option<f64>,
    mu: Option<f64>,
    memory: Option<f64>,
    behind: Option<f64>,
    recent: Option<f64>,
    agree: Option<f64>,
    /// Best first.
    ranked: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    cost: f64,
    uncached_tokens: u64,
    duplicated_tokens: u32,
    missing_tokens: u64,
    candidate: &'a Candidate,
}

fn reference() -> f64 {
    1.0
}

/// Answers `{"policy":{"name",…},"request":{"prompt_tokens",…},"candidates":[…],"turn","seed"}` with
/// `{"policy","lambda","mu","memory","behind","recent","agree","ranked":[…]}`, best first.
pub fn rank(question: &str) -> Result<String, RankError> {
    let mut json = serde_json::Deserializer::from_str(question);
    let question: Question = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| form(error.path().to_string(), error.inner()))?;
    json.end().map_err(|error| form("question".to_owned(), &error))?;
    let policy = question.policy.checked()?;
    let candidates = checked(&question.candidates)?;
    let demand = Demand {
        prompt_tokens: question.request.prompt_tokens,
        further_tokens: question.request.further_tokens,
        output_tokens: question.request.output_tokens,
        tie_tokens: question.request.tie_tokens.unwrap_or(TIE_TOKENS_DEFAULT),
    };
    let mut state = question.seed;
    let ranked = rank::rank(policy, demand, &candidates, question.turn, &mut || split_mix(&mut state));
    let weights = match policy {
        Policy::Cost(weights) => Some(weights),
        _ => None,
    };
    let ranked = ranked.iter().filter_map(|entry| {
        Some(Entry {
            cost: entry.cost,
            uncached_tokens: entry.uncached_tokens,
            duplicated_tokens: entry.duplicated_tokens,
            missing_tokens: entry.missing_tokens,
            candidate: question.candidates.get(entry.index)?,
        })
    });
    let answer = Answer {
        policy: policy.name(),
        lambda: weights.map(|weights| weights.lambda),
        mu: weights.map(|weights| weights.mu),
        memory: weights.map(|weights| weights.memory),
        behind: weights.map(|weights| weights.behind),
        recent: weights.map(|weights| weights.recent),
        agree: weights.map(|weights| weights.agree),
        ranked: ranked.collect(),
    };
    serde_json::to_string(&answer).map_err(|error| form("answer".to_owned(), &error))
}

impl Rule {
    fn checked(&self) -> Result<Policy, RankError> {
        let policy = Policy::by_name(&self.name).ok_or_else(|| RankError::Policy {
            expected: Policy::NAMES.join(", "),
            given: self.name.clone(),
        })?;
        let weight = |given: Option<f64>, default: f64, field: &str| {
            not_negative(given.unwrap_or(default), || format!("policy.{field}"))
        };
        Ok(match policy {
            Policy::Cost(default) => Policy::Cost(CostWeights {
                lambda: weight(self.lambda, default.lambda, "lambda")?,
                mu: weight(self.mu, default.mu, "mu")?,
                memory: weight(self.memory, default.memory, "memory")?,
                behind: weight(self.behind, default.behind, "behind")?,
                recent: weight(self.recent, default.recent, "recent")?,
                agree: weight(self.agree, default.agree, "agree")?,
            }),
            Policy::Weighted { name: "weighted", blend } => {
                let blend = self.weights.as_ref().map_or(Ok(blend), Weights::checked)?;
                Policy::Weighted { name: "weighted", blend }
            }
            Policy::Sticky(default) => {
                let given = self.sticky.as_ref();
                let share = given.and_then(|sticky| sticky.share).unwrap_or(default.share);
                Policy::Sticky(Sticky {
                    share: up_to_one(share, || "policy.sticky.share".to_owned())?,
                    gate_tokens: given.and_then(|sticky| sticky.gate_tokens).unwrap_or(default.gate_tokens),
                })
            }
            other => other,
        })
    }
}

impl Weights {
    fn checked(&self) -> Result<Blend, RankError> {
        let weight = |given: f64, field: &str| not_negative(given, || format!("policy.weights.{field}"));
        Ok(Blend {
            prefix: weight(self.prefix, "prefix")?,
            queue: weight(self.queue, "queue")?,
            kv: weight(self.kv, "kv")?,
            no_hit: weight(self.no_hit, "no_hit")?,
        })
    }
}

fn checked(candidates: &[Candidate]) -> Result<Vec<rank::Candidate>, RankError> {
    if candidates.len() > ENDPOINTS_MAX {
        return Err(RankError::Many { given: candidates.len() });
    }
    candidates
        .iter()
        .enumerate()
        .map(|(index, given)| {
            let field = |name: &'static str| move || format!("candidates[{index}].{name}");
            Ok(rank::Candidate {
                cached_tokens: given.cached_tokens,
                queued_tokens: given.queued_tokens,
                waiting_sequences: given.waiting_sequences,
                active_sequences: given.active_sequences,
                kv_usage: up_to_one(given.kv_usage, field("kv_usage"))?,
                room_tokens: given.room_tokens,
                pressure: up_to_one(given.pressure, field("pressure"))?,
                slowness: not_negative(given.slowness, field("slowness"))?,
                capacity: not_negative(given.capacity, field("capacity"))?,
                ramp: up_to_one(given.ramp, field("ramp"))?,
                recent_tokens: not_negative(given.recent_tokens, field("recent_tokens"))?,
                away_tokens: not_negative(given.away_tokens, field("away_tokens"))?,
                penalty: not_negative(given.penalty, field("penalty"))?,
                last_cold: given.last_cold,
            })
        })
        .collect()
}

fn not_negative(given: f64, field: impl FnOnce() -> String) -> Result<f64, RankError> {
    if given.is_finite() && given >= 0.0 {
        Ok(given)
    } else {
        Err(RankError::Range { field: field(), expected: "0 or more", given })
    }
}

fn up_to_one(given: f64, field: impl FnOnce() -> String) -> Result<f64, RankError> {
    if (0.0..=1.0).contains(&given) {
        Ok(given)
    } else {
        Err(RankError::Range { field: field(), expected: "0 to 1", given })
    }
}

fn form(field: String, why: &serde_json::Error) -> RankError {
    // A question that is no object at all has an empty path.
    let field = if field == "." { "question".to_owned() } else { field };
    RankError::Form { field, why: why.to_string() }
}

/// SplitMix64: good enough to order equals, and the same everywhere.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
