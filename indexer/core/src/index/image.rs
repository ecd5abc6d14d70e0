//! The index as plain numbers, to be saved and taken up by another process.
//!
//! In: an [`Index`], and which of its streams. Out: an [`Image`] of what they hold, or a new [`Index`] with it. An image
//! holds no tokens: only block keys, with the secret that they were made with, and the engines' hashes.
//!
//! Left out are speculations, which others take over by other ways, and what is aside: a stream that has any is not
//! whole, so it is left out itself.

use std::num::NonZeroU32;

use hashbrown::HashMap;
use thiserror::Error;

use crate::event::{EngineHash, GroupKind};
use crate::key::{BlockKey, KeyHasher};
use crate::prompt_keys::Layout;
use crate::stream::{Millis, StaleBy, StreamId, Trust};

use super::chains::Chains;
use super::groups::{GROUPS_MAX, Groups, PerGroup};
use super::place::{ChainId, Place};
use super::references::References;
use super::slower::MEDIA;
use super::streams::StreamBlocks;
use super::{Index, IndexLimits};

/// What some streams of an index hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The secret of the block keys.
    pub secret: [u8; 16],
    /// Blocks of each chain.
    pub lengths: Vec<u32>,
    /// The chains' keys, one chain after the other.
    pub keys: Vec<u64>,
    pub streams: Vec<StreamImage>,
}

/// What one stream holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamImage {
    pub id: StreamId,
    pub model: Box<str>,
    /// Tokens per block; 0: not known.
    pub block_size: u32,
    /// Tokens behind a block that its key covers.
    pub ahead: u32,
    pub has_other_media: bool,
    /// In the order of their slots.
    pub groups: Vec<GroupImage>,
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

/// Why no index can be made of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ImageError {
    /// It names something that is not in it.
    #[error("the image is damaged: {0}")]
    Damaged(&'static str),
    #[error("the image has {references} references, and the index has room for {room}")]
    TooLarge { references: usize, room: usize },
}

/// Chains get new numbers in an image, in the order in which they are first named.
#[derive(Default)]
struct Numbers {
    by_id: HashMap<ChainId, u32>,
    chains: Vec<ChainId>,
}

// === impl Numbers ===

