//! Blocks whose parent is not known: aside with them, and to their place once it is.

use crate::event::EngineHash;
use crate::key::{BlockKey, Extra};
use crate::prompt_keys::PromptKeys;
use crate::stream::StreamId;

use super::Index;
use super::aside::Link;
use super::entering::{Entering, Entry, Layer, Spot};
use super::groups::GroupMask;
use super::place::{Place, Slot};
use super::references::Refused;
use super::stats::Origin;

impl Index {
    /// Whether blocks of the stream wait for a block that was never told of, so that [`recognize`](Self::recognize) may
    /// be worth its hashes.
    #[must_use]
    pub fn awaits(&self, stream: StreamId) -> bool {
        self.streams.by_id(stream).is_some_and(|stream| stream.groups.has_full() && !stream.aside.is_empty())
    }

    /// Whether [`recognize`](Self::recognize) would find anything.
    #[must_use]
    pub fn would_recognize(&self, stream: StreamId, hashes: &[EngineHash]) -> bool {
        let stream = self.streams.by_id(stream).filter(|stream| stream.groups.has_full());
        stream.is_some_and(|stream| hashes.iter().any(|hash| stream.aside.witnesses(*hash)))
    }

    /// Looks for the prompt's blocks among those that the stream's blocks aside wait for. `hashes`: the engine's own, of
    /// the prompt's whole blocks in the stream's block size and in the namespace of `keys` (see
    /// [`native_hash`](crate::native_hash)); those that are not the engine's change nothing. Returns how many blocks were
    /// found.
    ///
    /// When an engine told of a block behind one that we had not heard of, it held that one and all before it, for it had
    /// just read them. What was removed since is known, so the others are still held. Of several groups, that is so of those
    /// with full attention, which tell of such blocks; of the others nothing is concluded.
    pub fn recognize(&mut self, stream: StreamId, keys: &PromptKeys, hashes: &[EngineHash]) -> u64 {
        let Some(slot) = self.streams.slot(stream) else { return 0 };
        let Some(blocks) = self.streams.get(slot) else { return 0 };
        let full = blocks.groups.full();
        let Some(layout) = blocks.layout.filter(|_| !full.is_empty()) else { return 0 };
        let keys = keys.of_layout(layout);
        let Some(last) = hashes.iter().take(keys.len()).rposition(|hash| blocks.aside.witnesses(*hash))
        else {
            return 0;
        };
        let before = self.stats.admissions.recognized;
        self.change(slot, Entry::Recognized, |entering| {
            let mut after = None;
            for (hash, key) in hashes.iter().zip(keys).take(last + 1) {
                let spot = Spot { after, key: *key, more: 0 };
                after = entering.recognize(*hash, spot, full);
            }
        });
        self.stats.admissions.recognized - before
    }

    /// Goes on with what a stream has postponed; see [`IndexLimits::attached_max`](super::IndexLimits::attached_max).
    pub(super) fn resume_attaching(&mut self, slot: Slot) {
        if self.streams.get(slot).is_some_and(|stream| stream.aside.has_postponed()) {
            self.change(slot, Entry::Told(Origin::Published), |entering| entering.resume());
        }
    }

    /// The same for all streams.
    pub(super) fn resume_attaching_all(&mut self) {
        for slot in self.streams.all() {
            self.resume_attaching(slot);
        }
    }

    /// Drops the blocks that have been aside for longest, of all streams, until the others fit the limit.
    pub(super) fn keep_aside_within_all(&mut self) {
        while self.aside_bytes > self.limits.aside_bytes_max {
            let aside = self.streams.iter_mut().filter(|stream| !stream.aside.is_empty());
            let Some(stream) = aside.min_by_key(|stream| stream.aside.oldest()) else { return };
            let (references, bytes) = (stream.references(), stream.aside.bytes());
            self.stats.skipped.unknown_parent += stream.drop_oldest_aside();
            self.references = self.references + stream.references() - references;
            self.aside_bytes = self.aside_bytes + stream.aside.bytes() - bytes;
        }
    }
}

