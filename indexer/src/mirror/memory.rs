//! A store in this process: what a store does, in its plainest form.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use super::room::Room;
use super::secret::Secret;
use super::store::{Agreed, Forgotten, Store, StoreError, StreamName};

/// Clones share what they keep.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    expiry: Duration,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    secret: Option<Secret>,
    /// With the time at which they expire.
    images: BTreeMap<StreamName, (Instant, Bytes)>,
    turns: BTreeMap<StreamName, Instant>,
}

// === impl MemoryStore ===

impl MemoryStore {
    /// Images are kept for so long.
    pub fn new(expiry: Duration) -> Self {
        Self { expiry, kept: Arc::default() }
    }

    /// Loses everything.
    pub fn wipe(&self) {
        *self.kept.lock() = Kept::default();
    }

    /// The same store for one who keeps images for another time.
    pub fn with_expiry(&self, expiry: Duration) -> Self {
        Self { expiry, kept: self.kept.clone() }
    }
}

impl Store for MemoryStore {
    async fn agree(&self, own: Secret) -> Result<Agreed, StoreError> {
        let kept = &mut self.kept.lock().secret;
        let is_new = kept.is_none();
        Ok(Agreed { secret: *kept.get_or_insert(own), is_new })
    }

    async fn secret(&self) -> Result<Option<Secret>, StoreError> {
        Ok(self.kept.lock().secret)
    }

    fn expiry(&self) -> Duration {
        self.expiry
    }

    async fn names(&self) -> Result<Vec<String>, StoreError> {
        let now = Instant::now();
        let mut kept = self.kept.lock();
        kept.images.retain(|_, (end, _)| *end > now);
        let mut names: Vec<_> = kept.images.iter().map(|(name, (end, _))| (*end, name.to_string())).collect();
        names.sort_unstable_by(|one, other| other.cmp(one));
        Ok(names.into_iter().map(|(_, name)| name).collect())
    }

    async fn image(&self, name: &str, room: &Room) -> Result<Option<Bytes>, StoreError> {
        let now = Instant::now();
        let kept = self.kept.lock();
        let mut images = kept.images.iter().filter(|(_, (end, _))| *end > now);
        let Some((_, (_, image))) = images.find(|(stream, _)| stream.to_string() == name) else {
            return Ok(None);
        };
        let bytes = image.len();
        if room.take(bytes) { Ok(Some(image.clone())) } else { Err(StoreError::TooLarge { bytes }) }
    }

    async fn forget_expired(&self, _from: usize) -> Result<Forgotten, StoreError> {
        let now = Instant::now();
        let mut kept = self.kept.lock();
        let before = kept.images.len();
        kept.images.retain(|_, (end, _)| *end > now);
        Ok(Forgotten { names: before - kept.images.len(), next: 0 })
    }

    async fn has_image(&self, stream: &StreamName) -> Result<bool, StoreError> {
        let now = Instant::now();
        Ok(self.kept.lock().images.get(stream).is_some_and(|(end, _)| *end > now))
    }

    async fn take_turn(&self, stream: &StreamName, time: Duration) -> Result<bool, StoreError> {
        let now = Instant::now();
        let mut kept = self.kept.lock();
        kept.turns.retain(|_, end| *end > now);
        let is_first = !kept.turns.contains_key(stream);
        if is_first {
            kept.turns.insert(stream.clone(), now + time);
        }
        Ok(is_first)
    }

    async fn save(&self, stream: &StreamName, image: Bytes) -> Result<(), StoreError> {
        self.kept.lock().images.insert(stream.clone(), (Instant::now() + self.expiry, image));
        Ok(())
    }
}
