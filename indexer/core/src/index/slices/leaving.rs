//! Removals in slices: off the hashes first, then under the lock off the chains, as stretches where they are such.

use crate::event::EngineHash;

use super::super::Index;
use super::super::chains::{Chains, Holder};
use super::super::groups::GroupMask;
use super::super::place::Place;
use super::super::references::Glance;

/// Most copies that are taken off the chains under one hold of the lock: about half a microsecond where each is taken by
/// itself.
const SLICE: usize = 16;

/// Hashes that are looked for at once, before the first of them is taken out: what is fetched of them stays in the first
/// cache.
const LOOK: usize = 128;

/// Room for what is known of the hashes of an event.
#[derive(Debug, Default)]
pub(super) struct Tray {
    glances: Vec<Glance>,
    leaving: Vec<Leaving>,
}

/// A copy that was taken off its hash, and must be taken off its block.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    hash: EngineHash,
    place: Place,
    /// The groups that still have the block; `None`: the group had none.
    left: Option<GroupMask>,
}

impl Index {
    /// Takes off one copy that the holder has under each of these hashes, if that can go in slices. `false`: nothing was
    /// done.
    pub(in super::super) fn remove_in_slices(&mut self, holder: Holder, hashes: &[EngineHash]) -> bool {
        let Some(stream) = self.streams.get_mut(holder.slot).filter(|stream| stream.is_settled()) else {
            return false;
        };
        let references = stream.references();
        let Tray { glances, leaving } = &mut self.desk.tray;
        for hashes in hashes.chunks(LOOK) {
            stream.pool.look_for(hashes, glances);
            for (hashes, glances) in hashes.chunks(SLICE).zip(glances.chunks(SLICE)) {
                leaving.clear();
                for (hash, glance) in hashes.iter().zip(glances) {
                    let Some((place, is_spare)) = stream.pool.take(*hash, glance, holder.group) else {
                        self.stats.unknown_removals += 1;
                        continue;
                    };
                    if !is_spare {
                        leaving.push(Leaving { hash: *hash, place, left: None });
                    }
                }
                release_all(&mut self.shown.write().chains, holder, leaving);
                for copy in &*leaving {
                    match copy.left {
                        None => {
                            stream.pool.recount(copy.hash, copy.place);
                            self.stats.unknown_removals += 1;
                        }
                        Some(left) if left.is_empty() => {
                            stream.evicted += 1;
                            stream.pool.blocks = stream.pool.blocks.saturating_sub(1);
                            self.stats.removals.engine_removed += 1;
                        }
                        Some(_) => {}
                    }
                }
            }
        }
        self.references = self.references + stream.references() - references;
        true
    }
}

fn release_all(chains: &mut Chains, holder: Holder, leaving: &mut [Leaving]) {
    let mut rest = leaving;
    while let Some(first) = rest.first().map(|copy| copy.place) {
        let (side_by_side, from) = stretch(first, rest);
        let (these, others) = rest.split_at_mut(side_by_side);
        let to = from.saturating_add(u32::try_from(side_by_side).unwrap_or(u32::MAX));
        if chains.release_run(first.chain, holder, from, to) {
            these.iter_mut().for_each(|copy| copy.left = Some(GroupMask::default()));
        } else {
            for copy in these {
                copy.left = chains.release(copy.place, holder.slot, holder.group);
            }
        }
        rest = others;
    }
}

/// How many of the first copies are of blocks side by side in a chain, and where the first of those is. Engines let go the
/// end of a prompt first; the other direction is no more work.
fn stretch(first: Place, copies: &[Leaving]) -> (usize, u32) {
    let count = |is_next: fn(u32, u32, u32) -> bool| {
        let places = copies.iter().map(|copy| copy.place).zip(0..);
        let next =
            |(place, at): &(Place, u32)| place.chain == first.chain && is_next(first.at, place.at, *at);
        places.take_while(next).count()
    };
    let falling = count(|first, place, at| place.checked_add(at) == Some(first));
    if falling > 1 {
        return (falling, (first.at + 1).saturating_sub(u32::try_from(falling).unwrap_or(u32::MAX)));
    }
    (count(|first, place, at| first.checked_add(at) == Some(place)), first.at)
}