impl Entering<'_> {
    /// Counts a copy in each of the groups of a block that the engine must hold, unless it is known or has gone since.
    /// Returns its place, if it has one.
    fn recognize(&mut self, hash: EngineHash, spot: Spot, groups: GroupMask) -> Option<Place> {
        if let Some(place) = self.stream.pool.place(hash) {
            return Some(place);
        }
        if !self.stream.aside.is_gone(hash) && self.stream.aside.get(hash).is_none() {
            for group in groups.slots() {
                self.copy(hash, spot, Layer::Main { group });
            }
        } else {
            self.attach(hash, self.chains.find(spot.after, spot.key), spot.key);
        }
        self.chains.find(spot.after, spot.key)
    }

    /// Counts a copy of a block whose parent is not known. Returns what is known of the block itself, by its hash.
    pub(super) fn copy_behind_unknown(
        &mut self,
        hash: EngineHash,
        parent: EngineHash,
        tokens: &[u32],
        extras: Vec<Extra>,
        layer: Layer,
    ) -> Result<Option<(Option<Place>, BlockKey)>, Refused> {
        if let Some(place) = self.stream.place(hash) {
            if self.recopy(hash, place, layer) {
                self.age(hash, layer);
            }
            return Ok(self.chains.key(place).map(|key| (Some(place), key)));
        }
        if let Some(link) = self.stream.aside.get(hash) {
            if link.parent != parent {
                self.skipped.conflicting_hash += 1;
                return Err(Refused);
            }
        } else if self.has_room_for(hash) {
            *self.arrivals += 1;
            let (tokens, extras) = (tokens.into(), extras.into());
            let link = Link { parent, tokens, extras, arrival: *self.arrivals, is_witness: false };
            self.stream.aside.keep(hash, link);
        } else {
            self.skipped.capacity += 1;
            return Err(Refused);
        }
        if matches!(layer, Layer::Main { .. }) {
            self.stream.aside.note_witness(hash);
        }
        self.note_unplaced(hash, layer);
        Ok(None)
    }

    pub(super) fn keep_aside_within(&mut self, bytes_max: usize) {
        while self.stream.aside.bytes() > bytes_max {
            self.skipped.unknown_parent += self.stream.drop_oldest_aside();
        }
    }

    /// Gives their places to the blocks aside that are behind this one, which has just got its own. What is more than the
    /// limit for once goes on with [`resume`](Self::resume).
    pub(super) fn attach(&mut self, hash: EngineHash, after: Option<Place>, key: BlockKey) {
        let mut reached = vec![(hash, after, key)];
        while let Some((parent, after, key)) = reached.pop() {
            while self.stream.aside.is_awaited(parent) {
                // By its hash it is found again only where it is held.
                if self.attach_left == 0 && self.stream.place(parent).is_some() {
                    self.stream.aside.postpone(parent);
                    break;
                }
                let Some((hash, link)) = self.stream.aside.take_behind(parent) else { break };
                let key = link.key(self.hasher, key);
                reached.push((hash, self.settle(hash, after, key), key));
                self.attach_left = self.attach_left.saturating_sub(1);
            }
        }
    }

    /// Goes on with blocks aside whose parent got its place before. Where that is gone again, they wait on.
    pub(super) fn resume(&mut self) {
        while self.attach_left > 0
            && let Some(parent) = self.stream.aside.take_postponed()
        {
            if let Some(place) = self.stream.place(parent)
                && let Some(key) = self.chains.key(place)
            {
                self.attach(parent, Some(place), key);
            }
        }
    }

    /// Counts the copies of a block that has been aside at its place. Returns the place, if the block has one.
    fn settle(&mut self, hash: EngineHash, after: Option<Place>, key: BlockKey) -> Option<Place> {
        let found = self.chains.find(after, key);
        if !self.stream.is_unplaced(hash) {
            return found;
        }
        if found.is_none() && !self.chains.has_room() {
            self.stream.drop_unplaced(hash);
            self.skipped.capacity += 1;
            return None;
        }
        let place = found.unwrap_or_else(|| self.chains.place(after, key, 0));
        let entry = std::mem::replace(&mut self.entry, Entry::Told(Origin::Published));
        self.recopy_unplaced(hash, place);
        self.entry = entry;
        *self.attached += 1;
        Some(place)
    }
}
