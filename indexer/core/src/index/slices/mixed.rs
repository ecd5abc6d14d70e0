//! Slices in which some hashes are known. A slice has three steps: each hash is counted without the lock, then the blocks
//! get their places and their holder under it, and then the places are noted beside the hashes.

use crate::event::EngineHash;
use crate::key::BlockKey;

use super::super::chains::{Chains, Entered, Holder};
use super::super::groups::GroupMask;
use super::super::references::{Counted, WhatCounted};
use super::{Slices, Stop};

/// Most blocks that are changed under one hold of the lock: about half a microsecond.
const SLICE: usize = 16;

/// A block between the steps.
#[derive(Clone, Copy, Debug)]
struct Step {
    counted: Counted,
    /// Its place, and the groups that had it before.
    placed: Option<Entered>,
}

impl Slices<'_> {
    pub(super) fn enter_mixed(&mut self, hashes: &[EngineHash], keys: &[BlockKey]) -> Result<(), Stop> {
        let mut slices = hashes.chunks(SLICE).zip(keys.chunks(SLICE));
        slices.try_for_each(|(hashes, keys)| self.enter_slice(hashes, keys))
    }

    fn enter_slice(&mut self, hashes: &[EngineHash], keys: &[BlockKey]) -> Result<(), Stop> {
        let mut steps = [Step { counted: Counted::FULL, placed: None }; SLICE];
        let steps = steps.get_mut(..keys.len()).unwrap_or_default();
        let mut taken = self.stream.references();
        for (step, hash) in steps.iter_mut().zip(hashes) {
            step.counted = self.stream.pool.count(*hash, taken < self.references_max);
            taken += usize::from(step.counted.what == WhatCounted::New);
        }
        let mut shown = self.shown.write();
        let stop = self.place_all(&mut shown.chains, steps, keys);
        drop(shown);
        for (step, hash) in steps.iter().zip(hashes) {
            match (step.placed, step.counted.what) {
                (Some(_), WhatCounted::TooMany) => {
                    self.entered += 1;
                    self.after = step.placed.map(|entered| entered.place);
                    self.stats.skipped.copies += 1;
                }
                (Some(entered), what) => {
                    if what == WhatCounted::New {
                        self.stream.pool.set_place(*hash, step.counted, entered.place);
                    }
                    self.note(entered);
                }
                (None, WhatCounted::New | WhatCounted::Again) => {
                    self.stream.pool.unrefer(*hash);
                }
                (None, WhatCounted::TooMany | WhatCounted::Full) => {}
            }
        }
        stop.map_or(Ok(()), Err)
    }

    /// The second step.
    fn place_all(&self, chains: &mut Chains, steps: &mut [Step], keys: &[BlockKey]) -> Option<Stop> {
        let Holder { slot, group } = self.holder();
        let mut after = self.after;
        let behind = self.blocks.saturating_sub(self.entered);
        for ((more, key), step) in (0..behind).rev().zip(keys).zip(steps) {
            let known = chains.find(after, *key);
            let place = match (step.counted.what, known) {
                (WhatCounted::Again | WhatCounted::TooMany, _) if Some(step.counted.place) != known => {
                    return Some(Stop::Conflict);
                }
                (WhatCounted::Again | WhatCounted::TooMany, _) => step.counted.place,
                (WhatCounted::New, Some(place)) => place,
                (WhatCounted::New, None) if chains.has_room() => chains.place(after, *key, more),
                (WhatCounted::New, None) | (WhatCounted::Full, _) => return Some(Stop::Full),
            };
            let had = match step.counted.what {
                WhatCounted::TooMany => GroupMask::default(),
                _ => chains.store(place, slot, group),
            };
            step.placed = Some(Entered { place, had });
            after = Some(place);
        }
        None
    }
}
