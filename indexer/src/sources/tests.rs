use super::*;

fn stream(id: u32, trust: Trust, batches: u64) -> StreamStatus {
    let mut status = StreamStatus::new(StreamId(id), format!("10.0.0.{id}:8000"), 0);
    status.trust = trust;
    status.read.batches = batches;
    status
}

/// Streams missing now, and those of them that were not before.
fn look(watch: &SourceWatch, streams: &[StreamStatus], now: u64) -> (i64, Vec<u32>) {
    let new = watch.look(streams.to_vec(), Millis(now));
    (watch.missing.get(), new.iter().map(|stream| stream.id.0).collect())
}

#[test]
fn a_silent_stream_is_missing_until_something_comes_of_it() {
    let watch = SourceWatch::default();
    let others = [stream(1, Trust::Live, 5), stream(2, Trust::Recovering, 0)];
    let silent = [others[0].clone(), others[1].clone(), stream(3, Trust::Silent, 0)];
    assert_eq!(look(&watch, &others, 0), (0, vec![]));
    assert_eq!(look(&watch, &silent, 1_000), (1, vec![3]));
    assert_eq!(look(&watch, &silent, 2_000), (1, vec![]), "told once");
    assert_eq!(look(&watch, &others, 3_000), (0, vec![]));
}

/// Its replay answered, so it is not silent; but it has published nothing.
#[test]
fn an_engine_that_serves_and_publishes_nothing_is_missing_after_a_while() {
    let watch = SourceWatch::default();
    let streams = [stream(1, Trust::Live, 0), stream(2, Trust::Live, 1)];
    for place in [1, 2] {
        (0..100).for_each(|_| watch.served(StreamId(place), Millis(1_000)));
    }
    assert_eq!(look(&watch, &streams, 30_999), (0, vec![]));
    assert_eq!(look(&watch, &streams, 31_000), (1, vec![1]));
    assert_eq!(look(&watch, &[stream(1, Trust::Live, 1)], 32_000), (0, vec![]));
}

#[test]
fn an_idle_engine_is_not_missing_and_a_stream_that_went_is_forgotten() {
    let watch = SourceWatch::default();
    (0..99).for_each(|_| watch.served(StreamId(1), Millis(0)));
    assert_eq!(look(&watch, &[stream(1, Trust::Live, 0)], 60_000), (0, vec![]));
    look(&watch, &[], 61_000);
    assert!(watch.state.lock().served.is_empty());
}
