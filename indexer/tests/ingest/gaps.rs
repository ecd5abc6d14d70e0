//! Lost batches, and the replay that brings them back, or does not.

use warmpath_kv::SequencerConfig;

use crate::bench::{Bench, STREAM, patient};
use crate::engine::{Engine, Framing, Replay, cleared, removed, stored};

const PROMPT: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

#[test]
fn the_history_is_fetched_at_the_first_connection_in_either_framing() {
    for framing in [Framing::Plain, Framing::WithTopic] {
        let mut engine = Engine::bind(framing, "tcp://127.0.0.1:*", "tcp://127.0.0.1:*");
        engine.lose(&[stored(None, &[10, 11], &[1, 2, 3, 4])]);
        engine.lose(&[stored(Some(11), &[12, 13], &[5, 6, 7, 8])]);
        engine.lose(&[removed(&[13])]);
        let bench = Bench::start(patient());
        bench.follow(STREAM, &engine);
        bench.until_live(&mut engine);
        assert_eq!(bench.hit(STREAM, &PROMPT), 6, "{framing:?}");
        assert_eq!(engine.questions, [0]);
        let status = bench.status(STREAM).expect("followed");
        assert_eq!((status.last_seq, status.sequence.replayed, status.blocks), (Some(2), 3, 3));
    }
}

#[test]
fn a_gap_is_filled_by_the_replay() {
    let mut engine = Engine::start();
    let bench = Bench::start(patient());
    bench.follow(STREAM, &engine);
    bench.until_subscribed(&mut engine);
    let before = bench.status(STREAM).expect("followed").sequence;
    engine.publish(&[stored(None, &[10], &[1, 2])]);
    engine.lose(&[stored(Some(10), &[11], &[3, 4])]);
    engine.lose(&[stored(Some(11), &[12], &[5, 6])]);
    engine.publish(&[stored(Some(12), &[13], &[7, 8])]);
    bench.until(&mut engine, "all four blocks", |bench| bench.hit(STREAM, &PROMPT) == 8);
    bench.until_sequence(&mut engine, "told", |after| after.gaps == before.gaps + 1);
    bench.until_live(&mut engine);
    let after = bench.status(STREAM).expect("followed").sequence;
    assert_eq!((after.missing_batches, after.lost_batches), (before.missing_batches + 2, 0));
}

/// C10: the answer comes after the removal was published.
#[test]
fn a_removal_published_while_the_replay_runs_is_applied_after_what_it_removes() {
    let mut engine = Engine::start();
    let bench = Bench::start(patient());
    bench.follow(STREAM, &engine);
    bench.until_subscribed(&mut engine);
    engine.publish(&[stored(None, &[10], &[1, 2])]);
    engine.lose(&[stored(Some(10), &[11], &[3, 4])]);
    engine.publish(&[removed(&[11])]);
    engine.publish(&[stored(None, &[20], &[7, 7])]);
    // The question is there before it is answered.
    bench.until(&mut engine, "filled", |bench| bench.hit(STREAM, &[7, 7, 9]) == 2);
    assert_eq!(bench.hit(STREAM, &PROMPT), 2);
}

#[test]
fn a_replay_that_loses_the_middle_is_asked_again_from_there() {
    let mut engine = Engine::start();
    for block in 0..8 {
        let parent = (block > 0).then(|| 9 + block);
        engine.lose(&[stored(parent, &[10 + block], &[1, 1 + block])]);
    }
    engine.replay = Replay::Loses(vec![3, 4]);
    let bench = Bench::start(patient());
    bench.follow(STREAM, &engine);
    bench.until_live(&mut engine);
    assert_eq!(engine.questions, [0, 3]);
    let prompt: Vec<u32> = (0..8).flat_map(|block| [1, 1 + block]).chain([99]).collect();
    assert_eq!(bench.hit(STREAM, &prompt), 16);
}

#[test]
fn a_buffer_that_no_longer_holds_the_beginning_leaves_the_stream_degraded() {
    let mut engine = Engine::start();
    for hash in 10..14 {
        engine.lose(&[stored(None, &[hash], &[hash, hash])]);
    }
    engine.forget_before(2);
    let bench = Bench::start(patient());
    bench.follow(STREAM, &engine);
    bench.until(&mut engine, "degraded", |bench| bench.trust() == "degraded buffer_too_short");
    assert_eq!((bench.hit(STREAM, &[11, 11, 9]), bench.hit(STREAM, &[12, 12, 9])), (0, 2));
}

