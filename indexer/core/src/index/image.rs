//! What a stream holds as plain numbers, to be saved and taken up by another process.
//!
//! In: an [`Index`] and one of its streams. Out: a [`StreamImage`]; and the way back, from the images of many streams
//! to a new [`Index`] ([`Index::restore`]). An image holds no tokens: only block keys and the engines' hashes.
//!
//! Streams are looked at one by one, so that the index is held for as long as one of them takes, which is some
//! milliseconds: [`Index::gather`] copies, [`Gathered::image`] puts in order without the index.
//!
//! Left out are speculations, which others take over by other ways, and what is aside: a stream that has any is not
//! whole, so it has no image.

use std::num::NonZeroU32;

use hashbrown::{HashMap, HashSet};
use thiserror::Error;

use crate::event::{EngineHash, GroupKind};
use crate::key::{BlockKey, KeyHasher};
use crate::prompt_keys::Layout;
use crate::stream::{Millis, StaleBy, StreamId, Trust};

use super::chains::Chains;
use super::groups::{GROUPS_MAX, Groups};
use super::place::{ChainId, Place, Slot};
use super::references::References;
use super::shown::SharedShown;
use super::slower::MEDIA;
use super::{CHAINS_AT_ONCE, Index, IndexLimits};

pub use super::groups::PerGroup;

/// What one stream holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamImage {
    pub model: Box<str>,
    /// Tokens per block; 0: not known.
    pub block_size: u32,
    /// Tokens behind a block that its key covers.
    pub ahead: u32,
    pub has_other_media: bool,
    /// In the order of their slots.
    pub groups: Vec<GroupImage>,
    /// Blocks of each chain.
    pub lengths: Vec<u32>,
    /// The chains' keys, one chain after the other.
    pub keys: Vec<u64>,
    pub main: PoolImage,
    /// What other media hold, if any was told of.
    pub slower: Option<SlowerImage>,
}

/// One KV group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupImage {
    pub index: Option<u32>,
    pub kind: GroupKind,
    pub block_size: u32,
}

/// The engine hashes of one pool and what they stand for, in the order of their places; the four lists go side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolImage {
    pub hashes: Vec<u64>,
    /// Numbers of chains in the image.
    pub chains: Vec<u32>,
    /// Places in them.
    pub offsets: Vec<u32>,
    /// Copies counted under each hash, 1 to 255.
    pub copies: Vec<u8>,
    pub holds: Vec<HoldImage>,
    /// Hashes whose blocks have no place, with their copies per group.
    pub unplaced: Vec<(u64, PerGroup)>,
    /// Copies of a block beyond the first, per group: chain, place, copies.
    pub spare: Vec<(u32, u32, PerGroup)>,
}

/// What a pool holds of one chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldImage {
    pub chain: u32,
    /// Leading blocks that the first group has.
    pub leading: u32,
    /// Blocks that it has behind a hole: a bit each, the lowest bit of the first word for the first block of the chain.
    pub scattered: Vec<u64>,
    /// Per block: the other groups that have it, a bit each.
    pub others: Vec<u8>,
}

