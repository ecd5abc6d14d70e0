use super::*;

fn receipt(number: u64, endpoint: &str) -> Receipt {
    let ranked = Ranked { index: 0, cost: 1.0, uncached_tokens: 1, duplicated_tokens: 0, missing_tokens: 0 };
    Receipt {
        decision: Some(format!("{number:016x}")),
        at_unix_ms: 0,
        model: "m".to_owned(),
        policy: "cost",
        policy_from: "configuration",
        split_percent: None,
        weights: Policy::COST,
        outcome: "scored",
        reason: "",
        prompt_tokens: 100,
        further_tokens: 0,
        reachable_tokens: 48,
        candidates: vec![Considered::new(
            endpoint.into(),
            None,
            Some("live"),
            &Candidate::default(),
            &ranked,
        )],
        candidates_considered: 1,
        reserved: None,
        fate: Fate::default(),
    }
}

fn keeping(keep: usize) -> Receipts {
    Receipts::new(config::Receipts { keep, log_percent: 0.0 })
}

fn numbers(receipts: &Receipts, wanted: Wanted) -> Vec<u64> {
    let wanted = Wanted { limit: 100, ..wanted };
    let newest = receipts.newest(&wanted);
    newest.iter().map(|r| u64::from_str_radix(r.decision.as_deref().unwrap(), 16).unwrap()).collect()
}

#[test]
fn the_newest_are_kept_and_found() {
    let receipts = keeping(3);
    for number in 1..=5 {
        receipts.keep(DecisionId(number), receipt(number, if number % 2 == 0 { "a" } else { "b" }));
    }
    assert_eq!(numbers(&receipts, Wanted::default()), [5, 4, 3]);
    assert_eq!(numbers(&receipts, Wanted { endpoint: Some("a".to_owned()), ..Wanted::default() }), [4]);
    let decision = Some(format!("{:016x}", 3));
    assert_eq!(numbers(&receipts, Wanted { decision, ..Wanted::default() }), [3]);
    assert_eq!(
        numbers(&receipts, Wanted { policy: Some("none".to_owned()), ..Wanted::default() }),
        [0u64; 0]
    );
}

#[test]
fn what_became_of_it_is_joined_also_after_others_left() {
    let receipts = keeping(2);
    for number in 1..=4 {
        receipts.keep(DecisionId(number), receipt(number, "a"));
    }
    receipts.began(DecisionId(1), "a", 200, Duration::from_millis(5));
    receipts.began(DecisionId(3), "c", 200, Duration::from_millis(30));
    let end = Fate { cached_tokens: Some(48), whole_ms: Some(90.0), ..Fate::default() };
    receipts.ended(DecisionId(3), &end);
    let [fourth, third] = &receipts.newest(&Wanted { limit: 9, ..Wanted::default() })[..] else {
        panic!("two")
    };
    assert!(fourth.fate.endpoint.is_none() && !fourth.fate.is_over);
    let fate = &third.fate;
    assert_eq!(
        (fate.endpoint.as_deref(), fate.http_status, fate.ttft_ms),
        (Some("c"), Some(200), Some(30.0))
    );
    assert_eq!((fate.cached_tokens, fate.whole_ms, fate.is_over), (Some(48), Some(90.0), true));
    assert_eq!(numbers(&receipts, Wanted { endpoint: Some("c".to_owned()), ..Wanted::default() }), [3]);
}

#[test]
fn what_is_shown_is_bounded_and_stays_as_it_was() {
    let receipts = keeping(2 * SHOWN_MAX);
    for number in 1..=2 * SHOWN_MAX as u64 {
        receipts.keep(DecisionId(number), receipt(number, "a"));
    }
    let shown = receipts.newest(&Wanted { limit: usize::MAX, ..Wanted::default() });
    assert_eq!(shown.len(), SHOWN_MAX);
    let again = receipts.newest(&Wanted { limit: 1, ..Wanted::default() });
    assert!(Arc::ptr_eq(&shown[0], &again[0]), "not copied");
    receipts.ended(DecisionId(2 * SHOWN_MAX as u64), &Fate::default());
    assert!(!shown[0].fate.is_over);
    assert!(receipts.newest(&Wanted { limit: 1, ..Wanted::default() })[0].fate.is_over);
}

#[test]
fn a_ring_of_none_keeps_none() {
    let receipts = keeping(0);
    assert!(!receipts.are_kept());
    receipts.ended(DecisionId(1), &Fate::default());
    assert_eq!(numbers(&receipts, Wanted::default()), [0u64; 0]);
}