impl Numbers {
    fn of(&mut self, id: ChainId) -> u32 {
        *self.by_id.entry(id).or_insert_with(|| {
            self.chains.push(id);
            u32::try_from(self.chains.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

// === impl Index ===

impl Index {
    /// What these streams hold; streams that do not exist or are not whole are left out.
    #[must_use]
    pub fn image(&self, streams: &[StreamId]) -> Image {
        let mut numbers = Numbers::default();
        let streams: Vec<_> = streams
            .iter()
            .filter_map(|id| self.streams.by_id(*id))
            .filter(|stream| stream.aside.is_empty())
            .filter_map(|stream| self.stream_image(stream, &mut numbers))
            .collect();
        let mut image = Image { secret: self.hasher.secret(), streams, ..Image::default() };
        // What lies behind the last block held of a chain is not named, and so not part of the image.
        let mut ends = vec![0; numbers.chains.len()];
        for pool in image.pools() {
            for hold in &pool.holds {
                if let Some(end) = ends.get_mut(index(hold.chain)) {
                    *end = hold.end().max(*end);
                }
            }
        }
        for (chain, end) in numbers.chains.iter().zip(ends) {
            let keys = self.chains.get(*chain).map_or(&[][..], |chain| chain.keys());
            let keys = keys.get(..index(end)).unwrap_or(keys);
            image.lengths.push(u32::try_from(keys.len()).unwrap_or(u32::MAX));
            image.keys.extend(keys.iter().map(|key| key.0));
        }
        image
    }

    fn stream_image(&self, stream: &StreamBlocks, numbers: &mut Numbers) -> Option<StreamImage> {
        let slot = self.streams.slot(stream.id)?;
        let slower = stream.slower.as_ref().map(|slower| SlowerImage {
            pool: pool_image(&slower.pool, &self.chains, slower.slot, numbers),
            media: slower.media_image(),
            ageing: slower.ageing_image(),
        });
        Some(StreamImage {
            id: stream.id,
            model: stream.model.clone(),
            block_size: stream.layout.map_or(0, Layout::size),
            ahead: stream.layout.map_or(0, Layout::ahead),
            has_other_media: stream.has_other_media,
            groups: stream.groups.image(),
            main: pool_image(&stream.pool, &self.chains, slot, numbers),
            slower,
        })
    }

    /// An index with what the image holds. Its streams are there by their ids and give no hits until they are trusted
    /// ([`Index::set_trust`]).
    ///
    /// # Errors
    /// Where the image contradicts itself or is too large for the limits.
    pub fn restore(image: &Image, limits: IndexLimits) -> Result<Self, ImageError> {
        let references: usize = image.pools().map(|pool| pool.hashes.len() + pool.unplaced.len()).sum();
        let room = limits.references_max;
        if references > room || image.keys.len() > limits.blocks_max() {
            return Err(ImageError::TooLarge { references, room });
        }
        let mut new = Self::new(KeyHasher::new(image.secret), limits);
        new.references = references;
        new.chains.restore(&image.lengths, image.keys.iter().copied().map(BlockKey))?;
        for stream in &image.streams {
            new.restore_stream(stream)?;
        }
        new.chains.check_restored()?;
        Ok(new)
    }

    fn restore_stream(&mut self, image: &StreamImage) -> Result<(), ImageError> {
        if self.streams.slot(image.id).is_some() {
            return Err(ImageError::Damaged("a stream twice"));
        }
        self.streams.add(image.id, &image.model);
        let missing = ImageError::Damaged("a stream");
        let slot = self.streams.slot(image.id).ok_or(missing)?;
        if image.slower.is_some() {
            self.streams.begin_slower(slot);
        }
        let stream = self.streams.get_mut(slot).ok_or(missing)?;
        stream.trust = Trust::Stale(StaleBy::Unproven);
        stream.layout = NonZeroU32::new(image.block_size).and_then(|size| Layout::new(size, image.ahead));
        stream.has_other_media = image.has_other_media;
        stream.groups = Groups::restore(&image.groups).ok_or(ImageError::Damaged("groups"))?;
        *stream.pool = restore_pool(&image.main, &mut self.chains, slot)?;
        if let (Some(slower), Some(image)) = (&mut stream.slower, &image.slower) {
            slower.pool = restore_pool(&image.pool, &mut self.chains, slower.slot)?;
            slower.restore(image, Millis(0)).ok_or(ImageError::Damaged("media"))?;
        }
        self.streams.note(slot);
        Ok(())
    }

    /// Gives a stream another id; `false`: there is none, or the other id is taken.
    pub fn rename_stream(&mut self, from: StreamId, to: StreamId) -> bool {
        self.streams.rename(from, to)
    }

    /// The secret of the block keys.
    #[must_use]
    pub fn secret(&self) -> [u8; 16] {
        self.hasher.secret()
    }
}

/// `slot`: by which the pool's holds go.
fn pool_image(
    pool: &References,
    chains: &Chains,
    slot: super::place::Slot,
    numbers: &mut Numbers,
) -> PoolImage {
    let mut entries: Vec<_> = pool.entries().collect();
    entries.sort_unstable_by_key(|(hash, place, _)| (place.chain, place.at, *hash));
    let mut image = PoolImage::default();
    for (hash, place, copies) in entries {
        let chain = numbers.of(place.chain);
        if image.chains.last() != Some(&chain)
            && let Some(hold) = chains.hold(place.chain, slot)
        {
            image.holds.push(hold.image(chain));
        }
        image.hashes.push(hash.0);
        image.chains.push(chain);
        image.offsets.push(place.at);
        image.copies.push(copies);
    }
    image.unplaced = pool.unplaced().map(|(hash, copies)| (hash.0, copies)).collect();
    image.unplaced.sort_unstable();
    let spare = pool.spare().map(|(place, copies)| (numbers.of(place.chain), place.at, copies));
    image.spare = spare.collect();
    image.spare.sort_unstable();
    image
}

fn restore_pool(
    image: &PoolImage,
    chains: &mut Chains,
    slot: super::place::Slot,
) -> Result<References, ImageError> {
    let count = image.hashes.len();
    if [image.chains.len(), image.offsets.len(), image.copies.len()] != [count; 3] {
        return Err(ImageError::Damaged("lists of different lengths"));
    }
    let mut pool = References::with_capacity(count);
    let places = image.chains.iter().zip(&image.offsets);
    for ((hash, (chain, at)), copies) in image.hashes.iter().zip(places).zip(&image.copies) {
        let place = Place { chain: ChainId(*chain), at: *at };
        if chains.key(place).is_none() || *copies == 0 {
            return Err(ImageError::Damaged("a hash without a place"));
        }
        if !pool.restore(EngineHash(*hash), place, *copies) {
            return Err(ImageError::Damaged("a hash twice"));
        }
    }
    for (hash, copies) in &image.unplaced {
        pool.restore_unplaced(EngineHash(*hash), *copies);
    }
    for (chain, at, copies) in &image.spare {
        pool.restore_spare(Place { chain: ChainId(*chain), at: *at }, *copies);
    }
    for hold in &image.holds {
        pool.blocks += chains.restore_hold(hold, slot).ok_or(ImageError::Damaged("a hold"))?;
    }
    Ok(pool)
}

// === impl Image ===

impl Image {
    fn pools(&self) -> impl Iterator<Item = &PoolImage> {
        self.streams.iter().flat_map(|stream| {
            [Some(&stream.main), stream.slower.as_ref().map(|slower| &slower.pool)].into_iter().flatten()
        })
    }
}

// === impl HoldImage ===

impl HoldImage {
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
