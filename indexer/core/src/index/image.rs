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

use hashbrown::{HashMap, HashSet};
use thiserror::Error;

use crate::event::EngineHash;
use crate::key::BlockKey;
use crate::prompt_keys::Layout;
use crate::stream::StreamId;

use super::place::{ChainId, GROUPS_MAX, Place, Slot};
use super::references::References;
use super::shown::SharedShown;
use super::slower::MEDIA;
use super::{CHAINS_AT_ONCE, Index};

pub use super::place::PerGroup;
pub use super::plain::{GroupImage, HoldImage, MediumImage, PoolImage, SlowerImage, StreamImage};

mod restore;

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

const _: () = assert!(GROUPS_MAX <= 8 && MEDIA <= GROUPS_MAX, "a byte holds the groups of a block");

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
