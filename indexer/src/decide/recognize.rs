//! Finds blocks that an engine held before it was heard of, by the engine's own hashes of a prompt.
//!
//! ```text
//! blocks wait for a parent ─▶ Turn ─▶ (the prompt is encoded as a whole) ─▶ hashes ─▶ recognized ─▶ pause
//!                                           └── late, or the client went away ──────────────────────▲
//! ```
//!
//! In: the token ids and keys of a prompt that was decided. Out: blocks in the index, for the decisions after it. One prompt
//! at a time, beside the runtime, and with pauses: most prompts say nothing new. Why a block that is found is held is in
//! `docs/decisions/0010-late-joins.md`.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, spawn_blocking};
use warmpath_kv::native_hash::{NativeHasher, NativeNamespace};
use warmpath_kv::{Index, PromptKeys, StreamId};

use super::metrics::ResultLabels;
use crate::engines::Directory;
use crate::fleet::Endpoint;
use crate::models::NotHashed;

/// For each moment from the encoding to the last block entered, so many without: at most a tenth of a core.
const PAUSE_FACTOR: u32 = 9;
/// At most ten prompts a second are encoded as a whole: blocks may wait for a parent that never comes, and most requests
/// must find their beginning remembered all the same.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Gives out turns.
#[derive(Debug)]
pub(super) struct Recognizer {
    index: Arc<RwLock<Index>>,
    turns: Arc<Semaphore>,
    /// When the next turn may begin.
    rests_until: Arc<Mutex<Instant>>,
    results: Results,
}

/// The only turn there is. Its drop begins the pause, whatever became of it: the prompt was encoded as a whole by then, or is
/// just being.
#[derive(Debug)]
struct Running {
    begun: Instant,
    rests_until: Arc<Mutex<Instant>>,
    /// Given back last.
    _permit: OwnedSemaphorePermit,
}

/// Counts what came of prompts.
#[derive(Clone, Debug)]
struct Results(Family<ResultLabels, Counter>);

/// A stream with blocks that wait.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    /// Tokens.
    block_size: NonZeroU32,
    /// Where its engine loaded the prompt's adapter from; empty where that is not needed.
    adapter_path: Arc<str>,
    stream: StreamId,
}

/// The right to hash one prompt; its drop is the end of it.
#[derive(Debug)]
pub(super) struct Turn {
    index: Arc<RwLock<Index>>,
    hasher: NativeHasher,
    adapter: Option<Arc<str>>,
    /// Sorted, so that those whose hashes are the same are side by side.
    streams: Vec<Waiting>,
    results: Results,
    running: Running,
}

/// What is hashed.
#[derive(Debug)]
pub(super) struct Recognizable {
    /// All of the prompt's, or those of its beginning.
    pub(super) ids: Vec<u32>,
    pub(super) keys: Arc<PromptKeys>,
    pub(super) salt: Option<String>,
}

// === impl Recognizer ===

impl Recognizer {
    pub(super) fn new(index: Arc<RwLock<Index>>, results: Family<ResultLabels, Counter>) -> Self {
        let rests_until = Arc::new(Mutex::new(Instant::now()));
        Self { index, turns: Arc::new(Semaphore::new(1)), rests_until, results: Results(results) }
    }

