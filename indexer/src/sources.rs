//! Which engines should tell of their caches and do not.
//!
//! Four cases. Nobody answers at the stream's addresses, or whoever does never says a word: its sequencer calls it silent
//! after ten seconds. Or the engine answers, as far as its replay is asked, and publishes nothing although it serves
//! requests: prefix caching is off, or the port is another engine's. An idle engine publishes nothing either, so this shows
//! only with requests. Or it is to say where it publishes, and says nothing. Or it has told of blocks once, and tells of none any
//! more although it computes some ([`owed`]): then what is held of it is not believed any longer.
//!
//! In: what streams say of themselves, and which places answered requests. Out: a gauge, the names for `/readyz`, streams to
//! distrust, and a warning for each that begins to be missing.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use warmpath_kv::{Millis, StreamId, Trust};

use crate::clock::Clock;
use crate::fleet::{Snapshot, View};
use crate::ingest::{Ingest, StreamStatus};

mod owed;
#[cfg(test)]
mod tests;

pub use owed::Evidence;
use owed::Owed;

/// Between two looks.
const BEAT: Duration = Duration::from_secs(1);

/// So many requests an engine must have answered, and over so many milliseconds, before its silence says anything: prompts
/// shorter than a block store nothing, and a step may take its time.
const REQUESTS_MIN: u64 = 100;
const SERVING_MS_MIN: u64 = 30_000;

/// An engine that is to say where it publishes gets this long, in milliseconds: it is asked within a second.
const ASKED_MS: u64 = 10_000;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct SourceWatch {
    state: Mutex<State>,
    missing: Gauge,
    contradicted: Counter,
}

#[derive(Debug, Default)]
struct State {
    served: HashMap<StreamId, Served>,
    owed: HashMap<StreamId, Owed>,
    /// How often another connection, or another process, was seen, and when the last one was.
    began: HashMap<StreamId, (u64, Millis)>,
    /// Contradicted at the last look. Only at the next one is it believed: where this process stood still, what the engine told
    /// meanwhile may not have been read yet.
    suspected: BTreeSet<StreamId>,
    /// Those that were contradicted, and when; until something comes of them.
    contradicted: HashMap<StreamId, Millis>,
    /// Endpoints whose engines have not said where they publish, and since when.
    unsaid: HashMap<Arc<str>, Millis>,
    /// What was found missing at the last look.
    missing: BTreeSet<Missing>,
}

/// What is missing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Missing {
    /// Events of a stream, by the name of its endpoint, and its rank.
    Stream { id: StreamId, endpoint: String, rank: u32, why: Why },
    /// Any stream of an endpoint.
    Endpoint(Arc<str>),
}

/// Why a stream is thought to be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// Nothing was ever heard.
    Silent,
    /// It answers and serves, and never published.
    NeverPublished,
    /// It published once, and computes blocks that it does not tell of.
    Contradicted,
}

/// What one look found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Look {
    /// Missing, and not so at the last look.
    new: Vec<Missing>,
    /// Streams of which nothing that is held is to be believed.
    distrust: Vec<StreamId>,
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
        let help = "Event streams that should tell something and do not";
        registry.register("kv_sources_missing", help, self.missing.clone());
        let help =
            "Times that an engine computed blocks and told of none, so that what was held of it was dropped";
        registry.register("kv_streams_contradicted", help, self.contradicted.clone());
    }

    /// A request that this place answered must have made it store a block; it was decided then.
    pub fn owes(&self, place: StreamId, evidence: Evidence, decided_at: Millis) {
        self.state.lock().owed.entry(place).or_default().note(evidence, decided_at);
    }

    /// What is missing, for people; empty where nothing is.
    pub fn missing(&self) -> Vec<String> {
        self.state.lock().missing.iter().map(Missing::to_string).collect()
    }

    /// A request got its first byte from this place.
    pub fn served(&self, place: StreamId, now: Millis) {
        let mut state = self.state.lock();
        state.served.entry(place).or_insert(Served { requests: 0, since: now }).requests += 1;
    }

    /// Looks at every stream, until `stop`.
    pub async fn run(
        self: Arc<Self>,
        view: Arc<View>,
        ingest: Arc<Ingest>,
        clock: Clock,
        stop: CancellationToken,
    ) {
        let mut beats = interval(BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = beats.tick() => {}
            }
            let look = self.look(&view.current(), &ingest.status(), clock.now());
            for stream in look.distrust {
                if let Err(error) = ingest.contradict(stream) {
                    tracing::error!(%stream, %error, "what is held of a stream that tells nothing stays");
                }
            }
            look.new.iter().for_each(warn);
        }
    }

    fn look(&self, fleet: &Snapshot, streams: &[StreamStatus], now: Millis) -> Look {
        let mut state = self.state.lock();
        let distrust = state.hear(streams, now);
        self.contradicted.inc_by(u64::try_from(distrust.len()).unwrap_or(u64::MAX));
        let mut missing: BTreeSet<Missing> = streams
            .iter()
            .filter_map(|stream| {
                let why = state.why_missing(stream, now)?;
                let endpoint = stream.endpoint.clone();
                Some(Missing::Stream { id: stream.id, endpoint, rank: stream.rank, why })
            })
            .collect();
        missing.extend(state.unsaid(fleet, now).into_iter().map(Missing::Endpoint));
        self.missing.set(i64::try_from(missing.len()).unwrap_or(i64::MAX));
        let new = missing.difference(&state.missing).cloned().collect();
        state.missing = missing;
        Look { new, distrust }
    }
}

