//! A second event thread that goes on where the first one was, by way of a store.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use warmpath_indexer::clock::Clock;
use warmpath_indexer::ingest::{self, IngestConfig};
use warmpath_indexer::mirror::{MemoryStore, MirrorMetrics, Saver, Store, StreamName, load};
use warmpath_kv::{Index, IndexLimits, KeyHasher, StreamId, Trust};

use crate::bench::{Bench, STREAM, patient};
use crate::engine::{Engine, removed, stored};

const LONG: Duration = Duration::from_secs(60);
const SECRET: [u8; 16] = [5; 16];
const PROMPT: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

/// An engine that holds three blocks of [`PROMPT`], and lost the fourth; its replay keeps the last batch only.
fn engine() -> Engine {
    let mut engine = Engine::start();
    engine.publish(&[stored(None, &[1, 2], &[1, 2, 3, 4])]);
    engine.publish(&[stored(Some(2), &[3, 4], &[5, 6, 7, 8])]);
    engine.publish(&[removed(&[4])]);
    engine
}

/// Follows the engine from the beginning, and saves what it holds.
fn saved(engine: &mut Engine) -> MemoryStore {
    let store = MemoryStore::new(LONG);
    let bench = Bench::start(patient());
    bench.follow(STREAM, engine);
    bench.until(engine, "live", |bench| bench.trust() == "live" && bench.hit(STREAM, &PROMPT) == 6);
    let Bench { ingest, .. } = bench;
    let metrics = MirrorMetrics::default();
    let mut saver = Saver::new(store.clone(), Arc::new(ingest), SECRET, LONG, metrics);
    runtime().block_on(saver.round(LONG));
    engine.forget_before(2);
    engine.questions.clear();
    store
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A fresh event thread with what the store has.
fn restored(store: &MemoryStore) -> Bench {
    let metrics = MirrorMetrics::default();
    let loaded = runtime().block_on(load(store, [9; 16], LONG, &metrics));
    assert_eq!(loaded.secret, SECRET);
    let (index, resumable) = loaded.restore(IndexLimits::default(), &metrics);
    assert_eq!(resumable.len(), 1);
    let index = Arc::new(RwLock::new(index));
    let config = IngestConfig { sequencer: patient() };
    let ingest = ingest::start(config, index.clone(), Clock::start(), resumable).expect("a thread");
    Bench { ingest, index }
}

#[test]
fn who_comes_next_holds_what_the_engine_no_longer_can_tell() {
    let mut engine = engine();
    let store = saved(&mut engine);
    let bench = restored(&store);
    engine.publish(&[stored(Some(3), &[7], &[7, 8])]);
    bench.follow(STREAM, &engine);
    assert_eq!(bench.hit(STREAM, &PROMPT), 0, "nothing is believed before it is proven");
    bench.until(&mut engine, "live", |bench| bench.trust() == "live");
    assert_eq!(bench.hit(STREAM, &PROMPT), 8, "what was saved, and what came after it");
    assert_eq!(engine.questions, [2], "from the last batch saved");
    assert_eq!(bench.stats().resumed, 1);
    engine.publish(&[removed(&[2])]);
    bench.until(&mut engine, "evicted", |bench| bench.hit(STREAM, &PROMPT) == 2);
    assert_eq!(bench.ingest.forget_resumable(), 0);
}

#[test]
fn nothing_of_a_process_that_is_gone_is_believed() {
    let mut engine = engine();
    let store = saved(&mut engine);
    let mut engine = engine.restart();
    // As many batches as its predecessor, some of them the same but for their time.
    engine.publish(&[stored(None, &[1], &[1, 2])]);
    engine.publish(&[stored(None, &[8], &[8, 8])]);
    engine.publish(&[removed(&[4])]);
    let bench = restored(&store);
    bench.follow(STREAM, &engine);
    bench.until(&mut engine, "live", |bench| bench.trust() == "live");
    assert_eq!(bench.hit(STREAM, &PROMPT), 2, "only what this process told");
    assert_eq!(engine.questions, [2, 0]);
    assert_eq!(bench.stats().restarts, 1);
}

#[test]
fn an_image_that_ends_before_the_replay_begins_is_not_used() {
    let mut engine = engine();
    let store = saved(&mut engine);
    engine.publish(&[removed(&[3])]);
    engine.publish(&[stored(None, &[8], &[8, 8])]);
    engine.forget_before(4);
    let bench = restored(&store);
    bench.follow(STREAM, &engine);
    bench.until(&mut engine, "read up", |bench| bench.trust().starts_with("degraded"));
    assert_eq!(bench.trust(), "degraded buffer_too_short");
    assert_eq!(bench.hit(STREAM, &PROMPT), 0, "one of its blocks was removed meanwhile");
}

#[test]
fn what_nobody_asks_for_is_dropped() {
    let mut engine = engine();
    let store = saved(&mut engine);
    let bench = restored(&store);
    assert_eq!(bench.index.read().stats().references, 3);
    assert_eq!(bench.ingest.forget_resumable(), 1);
    let stats = bench.index.read().stats();
    assert_eq!((stats.references, stats.blocks, stats.streams), (0, 0, 0));
}

/// Without a replay nothing can be proven.
#[test]
fn a_stream_without_replay_begins_anew() {
    let mut engine = engine();
    let store = saved(&mut engine);
    let bench = restored(&store);
    bench.add(STREAM, &engine.events, None);
    bench.until(&mut engine, "connected", |bench| {
        bench.status(STREAM).is_some_and(|status| status.is_connected)
    });
    assert_eq!(bench.hit(STREAM, &PROMPT), 0);
    assert_eq!(bench.index.read().stats().references, 0);
}

#[test]
fn only_live_streams_are_saved_and_only_when_they_changed() {
    let store = MemoryStore::new(LONG);
    let mut engine = engine();
    let bench = Bench::start(patient());
    bench.add(STREAM, &engine.events, None);
    bench.until(&mut engine, "connected", |bench| {
        bench.status(STREAM).is_some_and(|status| status.is_connected)
    });
    engine.publish(&[stored(None, &[9], &[9, 9])]);
    bench.until(&mut engine, "joined late", |bench| bench.trust().starts_with("degraded"));
    let Bench { ingest, .. } = bench;
    let metrics = MirrorMetrics::default();
    let mut saver = Saver::new(store.clone(), Arc::new(ingest), SECRET, LONG, metrics.clone());
    let runtime = runtime();
    runtime.block_on(saver.round(LONG));
    assert!(runtime.block_on(store.names()).expect("names").is_empty(), "a degraded stream is not whole");
    drop(saver);

    let bench = Bench::start(patient());
    bench.follow(STREAM, &engine);
    bench.until(&mut engine, "live", |bench| bench.trust() == Trust::Live.name());
    let Bench { ingest, .. } = bench;
    let ingest = Arc::new(ingest);
    let mut saver = Saver::new(store.clone(), ingest.clone(), SECRET, LONG, metrics.clone());
    runtime.block_on(saver.round(Duration::ZERO));
    runtime.block_on(saver.round(Duration::ZERO));
    let count =
        |result| metrics.saves.get_or_create(&warmpath_indexer::mirror::metrics::ByResult { result }).get();
    assert_eq!((count("saved"), count("elsewhere")), (1, 0), "nothing changed since");
    store.wipe();
    runtime.block_on(saver.round(Duration::ZERO));
    assert_eq!(count("saved"), 2, "but the store lost it");
    let brief = store.with_expiry(Duration::from_millis(20));
    let mut keeper = Saver::new(brief.clone(), ingest.clone(), SECRET, LONG, metrics.clone());
    runtime.block_on(keeper.round(Duration::ZERO));
    std::thread::sleep(Duration::from_millis(30));
    assert!(runtime.block_on(brief.names()).expect("names").is_empty());
    runtime.block_on(keeper.round(Duration::ZERO));
    assert_eq!(runtime.block_on(brief.names()).expect("names").len(), 1, "saved again before it is gone");
    assert_eq!(count("saved"), 4);

    let name = StreamName { endpoint: "127.0.0.1:8000".to_owned(), rank: 0 };
    assert!(runtime.block_on(store.take_turn(&name, LONG)).expect("a turn"));
    let mut other = Saver::new(store, ingest, SECRET, LONG, metrics.clone());
    runtime.block_on(other.round(LONG));
    assert_eq!((count("saved"), count("elsewhere")), (4, 1), "another one has the turn");
}

/// As at the start of a program: endpoints are known before it is known what to begin with.
#[test]
fn streams_wait_until_it_is_known_what_the_index_begins_with() {
    let mut engine = engine();
    let store = saved(&mut engine);
    let index = Arc::new(RwLock::new(Index::new(KeyHasher::new([9; 16]), IndexLimits::default())));
    let config = IngestConfig { sequencer: patient() };
    let ingest = ingest::start_held(config, index.clone(), Clock::start()).expect("a thread");
    let bench = Bench { ingest, index };
    let gone = StreamId(7);
    bench.follow(gone, &engine);
    bench.follow(STREAM, &engine);
    bench.ingest.remove_stream(gone).expect("it waits");
    assert!(bench.ingest.is_held() && bench.ingest.status().is_empty());
    assert_eq!(bench.index.read().stats().streams, 0);

    let metrics = MirrorMetrics::default();
    let loaded = runtime().block_on(load(&store, [9; 16], LONG, &metrics));
    let (index, resumable) = loaded.restore(IndexLimits::default(), &metrics);
    bench.ingest.begin_with(index, resumable);
    assert!(!bench.ingest.is_held());
    bench.until(&mut engine, "live", |bench| bench.trust() == "live");
    assert_eq!((bench.hit(STREAM, &PROMPT), bench.stats().resumed), (6, 1));
    assert!(bench.status(gone).is_none(), "one that went meanwhile is not followed");
    assert_eq!(bench.index.read().stats().streams, 1);
    bench.ingest.remove_stream(STREAM).expect("the thread runs");
    assert_eq!(bench.index.read().stats().streams, 0);
}
