//! Events in slices: what lookups wait for is a few blocks' change of the chains, and nothing else.
//!
//! Most events are of this kind: their blocks' tokens are told, the block before them is known, and nothing of the stream
//! waits for its place. Whatever else comes goes block by block under one hold of the lock ([`Entering`](super::entering)).
//!
//! Nearly always all engine hashes of a slice are new to the stream. Then its blocks get their places and their holder under
//! the lock, as [stretches](super::chains::Chains::enter_run), and afterwards each hash is entered with its place. Where some
//! are known, what the hashes stand for is [counted first](mixed). The outcome is that of doing all of it block by block: a
//! copy that could not be placed is uncounted again, and a block whose hash turns out to be taken is let go.

use crate::event::{EngineHash, Stored};
use crate::key::BlockKey;

use super::chains::{Entered, Holder, Keys, Sight};
use super::keys::{keys_of, root_of};
use super::place::{Place, Slot};
use super::shown::SharedShown;
use super::stats::{IndexStats, Origin};
use super::streams::StreamBlocks;
use super::{Index, count};

mod leaving;
mod mixed;

/// Most blocks whose hashes are all new that are changed under one hold of the lock: some tens of nanoseconds.
const NEW_AT_ONCE: usize = 64;

/// Blocks of one event, all of one full group.
pub(super) struct Run<'a> {
    pub(super) slot: Slot,
    pub(super) group: usize,
    pub(super) stored: &'a Stored,
    /// Tokens per block.
    pub(super) width: usize,
    pub(super) origin: Origin,
}

/// A run on its way in.
struct Slices<'a> {
    run: &'a Run<'a>,
    stream: &'a mut StreamBlocks,
    shown: &'a SharedShown,
    stats: &'a mut IndexStats,
    /// Most engine hashes that the stream may have now.
    references_max: usize,
    /// Blocks of the event.
    blocks: usize,
    sight: Sight,
    /// The place of the block that entered last, or of that before the event's first.
    after: Option<Place>,
    /// Blocks entered so far.
    entered: usize,
}

/// Why the rest of an event is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The hash stands for another block.
    Conflict,
    Full,
}

impl Index {
    /// Enters the run if it can go in slices. `false`: nothing was done.
    pub(super) fn enter_in_slices(&mut self, run: &Run<'_>) -> bool {
        let Some(stream) = self.streams.get_mut(run.slot).filter(|stream| stream.is_settled()) else {
            return false;
        };
        let (after, root) = match run.stored.parent {
            None => (None, root_of(&self.hasher, &stream.model, run.stored)),
            Some(parent) => {
                let place = stream.place(parent);
                let key = place.and_then(|place| self.shown.read().chains.key(place));
                let (Some(place), Some(key)) = (place, key) else { return false };
                (Some(place), key)
            }
        };
        keys_of(&self.hasher, root, run.stored, run.width, &mut self.keys);
        let references = stream.references();
        let room = self.limits.references_max.saturating_sub(self.references);
        let mut slices = Slices {
            run,
            references_max: (references + room).min(self.limits.stream_references_max),
            stream,
            shown: &self.shown,
            stats: &mut self.stats,
            blocks: self.keys.len(),
            sight: self.shown.read().chains.look(after, &self.keys),
            after,
            entered: 0,
        };
        let mut some = run.stored.hashes.chunks(NEW_AT_ONCE).zip(self.keys.chunks(NEW_AT_ONCE));
        let stop = some.find_map(|(hashes, keys)| slices.enter(hashes, keys).err());
        slices.count_left_out(stop);
        self.references = self.references + slices.stream.references() - references;
        true
    }
}

// === impl Slices ===

impl Slices<'_> {
    fn enter(&mut self, hashes: &[EngineHash], keys: &[BlockKey]) -> Result<(), Stop> {
        let has_room = self.stream.references() + hashes.len() <= self.references_max;
        if self.stream.pool.are_new(hashes) && has_room {
            self.enter_new(hashes, keys)
        } else {
            self.enter_mixed(hashes, keys)
        }
    }

    /// Enters blocks whose hashes were all new before the first of them.
    fn enter_new(&mut self, hashes: &[EngineHash], keys: &[BlockKey]) -> Result<(), Stop> {
        let mut all = [Entered::default(); NEW_AT_ONCE];
        let run = Keys {
            keys,
            before: self.entered,
            behind: self.blocks.saturating_sub(self.entered + keys.len()),
        };
        let mut shown = self.shown.write();
        let placed = shown.chains.enter_run(self.holder(), self.after, run, &mut self.sight, &mut all);
        drop(shown);
        let placed = all.get(..placed).unwrap_or_default();
        for (at, (entered, hash)) in placed.iter().zip(hashes).enumerate() {
            if !self.stream.pool.enter(*hash, entered.place) {
                // The event names it twice.
                self.retract(placed.get(at..).unwrap_or_default());
                return Err(Stop::Conflict);
            }
            self.note(*entered);
        }
        if placed.len() < keys.len() { Err(Stop::Full) } else { Ok(()) }
    }

    /// Lets blocks go that were entered for nothing.
    #[cold]
    fn retract(&self, blocks: &[Entered]) {
        let Holder { slot, group } = self.holder();
        let mut shown = self.shown.write();
        for block in blocks.iter().rev().filter(|block| !block.had.has(group)) {
            shown.chains.release(block.place, slot, group);
        }
    }

    /// Notes a block that has been entered, with the first copy under its hash or a further one.
    fn note(&mut self, Entered { place, had }: Entered) {
        self.entered += 1;
        self.after = Some(place);
        if had.has(self.run.group) {
            self.stream.pool.add_spare(place, self.run.group);
        }
        if had.is_empty() {
            self.stream.pool.blocks += 1;
            match self.run.origin {
                Origin::Published => self.stats.admissions.stored += 1,
                Origin::Replayed => self.stats.admissions.restored += 1,
            }
        }
    }

    fn count_left_out(&mut self, stop: Option<Stop>) {
        match stop {
            None => {}
            Some(Stop::Full) => self.stats.skipped.capacity += 1,
            Some(Stop::Conflict) => {
                self.stats.skipped.conflicting_hash += 1;
                let behind = self.blocks.saturating_sub(self.entered + 1);
                self.stats.skipped.unknown_parent += count(behind);
            }
        }
    }

    fn holder(&self) -> Holder {
        Holder { slot: self.run.slot, group: self.run.group }
    }
}
