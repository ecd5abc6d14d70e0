//! Frames that no engine should send: each is counted, nothing of it is believed, and the stream goes on.

use warmpath_kv::{SequencerConfig, StreamId};

use crate::bench::{Bench, STREAM, patient};
use crate::engine::{Engine, stored};
use crate::logs;

const PROMPT: [u32; 3] = [1, 2, 9];

fn numbered(number: u64, payload: &[u8]) -> Vec<Vec<u8>> {
    vec![b"topic".to_vec(), number.to_be_bytes().to_vec(), payload.to_vec()]
}

/// One kind of message at a time, to a stream that is live; an engine that starts anew afterwards is known as ever.
#[test]
fn whatever_is_published_the_stream_is_exact_again_after_a_restart() {
    let empty_batch = [0x92, 0xc0, 0x90];
    let deep: Vec<u8> = [vec![0x91; 100_000], vec![0xc0]].concat();
    let kinds: [(&str, Vec<Vec<u8>>); 14] = [
        ("nothing", vec![Vec::new()]),
        ("a topic alone", vec![b"topic".to_vec()]),
        ("a short number", vec![b"topic".to_vec(), vec![0; 7], empty_batch.to_vec()]),
        ("a long number", vec![b"topic".to_vec(), vec![0; 9], empty_batch.to_vec()]),
        ("the end marker of a replay", numbered(u64::MAX, b"")),
        ("the highest number", numbered(u64::MAX - 1, &empty_batch)),
        ("a number far ahead", numbered(1 << 40, &empty_batch)),
        ("no payload", numbered(1, b"")),
        ("a text", numbered(2, b"<html>")),
        ("a batch of nil", numbered(3, &[0xc0])),
        (
            "a batch that promises four billion events",
            numbered(4, &[0x92, 0xc0, 0xdd, 0xff, 0xff, 0xff, 0xff]),
        ),
        ("a text of four gigabytes", numbered(5, &[0x92, 0xdb, 0xff, 0xff, 0xff, 0xff])),
        ("arrays in arrays", numbered(6, &deep)),
        ("a thousand frames", vec![b"x".to_vec(); 1000]),
    ];
    for (kind, frames) in kinds {
        let mut engine = Engine::start();
        // So that what does not come is given up soon.
        let config = SequencerConfig { replay_timeout_ms: 200, retry_ms: 20, ..patient() };
        let bench = Bench::start(config);
        bench.follow(STREAM, &engine);
        bench.until_subscribed(&mut engine);
        bench.until_live(&mut engine);
        engine.publish_frames(frames);
        let mut engine = engine.restart();
        engine.lose(&[stored(None, &[10], &[1, 2])]);
        bench.until(&mut engine, kind, |bench| bench.hit(STREAM, &PROMPT) == 2);
        bench.until_live(&mut engine);
        assert!(bench.ingest.is_alive(), "{kind}");
    }
}

/// Answers of a replay with numbers that were not asked for.
#[test]
fn whatever_a_replay_answers_the_stream_is_exact_again_after_a_restart() {
    for number in [u64::MAX - 1, 1 << 63, 7] {
        let mut engine = Engine::start();
        engine.keep_at(number, &[stored(None, &[20], &[7, 7])]);
        let bench = Bench::start(patient());
        bench.follow(STREAM, &engine);
        bench.until_sequence(&mut engine, "answered", |sequence| sequence.lost_batches == number);
        let mut engine = engine.restart();
        engine.lose(&[stored(None, &[10], &[1, 2])]);
        bench.until(&mut engine, "the new process", |bench| bench.hit(STREAM, &PROMPT) == 2);
        bench.until_live(&mut engine);
        assert_eq!(bench.hit(STREAM, &[7, 7, 9]), 0, "{number}");
    }
}

/// Batches of a format that is not known, say, as fast as an engine makes them.
#[test]
fn what_never_decodes_is_told_once_and_not_with_each_batch() {
    const ID: StreamId = StreamId(7321);
    logs::keep();
    let mut engine = Engine::start();
    let bench = Bench::start(patient());
    bench.follow(ID, &engine);
    let mut published = 0;
    bench.until(&mut engine, "followed", |bench| bench.status(ID).is_some());
    let undecodable = || bench.status(ID).map_or(0, |status| status.read.undecodable_batches);
    while undecodable() < 100 {
        engine.publish_payload(b"<html>".to_vec());
        engine.serve();
        published += 1;
        assert!(published < 4000, "{:?}", bench.status(ID));
    }
    let of_stream = |words: &str| logs::lines(&[words, "7321"]).len();
    assert_eq!((of_stream("does not decode"), of_stream("cleared")), (1, 1));
}
