//! Events in slices: what lookups wait for is a few blocks' change of the chains, and nothing else.
//!
//! Most events are of this kind: their blocks' tokens are told, the block before them is known, and nothing of the stream
//! waits for its place. Whatever else comes goes block by block under one hold of the lock ([`Entering`](super::stored)).
//!
//! A slice has three steps. What the engine's hashes stand for is counted first, without the lock, then the blocks get
//! their places and their holder under it, and then the places are noted beside the hashes. The outcome is that of doing
//! all of it block by block: a copy that could not be placed is uncounted again.

use crate::event::{EngineHash, Stored};
use crate::key::BlockKey;

use super::Index;
use super::chains::Chains;
use super::groups::GroupMask;
use super::place::{Place, Slot};
use super::references::{Counted, WhatCounted};
use super::stats::Origin;
use super::stored::keys_of;

/// Most blocks that are changed under one hold of the lock: about half a microsecond.
const SLICE: usize = 16;

/// Blocks of one event, all of one full group.
pub(super) struct Run<'a> {
    pub(super) slot: Slot,
    pub(super) group: usize,
    pub(super) stored: &'a Stored,
    /// Tokens per block.
    pub(super) width: usize,
    pub(super) origin: Origin,
}

/// A block between the steps.
#[derive(Clone, Copy, Debug)]
struct Step {
    counted: Counted,
    /// Its place, and the groups that had it before.
    placed: Option<(Place, GroupMask)>,
}

/// Why the rest of an event is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The hash stands for another block.
    Conflict,
    Full,
}

/// A copy that was taken off its hash, and must be taken off its block.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    hash: EngineHash,
    place: Place,
    left: Option<GroupMask>,
}

impl Index {
    /// Enters the run if it can go in slices. `false`: nothing was done.
    pub(super) fn enter_in_slices(&mut self, run: &Run<'_>) -> bool {
        let Some(stream) = self.streams.get_mut(run.slot).filter(|stream| stream.is_settled()) else {
            return false;
        };
        let (mut after, root) = match run.stored.parent {
            None => (None, super::stored::root_of(&self.hasher, stream, run.stored)),
            Some(parent) => {
                let place = stream.place(parent);
                let key = place.and_then(|place| self.shown.read().chains.key(place));
                let (Some(place), Some(key)) = (place, key) else { return false };
                (Some(place), key)
            }
        };
        let keys = keys_of(&self.hasher, root, run.stored, run.width);
        self.shown.read().chains.fetch(&keys);
        let references = stream.references();
        let room = self.limits.references_max.saturating_sub(self.references);
        let references_max = (references + room).min(self.limits.stream_references_max);
        let hashes = run.stored.hashes.chunks(SLICE);
        let mut behind = keys.len();
        let mut steps = [Step { counted: Counted::FULL, placed: None }; SLICE];
        for (hashes, keys) in hashes.zip(keys.chunks(SLICE)) {
            let steps = steps.get_mut(..keys.len()).unwrap_or_default();
            let mut taken = stream.references();
            for (step, hash) in steps.iter_mut().zip(hashes) {
                let counted = stream.pool.count(*hash, taken < references_max);
                taken += usize::from(counted.what == WhatCounted::New);
                *step = Step { counted, placed: None };
            }
            let mut shown = self.shown.write();
            let stop = place_all(&mut shown.chains, run, steps, keys, &mut after, behind);
            drop(shown);
            behind -= keys.len();
            let mut placed = 0;
            for (step, hash) in steps.iter().zip(hashes) {
                match step.placed {
                    Some((place, had)) => {
                        placed += 1;
                        match step.counted.what {
                            WhatCounted::TooMany => self.stats.skipped.copies += 1,
                            WhatCounted::New => stream.pool.set_place(*hash, step.counted, place),
                            WhatCounted::Again | WhatCounted::Full => {}
                        }
                        if step.counted.what != WhatCounted::TooMany {
                            if had.has(run.group) {
                                stream.pool.add_spare(place, run.group);
                            }
                            if had.is_empty() {
                                stream.pool.blocks += 1;
                                match run.origin {
                                    Origin::Published => self.stats.admissions.stored += 1,
                                    Origin::Replayed => self.stats.admissions.restored += 1,
                                }
                            }
                        }
                    }
                    None if matches!(step.counted.what, WhatCounted::New | WhatCounted::Again) => {
                        stream.pool.unrefer(*hash);
                    }
                    None => {}
                }
            }
            match stop {
                None => continue,
                Some(Stop::Full) => self.stats.skipped.capacity += 1,
                Some(Stop::Conflict) => {
                    self.stats.skipped.conflicting_hash += 1;
                    self.stats.skipped.unknown_parent += super::count(behind + keys.len() - placed - 1);
                }
            }
            break;
        }
        self.references = self.references + stream.references() - references;
        true
    }

    /// Takes off one copy that the group has under each of these hashes, if that can go in slices. `false`: nothing was
    /// done.
    pub(super) fn remove_in_slices(&mut self, slot: Slot, group: usize, hashes: &[EngineHash]) -> bool {
        let Some(stream) = self.streams.get_mut(slot).filter(|stream| stream.is_settled()) else {
            return false;
        };
        let references = stream.references();
        let mut leaving: Vec<Leaving> = Vec::with_capacity(SLICE);
        for hashes in hashes.chunks(SLICE) {
            leaving.clear();
            for hash in hashes {
                let Some((place, is_spare)) = stream.pool.take(*hash, group) else {
                    self.stats.unknown_removals += 1;
                    continue;
                };
                if !is_spare {
                    leaving.push(Leaving { hash: *hash, place, left: None });
                }
            }
            let mut shown = self.shown.write();
            for copy in &mut leaving {
                copy.left = shown.chains.release(copy.place, slot, group);
            }
            drop(shown);
            for copy in &leaving {
                match copy.left {
                    None => {
                        stream.pool.recount(copy.hash, copy.place);
                        self.stats.unknown_removals += 1;
                    }
                    Some(left) if left.is_empty() => {
                        stream.pool.blocks = stream.pool.blocks.saturating_sub(1);
                        self.stats.removals.engine_removed += 1;
                    }
                    Some(_) => {}
                }
            }
        }
        self.references = self.references + stream.references() - references;
        true
    }
}

/// The second step of blocks that enter. `after`: the place of the block before them. `behind`: how many blocks of the
/// event come from here on.
fn place_all(
    chains: &mut Chains,
    run: &Run<'_>,
    steps: &mut [Step],
    keys: &[BlockKey],
    after: &mut Option<Place>,
    behind: usize,
) -> Option<Stop> {
    for ((more, key), step) in (0..behind).rev().zip(keys).zip(steps) {
        let known = chains.find(*after, *key);
        let place = match (step.counted.what, known) {
            (WhatCounted::Again | WhatCounted::TooMany, _) if Some(step.counted.place) != known => {
                return Some(Stop::Conflict);
            }
            (WhatCounted::Again | WhatCounted::TooMany, _) => step.counted.place,
            (WhatCounted::New, Some(place)) => place,
            (WhatCounted::New, None) if chains.has_room() => chains.place(*after, *key, more),
            (WhatCounted::New, None) | (WhatCounted::Full, _) => return Some(Stop::Full),
        };
        let had = match step.counted.what {
            WhatCounted::TooMany => GroupMask::default(),
            _ => chains.store(place, run.slot, run.group),
        };
        step.placed = Some((place, had));
        *after = Some(place);
    }
    None
}
