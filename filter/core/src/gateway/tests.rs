//! Time, calls that never come back, and requests in any order.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::headers::RequestHead;
use crate::limits::{CIRCUIT_FAILURES, LEASE_RENEWAL_MS, PROBE_INTERVAL_MS};
use crate::outcome::{Outcome, Reason};
use crate::path::{KnownPath, Target};
use crate::report::What;
use crate::response::ResponseKey;
use crate::ring::{EndpointSet, Place};
use crate::session::{Candidate, EFFECTS_MAX, Failure, Reply, Settled};

const MS: u64 = 1000;
const BODY: &[u8] = br#"{"model":"m","prompt":"hello"}"#;

fn gateway() -> Gateway {
    Gateway::new(Config::read(b"").expect("default"))
}

fn head(target: Result<Target, Reason>) -> RequestHead {
    RequestHead {
        target,
        content_length: None,
        is_encoded: false,
        is_multipart: false,
        awaits_engine: false,
        ends: false,
        group: 0,
        policy: None,
    }
}

fn completion() -> RequestHead {
    head(Ok(Target::Prompt(KnownPath::Completions)))
}

/// A request about a response that an engine keeps.
fn stored() -> RequestHead {
    RequestHead { ends: true, ..head(Ok(Target::Stored(ResponseKey::of(b"resp_1").expect("a key")))) }
}

fn reply(decision_id: u64) -> Reply {
    let place = Place { endpoint: format!("10.0.0.{}:8000", decision_id % 3), rank: None };
    Reply {
        decision_id,
        candidates: vec![Candidate { place, cached_tokens: 0 }],
        endpoints: Some(EndpointSet {
            version: 1,
            endpoints: (0..3).map(|i| (format!("10.0.0.{i}:8000"), 1)).collect(),
        }),
        ..Reply::default()
    }
}

/// Brings a request to the point where the indexer is asked; false: it was not.
fn ask(gateway: &mut Gateway, id: u32, now_us: u64) -> bool {
    gateway.step(id, Input::Headers(completion()), now_us);
    gateway.step(id, Input::BodyChunk { bytes: BODY.len(), ends: true }, now_us);
    let asked = gateway.step(id, Input::Body(BODY), now_us).iter().any(|e| matches!(e, Effect::Ask(_)));
    if asked {
        gateway.step(id, Input::Asked(id), now_us);
    }
    asked
}

fn settled(effects: &[Effect<'_>]) -> Option<Settled> {
    effects.iter().find_map(|effect| match effect {
        Effect::Settled(settled) => Some(*settled),
        _ => None,
    })
}

#[test]
fn a_call_that_never_comes_back_is_ended_by_the_tick() {
    let mut gateway = gateway();
    assert!(ask(&mut gateway, 1, 0) && ask(&mut gateway, 2, 10 * MS));
    assert!(gateway.tick(50 * MS - 1).woken.is_empty());
    let woken = gateway.tick(50 * MS).woken;
    assert_eq!(woken.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1]);
    let (_, effects) = woken.first().expect("one");
    assert_eq!((effects.first(), effects.last()), (Some(&Effect::Cancel(1)), Some(&Effect::Resume)));
    let settled = settled(effects).expect("settled");
    assert_eq!((settled.outcome, settled.reason), (Outcome::Passed, Some(Reason::Deadline)));
    assert_eq!((settled.added_us, settled.asked_us), (Some(50 * MS), Some(50 * MS)));
    assert_eq!(gateway.tick(60 * MS).woken.len(), 1);
}

#[test]
fn when_no_indexer_answers_only_the_first_requests_wait_and_it_is_used_again_at_once() {
    let mut gateway = gateway();
    let mut now_us = 0;
    for id in 0..CIRCUIT_FAILURES {
        assert!(ask(&mut gateway, id, now_us));
        now_us += 50 * MS;
        gateway.tick(now_us);
    }
    gateway.report_failed();
    assert!(!ask(&mut gateway, 10, now_us) && gateway.worker().circuit.is_open());

    // Probes that fail change nothing, and keep their distance.
    let mut probes = 0;
    for _ in 0..40 {
        now_us += 25 * MS;
        if let Some(events) = gateway.tick(now_us).report {
            assert!(events.is_empty());
            gateway.report_failed();
            probes += 1;
        }
    }
    assert!((8..=10).contains(&probes), "{probes} probes in a second");
    assert!(!ask(&mut gateway, 11, now_us));

    // One that is answered lets one request through, and its answer all.
    now_us += PROBE_INTERVAL_MS * MS;
    assert!(gateway.tick(now_us).report.is_some());
    gateway.report_done();
    assert!(ask(&mut gateway, 12, now_us) && !ask(&mut gateway, 13, now_us));
    gateway.step(12, Input::Reply(reply(1)), now_us);
    assert!(ask(&mut gateway, 14, now_us) && ask(&mut gateway, 15, now_us));
}

