//! Changes ↔ wire. Pure.

use std::sync::Arc;

use warmpath_core::limits::{ENDPOINT_BYTES_MAX, PROMPTS_MAX, SEQUENCES_MAX, TOKEN_IDS_MAX};
use warmpath_kv::{KeyRun, PromptKeys};
use warmpath_proto::v1::{
    self as wire, Answered, ExpectedBlocks, LedgerChange, Released, Renewed, Reserved, Started,
    ledger_change, sighting,
};

use crate::answers::ResponseKey;
use crate::books::{Change, Expected, Placed, Seen, Sighting, What};
use crate::ledger::DecisionId;
use crate::rpc::convert::{event, report};

#[cfg(test)]
mod tests;

/// The largest request that a filter can ask about.
const QUEUED_TOKENS_MAX: u64 = (PROMPTS_MAX * TOKEN_IDS_MAX) as u64;
const RESERVED_SEQUENCES_MAX: u32 = PROMPTS_MAX as u32 * SEQUENCES_MAX;
/// The longest time that can be configured or that passes between anything: a day.
const DAY_MS: u32 = 86_400_000;
/// Expected blocks told of one decision, as in the contract: 32,768 tokens in blocks of 16, and 16 KiB. What follows in
/// longer prompts is looked up by nobody who has not found these.
pub(super) const EXPECTED_KEYS_MAX: usize = 2048;

pub(super) fn to_wire(change: &Change) -> LedgerChange {
    let what = match &change.what {
        What::Reserved(placed) => ledger_change::What::Reserved(Reserved {
            endpoint: placed.endpoint.to_string(),
            rank: placed.rank,
            queued_tokens: placed.queued_tokens,
            sequences: placed.sequences,
            lease_ms: u32::try_from(placed.lease_ms).unwrap_or(u32::MAX),
            expected: placed.expected.iter().flat_map(|expected| expected_blocks(&expected.keys)).collect(),
            expected_ms: placed.expected.as_ref().map_or(0, |expected| clamped(expected.for_ms)),
        }),
        What::Started => ledger_change::What::Started(Started {}),
        What::Released => ledger_change::What::Released(Released {}),
        What::Renewed => ledger_change::What::Renewed(Renewed {}),
        What::Answered { key, endpoint } => ledger_change::What::Answered(Answered {
            response_key: key.get(),
            endpoint: endpoint.to_string(),
        }),
        What::Reported(reported) => ledger_change::What::Reported(event(reported)),
        What::Seen(sighting) => ledger_change::What::Sighting(sighting_to_wire(sighting)),
    };
    LedgerChange { decision_id: change.id.0, what: Some(what) }
}

fn expected_blocks(keys: &PromptKeys) -> impl Iterator<Item = ExpectedBlocks> + '_ {
    keys.runs(EXPECTED_KEYS_MAX).filter(|run| !run.keys.is_empty()).map(|run| ExpectedBlocks {
        block_size: run.block_size,
        ahead: run.ahead,
        keys: run.keys,
    })
}

fn clamped(ms: u64) -> u32 {
    u32::try_from(ms).unwrap_or(u32::MAX).min(DAY_MS)
}

fn sighting_to_wire(sighting: &Sighting) -> wire::Sighting {
    let what = match sighting.what {
        Seen::FirstToken { rank, work_tokens, ttft_us, age_ms } => {
            sighting::What::FirstToken(wire::FirstToken { rank, work_tokens, ttft_us, age_ms })
        }
        Seen::Ended { has_failed } => sighting::What::Attempt(wire::Attempt { has_failed }),
        Seen::Ejected { for_ms, times } => sighting::What::Ejection(wire::Ejection { for_ms, times }),
        Seen::Draining { draining, at_unix_ms } => {
            sighting::What::Draining(wire::Draining { draining, at_unix_ms })
        }
    };
    wire::Sighting { endpoint: sighting.endpoint.to_string(), what: Some(what) }
}

/// None: nothing that this version understands, or a figure that no request can have. Keys of expected blocks are read
/// only where they were made with our secret.
pub(super) fn from_wire(change: LedgerChange, is_our_secret: bool) -> Option<Change> {
    let what = match change.what? {
        ledger_change::What::Reserved(reserved) => What::Reserved(placed(reserved, is_our_secret)?),
        ledger_change::What::Started(_) => What::Started,
        ledger_change::What::Released(_) => What::Released,
        ledger_change::What::Renewed(_) => What::Renewed,
        ledger_change::What::Answered(answered) => What::Answered {
            key: ResponseKey::new(answered.response_key)?,
            endpoint: name(answered.endpoint)?,
        },
        ledger_change::What::Reported(reported) => What::Reported(Arc::new(report(reported).ok()??)),
        ledger_change::What::Sighting(sighting) => {
            What::Seen(Sighting { endpoint: name(sighting.endpoint)?, what: seen(sighting.what?) })
        }
    };
    Some(Change { id: DecisionId(change.decision_id), what })
}

fn placed(reserved: Reserved, is_our_secret: bool) -> Option<Placed> {
    let keys: usize = reserved.expected.iter().map(|blocks| blocks.keys.len()).sum();
    let is_sane = reserved.queued_tokens <= QUEUED_TOKENS_MAX
        && reserved.sequences <= RESERVED_SEQUENCES_MAX
        && reserved.lease_ms <= DAY_MS
        && reserved.expected_ms <= DAY_MS;
    let expected = (is_our_secret && (1..=EXPECTED_KEYS_MAX * 4).contains(&keys)).then(|| Expected {
        keys: Arc::new(PromptKeys::of_runs(reserved.expected.into_iter().map(|blocks| KeyRun {
            block_size: blocks.block_size,
            ahead: blocks.ahead,
            keys: blocks.keys,
        }))),
        for_ms: reserved.expected_ms.into(),
    });
    Some(Placed {
        endpoint: name(reserved.endpoint).filter(|_| is_sane)?,
        rank: reserved.rank,
        queued_tokens: reserved.queued_tokens,
        sequences: reserved.sequences,
        lease_ms: reserved.lease_ms.into(),
        expected,
    })
}

fn seen(what: sighting::What) -> Seen {
    match what {
        sighting::What::FirstToken(token) => Seen::FirstToken {
            rank: token.rank,
            work_tokens: token.work_tokens.min(QUEUED_TOKENS_MAX),
            ttft_us: token.ttft_us.min(u64::from(DAY_MS) * 1000),
            age_ms: token.age_ms,
        },
        sighting::What::Attempt(attempt) => Seen::Ended { has_failed: attempt.has_failed },
        sighting::What::Ejection(ejection) => {
            Seen::Ejected { for_ms: ejection.for_ms, times: ejection.times }
        }
        sighting::What::Draining(order) => {
            Seen::Draining { draining: order.draining, at_unix_ms: order.at_unix_ms }
        }
    }
}

fn name(endpoint: String) -> Option<Arc<str>> {
    (endpoint.len() <= ENDPOINT_BYTES_MAX).then(|| endpoint.into())
}
