use warmpath_kv::StaleBy;

use super::*;
use crate::fleet::{EndpointSpec, Fleet, Observation, Ports};

fn stream(id: u32, trust: Trust, batches: u64) -> StreamStatus {
    let mut status = StreamStatus::new(StreamId(id), format!("10.0.0.{id}:8000"), 0);
    status.trust = trust;
    status.read.batches = batches;
    status
}

/// Of a stream whose last batch came then.
fn heard(id: u32, trust: Trust, at: u64) -> StreamStatus {
    StreamStatus { last_batch_at: Some(Millis(at)), ..stream(id, trust, 1) }
}

/// Requests of the first stream that must have made it store blocks were decided then.
fn owes(watch: &SourceWatch, times: [u64; 3]) {
    times.into_iter().for_each(|at| watch.owes(StreamId(1), Evidence::Said, Millis(at)));
}

/// Streams missing now, and those of them that were not before.
fn look(watch: &SourceWatch, streams: &[StreamStatus], now: u64) -> (i64, Vec<u32>) {
    let look = watch.look(&Snapshot::default(), streams, Millis(now));
    let new = look.new.iter().filter_map(|missing| match missing {
        Missing::Stream { id, .. } => Some(id.0),
        Missing::Endpoint(_) => None,
    });
    (watch.missing.get(), new.collect())
}

#[test]
fn a_silent_stream_is_missing_until_something_comes_of_it() {
    let watch = SourceWatch::default();
    let others = [stream(1, Trust::Live, 5), stream(2, Trust::Recovering, 0)];
    let silent = [others[0].clone(), others[1].clone(), stream(3, Trust::Silent, 0)];
    assert_eq!(look(&watch, &others, 0), (0, vec![]));
    assert_eq!(look(&watch, &silent, 1_000), (1, vec![3]));
    assert_eq!(watch.missing(), ["KV events of 10.0.0.3:8000/0: nothing was ever heard"]);
    assert_eq!(look(&watch, &silent, 2_000), (1, vec![]), "told once");
    assert_eq!(look(&watch, &others, 3_000), (0, vec![]));
    assert!(watch.missing().is_empty());
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
    watch.owes(StreamId(1), Evidence::Said, Millis(0));
    assert_eq!(look(&watch, &[stream(1, Trust::Live, 0)], 60_000), (0, vec![]));
    look(&watch, &[], 61_000);
    let state = watch.state.lock();
    assert!(state.served.is_empty() && state.owed.is_empty());
}

/// C2, C11: it published once, and what it holds now is not what it told.
#[test]
fn an_engine_that_computes_blocks_and_tells_of_none_is_distrusted_and_missing_until_it_does() {
    let watch = SourceWatch::default();
    let distrusted =
        |stream: StreamStatus, now| watch.look(&Snapshot::default(), &[stream], Millis(now)).distrust;
    owes(&watch, [1_000, 2_000, 3_000]);
    assert_eq!(distrusted(heard(1, Trust::Live, 3_000), 60_000), [], "it told after the last one");
    owes(&watch, [61_000, 62_000, 63_000]);
    assert_eq!(distrusted(heard(1, Trust::Recovering, 3_000), 67_000), [], "what it told is on its way");
    assert_eq!(distrusted(heard(1, Trust::Live, 3_000), 67_000), [], "seen once");
    assert_eq!(distrusted(heard(1, Trust::Live, 3_000), 68_000), [StreamId(1)]);
    assert_eq!(
        watch.missing(),
        ["KV events of 10.0.0.1:8000/0: it computes blocks that it does not tell of"]
    );
    assert_eq!(look(&watch, &[heard(1, Trust::Live, 3_000)], 69_000), (1, vec![]), "told once");
    assert_eq!(look(&watch, &[heard(1, Trust::Live, 69_500)], 70_000), (0, vec![]));
    assert_eq!(watch.contradicted.get(), 1);
}

/// It was killed before anybody could hear what it had to tell.
#[test]
fn answers_of_a_process_that_is_gone_prove_nothing_against_the_next() {
    let watch = SourceWatch::default();
    let distrusted =
        |stream: StreamStatus, now| watch.look(&Snapshot::default(), &[stream], Millis(now)).distrust;
    for changed in ["reconnects", "restarts"] {
        let mut next = heard(1, Trust::Live, 500);
        assert_eq!(distrusted(next.clone(), 900), []);
        owes(&watch, [1_000, 2_000, 3_000]);
        assert_eq!(distrusted(heard(1, Trust::Stale(StaleBy::Disconnected), 500), 4_000), []);
        let counter =
            if changed == "reconnects" { &mut next.sequence.reconnects } else { &mut next.sequence.restarts };
        *counter += 1;
        for now in [7_000, 8_000, 9_000] {
            // The report of one of them was late.
            watch.owes(StreamId(1), Evidence::Said, Millis(3_500));
            assert_eq!(distrusted(next.clone(), now), [], "{changed}");
        }
        // What it computes itself counts.
        owes(&watch, [10_000, 11_000, 12_000]);
        assert_eq!(distrusted(next.clone(), 15_000), []);
        assert_eq!(distrusted(next, 16_000), [StreamId(1)], "{changed}");
        watch.look(&Snapshot::default(), &[], Millis(17_000));
    }
}

/// Reports and events that came meanwhile are read side by side afterwards.
#[test]
fn a_process_that_stood_still_distrusts_nobody_for_events_that_it_has_not_read() {
    let watch = SourceWatch::default();
    let distrusted =
        |stream: StreamStatus, now| watch.look(&Snapshot::default(), &[stream], Millis(now)).distrust;
    owes(&watch, [1_000, 2_000, 3_000]);
    assert_eq!(distrusted(heard(1, Trust::Live, 500), 60_000), []);
    assert_eq!(distrusted(heard(1, Trust::Live, 60_010), 61_000), [], "it told of them");
    assert_eq!(distrusted(heard(1, Trust::Live, 60_010), 62_000), []);
}

/// C12: asked where it publishes, it names no place.
#[test]
fn an_engine_that_does_not_say_where_it_publishes_is_missing_after_a_while() {
    let watch = SourceWatch::default();
    let mut fleet = Fleet::new(3);
    let endpoints = [(1, Ports::Engine(None)), (2, Ports::Offset)]
        .map(|(host, ports)| EndpointSpec { ports, ..EndpointSpec::plain(([10, 0, 0, host], 8000)) });
    fleet.apply(Observation::Listed { source: 0, endpoints: endpoints.into() });
    let look = |now| {
        let new = watch.look(&fleet.snapshot(), &[], Millis(now)).new;
        (watch.missing.get(), new.len())
    };
    assert_eq!([1_000, 10_999, 11_000, 12_000].map(look), [(0, 0), (0, 0), (1, 1), (1, 0)]);
    assert_eq!(watch.missing(), ["KV events of 10.0.0.1:8000: its engine does not say where they are"]);
}
