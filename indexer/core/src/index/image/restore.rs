//! From the images of many streams to a new index.

use std::num::NonZeroU32;

use hashbrown::HashMap;

use crate::event::EngineHash;
use crate::key::{BlockKey, KeyHasher};
use crate::prompt_keys::Layout;
use crate::stream::{Millis, StaleBy, StreamId, Trust};

use super::super::chains::Chains;
use super::super::groups::Groups;
use super::super::place::{ChainId, GROUPS_MAX, Place, Slot};
use super::super::references::References;
use super::super::{Index, IndexLimits};
use super::{ImageError, PoolImage, Restored, StreamImage, index};

impl Index {
    /// A new index with what the images hold, all of which must be of block keys with this secret. Each of its streams
    /// gives no hits until it is trusted ([`Index::set_trust`]).
    ///
    /// An image that contradicts itself, or that there is no room for, is left out.
    #[must_use]
    pub fn restore(secret: [u8; 16], images: &[(StreamId, StreamImage)], limits: IndexLimits) -> Restored {
        let mut restored = Restored { index: Self::new(KeyHasher::new(secret), limits), refused: Vec::new() };
        let mut known = HashMap::new();
        for (at, (id, image)) in images.iter().enumerate() {
            if let Err(error) = restored.index.restore_stream(*id, image, &mut known) {
                restored.refused.push((at, error));
            }
        }
        restored
    }

    /// Becomes `other`, for those who look too, and gives what it was. Who is in the middle of a decision goes on with keys of
    /// before, and finds nothing.
    #[must_use = "dropping it takes long, and is better done without a lock"]
    pub fn become_other(&mut self, other: Self) -> Self {
        self.shown.show(&other.shown);
        let (shown, reader) = (self.shown.clone(), self.reader.clone());
        let (others_shown, others_reader) = (other.shown.clone(), other.reader.clone());
        let before = std::mem::replace(self, Self { shown, reader, ..other });
        Self { shown: others_shown, reader: others_reader, ..before }
    }

    /// `known`: every key that has a place. Where chains begin depends on what came first, and so is another matter in
    /// each process and at each time: blocks are put by their keys.
    fn restore_stream(
        &mut self,
        id: StreamId,
        image: &StreamImage,
        known: &mut HashMap<BlockKey, Place>,
    ) -> Result<(), ImageError> {
        let references = image.references();
        let room = self.limits.references_max.saturating_sub(self.references);
        let room = room.min(self.limits.stream_references_max);
        let blocks = self.shown.read().chains.blocks();
        if references > room || blocks + image.keys.len() > self.limits.blocks_max() {
            return Err(ImageError::TooLarge { references, room });
        }
        if self.streams.slot(id).is_some() {
            return Err(ImageError::Damaged("a stream twice"));
        }
        let lengths = image.lengths.iter().map(|length| index(*length));
        if lengths.sum::<usize>() != image.keys.len() {
            return Err(ImageError::Damaged("chains"));
        }
        known.reserve(image.keys.len());
        let places = self.put(image, known);
        let slot = self.streams.add(id, &image.model);
        let filled = self.fill_stream(slot, image, &places);
        if filled.is_ok() {
            self.references += references;
            self.note(slot);
        } else {
            self.undo(id, slot, &places);
        }
        self.forget_unheld(image, &places, known);
        filled
    }

    /// Where the blocks of each chain of the image are.
    fn put(&mut self, image: &StreamImage, known: &mut HashMap<BlockKey, Place>) -> Vec<Vec<Place>> {
        let mut shown = self.shown.write();
        let mut keys = image.keys.as_slice();
        let chain = |length: &u32| {
            let (chain, rest) = keys.split_at_checked(index(*length)).unwrap_or((keys, &[]));
            keys = rest;
            shown.chains.put(chain, known)
        };
        image.lengths.iter().map(chain).collect()
    }