#[test]
fn a_replay_that_hangs_degrades_the_stream_and_is_fetched_when_it_answers_again() {
    let mut engine = Engine::start();
    engine.lose(&[stored(None, &[10], &[1, 2])]);
    engine.replay = Replay::Hangs;
    let config = SequencerConfig { replay_timeout_ms: 100, retry_ms: 20, probe_ms: 200, ..patient() };
    let bench = Bench::start(config);
    bench.follow(STREAM, &engine);
    bench.until(&mut engine, "given up", |bench| {
        bench.status(STREAM).is_some_and(|status| status.sequence.replays_failed >= 3)
    });
    bench.until_subscribed(&mut engine);
    engine.publish(&[stored(None, &[20], &[7, 7])]);
    bench.until(&mut engine, "what is published", |bench| bench.hit(STREAM, &[7, 7, 9]) == 2);
    assert_eq!(bench.hit(STREAM, &PROMPT), 0);
    engine.replay = Replay::Answers;
    bench.until(&mut engine, "the history", |bench| bench.hit(STREAM, &PROMPT) == 2);
    bench.until_live(&mut engine);
}

#[test]
fn a_lost_tail_is_found_by_probing() {
    let mut engine = Engine::start();
    let bench = Bench::start(SequencerConfig { probe_ms: 200, ..patient() });
    bench.follow(STREAM, &engine);
    bench.until_subscribed(&mut engine);
    engine.lose(&[stored(None, &[10], &[1, 2])]);
    bench.until(&mut engine, "the tail", |bench| bench.hit(STREAM, &PROMPT) == 2);
    bench.until_sequence(&mut engine, "told", |sequence| sequence.tail_batches == 1);
    assert_eq!(bench.trust(), "live");
}

#[test]
fn without_replay_a_loss_drops_what_is_held_until_the_cache_is_known_again() {
    let mut engine = Engine::start();
    let bench = Bench::start(patient());
    bench.add(STREAM, &engine.events, None);
    bench.until_subscribed(&mut engine);
    engine.publish(&[stored(None, &[10], &[1, 2])]);
    bench.until(&mut engine, "a block", |bench| bench.hit(STREAM, &PROMPT) == 2);
    engine.lose(&[removed(&[10])]);
    engine.publish(&[stored(None, &[20], &[7, 7])]);
    bench.until(&mut engine, "the next", |bench| bench.hit(STREAM, &[7, 7, 9]) == 2);
    assert_eq!(bench.hit(STREAM, &PROMPT), 0);
    bench.until(&mut engine, "told", |bench| bench.trust() == "degraded lost_without_replay");
    engine.publish(&[cleared()]);
    bench.until(&mut engine, "known again", |bench| bench.trust() == "live");
    assert!(engine.questions.is_empty());
}

#[test]
fn c2_an_emptied_cache_gives_no_hits() {
    let mut engine = Engine::start();
    let bench = Bench::start(patient());
    bench.follow(STREAM, &engine);
    bench.until_subscribed(&mut engine);
    engine.publish(&[stored(None, &[10], &[1, 2])]);
    bench.until(&mut engine, "a block", |bench| bench.hit(STREAM, &PROMPT) == 2);
    engine.publish(&[cleared(), stored(None, &[20], &[7, 7])]);
    bench.until(&mut engine, "the block after it", |bench| bench.hit(STREAM, &[7, 7, 9]) == 2);
    assert_eq!(bench.hit(STREAM, &PROMPT), 0);
    assert_eq!(bench.index.read().stats().removals.engine_cleared, 1);
}

#[test]
fn a_payload_that_is_no_batch_drops_what_is_held_and_the_stream_goes_on() {
    let mut engine = Engine::start();
    let bench = Bench::start(patient());
    bench.follow(STREAM, &engine);
    bench.until_subscribed(&mut engine);
    engine.publish(&[stored(None, &[10], &[1, 2])]);
    engine.publish_payload(b"not MessagePack".to_vec());
    engine.publish(&[stored(None, &[20], &[7, 7])]);
    bench.until(&mut engine, "the next batch", |bench| bench.hit(STREAM, &[7, 7, 9]) == 2);
    assert_eq!(bench.hit(STREAM, &PROMPT), 0);
    bench.until(&mut engine, "told", |bench| bench.trust() == "degraded undecodable");
    assert_eq!(bench.status(STREAM).map(|status| status.read.undecodable_batches), Some(1));
}

#[test]
fn messages_without_number_and_payload_are_counted_and_skipped() {
    let mut engine = Engine::start();
    let bench = Bench::start(patient());
    bench.follow(STREAM, &engine);
    bench.until_subscribed(&mut engine);
    for frames in [vec![b"topic".to_vec()], vec![b"topic".to_vec(), b"7".to_vec(), Vec::new()]] {
        engine.publish_frames(frames);
    }
    engine.publish(&[stored(None, &[10], &[1, 2])]);
    bench.until(&mut engine, "the next batch", |bench| bench.hit(STREAM, &PROMPT) == 2);
    bench.until(&mut engine, "told", |bench| {
        bench.status(STREAM).is_some_and(|status| status.read.malformed_messages == 2)
    });
    assert_eq!(bench.trust(), "live");
}
