//! Receipts: what each of the last decisions went by, and what became of it.
//!
//! In: a decision when it is made, and reports about it. Out: the newest receipts for `/receipts`, and now and then a line
//! in the log. Never prompt text: sizes, counts and endpoints only. Off the hot path but for one short lock; a decision is
//! the same with or without it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use warmpath_core::rank::{Candidate, Policy, Ranked};

use crate::config;
use crate::ledger::DecisionId;

#[cfg(test)]
mod tests;

/// Candidates told of one decision, best first; the rest is only counted.
pub const CANDIDATES_MAX: usize = 16;
/// Receipts shown at once, however many are asked for.
pub const SHOWN_MAX: usize = 256;

/// One decision.
#[derive(Clone, Debug, Serialize)]
pub struct Receipt {
    /// In hexadecimal, as in the header `x-warmpath-decision`; null for one that was only explained.
    pub decision: Option<String>,
    /// When it was made, in milliseconds since 1970.
    pub at_unix_ms: u64,
    pub model: String,
    pub policy: &'static str,
    /// Whether it was named by the request, drawn in a split, or is the configured one: `request`, `split`,
    /// `configuration`.
    pub policy_from: &'static str,
    /// Share of the requests that a split gives to it, in percent.
    pub split_percent: Option<u64>,
    /// Its parameters, by the keys of the configuration.
    #[serde(serialize_with = "parameters")]
    pub weights: Policy,
    pub outcome: &'static str,
    /// Empty where there is nothing to explain.
    pub reason: &'static str,
    pub prompt_tokens: u32,
    /// Tokens of further prompts of the request.
    pub further_tokens: u64,
    /// Tokens of the prompt that the best holder has, picked or not.
    pub reachable_tokens: u32,
    /// Best first, [`CANDIDATES_MAX`] at most.
    pub candidates: Vec<Considered>,
    /// All that there were.
    pub candidates_considered: usize,
    /// What was reserved on the first one; null where nothing was.
    pub reserved: Option<Reserved>,
    /// What became of it, as far as it was reported to this indexer.
    pub fate: Fate,
}

/// One candidate with all that made its place.
#[derive(Clone, Debug, Serialize)]
pub struct Considered {
    #[serde(serialize_with = "text")]
    pub endpoint: Arc<str>,
    /// Null: the endpoint has only one.
    pub rank: Option<u32>,
    /// How far what is known of its cache may be believed; null: its events are not read.
    pub trust: Option<&'static str>,
    pub cost: f64,
    pub cached_tokens: u32,
    /// Q.
    pub queued_tokens: u64,
    /// N.
    pub uncached_tokens: u64,
    /// D.
    pub duplicated_tokens: u32,
    /// p.
    pub pressure: f64,
    /// A.
    pub active_sequences: u32,
    /// W.
    pub waiting_sequences: u32,
    /// M.
    pub missing_tokens: u64,
    pub room_tokens: Option<u64>,
    pub kv_usage: f64,
    /// c.
    pub slowness: f64,
    /// w.
    pub capacity: f64,
    /// r.
    pub ramp: f64,
    /// R.
    pub recent_tokens: f64,
    /// H.
    pub away_tokens: f64,
    /// z + e.
    pub penalty: f64,
    pub last_cold: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Reserved {
    #[serde(serialize_with = "text")]
    pub endpoint: Arc<str>,
    pub rank: u32,
    pub queued_tokens: u64,
    pub sequences: u32,
    pub lease_ms: u64,
}

/// What became of a decision.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Fate {
    /// The endpoint that the proxy really used; null: nothing was reported yet, or none was reached.
    pub endpoint: Option<String>,
    pub http_status: Option<u32>,
    /// From the decision to the first byte.
    pub ttft_ms: Option<f64>,
    /// From the decision to the end.
    pub whole_ms: Option<f64>,
    /// Prompt tokens, as the engine counts them.
    pub prompt_tokens: Option<u32>,
    /// Prompt tokens that the engine found in its cache.
    pub cached_tokens: Option<u32>,
    pub has_failed: bool,
    pub is_over: bool,
}

/// The last decisions.
#[derive(Debug)]
pub struct Receipts {
    ring: Mutex<Ring>,
    keep: usize,
    log_share: f64,
}

#[derive(Debug, Default)]
struct Ring {
    receipts: VecDeque<(DecisionId, Arc<Receipt>)>,
    /// Number of the first one in the ring; they are numbered through.
    first: u64,
    numbers: HashMap<DecisionId, u64>,
}

/// Which receipts are wanted.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub decision: Option<String>,
    /// Among the candidates' first, or the one that was used.
    pub endpoint: Option<String>,
    pub policy: Option<String>,
    /// [`SHOWN_MAX`] at most.
    pub limit: usize,
}

// === impl Receipts ===

impl Receipts {
    pub fn new(config: config::Receipts) -> Self {
        Self { ring: Mutex::default(), keep: config.keep, log_share: config.log_percent / 100.0 }
    }

    /// Whether any are kept.
    pub fn are_kept(&self) -> bool {
        self.keep > 0
    }

