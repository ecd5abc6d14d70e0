//! Connections that break, engines that restart, streams that come and go.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use warmpath_kv::{SequencerConfig, StreamId, Trust};

use crate::bench::{Bench, STREAM, patient};
use crate::engine::{Engine, stored};

const PROMPT: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

/// The engine restarts in place: same address, numbers from 0, an empty cache.
#[test]
fn c1_a_restart_on_the_same_ports_clears_the_stream() {
    for has_replay in [true, false] {
        let mut engine = Engine::start();
        let bench = Bench::start(patient());
        bench.add(STREAM, &engine.events, has_replay.then_some(engine.replays.as_str()));
        bench.until_subscribed(&mut engine);
        engine.publish(&[stored(None, &[10, 11], &[1, 2, 3, 4])]);
        bench.until(&mut engine, "blocks", |bench| bench.hit(STREAM, &PROMPT) == 4);

        let mut engine = engine.restart();
        bench.until(&mut engine, "cleared", |bench| bench.index.read().stats().removals.restarted == 2);
        assert_eq!(bench.hit(STREAM, &PROMPT), 0);
        bench.until_published(&mut engine, &[stored(None, &[10], &[1, 2])], "the new cache", |bench| {
            bench.hit(STREAM, &PROMPT) == 2
        });
        if has_replay {
            bench.until_sequence(&mut engine, "told", |sequence| sequence.reconnects == 1);
            bench.until_live(&mut engine);
            assert_eq!(engine.questions.last(), Some(&0), "the whole history, after the proof failed");
        }
    }
}

#[test]
fn while_the_connection_is_gone_nothing_is_scored() {
    let mut engine = Engine::start();
    let bench = Bench::start(patient());
    bench.follow(STREAM, &engine);
    bench.until_subscribed(&mut engine);
    engine.publish(&[stored(None, &[10], &[1, 2])]);
    bench.until(&mut engine, "a block", |bench| bench.hit(STREAM, &PROMPT) == 2);
    drop(engine);
    let mut other = Engine::start();
    bench.until(&mut other, "stale", |bench| bench.trust() == "stale disconnected");
    assert_eq!(bench.hit(STREAM, &PROMPT), 0);
}

#[test]
fn c4_a_removed_stream_holds_nothing_whatever_is_on_its_way() {
    let mut engine = Engine::start();
    let bench = Bench::start(patient());
    bench.follow(STREAM, &engine);
    bench.until_subscribed(&mut engine);
    for _ in 0..1000 {
        engine.publish(&[stored(None, &[10], &[1, 2])]);
    }
    bench.ingest.remove_stream(STREAM).expect("the thread runs");
    assert_eq!(bench.index.read().stats().blocks, 0);
    bench.until(&mut engine, "gone", |bench| bench.status(STREAM).is_none());
    assert_eq!(bench.index.read().stats().blocks, 0);
    assert_eq!(bench.index.read().stats().streams, 0);
}

#[test]
fn c11_and_c37_a_stream_of_which_nothing_comes_is_silent() {
    let mut engine = Engine::start();
    let bench = Bench::start(SequencerConfig { silent_ms: 200, ..patient() });
    // Connected, but nothing is published; and an address at which nobody listens.
    bench.add(STREAM, &engine.events, None);
    bench.add(StreamId(2), "tcp://127.0.0.1:1", Some("tcp://127.0.0.1:1"));
    bench.until(&mut engine, "both silent", |bench| {
        [STREAM, StreamId(2)]
            .iter()
            .all(|id| bench.status(*id).is_some_and(|status| status.trust == Trust::Silent))
    });
    let connected = [STREAM, StreamId(2)].map(|id| bench.status(id).map(|status| status.is_connected));
    assert_eq!(connected, [Some(true), Some(false)]);
    bench.until_subscribed(&mut engine);
    assert_ne!(bench.trust(), "silent", "the status that tells of a batch tells of its trust");
}

#[test]
fn an_address_that_is_none_is_told_in_the_status_and_hurts_nobody_else() {
    let mut engine = Engine::start();
    let bench = Bench::start(patient());
    bench.add(StreamId(7), "10.0.0.7:5557", None);
    bench.follow(STREAM, &engine);
    bench.until_live(&mut engine);
    let error = bench.status(StreamId(7)).and_then(|status| status.error);
    assert!(error.is_some(), "no error told");
}

/// A proxy whose engine is gone takes every connection and closes it. It is tried again after pauses that grow, as whoever
/// refuses connections is, and not as fast as connections can be made.
#[test]
fn who_takes_connections_only_to_close_them_is_tried_at_growing_pauses() {
    let closing = TcpListener::bind("127.0.0.1:0").expect("a port");
    let bench = Bench::start(patient());
    bench.add(STREAM, &format!("tcp://{}", closing.local_addr().expect("bound")), None);
    let begun = Instant::now();
    for _ in 0..5 {
        drop(closing.accept().expect("the stream connects"));
    }
    // 100, 200, 400 and 800 ms, but for the turns of the thread's clock.
    assert!(begun.elapsed() > Duration::from_millis(1_200), "{:?}", begun.elapsed());
    let mut other = Engine::start();
    bench.until(&mut other, "counted", |bench| {
        bench.status(STREAM).is_some_and(|status| status.read.handshakes_failed >= 4 && !status.is_connected)
    });
}

#[test]
fn many_streams_share_the_thread() {
    let mut engine = Engine::start();
    engine.lose(&[stored(None, &[10], &[1, 2])]);
    let bench = Bench::start(patient());
    // More than the sockets of one ZeroMQ context allow.
    let ids = 1..=300;
    for id in ids.clone() {
        bench.follow(StreamId(id), &engine);
    }
    bench.until(&mut engine, "all live", |bench| ids.clone().all(|id| bench.hit(StreamId(id), &PROMPT) == 2));
    let stop = Instant::now();
    bench.ingest.shutdown();
    assert!(stop.elapsed() < Duration::from_secs(5), "{:?} to end", stop.elapsed());
}

/// A stream with tens of thousands of batches to read leaves the others their turns.
#[test]
fn a_busy_stream_does_not_starve_another() {
    let mut busy = Engine::start();
    let mut quiet = Engine::start();
    for _ in 0..50_000 {
        busy.lose(&[stored(None, &[10], &[1, 2]), stored(None, &[11], &[3, 4])]);
    }
    let bench = Bench::start(patient());
    bench.follow(StreamId(2), &busy);
    bench.follow(STREAM, &quiet);
    bench.until_subscribed(&mut quiet);
    // The answer of 50,000 batches goes out while the quiet one publishes.
    let answers = std::thread::spawn(move || {
        while busy.questions.is_empty() {
            busy.serve();
        }
        busy
    });
    bench.until(&mut quiet, "the busy one begins", |bench| bench.hit(StreamId(2), &PROMPT) == 2);
    quiet.publish(&[stored(None, &[20], &[7, 7])]);
    bench.until(&mut quiet, "the quiet one", |bench| bench.hit(STREAM, &[7, 7, 9]) == 2);
    let done = |bench: &Bench| bench.status(StreamId(2)).map_or(0, |status| status.sequence.replayed);
    let done_then = done(&bench);
    let mut busy = answers.join().expect("the answers");
    bench.until(&mut busy, "all of the busy one", |bench| done(bench) == 50_000);
    assert!(done_then < 50_000, "the quiet stream waited until the busy one was done");
}
