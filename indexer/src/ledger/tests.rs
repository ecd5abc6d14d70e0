use proptest::prelude::*;

use super::*;

const LEASE: u64 = 1000;

fn reservation(place: u32, queued_tokens: u64, sequences: u32) -> Reservation {
    Reservation { place: StreamId(place), queued_tokens, sequences, lease_ms: LEASE }
}

fn at(ms: u64) -> Millis {
    Millis(ms)
}

fn load(queued_tokens: u64, sequences: u64) -> Load {
    Load { queued_tokens, sequences, waiting: if queued_tokens == 0 { 0 } else { sequences } }
}

#[test]
fn every_transition() {
    use Event::*;
    use Phase::*;
    let moved = Moved(StreamId(9));
    let table = [
        (Queued, Started, Running),
        (Queued, moved, Queued),
        (Queued, Renewed, Queued),
        (Queued, Released, Over),
        (Queued, Expired, Over),
        (Queued, PlaceGone, Over),
        (Running, Started, Running),
        (Running, moved, Running),
        (Running, Renewed, Running),
        (Running, Released, Over),
        (Running, Expired, Over),
        (Running, PlaceGone, Over),
        (Over, Started, Over),
        (Over, moved, Over),
        (Over, Renewed, Over),
        (Over, Released, Over),
        (Over, Expired, Over),
        (Over, PlaceGone, Over),
    ];
    for (phase, event, next) in table {
        assert_eq!(transition(phase, event), next, "{phase:?} {event:?}");
    }
}

#[test]
fn the_first_byte_releases_tokens_and_the_end_releases_sequences() {
    let mut ledger = Ledger::new(10);
    ledger.reserve(DecisionId(1), reservation(1, 3000, 2), None, at(0)).unwrap();
    assert_eq!(ledger.load(StreamId(1)), load(3000, 2));
    ledger.apply(DecisionId(1), Event::Started, at(5));
    assert_eq!(ledger.load(StreamId(1)), load(0, 2));
    ledger.apply(DecisionId(1), Event::Released, at(9));
    assert_eq!(ledger.load(StreamId(1)), load(0, 0));
    assert!(ledger.is_empty());
}

#[test]
fn a_move_takes_the_load_along() {
    let mut ledger = Ledger::new(10);
    ledger.reserve(DecisionId(1), reservation(1, 100, 1), None, at(0)).unwrap();
    ledger.apply(DecisionId(1), Event::Moved(StreamId(2)), at(0));
    assert_eq!((ledger.load(StreamId(1)), ledger.load(StreamId(2))), (load(0, 0), load(100, 1)));
}

#[test]
fn a_reservation_made_again_keeps_its_phase() {
    let mut ledger = Ledger::new(10);
    ledger.reserve(DecisionId(1), reservation(1, 100, 1), None, at(0)).unwrap();
    ledger.apply(DecisionId(1), Event::Started, at(0));
    ledger.reserve(DecisionId(1), reservation(2, 100, 1), None, at(0)).unwrap();
    assert_eq!((ledger.load(StreamId(1)), ledger.load(StreamId(2))), (load(0, 0), load(0, 1)));
    assert_eq!(ledger.len(), 1);
}

/// A lease that ends before its request does must not make the count of the place negative when the end comes.
#[test]
fn an_end_after_the_lease_changes_nothing() {
    let mut ledger = Ledger::new(10);
    ledger.reserve(DecisionId(1), reservation(1, 100, 1), None, at(0)).unwrap();
    assert_eq!(ledger.expire(at(LEASE - 1)), 0);
    assert_eq!(ledger.expire(at(LEASE)), 1);
    assert_eq!(ledger.apply(DecisionId(1), Event::Released, at(LEASE + 1)), None);
    assert_eq!(ledger.load(StreamId(1)), load(0, 0));
    assert!(ledger.check());
}

/// A request of 30 minutes whose stream stays active is counted to its end.
#[test]
fn signs_of_life_keep_a_long_request_counted() {
    let mut ledger = Ledger::new(10);
    ledger.reserve(DecisionId(1), reservation(1, 100, 1), None, at(0)).unwrap();
    ledger.apply(DecisionId(1), Event::Started, at(10));
    let end = 30 * 60 * 1000;
    for now in (0..end).step_by(LEASE as usize / 3) {
        ledger.apply(DecisionId(1), Event::Renewed, at(now));
        assert_eq!(ledger.expire(at(now)), 0);
    }
    assert_eq!(ledger.load(StreamId(1)), load(0, 1));
    assert!(ledger.apply(DecisionId(1), Event::Released, at(end)).is_some());
    assert!(ledger.is_empty());
}