    /// Keeps one, in place of the oldest.
    pub fn keep(&self, id: DecisionId, receipt: Receipt) {
        let mut ring = self.ring.lock();
        while ring.receipts.len() >= self.keep {
            let Some((oldest, _)) = ring.receipts.pop_front() else { return };
            ring.numbers.remove(&oldest);
            ring.first += 1;
        }
        let number = ring.first + ring.receipts.len() as u64;
        ring.numbers.insert(id, number);
        ring.receipts.push_back((id, Arc::new(receipt)));
    }

    /// The first byte came.
    pub fn began(&self, id: DecisionId, endpoint: &str, http_status: u32, elapsed: Duration) {
        self.change(id, |fate| {
            fate.endpoint = Some(endpoint.to_owned());
            fate.http_status = Some(http_status);
            fate.ttft_ms.get_or_insert(millis(elapsed));
        });
    }

    /// It is over. One in so many is logged.
    pub fn ended(&self, id: DecisionId, end: &Fate) {
        let ended = self.change(id, |fate| {
            *fate = Fate {
                endpoint: end.endpoint.clone().or(fate.endpoint.take()),
                http_status: end.http_status.or(fate.http_status),
                ttft_ms: fate.ttft_ms,
                is_over: true,
                ..end.clone()
            };
        });
        if let Some(receipt) = ended
            && self.log_share > 0.0
            && rand::random::<f64>() < self.log_share
        {
            log(&receipt);
        }
    }

    /// The newest that are wanted, newest first, each as it is now.
    pub fn newest(&self, wanted: &Wanted) -> Vec<Arc<Receipt>> {
        let ring = self.ring.lock();
        let receipts = ring.receipts.iter().rev().map(|(_, receipt)| receipt);
        let limit = wanted.limit.min(SHOWN_MAX);
        receipts.filter(|receipt| wanted.is_met_by(receipt)).take(limit).cloned().collect()
    }

    /// The receipt as it is then, where a line in the log may need it.
    fn change(&self, id: DecisionId, change: impl FnOnce(&mut Fate)) -> Option<Arc<Receipt>> {
        let mut ring = self.ring.lock();
        let number = *ring.numbers.get(&id)?;
        let at = usize::try_from(number.checked_sub(ring.first)?).ok()?;
        let (_, receipt) = ring.receipts.get_mut(at)?;
        // A copy only where somebody is just being shown it.
        change(&mut Arc::make_mut(receipt).fate);
        (self.log_share > 0.0).then(|| receipt.clone())
    }
}

/// One line with everything that a line can hold: candidates as one text of JSON.
fn log(receipt: &Receipt) {
    let fate = &receipt.fate;
    let candidates = serde_json::to_string(&receipt.candidates).unwrap_or_default();
    let weights = format!("{:?}", config::parameters(&receipt.weights));
    tracing::info!(
        decision = receipt.decision,
        model = receipt.model,
        policy = receipt.policy,
        policy_from = receipt.policy_from,
        weights,
        outcome = receipt.outcome,
        reason = receipt.reason,
        prompt_tokens = receipt.prompt_tokens,
        reachable_tokens = receipt.reachable_tokens,
        picked = receipt.candidates.first().map(|candidate| &*candidate.endpoint),
        used = fate.endpoint,
        http_status = fate.http_status,
        ttft_ms = fate.ttft_ms,
        predicted_tokens = receipt.candidates.first().map(|candidate| candidate.cached_tokens),
        cached_tokens = fate.cached_tokens,
        has_failed = fate.has_failed,
        candidates,
        "receipt"
    );
}

// === impl Wanted ===

impl Wanted {
    fn is_met_by(&self, receipt: &Receipt) -> bool {
        let picked = receipt.candidates.first().map(|candidate| &*candidate.endpoint);
        self.decision.as_ref().is_none_or(|id| receipt.decision.as_ref() == Some(id))
            && self.policy.as_ref().is_none_or(|policy| policy == receipt.policy)
            && self.endpoint.as_deref().is_none_or(|endpoint| {
                picked == Some(endpoint) || receipt.fate.endpoint.as_deref() == Some(endpoint)
            })
    }
}

// === impl Considered ===

impl Considered {
    pub fn new(
        endpoint: Arc<str>,
        rank: Option<u32>,
        trust: Option<&'static str>,
        candidate: &Candidate,
        ranked: &Ranked,
    ) -> Self {
        Self {
            endpoint,
            rank,
            trust,
            cost: ranked.cost,
            cached_tokens: candidate.cached_tokens,
            queued_tokens: candidate.queued_tokens,
            uncached_tokens: ranked.uncached_tokens,
            duplicated_tokens: ranked.duplicated_tokens,
            pressure: candidate.pressure,
            active_sequences: candidate.active_sequences,
            waiting_sequences: candidate.waiting_sequences,
            missing_tokens: ranked.missing_tokens,
            room_tokens: candidate.room_tokens,
            kv_usage: candidate.kv_usage,
            slowness: candidate.slowness,
            capacity: candidate.capacity,
            ramp: candidate.ramp,
            recent_tokens: candidate.recent_tokens,
            away_tokens: candidate.away_tokens,
            penalty: candidate.penalty,
            last_cold: candidate.last_cold,
        }
    }
}

fn parameters<S: Serializer>(policy: &Policy, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(config::parameters(policy))
}

fn text<S: Serializer>(name: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name)
}

/// A duration as receipts tell it.
pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// The wall clock.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
