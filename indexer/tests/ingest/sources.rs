//! Who is at the other end, and what is said of those who say nothing.

use warmpath_kv::{SequencerConfig, StreamId};

use crate::bench::{Bench, STREAM, patient};
use crate::engine::{Engine, stored};
use crate::logs;

const PROMPT: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

/// A stream is known by its own connection: topics name pods and models in many ways, and none of them counts.
#[test]
fn whatever_the_topic_says_the_stream_is_that_of_the_configured_address() {
    for topic in ["", "kv@10.0.0.9@m", "kv@10.0.0.9:8000@m", "kv@pod-7@org/model@v2", "kv-events"] {
        let mut engine = Engine::start();
        let bench = Bench::start(patient());
        bench.follow(STREAM, &engine);
        bench.until_subscribed(&mut engine);
        engine.publish_under(topic, &[stored(None, &[10], &[1, 2])]);
        bench.until(&mut engine, topic, |bench| bench.hit(STREAM, &PROMPT) == 2);
        bench.until_live(&mut engine);
    }
}

/// vLLM's publisher connects where its endpoint is a plain address; then both sides wait for the other one.
#[test]
fn a_publisher_that_connects_instead_of_listening_is_told_in_the_log_with_the_remedy() {
    logs::keep();
    // A port that nobody listens on: the publisher connects to it as we do.
    let address = {
        let socket = zmq::Context::new().socket(zmq::PUB).expect("a socket");
        socket.bind("tcp://127.0.0.1:*").expect("bound");
        socket.get_last_endpoint().expect("bound").expect("UTF-8")
    };
    let publisher = zmq::Context::new().socket(zmq::PUB).expect("a socket");
    publisher.connect(&address).expect("it connects later");
    let bench = Bench::start(SequencerConfig { silent_ms: 200, ..patient() });
    bench.add(STREAM, &address, None);
    let mut other = Engine::start();
    bench.until(&mut other, "silent", |bench| bench.trust() == "silent");
    bench.until(&mut other, "logged", |_| !logs::lines(&["WARN", &address, "never came"]).is_empty());
    let lines = logs::lines(&["WARN", &address, "never came"]);
    assert!(lines[0].contains("it connects instead of listening"), "{}", lines[0]);
}

#[test]
fn a_publisher_that_says_nothing_is_told_in_the_log_with_the_settings_to_look_at() {
    logs::keep();
    let mut engine = Engine::start();
    let bench = Bench::start(SequencerConfig { silent_ms: 200, ..patient() });
    bench.add(STREAM, &engine.events, None);
    let events = engine.events.clone();
    bench.until(&mut engine, "logged", |_| !logs::lines(&["WARN", &events, "never came"]).is_empty());
    let line = &logs::lines(&["WARN", &events, "never came"])[0];
    assert!(line.contains("prefix caching") && line.contains("enable_kv_cache_events"), "{line}");
}

/// Eight engines of which one answers its replay and seven do not: what is known is scored meanwhile.
#[test]
fn while_replays_are_unfinished_what_is_known_is_scored() {
    let mut quick = Engine::start();
    quick.lose(&[stored(None, &[10], &[1, 2])]);
    let slow: Vec<Engine> = (0..7).map(|_| Engine::start()).collect();
    let bench = Bench::start(patient());
    for (id, engine) in (2..).zip(&slow) {
        bench.follow(StreamId(id), engine);
    }
    bench.follow(STREAM, &quick);
    bench.until(&mut quick, "the quick one", |bench| bench.hit(STREAM, &PROMPT) == 2);
    bench.until_live(&mut quick);
    let trust = |id| bench.status(StreamId(id)).map(|status| status.trust.name());
    assert!((2..9).all(|id| trust(id) == Some("recovering")), "{:?}", bench.ingest.status());
}
