//! Several data-parallel ranks that publish on one socket, each with numbers of its own.

use warmpath_kv::StreamId;
use warmpath_kv::sequencer::SequencerStats;

use crate::bench::{Bench, STREAM, patient};
use crate::engine::{Engine, stored};

const OTHER: StreamId = StreamId(2);
const PROMPT: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

fn both_live(bench: &Bench) -> bool {
    [STREAM, OTHER].iter().all(|id| {
        bench.status(*id).is_some_and(|status| status.is_connected && status.trust.name() == "live")
    })
}

/// Publishes of both ranks until both streams received something: a subscription takes a moment to reach the publisher.
fn until_subscribed(bench: &Bench, engine: &mut Engine) {
    let has_applied = |id| bench.status(id).is_some_and(|status| status.sequence.applied > 0);
    bench.until(engine, "connected", both_connected);
    while !(has_applied(STREAM) && has_applied(OTHER)) {
        engine.publish_of(0, &[]);
        engine.publish_of(1, &[]);
        // Also the pause until the next try.
        engine.serve();
    }
    let numbers = [engine.published(0), engine.published(1)];
    bench.until(engine, "all read and both live", |bench| {
        let read = [STREAM, OTHER].map(|id| bench.status(id).and_then(|status| status.last_seq));
        read == numbers.map(|count| count.checked_sub(1)) && both_live(bench)
    });
}

fn both_connected(bench: &Bench) -> bool {
    [STREAM, OTHER].iter().all(|id| bench.status(*id).is_some_and(|status| status.is_connected))
}

fn sequences(bench: &Bench) -> [SequencerStats; 2] {
    [STREAM, OTHER].map(|id| bench.status(id).map(|status| status.sequence).unwrap_or_default())
}

/// C39. The numbers of the two run side by side, and are not in step.
#[test]
fn c39_ranks_that_share_a_socket_have_a_sequence_each() {
    let mut engine = Engine::start();
    // The history, of which the second rank has more.
    engine.lose_of(0, &[stored(None, &[10], &[1, 2])]);
    engine.lose_of(1, &[stored(None, &[20], &[1, 2])]);
    engine.lose_of(1, &[stored(Some(20), &[21], &[3, 4])]);
    let bench = Bench::start(patient());
    bench.follow_shared(STREAM, 0, &engine);
    bench.follow_shared(OTHER, 1, &engine);
    bench.until(&mut engine, "both live", both_live);
    assert_eq!((bench.hit(STREAM, &PROMPT), bench.hit(OTHER, &PROMPT)), (2, 4));
    until_subscribed(&bench, &mut engine);
    let before = sequences(&bench);
    for turn in 0..20_u8 {
        engine.publish_of(turn % 2, &[stored(None, &[30 + turn], &[90, turn])]);
        engine.publish_of(turn % 2, &[]);
    }
    bench.until(&mut engine, "the last ones", |bench| {
        bench.hit(STREAM, &[90, 18, 9]) == 2 && bench.hit(OTHER, &[90, 19, 9]) == 2
    });
    assert_eq!((bench.hit(STREAM, &[90, 19, 9]), bench.hit(OTHER, &[90, 18, 9])), (0, 0));
    bench.until(&mut engine, "told", |bench| {
        sequences(bench).iter().zip(before).all(|(after, before)| after.applied == before.applied + 20)
    });
    for (after, before) in sequences(&bench).into_iter().zip(before) {
        assert_eq!(
            after,
            SequencerStats { applied: after.applied, ..before },
            "nothing but what was published"
        );
    }
    assert!(both_live(&bench));
    assert_eq!(bench.status(STREAM).map(|status| status.read.other_ranks), Some(0));
}

#[test]
fn a_gap_of_one_rank_is_filled_from_the_replay_of_all() {
    let mut engine = Engine::start();
    let bench = Bench::start(patient());
    bench.follow_shared(STREAM, 0, &engine);
    bench.follow_shared(OTHER, 1, &engine);
    until_subscribed(&bench, &mut engine);
    let before = sequences(&bench);
    engine.publish_of(1, &[stored(None, &[20], &[1, 2])]);
    engine.lose_of(1, &[stored(Some(20), &[21], &[3, 4])]);
    engine.publish_of(1, &[stored(Some(21), &[22], &[5, 6])]);
    bench.until(&mut engine, "all three blocks", |bench| bench.hit(OTHER, &PROMPT) == 6);
    bench.until(&mut engine, "both live again", both_live);
    assert_eq!(bench.hit(STREAM, &PROMPT), 0);
    bench.until(&mut engine, "told", |bench| sequences(bench)[1].gaps == before[1].gaps + 1);
    assert_eq!(sequences(&bench)[0], before[0]);
}

/// Followed as an engine of one rank, the first rank heard is the one that is followed.
#[test]
fn c39_other_ranks_than_the_first_one_heard_are_left_out_and_counted() {
    let mut engine = Engine::start();
    let bench = Bench::start(patient());
    bench.follow(STREAM, &engine);
    bench.until_subscribed(&mut engine);
    engine.publish(&[stored(None, &[10], &[1, 2])]);
    for hash in 20..30 {
        engine.publish_of(1, &[stored(None, &[hash], &[7, 7])]);
    }
    engine.publish(&[stored(Some(10), &[11], &[3, 4])]);
    bench.until(&mut engine, "the last one", |bench| bench.hit(STREAM, &PROMPT) == 4);
    bench.until(&mut engine, "told", |bench| {
        bench.status(STREAM).is_some_and(|status| status.read.other_ranks == 10)
    });
    assert_eq!(bench.hit(STREAM, &[7, 7, 9]), 0);
    let status = bench.status(STREAM).expect("followed");
    assert_eq!((status.sequence.gaps, status.sequence.restarts, status.trust.name()), (0, 0, "live"));
}