/// An endpoint that flaps while requests run: the new incarnation starts from zero and late ends do not touch it.
#[test]
fn a_flapping_endpoint_ends_at_zero() {
    let mut ledger = Ledger::new(100);
    for id in 0..50 {
        ledger.reserve(DecisionId(id), reservation(1, 10, 1), None, at(0)).unwrap();
    }
    assert_eq!(ledger.remove_place(StreamId(1), at(1)), 50);
    ledger.reserve(DecisionId(100), reservation(2, 10, 1), None, at(2)).unwrap();
    for id in 0..50 {
        assert_eq!(ledger.apply(DecisionId(id), Event::Released, at(3)), None);
    }
    assert_eq!(ledger.load(StreamId(2)), load(10, 1));
    ledger.apply(DecisionId(100), Event::Released, at(4));
    assert_eq!(ledger.load(StreamId(2)), load(0, 0));
    assert!(ledger.is_empty() && ledger.check());
}

#[test]
fn a_full_ledger_refuses_and_keeps_what_it_has() {
    let mut ledger = Ledger::new(1);
    ledger.reserve(DecisionId(1), reservation(1, 10, 1), None, at(0)).unwrap();
    assert_eq!(ledger.reserve(DecisionId(2), reservation(1, 10, 1), None, at(0)), Err(ReserveError::Full(1)));
    assert_eq!(ledger.load(StreamId(1)), load(10, 1));
}

#[test]
fn deadlines_of_ended_reservations_do_not_pile_up() {
    let mut ledger = Ledger::new(10);
    for id in 0..100_000 {
        ledger.reserve(DecisionId(id), reservation(1, 10, 1), None, at(0)).unwrap();
        ledger.apply(DecisionId(id), Event::Released, at(0));
    }
    assert!(ledger.deadlines.len() <= DEADLINES_SPARE + DEADLINES_FACTOR + 1, "{}", ledger.deadlines.len());
    assert!(ledger.loads.is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Reserve(u64, u32, u64, u32),
    Apply(u64, Event),
    RemovePlace(u32),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..20u64;
    let event = prop_oneof![
        Just(Event::Started),
        (0..4u32).prop_map(|place| Event::Moved(StreamId(place))),
        Just(Event::Renewed),
        Just(Event::Released),
    ];
    prop_oneof![
        4 => (id.clone(), 0..4u32, 0..5000u64, 0..5u32).prop_map(|(i, p, q, s)| Step::Reserve(i, p, q, s)),
        4 => (id, event).prop_map(|(i, e)| Step::Apply(i, e)),
        1 => (0..4u32).prop_map(Step::RemovePlace),
        1 => (0..LEASE).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Whatever happens in whatever order: the sums are the recount, and after every lease nothing is left.
    #[test]
    fn sums_are_the_recount_and_end_at_zero(steps in proptest::collection::vec(step(), 0..200)) {
        let mut ledger = Ledger::new(15);
        let mut now = 0;
        for step in steps {
            match step {
                Step::Reserve(id, place, queued, sequences) => {
                    let _full = ledger.reserve(DecisionId(id), reservation(place, queued, sequences), None, at(now));
                }
                Step::Apply(id, event) => {
                    ledger.apply(DecisionId(id), event, at(now));
                }
                Step::RemovePlace(place) => {
                    ledger.remove_place(StreamId(place), at(now));
                    prop_assert_eq!(ledger.load(StreamId(place)), Load::default());
                }
                Step::Wait(ms) => {
                    now += ms;
                    ledger.expire(at(now));
                }
            }
            prop_assert!(ledger.check());
            prop_assert!(ledger.len() <= 15);
        }
        ledger.expire(at(now + LEASE));
        prop_assert!(ledger.is_empty() && ledger.loads.is_empty());
    }
}

#[test]
fn a_decision_that_nobody_confirms_counts_for_a_short_time_only() {
    let mut ledger = Ledger::new(10);
    let long = Reservation { lease_ms: 30_000, ..reservation(1, 10, 1) };
    for id in [1, 2] {
        ledger.reserve(DecisionId(id), long, None, Millis(0)).unwrap();
    }
    ledger.apply(DecisionId(2), Event::Renewed, Millis(1_000));
    assert_eq!(ledger.expire(Millis(UNCONFIRMED_LEASE_MS - 1)), 0);
    assert_eq!(ledger.expire(Millis(UNCONFIRMED_LEASE_MS)), 1);
    assert!(ledger.get(DecisionId(2)).is_some(), "confirmed: the full lease from then on");
    assert_eq!(ledger.expire(Millis(30_999)), 0);
    assert_eq!(ledger.expire(Millis(31_000)), 1);
    assert!(ledger.is_empty() && ledger.check());
}
