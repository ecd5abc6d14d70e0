//! Events in slices: what lookups wait for is a few blocks' change of the chains, and nothing else.
//!
//! Most events are of this kind: their blocks' tokens are told, the block before them is known, and nothing of the stream
//! waits for its place. Whatever else comes goes block by block under one hold of the lock ([`Entering`](super::entering)).
//!
//! The tokens of a slice are hashed first. Each block's hash waits for the one before it, so that a processor has time for
//! other work meanwhile: what is known of keys and of the engine's hashes is looked at in the same loop. Under the lock the
//! blocks get their places and their holder, as [stretches](super::chains::Chains::enter_run); then, without it, each engine
//! hash is counted with the place of its block. The outcome is that of doing all of it block by block: a block whose hash
//! turns out to stand for another one is let go again, and those behind it.

use crate::event::{EngineHash, Stored};
use crate::key::BlockKey;

use super::chains::{Chains, Entered, Holder, Keys, Sight};
use super::keys::EventKeys;
use super::place::{Place, Slot};
use super::references::{Glance, Referred};
use super::shown::SharedShown;
use super::stats::{IndexStats, Origin};
use super::streams::StreamBlocks;
use super::{Index, count};

mod leaving;

use leaving::Tray;

/// Most blocks that are changed under one hold of the lock: some tens of nanoseconds, where they lie side by side.
const SLICE: usize = 32;

/// Blocks of one event, all of one full group.
pub(super) struct Run<'a> {
    pub(super) slot: Slot,
    pub(super) group: usize,
    pub(super) stored: &'a Stored,
    /// Tokens per block.
    pub(super) width: usize,
    pub(super) origin: Origin,
}

/// Room for what is known of the blocks of a slice.
#[derive(Debug, Default)]
pub(super) struct Desk {
    keys: [BlockKey; SLICE],
    glances: [Glance; SLICE],
    entered: [Entered; SLICE],
    tray: Tray,
}

/// A run on its way in.
struct Slices<'a> {
    run: &'a Run<'a>,
    stream: &'a mut StreamBlocks,
    shown: &'a SharedShown,
    stats: &'a mut IndexStats,
    /// Most engine hashes that the stream may have now.
    references_max: usize,
    /// Of the blocks that have not been [looked at](Self::look).
    keys: EventKeys<'a>,
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
        let mut slices = run.stored.hashes.chunks(SLICE);
        let first = slices.next().unwrap_or_default();
        // Before the block in front of them is looked for, which takes several steps through memory.
        stream.pool.fetch(first);
        let shown = self.shown.read();
        let (after, root) = match run.stored.parent {
            None => (None, stream.root(&self.hasher, run.stored)),
            Some(parent) => {
                let place = stream.place(parent);
                let key = place.and_then(|place| shown.chains.key(place));
                let (Some(place), Some(key)) = (place, key) else { return false };
                (Some(place), key)
            }
        };
        let references = stream.references();
        let room = self.limits.references_max.saturating_sub(self.references);
        let mut entering = Slices {
            run,
            references_max: (references + room).min(self.limits.stream_references_max),
            stream,
            shown: &self.shown,
            stats: &mut self.stats,
            keys: EventKeys::new(&self.hasher, root, run.stored, run.width),
            sight: Sight::default(),
            after,
            entered: 0,
        };
        entering.look(first, &shown.chains, &mut self.desk);
        drop(shown);
        let mut stop = entering.enter(first, &mut self.desk).err();
        while stop.is_none()
            && let Some(slice) = slices.next()
        {
            entering.stream.pool.fetch(slice);
            entering.look(slice, &self.shown.read().chains, &mut self.desk);
            stop = entering.enter(slice, &mut self.desk).err();
        }
        entering.count_left_out(stop);
        self.references = self.references + entering.stream.references() - references;
        true
    }
}

// === impl Slices ===

impl Slices<'_> {
    /// Makes the keys of the next slice, and notes what is known of them and of the hashes.
    fn look(&mut self, hashes: &[EngineHash], chains: &Chains, desk: &mut Desk) {
        let Desk { keys, glances, .. } = desk;
        let mut beginnings = 0;
        let each = hashes.iter().zip(self.keys.by_ref()).zip(keys.iter_mut().zip(glances)).zip(1..);
        for (((hash, key), (to, glance)), count) in each {
            *to = key;
            *glance = self.stream.pool.glance(*hash);
            if chains.begins(key) {
                beginnings = count;
            }
        }
        let keys = keys.get(..hashes.len()).unwrap_or_default();
        self.sight = chains.look(self.after, self.run_of(keys), beginnings);
    }

    /// Enters the slice that was looked at last.
    fn enter(&mut self, hashes: &[EngineHash], desk: &mut Desk) -> Result<(), Stop> {
        let Desk { keys, glances, entered, .. } = desk;
        if self.stream.references() + hashes.len() <= self.references_max {
            return self.enter_slice(hashes, keys.get(..hashes.len()).unwrap_or_default(), glances, entered);
        }
        // One more copy of a block that is known needs no room.
        for ((hash, key), glance) in hashes.iter().zip(keys).zip(glances) {
            if self.stream.references() >= self.references_max && self.stream.pool.place(*hash).is_none() {
                return Err(Stop::Full);
            }
            self.enter_slice(&[*hash], &[*key], &[*glance], entered)?;
        }
        Ok(())
    }

    fn enter_slice(
        &mut self,
        hashes: &[EngineHash],
        keys: &[BlockKey],
        glances: &[Glance],
        entered: &mut [Entered],
    ) -> Result<(), Stop> {
        let run = self.run_of(keys);
        let mut shown = self.shown.write();
        let placed = shown.chains.enter_run(self.holder(), self.after, run, &mut self.sight, entered);
        drop(shown);
        let placed = entered.get(..placed).unwrap_or_default();
        for (at, ((entered, hash), glance)) in placed.iter().zip(hashes).zip(glances).enumerate() {
            match self.stream.pool.refer_glanced(*hash, glance, entered.place) {
                Referred::Counted(_) => self.note(*entered),
                Referred::TooMany(_) => {
                    self.stats.skipped.copies += 1;
                    self.retract(placed.get(at..=at).unwrap_or_default());
                    self.go_on(entered.place);
                }
                Referred::Conflict | Referred::Full => {
                    self.retract(placed.get(at..).unwrap_or_default());
                    return Err(Stop::Conflict);
                }
            }
        }
        if placed.len() < keys.len() { Err(Stop::Full) } else { Ok(()) }
    }

    /// These keys, which come behind the block that entered last.
    fn run_of<'k>(&self, keys: &'k [BlockKey]) -> Keys<'k> {
        let behind = self.run.stored.hashes.len().saturating_sub(self.entered + keys.len());
        Keys { keys, before: self.entered, behind }
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

    fn go_on(&mut self, place: Place) {
        self.entered += 1;
        self.after = Some(place);
    }

    /// Notes a block that has been entered, with the first copy under its hash or a further one.
    fn note(&mut self, Entered { place, had }: Entered) {
        self.go_on(place);
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
                let behind = self.run.stored.hashes.len().saturating_sub(self.entered + 1);
                self.stats.skipped.unknown_parent += count(behind);
            }
        }
    }

    fn holder(&self) -> Holder {
        Holder { slot: self.run.slot, group: self.run.group }
    }
}
