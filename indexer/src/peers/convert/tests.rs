use std::time::Duration;

use super::*;
use crate::reported::{Decided, Report, Reported};

fn placed() -> Placed {
    Placed {
        endpoint: "10.0.0.1:80".into(),
        rank: 3,
        queued_tokens: 7,
        sequences: 2,
        lease_ms: 1000,
        expected: None,
    }
}

fn expected(keys: usize) -> Expected {
    let run = KeyRun { block_size: 16, ahead: 0, keys: (1..=keys as u64).collect() };
    Expected { keys: Arc::new(PromptKeys::of_runs([run])), for_ms: 15_000 }
}

fn back(change: &Change) -> Option<Change> {
    from_wire(to_wire(change), true)
}

#[test]
fn changes_come_back_as_they_went() {
    let key = ResponseKey::new(5).unwrap();
    let endpoint: Arc<str> = "10.0.0.1:80".into();
    let first = Reported::FirstByte { endpoint: "10.0.0.1:80".into(), http_status: 200 };
    let report = Report {
        decision: Decided::Indexer(DecisionId(9)),
        elapsed: Duration::from_micros(1_234_567),
        what: first,
    };
    let seen = [
        Seen::FirstToken { rank: 1, work_tokens: 1000, ttft_us: 90_000, age_ms: 7 },
        Seen::Ended { has_failed: false },
        Seen::Ended { has_failed: true },
        Seen::Ejected { for_ms: 5000, times: 2 },
        Seen::Draining { draining: true, at_unix_ms: 1_790_000_000_000 },
    ];
    let seen = seen.map(|what| What::Seen(Sighting { endpoint: endpoint.clone(), what }));
    let others = [
        What::Reserved(placed()),
        What::Reserved(Placed { expected: Some(expected(4)), ..placed() }),
        What::Started,
        What::Released,
        What::Renewed,
        What::Answered { key, endpoint },
        What::Reported(Arc::new(report)),
    ];
    for what in others.into_iter().chain(seen) {
        // A report names its decision by itself, too.
        let change = Change { id: DecisionId(9), what };
        assert_eq!(back(&change), Some(change));
    }
}

#[test]
fn keys_under_another_secret_are_not_read_and_no_more_than_some_are_told() {
    let told = |keys| Change {
        id: DecisionId(9),
        what: What::Reserved(Placed { expected: Some(expected(keys)), ..placed() }),
    };
    let plain = Change { id: DecisionId(9), what: What::Reserved(placed()) };
    assert_eq!(from_wire(to_wire(&told(4)), false), Some(plain.clone()));
    assert_eq!(back(&told(EXPECTED_KEYS_MAX + 5)), Some(told(EXPECTED_KEYS_MAX)));
    assert_eq!(back(&told(0)), Some(plain));
}

#[test]
fn figures_that_no_request_can_have_are_not_taken() {
    assert_eq!(from_wire(LedgerChange { decision_id: 1, what: None }, true), None);
    for absurd in [
        Placed { queued_tokens: QUEUED_TOKENS_MAX + 1, ..placed() },
        Placed { sequences: RESERVED_SEQUENCES_MAX + 1, ..placed() },
        Placed { lease_ms: u64::from(DAY_MS) + 1, ..placed() },
        Placed { endpoint: "x".repeat(ENDPOINT_BYTES_MAX + 1).into(), ..placed() },
    ] {
        let change = Change { id: DecisionId(9), what: What::Reserved(absurd) };
        assert_eq!(back(&change), None, "{change:?}");
    }
    for (response_key, endpoint) in [(0, "10.0.0.1:80".into()), (1, "x".repeat(ENDPOINT_BYTES_MAX + 1))] {
        let what = Some(ledger_change::What::Answered(Answered { response_key, endpoint }));
        assert_eq!(from_wire(LedgerChange { decision_id: 0, what }, true), None);
    }
    for what in [
        ledger_change::What::Reported(wire::Event::default()),
        ledger_change::What::Sighting(wire::Sighting { endpoint: "10.0.0.1:80".into(), what: None }),
    ] {
        assert_eq!(from_wire(LedgerChange { decision_id: 0, what: Some(what) }, true), None);
    }
}
