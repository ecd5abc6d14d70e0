use std::time::{Duration, Instant};

use warmpath_kv::{IndexLimits, KeyHasher};

use super::*;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(20);

fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_thread_that_stands_still_is_seen() {
    let index = Arc::new(RwLock::new(Index::new(KeyHasher::new([0; 16]), IndexLimits::default())));
    let ingest = start(IngestConfig::default(), index.clone(), Clock::start(), Vec::new()).unwrap();
    let spec = StreamSpec::of_nobody(StreamId(1));
    ingest.add_stream(spec).unwrap();
    until("it follows", || !ingest.status().is_empty());
    let held = index.write();
    // To be told as the status of the stream, with what the index holds of it.
    ingest.contradict(StreamId(1)).unwrap();
    until("it waits for the index", || ingest.stood_ms() > 500);
    assert!(ingest.is_alive(), "not for long enough");
    drop(held);
    until("it goes on", || ingest.stood_ms() < 500);
}

/// So that the index can be replaced by one under another secret without anything of before in it.
#[tokio::test]
async fn streams_that_are_held_are_followed_anew_with_another_index() {
    let of = |secret| Index::new(KeyHasher::new([secret; 16]), IndexLimits::default());
    let index = Arc::new(RwLock::new(of(0)));
    let reader = index.read().reader();
    let ingest = start(IngestConfig::default(), index.clone(), Clock::start(), Vec::new()).unwrap();
    for id in 0..3 {
        ingest.add_stream(StreamSpec::of_nobody(StreamId(id))).unwrap();
    }
    until("all are followed", || ingest.status().len() == 3);
    ingest.hold().await.unwrap();
    assert!(ingest.is_held() && ingest.status().is_empty(), "nobody changes the index any more");
    ingest.hold().await.unwrap();
    ingest.remove_stream(StreamId(1)).unwrap();
    ingest.add_stream(StreamSpec::of_nobody(StreamId(3))).unwrap();
    assert!(index.read().stream_stats(StreamId(3)).is_none(), "not yet");
    let before = reader.secret_check();
    ingest.begin_with(of(1), Vec::new());
    until("those that there are by now are followed", || ingest.status().len() == 3);
    let ids: Vec<u32> = ingest.status().iter().map(|status| status.id.0).collect();
    assert_eq!(ids, [0, 2, 3]);
    let held = [0, 1, 2, 3].map(|id| index.read().stream_stats(StreamId(id)).is_some());
    assert_eq!(held, [true, false, true, true]);
    assert_eq!(index.read().secret(), [1; 16]);
    assert!(
        reader.secret_check() != before && reader.stream(StreamId(3)).is_some(),
        "whoever looks sees the new one"
    );
    ingest.begin_with(of(2), Vec::new());
    assert_eq!(index.read().secret(), [1; 16], "nothing was held");
    let (mailbox, ended) = (ingest.mailbox.clone(), ingest);
    drop(ended);
    assert!(mailbox.forget(StreamId(0)).is_err());
}
