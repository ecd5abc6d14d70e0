//! Finds blocks that an engine held before it was heard of, by the engine's own hashes of a prompt.
//!
//! ```text
//! blocks wait for a parent ─▶ Turn ─▶ (the prompt is encoded as a whole) ─▶ hashes ─▶ recognized ─▶ pause
//! ```
//!
//! In: the token ids and keys of a prompt that was decided. Out: blocks in the index, for the decisions after it. One prompt
//! at a time, beside the runtime, and with pauses: most prompts say nothing new. Why a block that is found is held is in
//! `docs/decisions/0010-late-joins.md`.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, spawn_blocking};
use warmpath_kv::native_hash::{NativeHasher, NativeNamespace};
use warmpath_kv::{Index, PromptKeys, StreamId};

use crate::fleet::Endpoint;

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
}

/// The right to hash one prompt; its drop is the end of it.
#[derive(Debug)]
pub(super) struct Turn {
    index: Arc<RwLock<Index>>,
    hasher: NativeHasher,
    /// Those with blocks that wait, by their block size in tokens.
    streams: Vec<(NonZeroU32, StreamId)>,
    begun: Instant,
    permit: OwnedSemaphorePermit,
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
    pub(super) fn new(index: Arc<RwLock<Index>>) -> Self {
        Self { index, turns: Arc::new(Semaphore::new(1)) }
    }

    /// A turn for a prompt that any of the endpoints may hold; `None`: nothing waits there, or it is not the time. A
    /// decision does not wait for events that are just being applied.
    pub(super) fn turn(&self, endpoints: &[&Endpoint], hasher: NativeHasher) -> Option<Turn> {
        let index = self.index.try_read()?;
        if !index.has_aside() {
            return None;
        }
        let permit = self.turns.clone().try_acquire_owned().ok()?;
        let places = endpoints.iter().flat_map(|endpoint| &endpoint.ranks).map(|rank| rank.place);
        let waiting = places.filter(|place| index.awaits(*place)).filter_map(|place| {
            let size = index.stream_stats(place)?.block_size?;
            Some((NonZeroU32::new(size)?, place))
        });
        let mut streams: Vec<_> = waiting.collect();
        drop(index);
        streams.sort_unstable();
        let begun = Instant::now();
        (!streams.is_empty()).then(|| Turn { index: self.index.clone(), hasher, streams, begun, permit })
    }
}

// === impl Turn ===

impl Turn {
    /// Hashes the prompt and enters what is found, beside the runtime; the turn ends after a pause.
    pub(super) fn take(self, prompt: Recognizable) -> JoinHandle<()> {
        tokio::spawn(async move {
            let begun = self.begun;
            let permit = match spawn_blocking(move || self.recognize(&prompt)).await {
                Ok(permit) => permit,
                Err(error) => return tracing::error!(%error, "recognizing blocks broke down"),
            };
            tokio::time::sleep((begun.elapsed() * PAUSE_FACTOR).max(PAUSE_MIN)).await;
            drop(permit);
        })
    }

    fn recognize(self, prompt: &Recognizable) -> OwnedSemaphorePermit {
        let namespace = NativeNamespace { lora: None, salt: prompt.salt.as_deref() };
        for of_size in self.streams.chunk_by(|(one, _), (other, _)| one == other) {
            let Some((size, _)) = of_size.first() else { continue };
            let hashes = self.hasher.prompt(&namespace, &prompt.ids, *size);
            for (_, stream) in of_size {
                if self.index.read().would_recognize(*stream, &hashes) {
                    let found = self.index.write().recognize(*stream, &prompt.keys, &hashes);
                    tracing::debug!(stream = stream.0, blocks = found, "blocks from before it was heard of");
                }
            }
        }
        self.permit
    }
}
