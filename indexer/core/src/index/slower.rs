//! What one stream holds outside its engine's main pool: in host memory, on disk, in a store.
//!
//! The same as for the main pool, with media in the place of groups and a slot of its own for what it holds of chains, so
//! that lookups that do not ask for it pass it by.

use std::collections::VecDeque;

use crate::event::{EngineHash, Medium};
use crate::stream::Millis;

use super::place::Slot;
use super::plain::{MediumImage, SlowerImage};
use super::references::References;

pub(super) const MEDIA: usize = Medium::SLOWER.len();

#[derive(Debug)]
pub(super) struct Slower {
    pub(super) slot: Slot,
    pub(super) pool: References,
    media: [MediumSeen; MEDIA],
    /// Copies in media of which no removal was told, by arrival.
    ageing: VecDeque<Ageing>,
}

#[derive(Clone, Copy, Debug, Default)]
struct MediumSeen {
    /// Blocks of the main pool's size that one hash stands for, where it is more than one.
    parts: Option<u32>,
    tells_removals: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ageing {
    pub(super) since: Millis,
    pub(super) medium: usize,
    pub(super) hash: EngineHash,
}

// === impl Slower ===

impl Slower {
    pub(super) fn new(slot: Slot) -> Self {
        Self {
            slot,
            pool: References::default(),
            media: [MediumSeen::default(); MEDIA],
            ageing: VecDeque::new(),
        }
    }

    pub(super) fn media_image(&self) -> Vec<MediumImage> {
        let image = |seen: &MediumSeen| MediumImage {
            parts: seen.parts.unwrap_or_default(),
            tells_removals: seen.tells_removals,
        };
        self.media.iter().map(image).collect()
    }

    pub(super) fn ageing_image(&self) -> Vec<(u32, u64)> {
        let image = |copy: &Ageing| (u32::try_from(copy.medium).unwrap_or(u32::MAX), copy.hash.0);
        self.ageing.iter().map(image).collect()
    }

    /// Takes over all but the pool; copies that age do so from `since` on. `None`: it names a medium that there is not.
    pub(super) fn restore(&mut self, image: &SlowerImage, since: Millis) -> Option<()> {
        for (at, medium) in image.media.iter().enumerate() {
            let parts = Some(medium.parts).filter(|parts| *parts > 0);
            *self.media.get_mut(at)? = MediumSeen { parts, tells_removals: medium.tells_removals };
        }
        for (medium, hash) in &image.ageing {
            let medium = usize::try_from(*medium).ok().filter(|medium| *medium < MEDIA)?;
            self.ageing.push_back(Ageing { since, medium, hash: EngineHash(*hash) });
        }
        Some(())
    }

    /// The medium's hashes stand for so many blocks each; `false`: they stood for another number before.
    pub(super) fn learn_parts(&mut self, medium: usize, parts: u32) -> bool {
        self.media.get_mut(medium).is_some_and(|seen| *seen.parts.get_or_insert(parts) == parts)
    }

    /// The hashes that a hash of the medium stands for, its own the last.
    pub(super) fn parts(&self, medium: usize, hash: EngineHash) -> impl Iterator<Item = EngineHash> + use<> {
        parts(hash, self.media.get(medium).and_then(|seen| seen.parts).unwrap_or(1))
    }

    /// The engine tells what it removes from the medium, so nothing in it has to age.
    pub(super) fn note_removal(&mut self, medium: usize) {
        if let Some(seen) = self.media.get_mut(medium).filter(|seen| !seen.tells_removals) {
            seen.tells_removals = true;
            self.ageing.retain(|copy| copy.medium != medium);
            self.ageing.shrink_to_fit();
        }
    }

    /// A copy was counted that no event may ever take off.
    pub(super) fn age(&mut self, copy: Ageing) {
        if self.media.get(copy.medium).is_some_and(|seen| !seen.tells_removals) {
            self.ageing.push_back(copy);
        }
    }

    /// Takes out the oldest copy that came at `until` or earlier, or that is beyond `most`.
    pub(super) fn take_aged(&mut self, until: Millis, most: usize) -> Option<Ageing> {
        let is_over = self.ageing.len() > most;
        self.ageing.pop_front_if(|copy| is_over || copy.since <= until)
    }
}

/// Names for the blocks of a hash that stands for several: all but the last have names of our own making.
pub(super) fn parts(hash: EngineHash, parts: u32) -> impl Iterator<Item = EngineHash> {
    (1..=parts).map(move |part| {
        let mixed = (hash.0 ^ u64::from(part)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        if part == parts { hash } else { EngineHash(mixed ^ u64::from(part)) }
    })
}