// === impl State ===

impl State {
    /// Takes in what came of the streams; which of them are contradicted now. Streams that went are forgotten.
    fn hear(&mut self, streams: &[StreamStatus], now: Millis) -> Vec<StreamId> {
        let known: BTreeSet<StreamId> = streams.iter().map(|stream| stream.id).collect();
        self.served.retain(|place, _| known.contains(place));
        self.owed.retain(|place, _| known.contains(place));
        self.contradicted.retain(|place, _| known.contains(place));
        self.began.retain(|place, _| known.contains(place));
        self.suspected.retain(|place| known.contains(place));
        let mut distrust = Vec::new();
        for stream in streams {
            if let Some(at) = stream.last_batch_at {
                self.owed.entry(stream.id).and_modify(|owed| owed.heard(at));
                self.contradicted.retain(|place, since| *place != stream.id || *since >= at);
            }
            // What a process computed while nobody listened may have ended with it.
            let count = stream.sequence.reconnects + stream.sequence.restarts;
            let began = self.began.entry(stream.id).or_insert((count, Millis(0)));
            if began.0 != count {
                *began = (count, now);
            }
            let since = began.1;
            self.owed.entry(stream.id).and_modify(|owed| owed.heard(since));

            let is_whole = matches!(stream.trust, Trust::Live | Trust::Degraded(_));
            let is_owed = self.owed.get(&stream.id).is_some_and(|owed| owed.is_contradicted(now));
            if !is_whole || !is_owed {
                self.suspected.remove(&stream.id);
            } else if !self.suspected.insert(stream.id) {
                self.suspected.remove(&stream.id);
                self.owed.remove(&stream.id);
                // Without a batch ever, nothing is held.
                if stream.last_batch_at.is_some() {
                    self.contradicted.insert(stream.id, now);
                    distrust.push(stream.id);
                }
            }
        }
        distrust
    }

    fn why_missing(&self, stream: &StreamStatus, now: Millis) -> Option<Why> {
        let has_served =
            |served: &Served| served.requests >= REQUESTS_MIN && now.since(served.since) >= SERVING_MS_MIN;
        if stream.trust == Trust::Silent {
            Some(Why::Silent)
        } else if self.contradicted.contains_key(&stream.id) {
            Some(Why::Contradicted)
        } else {
            let serves = self.served.get(&stream.id).is_some_and(has_served);
            (stream.read.batches == 0 && serves).then_some(Why::NeverPublished)
        }
    }

    /// Endpoints whose engines are to say where they publish, and have not for a while.
    fn unsaid(&mut self, fleet: &Snapshot, now: Millis) -> Vec<Arc<str>> {
        let asked = fleet.endpoints.iter().filter(|endpoint| endpoint.spec.asks_engine());
        let unsaid: BTreeSet<Arc<str>> = asked
            .filter(|endpoint| !endpoint.spec.has_events())
            .map(|endpoint| endpoint.name.clone())
            .collect();
        self.unsaid.retain(|name, _| unsaid.contains(name));
        for name in unsaid {
            self.unsaid.entry(name).or_insert(now);
        }
        let late = self.unsaid.iter().filter(|(_, since)| now.since(**since) >= ASKED_MS);
        late.map(|(name, _)| name.clone()).collect()
    }
}

// === impl Missing ===

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream { endpoint, rank, why, .. } => {
                let why = match why {
                    Why::Silent => "nothing was ever heard",
                    Why::NeverPublished => "it serves requests and publishes nothing",
                    Why::Contradicted => "it computes blocks that it does not tell of",
                };
                write!(f, "KV events of {endpoint}/{rank}: {why}")
            }
            Self::Endpoint(name) => write!(f, "KV events of {name}: its engine does not say where they are"),
        }
    }
}

/// Of silent streams the event thread tells by itself, with what it knows of the connection.
fn warn(missing: &Missing) {
    match missing {
        Missing::Stream { why: Why::Silent, .. } => {}
        Missing::Stream { id, endpoint, rank, why: Why::NeverPublished } => tracing::warn!(
            stream = %id,
            endpoint,
            rank,
            hint = "check that the engine runs with prefix caching, and that events and replay are ports of this engine",
            "the engine serves requests and publishes no KV events; its prefix hits are unknown"
        ),
        Missing::Stream { id, endpoint, rank, why: Why::Contradicted } => tracing::warn!(
            stream = %id,
            endpoint,
            rank,
            hint = "look in the engine's log for its event publisher; after a restart of the engine its events count again",
            "the engine computes blocks and tells of none; what was held of it is dropped"
        ),
        Missing::Endpoint(endpoint) => tracing::warn!(
            %endpoint,
            hint = "/kv_event_sources is there from vLLM 0.31 on, with --kv-events-config; else write `events` here",
            "the engine does not say where it publishes KV events; its prefix hits are unknown"
        ),
    }
}