/// What media other than the main pool hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlowerImage {
    pub pool: PoolImage,
    /// Per medium.
    pub media: Vec<MediumImage>,
    /// Copies that go by their age, the oldest first: medium and hash.
    pub ageing: Vec<(u32, u64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediumImage {
    /// Blocks of the main pool's size that one hash stands for; 0: not known.
    pub parts: u32,
    pub tells_removals: bool,
}

/// Why a stream cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ImageError {
    /// It names something that is not in it.
    #[error("the image is damaged: {0}")]
    Damaged(&'static str),
    #[error("the image has {references} references, and there is room for {room}")]
    TooLarge { references: usize, room: usize },
}

/// What makes an image, copied from the index but not yet in order.
#[derive(Debug)]
pub struct Gathered {
    image: StreamImage,
    main: GatheredPool,
    slower: Option<GatheredPool>,
    /// The keys of every chain named.
    chains: HashMap<ChainId, Vec<BlockKey>>,
}

#[derive(Debug, Default)]
struct GatheredPool {
    entries: Vec<(EngineHash, Place, u8)>,
    /// Their chains are numbers of the index.
    holds: Vec<HoldImage>,
    unplaced: Vec<(EngineHash, PerGroup)>,
    spare: Vec<(Place, PerGroup)>,
}

/// An index made of images.
#[derive(Debug)]
pub struct Restored {
    pub index: Index,
    /// The images that did not fit, by their place among those given: their streams are not in the index.
    pub refused: Vec<(usize, ImageError)>,
}

// === impl Index ===

impl Index {
    /// Copies what a stream holds; `None` where it does not exist or is not whole.
    #[must_use]
    pub fn gather(&self, id: StreamId) -> Option<Gathered> {
        let slot = self.streams.slot(id)?;
        let stream = self.streams.get(slot).filter(|stream| stream.aside.is_empty())?;
        let mut chains = HashMap::new();
        let main = GatheredPool::of(&stream.pool, slot, &self.shown, &mut chains);
        let slower = stream.slower.as_ref();
        let image = StreamImage {
            model: stream.model.clone(),
            block_size: stream.layout.map_or(0, Layout::size),
            ahead: stream.layout.map_or(0, Layout::ahead),
            has_other_media: stream.has_other_media,
            groups: stream.groups.image(),
            slower: slower.map(|slower| SlowerImage {
                media: slower.media_image(),
                ageing: slower.ageing_image(),
                ..SlowerImage::default()
            }),
            ..StreamImage::default()
        };
        let slower =
            slower.map(|slower| GatheredPool::of(&slower.pool, slower.slot, &self.shown, &mut chains));
        Some(Gathered { image, main, slower, chains })
    }

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

    /// Gives a stream another id; `false`: there is none, or the other id is taken.
    pub fn rename_stream(&mut self, from: StreamId, to: StreamId) -> bool {
        let slot = self.streams.rename(from, to);
        slot.inspect(|slot| self.note(*slot)).is_some()
    }

    /// The secret of the block keys.
    #[must_use]
    pub fn secret(&self) -> [u8; 16] {
        self.hasher.secret()
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

// === impl StreamImage ===

impl StreamImage {
    /// Engine hashes in it.
    #[must_use]
    pub fn references(&self) -> usize {
        let pools = [Some(&self.main), self.slower.as_ref().map(|slower| &slower.pool)];
        pools.into_iter().flatten().map(|pool| pool.hashes.len() + pool.unplaced.len()).sum()
    }
}

// === impl Gathered ===

impl Gathered {
    /// The image, in the order of places.
    #[must_use]
    pub fn image(self) -> StreamImage {
        let Self { mut image, main, slower, chains } = self;
        let mut ids: Vec<_> = chains.keys().copied().collect();
        ids.sort_unstable();
        let numbers: HashMap<_, _> = ids.iter().copied().zip(0..).collect();
        let mut ends = vec![0; ids.len()];
        image.main = main.image(&numbers, &mut ends);
        if let (Some(slower), Some(image)) = (slower, &mut image.slower) {
            image.pool = slower.image(&numbers, &mut ends);
        }
        for (id, end) in ids.iter().zip(ends) {
            let keys = chains.get(id).map_or(&[][..], Vec::as_slice);
            // What lies behind the last block that the stream holds is none of its image.
            let keys = keys.get(..index(end)).unwrap_or(keys);
            image.lengths.push(u32::try_from(keys.len()).unwrap_or(u32::MAX));
            image.keys.extend(keys.iter().map(|key| key.0));
        }
        image
    }
}

// === impl GatheredPool ===

impl GatheredPool {
    /// `slot`: by which the pool's holds go.
    fn of(
        pool: &References,
        slot: Slot,
        shown: &SharedShown,
        named: &mut HashMap<ChainId, Vec<BlockKey>>,
    ) -> Self {
        let entries: Vec<_> = pool.entries().collect();
        let ids: HashSet<ChainId> = entries.iter().map(|(_, place, _)| place.chain).collect();
        let mut holds = Vec::with_capacity(ids.len());
        let mut ids = ids.into_iter().peekable();
        while ids.peek().is_some() {
            // Others go on with what this stream does not hold between two slices.
            let shown = shown.read();
            for id in ids.by_ref().take(CHAINS_AT_ONCE) {
                let chain = shown.chains.get(id);
                holds.extend(chain.and_then(|chain| chain.hold(slot)).map(|hold| hold.image(id.0)));
                named.entry(id).or_insert_with(|| chain.map_or(Vec::new(), |chain| chain.keys().to_vec()));
            }
        }
        Self { entries, holds, unplaced: pool.unplaced().collect(), spare: pool.spare().collect() }
    }

    fn image(mut self, numbers: &HashMap<ChainId, u32>, ends: &mut [u32]) -> PoolImage {
        let number = |chain: ChainId| numbers.get(&chain).copied().unwrap_or(u32::MAX);
        self.entries.sort_unstable_by_key(|(hash, place, _)| (place.chain, place.at, *hash));
        self.unplaced.sort_unstable();
        for hold in &mut self.holds {
            hold.chain = number(ChainId(hold.chain));
            if let Some(end) = ends.get_mut(index(hold.chain)) {
                *end = hold.end().max(*end);
            }
        }
        self.holds.sort_unstable_by_key(|hold| hold.chain);
        let spare = self.spare.iter().map(|(place, copies)| (number(place.chain), place.at, *copies));
        let mut spare: Vec<_> = spare.collect();
        spare.sort_unstable();
        PoolImage {
            hashes: self.entries.iter().map(|(hash, ..)| hash.0).collect(),
            chains: self.entries.iter().map(|(_, place, _)| number(place.chain)).collect(),
            offsets: self.entries.iter().map(|(_, place, _)| place.at).collect(),
            copies: self.entries.iter().map(|(.., copies)| *copies).collect(),
            holds: self.holds,
            unplaced: self.unplaced.iter().map(|(hash, copies)| (hash.0, *copies)).collect(),
            spare,
        }
    }
}

// === impl HoldImage ===

impl HoldImage {
    /// The group has the block.
    fn has(&self, at: u32, group: usize) -> bool {
        let is_scattered = || {
            let word = self.scattered.get(index(at / u64::BITS));
            word.is_some_and(|word| word >> (at % u64::BITS) & 1 == 1)
        };
        if group == 0 {
            return at < self.leading || is_scattered();
        }
        self.others.get(index(at)).is_some_and(|groups| groups >> group & 1 == 1)
    }

    /// Behind the last block held.
    pub(super) fn end(&self) -> u32 {
        let others = u32::try_from(self.others.len()).unwrap_or(u32::MAX);
        let scattered = self.scattered.last().map_or(0, |last| {
            let words = u32::try_from(self.scattered.len()).unwrap_or(u32::MAX);
            words.saturating_mul(u64::BITS).saturating_sub(last.leading_zeros())
        });
        self.leading.max(others).max(scattered)
    }
}

const _: () = assert!(GROUPS_MAX <= 8 && MEDIA <= GROUPS_MAX, "a byte holds the groups of a block");

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