    /// `places`: where the blocks of each chain of the image are.
    fn fill_stream(
        &mut self,
        slot: Slot,
        image: &StreamImage,
        places: &[Vec<Place>],
    ) -> Result<(), ImageError> {
        if image.slower.is_some() {
            self.begin_slower(slot);
        }
        let stream = self.streams.get_mut(slot).ok_or(ImageError::Damaged("a stream"))?;
        stream.trust = Trust::Stale(StaleBy::Unproven);
        stream.layout = NonZeroU32::new(image.block_size).and_then(|size| Layout::new(size, image.ahead));
        stream.has_other_media = image.has_other_media;
        stream.groups = Groups::restore(&image.groups).ok_or(ImageError::Damaged("groups"))?;
        let shown = &mut *self.shown.write();
        fill_pool(&mut stream.pool, &image.main, places, &mut shown.chains, slot)?;
        if let (Some(slower), Some(image)) = (&mut stream.slower, &image.slower) {
            fill_pool(&mut slower.pool, &image.pool, places, &mut shown.chains, slower.slot)?;
            slower.restore(image, Millis(0)).ok_or(ImageError::Damaged("media"))?;
        }
        Ok(())
    }

    /// Takes back what was done for an image that did not fit.
    fn undo(&mut self, id: StreamId, slot: Slot, places: &[Vec<Place>]) {
        let slower = self.streams.get(slot).and_then(|stream| stream.slower.as_ref());
        let slower = slower.map(|slower| slower.slot);
        let mut shown = self.shown.write();
        for slot in [Some(slot), slower].into_iter().flatten() {
            chains_of(places).iter().for_each(|chain| shown.chains.drop_hold(*chain, slot));
        }
        drop(shown);
        self.streams.end_slower(slot);
        self.streams.remove(id);
        for slot in [Some(slot), slower].into_iter().flatten() {
            self.note(slot);
        }
    }

    /// Forgets the blocks of an image that nobody holds: there are none where it was whole and fitted.
    fn forget_unheld(
        &mut self,
        image: &StreamImage,
        places: &[Vec<Place>],
        known: &mut HashMap<BlockKey, Place>,
    ) {
        let mut shown = self.shown.write();
        let before = shown.chains.blocks();
        shown.chains.trim_all(&chains_of(places));
        if shown.chains.blocks() < before {
            for key in image.keys.iter().copied().map(BlockKey) {
                if known.get(&key).is_some_and(|place| shown.chains.key(*place) != Some(key)) {
                    known.remove(&key);
                }
            }
        }
    }
}

/// The chains of the index in which these places are, each once.
fn chains_of(places: &[Vec<Place>]) -> Vec<ChainId> {
    let mut chains: Vec<_> = places.iter().flatten().map(|place| place.chain).collect();
    chains.sort_unstable();
    chains.dedup();
    chains
}

/// `places`: where the blocks of each chain of the image are.
fn fill_pool(
    pool: &mut References,
    image: &PoolImage,
    places: &[Vec<Place>],
    chains: &mut Chains,
    slot: Slot,
) -> Result<(), ImageError> {
    let count = image.hashes.len();
    if [image.chains.len(), image.offsets.len(), image.copies.len()] != [count; 3] {
        return Err(ImageError::Damaged("lists of different lengths"));
    }
    *pool = References::with_capacity(count);
    let place_of = |chain: u32, at: u32| places.get(index(chain))?.get(index(at)).copied();
    let told = image.chains.iter().zip(&image.offsets);
    for ((hash, (chain, at)), copies) in image.hashes.iter().zip(told).zip(&image.copies) {
        let place = place_of(*chain, *at).filter(|_| *copies > 0);
        let place = place.ok_or(ImageError::Damaged("a hash without a place"))?;
        if !pool.restore(EngineHash(*hash), place, *copies) {
            return Err(ImageError::Damaged("a hash twice"));
        }
    }
    for (hash, copies) in &image.unplaced {
        pool.restore_unplaced(EngineHash(*hash), *copies);
    }
    for (chain, at, copies) in &image.spare {
        let place = place_of(*chain, *at).ok_or(ImageError::Damaged("a copy without a place"))?;
        pool.restore_spare(place, *copies);
    }
    for hold in &image.holds {
        for at in 0..hold.end() {
            let place = place_of(hold.chain, at).ok_or(ImageError::Damaged("a hold without a place"))?;
            let mut is_first = true;
            for group in (0..GROUPS_MAX).filter(|group| hold.has(at, *group)) {
                let had = chains.store(place, slot, group);
                pool.blocks += usize::from(is_first && had.is_empty());
                is_first = false;
            }
        }
    }
    let is_held =
        |place: Place| chains.hold(place.chain, slot).is_some_and(|hold| !hold.stored(place.at).is_empty());
    let are_held = pool.entries().all(|(_, place, _)| is_held(place));
    are_held.then_some(()).ok_or(ImageError::Damaged("a hash of what is not held"))
}