    /// A turn for a prompt that any of the endpoints may hold; `None`: nothing waits there, or it is not the time, or the
    /// hashes cannot be computed. A decision does not wait for events that are just being applied.
    pub(super) fn turn(
        &self,
        endpoints: &[&Endpoint],
        hasher: Result<NativeHasher, NotHashed>,
        adapter: Option<&Arc<str>>,
        directory: &Directory,
    ) -> Option<Turn> {
        let index = self.index.try_read()?;
        if !index.has_aside() {
            return None;
        }
        let permit = self.turns.clone().try_acquire_owned().ok()?;
        if Instant::now() < *self.rests_until.lock() {
            return None;
        }
        let places = endpoints
            .iter()
            .flat_map(|endpoint| endpoint.ranks.iter().map(move |rank| (endpoint.spec.address, rank.place)));
        let waiting = places.filter(|(_, place)| index.awaits(*place)).filter_map(|(address, stream)| {
            let size = index.stream_stats(stream)?.block_size?;
            Some((address, NonZeroU32::new(size)?, stream))
        });
        let waiting: Vec<_> = waiting.collect();
        drop(index);
        if waiting.is_empty() {
            return None;
        }
        let hasher = hasher.inspect_err(|why| self.results.count(why.name())).ok()?;
        let path = |address| match adapter {
            Some(name) if hasher.needs_adapter_path() => directory.adapter_path(address, name),
            _ => Some(Arc::from("")),
        };
        let streams = waiting.into_iter().filter_map(|(address, block_size, stream)| {
            Some(Waiting { block_size, adapter_path: path(address)?, stream })
        });
        let mut streams: Vec<_> = streams.collect();
        if streams.is_empty() {
            self.results.count("no_adapter_path");
            return None;
        }
        streams.sort_unstable();
        Some(Turn {
            index: self.index.clone(),
            hasher,
            adapter: adapter.cloned(),
            streams,
            results: self.results.clone(),
            running: Running {
                begun: Instant::now(),
                rests_until: self.rests_until.clone(),
                _permit: permit,
            },
        })
    }
}

// === impl Running ===

impl Drop for Running {
    fn drop(&mut self) {
        let pause = (self.begun.elapsed() * PAUSE_FACTOR).max(PAUSE_MIN);
        *self.rests_until.lock() = Instant::now() + pause;
    }
}

// === impl Turn ===

impl Turn {
    /// Hashes the prompt and enters what is found, beside the runtime.
    pub(super) fn take(self, prompt: Recognizable) -> JoinHandle<()> {
        tokio::spawn(async move {
            if let Err(error) = spawn_blocking(move || self.recognize(&prompt)).await {
                tracing::error!(%error, "recognizing blocks broke down");
            }
        })
    }

    fn recognize(self, prompt: &Recognizable) {
        let mut found = 0;
        for alike in self.streams.chunk_by(Waiting::is_alike) {
            let Some(Waiting { block_size, adapter_path, .. }) = alike.first() else { continue };
            let lora = self.adapter.as_deref().map(|name| (name, &**adapter_path));
            let namespace = NativeNamespace { lora, salt: prompt.salt.as_deref() };
            let hashes = self.hasher.prompt(&namespace, &prompt.ids, *block_size);
            for Waiting { stream, .. } in alike {
                if self.index.read().would_recognize(*stream, &hashes) {
                    let blocks = self.index.write().recognize(*stream, &prompt.keys, &hashes);
                    tracing::debug!(stream = stream.0, blocks, "blocks from before it was heard of");
                    found += blocks;
                }
            }
        }
        self.results.count(if found > 0 { "found" } else { "nothing" });
        drop(self.running);
    }
}

// === impl Waiting ===

impl Waiting {
    /// A prompt has the same hashes in both.
    fn is_alike(&self, other: &Self) -> bool {
        (self.block_size, &self.adapter_path) == (other.block_size, &other.adapter_path)
    }
}

// === impl Results ===

impl Results {
    fn count(&self, result: &'static str) {
        self.0.get_or_create(&ResultLabels { result }).inc();
    }
}

// === impl NotHashed ===

impl NotHashed {
    fn name(self) -> &'static str {
        match self {
            Self::Algorithm => "no_algorithm",
            Self::Seed => "no_seed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A prompt whose encoding takes longer than its request may wait is given up on, and its turn with it. Were the next
    /// prompt's turn to begin at once, all long prompts would be late as long as blocks wait.
    #[test]
    fn a_turn_that_came_to_nothing_is_followed_by_a_pause_too() {
        let rests_until = Arc::new(Mutex::new(Instant::now()));
        let turns = Arc::new(Semaphore::new(1));
        let begun = Instant::now().checked_sub(Duration::from_millis(200)).unwrap();
        let permit = turns.clone().try_acquire_owned().unwrap();
        let running = Running { begun, rests_until: rests_until.clone(), _permit: permit };
        drop(running);
        assert_eq!(turns.available_permits(), 1);
        assert!(rests_until.lock().duration_since(begun) >= Duration::from_millis(2_000));
    }
}
