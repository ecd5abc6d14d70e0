//! Which engines should tell of their caches and do not: configured event streams that nothing ever came of.
//!
//! Two cases. Nobody answers at the stream's addresses, or whoever does never says a word: its sequencer calls it silent
//! after ten seconds. Or the engine answers, as far as its replay is asked, and publishes nothing although it serves
//! requests: prefix caching is off, or the port is another engine's. An idle engine publishes nothing either, so this shows
//! only with requests. In: what streams say of themselves, and which places answered requests. Out: a gauge, and a warning
//! for each stream that begins to be missing.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use warmpath_kv::{Millis, StreamId, Trust};

use crate::clock::Clock;
use crate::ingest::{Ingest, StreamStatus};

#[cfg(test)]
mod tests;

/// Between two looks.
const BEAT: Duration = Duration::from_secs(1);

/// So many requests an engine must have answered, and over so many milliseconds, before its silence says anything: prompts
/// shorter than a block store nothing, and a step may take its time.
const REQUESTS_MIN: u64 = 100;
const SERVING_MS_MIN: u64 = 30_000;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct SourceWatch {
    state: Mutex<State>,
    missing: Gauge,
}

#[derive(Debug, Default)]
struct State {
    served: HashMap<StreamId, Served>,
    /// Those found missing at the last look.
    missing: BTreeSet<StreamId>,
}

/// Requests that a place has answered.
#[derive(Clone, Copy, Debug)]
struct Served {
    requests: u64,
    since: Millis,
}

// === impl SourceWatch ===

impl SourceWatch {
    pub fn register(&self, registry: &mut Registry) {
        let help = "Configured event streams that nothing ever came of";
        registry.register("kv_sources_missing", help, self.missing.clone());
    }

    /// A request got its first byte from this place.
    pub fn served(&self, place: StreamId, now: Millis) {
        let mut state = self.state.lock();
        state.served.entry(place).or_insert(Served { requests: 0, since: now }).requests += 1;
    }

    /// Looks at every stream, until `stop`.
    pub async fn run(self: Arc<Self>, ingest: Arc<Ingest>, clock: Clock, stop: CancellationToken) {
        let mut beats = interval(BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = beats.tick() => {}
            }
            for stream in self.look(ingest.status(), clock.now()) {
                warn(&stream);
            }
        }
    }

    /// Counts the missing ones; those that were not missing before.
    fn look(&self, streams: Vec<StreamStatus>, now: Millis) -> Vec<StreamStatus> {
        let mut state = self.state.lock();
        let known: BTreeSet<StreamId> = streams.iter().map(|stream| stream.id).collect();
        state.served.retain(|place, _| known.contains(place));
        let mut missing = streams;
        missing.retain(|stream| is_missing(stream, state.served.get(&stream.id), now));
        self.missing.set(i64::try_from(missing.len()).unwrap_or(i64::MAX));
        let now_missing = missing.iter().map(|stream| stream.id).collect();
        let before = std::mem::replace(&mut state.missing, now_missing);
        missing.retain(|stream| !before.contains(&stream.id));
        missing
    }
}

fn is_missing(stream: &StreamStatus, served: Option<&Served>, now: Millis) -> bool {
    let has_served =
        |served: &Served| served.requests >= REQUESTS_MIN && now.since(served.since) >= SERVING_MS_MIN;
    stream.trust == Trust::Silent || stream.read.batches == 0 && served.is_some_and(has_served)
}

/// Of silent streams the event thread tells by itself, with what it knows of the connection.
fn warn(stream: &StreamStatus) {
    if stream.trust != Trust::Silent {
        tracing::warn!(
            stream = %stream.id,
            endpoint = %stream.endpoint,
            rank = stream.rank,
            hint = "check that the engine runs with prefix caching, and that events and replay are ports of this engine",
            "the engine serves requests and publishes no KV events; its prefix hits are unknown"
        );
    }
}