#[test]
fn a_client_that_leaves_during_the_trial_gives_the_next_request_its_turn() {
    for end in [
        Input::Log(Ending::default()),
        Input::AnswerHeaders { status: 408, endpoint: String::new(), ends: true },
    ] {
        let mut gateway = gateway();
        for id in 0..CIRCUIT_FAILURES {
            ask(&mut gateway, id, 0);
            gateway.step(id, Input::Failure(Failure::Unavailable), 0);
        }
        assert!(gateway.tick(PROBE_INTERVAL_MS * MS).report.is_some());
        gateway.report_done();
        let now_us = PROBE_INTERVAL_MS * MS;
        assert!(ask(&mut gateway, 10, now_us) && !ask(&mut gateway, 11, now_us));
        gateway.step(10, end, now_us);
        assert!(ask(&mut gateway, 12, now_us));
    }
}

#[test]
fn reports_wait_for_the_interval_and_for_the_call_before() {
    let mut gateway = gateway();
    let run = |gateway: &mut Gateway, id: u32, now_us| {
        ask(gateway, id, now_us);
        gateway.step(id, Input::Reply(reply(u64::from(id))), now_us);
        gateway.step(id, Input::Log(Ending::default()), now_us);
    };
    let ids = |tick: Tick| tick.report.map(|events| events.iter().map(|e| e.decision_id).collect::<Vec<_>>());
    assert_eq!(ids(gateway.tick(100 * MS)), None, "nothing to tell, nothing sent");
    run(&mut gateway, 1, 100 * MS);
    assert_eq!(ids(gateway.tick(110 * MS)), Some(vec![1]));
    run(&mut gateway, 2, 120 * MS);
    assert_eq!(ids(gateway.tick(300 * MS)), None, "the call before still runs");
    assert_eq!(gateway.report_done(), 1);
    assert_eq!(ids(gateway.tick(310 * MS)), Some(vec![2]));
    gateway.report_failed();
    run(&mut gateway, 3, 315 * MS);
    assert_eq!(ids(gateway.tick(320 * MS)), None, "the interval");
    assert_eq!(ids(gateway.tick(360 * MS)), Some(vec![2, 3]));
}

#[test]
fn a_report_that_never_comes_back_is_sent_again() {
    let mut gateway = gateway();
    ask(&mut gateway, 1, 0);
    gateway.step(1, Input::Reply(reply(1)), 0);
    gateway.step(1, Input::Log(Ending::default()), 0);
    assert_eq!(gateway.tick(100 * MS).report.map(|r| r.len()), Some(1));
    assert!(!gateway.tick((100 + REPORT_TIMEOUT_MS) * MS - 1).cancel_report);
    let tick = gateway.tick((100 + REPORT_TIMEOUT_MS) * MS);
    assert!(tick.cancel_report);
    assert_eq!(tick.report.map(|r| r.len()), Some(1));
}

#[test]
fn leases_are_renewed_until_the_end() {
    let mut gateway = gateway();
    ask(&mut gateway, 1, 0);
    gateway.step(1, Input::Reply(reply(5)), 0);
    let mut alive = 0;
    for second in 1..=35 {
        let tick = gateway.tick(second * 1000 * MS);
        if let Some(events) = tick.report {
            alive += events.iter().filter(|e| e.decision_id == 5 && e.what == What::Alive).count();
            gateway.report_done();
        }
    }
    assert_eq!(alive as u64, 1 + 35_000 / LEASE_RENEWAL_MS, "once to confirm the decision, then to renew");
    gateway.step(1, Input::Log(Ending::default()), 35_000 * MS);
    assert!(gateway.timers.is_empty());
}

#[test]
fn a_request_is_forgotten_once_and_unknown_ones_do_nothing() {
    let mut gateway = gateway();
    assert!(gateway.step(9, Input::Reply(reply(1)), 0).is_empty());
    gateway.step(1, Input::Headers(completion()), 0);
    gateway.forget(1, 0);
    gateway.forget(1, 0);
    assert_eq!((gateway.pending(), gateway.timers.len()), (0, 0));
}

