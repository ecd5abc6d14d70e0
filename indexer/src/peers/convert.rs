//! Changes ↔ wire. Pure.

use std::sync::Arc;

use warmpath_core::limits::{ENDPOINT_BYTES_MAX, PROMPTS_MAX, SEQUENCES_MAX, TOKEN_IDS_MAX};
use warmpath_proto::v1::{Answered, LedgerChange, Released, Renewed, Reserved, Started, ledger_change};

use crate::answers::ResponseKey;
use crate::books::{Change, Placed, What};
use crate::ledger::DecisionId;

/// The largest request that a filter can ask about.
const QUEUED_TOKENS_MAX: u64 = (PROMPTS_MAX * TOKEN_IDS_MAX) as u64;
const RESERVED_SEQUENCES_MAX: u32 = PROMPTS_MAX as u32 * SEQUENCES_MAX;
/// The longest lease that can be configured: a day.
const LEASE_MS_MAX: u32 = 86_400_000;

pub(super) fn to_wire(change: &Change) -> LedgerChange {
    let what = match &change.what {
        What::Reserved(placed) => ledger_change::What::Reserved(Reserved {
            endpoint: placed.endpoint.to_string(),
            rank: placed.rank,
            queued_tokens: placed.queued_tokens,
            sequences: placed.sequences,
            lease_ms: u32::try_from(placed.lease_ms).unwrap_or(u32::MAX),
        }),
        What::Started => ledger_change::What::Started(Started {}),
        What::Released => ledger_change::What::Released(Released {}),
        What::Renewed => ledger_change::What::Renewed(Renewed {}),
        What::Answered { key, endpoint } => ledger_change::What::Answered(Answered {
            response_key: key.get(),
            endpoint: endpoint.to_string(),
        }),
    };
    LedgerChange { decision_id: change.id.0, what: Some(what) }
}

/// None: nothing that this version understands, or a figure that no request can have.
pub(super) fn from_wire(change: LedgerChange) -> Option<Change> {
    let what = match change.what? {
        ledger_change::What::Reserved(reserved) => {
            let sane = reserved.endpoint.len() <= ENDPOINT_BYTES_MAX
                && reserved.queued_tokens <= QUEUED_TOKENS_MAX
                && reserved.sequences <= RESERVED_SEQUENCES_MAX
                && reserved.lease_ms <= LEASE_MS_MAX;
            What::Reserved(sane.then(|| Placed {
                endpoint: Arc::from(reserved.endpoint),
                rank: reserved.rank,
                queued_tokens: reserved.queued_tokens,
                sequences: reserved.sequences,
                lease_ms: reserved.lease_ms.into(),
            })?)
        }
        ledger_change::What::Started(_) => What::Started,
        ledger_change::What::Released(_) => What::Released,
        ledger_change::What::Renewed(_) => What::Renewed,
        ledger_change::What::Answered(answered) => What::Answered {
            key: ResponseKey::new(answered.response_key)?,
            endpoint: (answered.endpoint.len() <= ENDPOINT_BYTES_MAX).then(|| answered.endpoint.into())?,
        },
    };
    Some(Change { id: DecisionId(change.decision_id), what })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed() -> Placed {
        Placed { endpoint: "10.0.0.1:80".into(), rank: 3, queued_tokens: 7, sequences: 2, lease_ms: 1000 }
    }

    #[test]
    fn changes_come_back_as_they_went() {
        let key = ResponseKey::new(5).unwrap();
        let answered = What::Answered { key, endpoint: "10.0.0.1:80".into() };
        for what in [What::Reserved(placed()), What::Started, What::Released, What::Renewed, answered] {
            let change = Change { id: DecisionId(9), what };
            assert_eq!(from_wire(to_wire(&change)), Some(change));
        }
    }

    #[test]
    fn figures_that_no_request_can_have_are_not_taken() {
        assert_eq!(from_wire(LedgerChange { decision_id: 1, what: None }), None);
        for absurd in [
            Placed { queued_tokens: QUEUED_TOKENS_MAX + 1, ..placed() },
            Placed { sequences: RESERVED_SEQUENCES_MAX + 1, ..placed() },
            Placed { lease_ms: u64::from(LEASE_MS_MAX) + 1, ..placed() },
            Placed { endpoint: "x".repeat(ENDPOINT_BYTES_MAX + 1).into(), ..placed() },
        ] {
            let change = Change { id: DecisionId(9), what: What::Reserved(absurd) };
            assert_eq!(from_wire(to_wire(&change)), None, "{change:?}");
        }
        for (response_key, endpoint) in [(0, "10.0.0.1:80".into()), (1, "x".repeat(ENDPOINT_BYTES_MAX + 1))] {
            let what = Some(ledger_change::What::Answered(Answered { response_key, endpoint }));
            assert_eq!(from_wire(LedgerChange { decision_id: 0, what }), None);
        }
    }
}