/// An input of any kind, in any order. Replies get their number when they are given.
fn inputs() -> impl Strategy<Value = Input<'static>> {
    prop_oneof![
        3 => Just(Input::Headers(completion())),
        1 => Just(Input::Headers(stored())),
        1 => Just(Input::Headers(head(Err(Reason::Path)))),
        2 => (0usize..200, any::<bool>()).prop_map(|(bytes, ends)| Input::BodyChunk { bytes, ends }),
        1 => Just(Input::BodyChunk { bytes: usize::MAX, ends: false }),
        1 => Just(Input::Trailers),
        4 => Just(Input::Body(BODY)),
        1 => Just(Input::Body(b"{")),
        2 => any::<u32>().prop_map(Input::Asked),
        4 => Just(Input::Reply(Reply::default())),
        2 => any::<u32>().prop_map(|status| Input::Failure(Failure::of_grpc_status(status))),
        1 => Just(Input::Failure(Failure::BadReply)),
        1 => Just(Input::Tick),
        2 => (0u32..600, 0u32..5, any::<bool>()).prop_map(|(status, i, ends)| {
            Input::AnswerHeaders { status, endpoint: format!("10.0.0.{i}:8000"), ends }
        }),
        2 => (any::<bool>(), any::<bool>()).prop_map(|(some, ends)| {
            let chunk: &[u8] = if some { b"data: x" } else { b"" };
            Input::AnswerChunk { head: chunk, tail: chunk, ends }
        }),
        1 => Just(Input::AnswerTrailers),
        1 => (any::<u64>(), any::<u32>()).prop_map(|(flags, attempts)| Input::Log(Ending { flags, attempts })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_happens_in_whatever_order_the_books_are_closed(
        steps in prop::collection::vec((0u32..4, inputs(), 0u64..70 * MS), 0..120),
    ) {
        let mut gateway = gateway();
        let mut now_us = 0;
        // Contexts are never used again by the proxy: one that was logged gets a new number.
        let mut ids: BTreeMap<u32, u32> = (0..4).map(|slot| (slot, slot)).collect();
        let mut begun = BTreeSet::new();
        let mut settled_count: BTreeMap<u32, u32> = BTreeMap::new();
        let mut decided = BTreeSet::new();
        let mut events = Vec::new();
        let mut next = 100;
        for (slot, mut input, pause_us) in steps {
            now_us += pause_us;
            let id = ids[&slot];
            if matches!(input, Input::Headers(_)) {
                begun.insert(id);
            }
            if matches!(input, Input::Reply(_)) {
                next += 1;
                input = Input::Reply(reply(u64::from(next)));
                if begun.contains(&id) {
                    decided.insert(u64::from(next));
                }
            }
            if matches!(input, Input::Log(_)) {
                next += 1;
                ids.insert(slot, next);
            }
            let mut all = vec![(id, gateway.step(id, input, now_us))];
            let tick = gateway.tick(now_us);
            if let Some(batch) = tick.report {
                events.extend(batch);
                gateway.report_done();
            }
            all.extend(tick.woken);
            for (id, effects) in all {
                prop_assert!(effects.len() <= EFFECTS_MAX);
                let held = effects.contains(&Effect::Hold);
                prop_assert!(!(held && effects.contains(&Effect::Resume)));
                if settled(&effects).is_some() {
                    prop_assert!(!held);
                    *settled_count.entry(id).or_default() += 1;
                }
            }
        }
        for id in ids.into_values() {
            let effects = gateway.step(id, Input::Log(Ending::default()), now_us);
            if settled(&effects).is_some() {
                *settled_count.entry(id).or_default() += 1;
            }
        }
        // Every request that began was settled, and once.
        let settled_ids: BTreeSet<u32> = settled_count.keys().copied().collect();
        prop_assert_eq!(settled_ids, begun);
        prop_assert!(settled_count.values().all(|count| *count == 1), "{:?}", settled_count);
        // Nothing is left.
        prop_assert_eq!((gateway.pending(), gateway.timers.len()), (0, 0));
        prop_assert_eq!(gateway.worker().ring.in_flight(), 0);
        // Every decision is released, and once.
        gateway.report_failed();
        events.extend(gateway.worker.reports.take().to_vec());
        let ends: Vec<u64> = events
            .iter()
            .filter(|e| e.decision_id != 0 && matches!(e.what, What::End(_)))
            .map(|e| e.decision_id)
            .collect();
        let once: BTreeSet<u64> = ends.iter().copied().collect();
        prop_assert_eq!(once.len(), ends.len(), "an end was told twice");
        prop_assert_eq!(once, decided);
    }
}
