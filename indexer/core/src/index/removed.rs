//! Applying `BlockRemoved`, and taking off what no event will.

use crate::event::{EngineHash, Removed};
use crate::stream::Millis;

use super::chains::{Chains, Holder};
use super::place::Slot;
use super::references::References;
use super::{Index, count};

/// What taking off a copy came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Released {
    /// There was none.
    Unknown,
    /// Of a block whose place is not known.
    Unplaced,
    /// Others of the hash are left, or of the block in another group.
    Copy,
    /// The last one of the block.
    Block,
}

impl Index {
    pub(super) fn remove(&mut self, slot: Slot, removed: &Removed) {
        let Some(stream) = self.streams.get(slot) else { return };
        if removed.medium.slower().is_none()
            && let Some(group) = stream.groups.find(removed.group)
            && self.remove_in_slices(Holder { slot, group }, &removed.hashes)
        {
            return;
        }
        let Some(stream) = self.streams.get(slot) else { return };
        let (references, aside_bytes) = (stream.references(), stream.aside.bytes());
        match (removed.medium.slower(), stream.groups.find(removed.group)) {
            (Some(medium), _) => self.remove_slower(slot, removed, medium),
            (None, Some(group)) => {
                for hash in &removed.hashes {
                    self.remove_copy(slot, *hash, group);
                }
            }
            (None, None) => {
                self.stats.unknown_removals += count(removed.hashes.len());
                let arrivals = self.arrivals;
                if let Some(stream) = self.streams.get_mut(slot) {
                    // The group may turn out to be a full one.
                    removed.hashes.iter().for_each(|hash| stream.aside.note_gone(*hash, arrivals));
                }
            }
        }
        if let Some(stream) = self.streams.get(slot) {
            self.references = self.references + stream.references() - references;
            self.aside_bytes = self.aside_bytes + stream.aside.bytes() - aside_bytes;
        }
    }

    /// Takes off one copy that the group has under this hash.
    fn remove_copy(&mut self, slot: Slot, hash: EngineHash, group: usize) {
        let Some(stream) = self.streams.get_mut(slot) else { return };
        let released = release(&mut stream.pool, &mut self.shown.write().chains, slot, hash, group);
        if stream.groups.is_full(group) {
            stream.aside.note_gone(hash, self.arrivals);
        }
        match released {
            Released::Unknown => self.stats.unknown_removals += 1,
            Released::Unplaced => stream.let_go(hash),
            Released::Copy | Released::Block => {}
        }
        if released == Released::Block {
            stream.evicted += 1;
            self.stats.removals.engine_removed += 1;
        }
    }

    fn remove_slower(&mut self, slot: Slot, removed: &Removed, medium: usize) {
        let Some(stream) = self.streams.get_mut(slot) else { return };
        stream.has_other_media = true;
        if !stream.groups.may_be_full(removed.group) {
            self.stats.skipped.other_medium += count(removed.hashes.len());
            return;
        }
        self.begin_slower(slot);
        let Some(slower) = self.streams.get_mut(slot).and_then(|stream| stream.slower.as_mut()) else {
            return;
        };
        slower.note_removal(medium);
        for hash in &removed.hashes {
            self.remove_slower_copy(slot, *hash, medium);
        }
    }

    /// Takes off one copy that the medium has under this hash.
    fn remove_slower_copy(&mut self, slot: Slot, hash: EngineHash, medium: usize) {
        let Some(stream) = self.streams.get_mut(slot) else { return };
        let Some(slower) = &mut stream.slower else { return };
        for part in slower.parts(medium, hash) {
            let Some(slower) = &mut stream.slower else { return };
            match release(&mut slower.pool, &mut self.shown.write().chains, slower.slot, part, medium) {
                Released::Unknown => self.stats.unknown_removals += 1,
                Released::Unplaced => stream.let_go(part),
                Released::Copy => {}
                Released::Block => self.stats.removals.slower += 1,
            }
        }
    }

    /// Takes off the copies in media without removals whose time is over.
    pub(super) fn expire_slower(&mut self) {
        let until = Millis(self.now.0.saturating_sub(self.limits.unremoved_ms_max));
        let most = self.limits.stream_references_max;
        for at in 0..self.streams.with_slower().len() {
            let Some(slot) = self.streams.with_slower().get(at).copied() else { return };
            let Some(stream) = self.streams.get_mut(slot) else { return };
            let (references, aside_bytes) = (stream.references(), stream.aside.bytes());
            while let Some(slower) = &mut stream.slower
                && let Some(aged) = slower.take_aged(until, most)
            {
                let chains = &mut self.shown.write().chains;
                match release(&mut slower.pool, chains, slower.slot, aged.hash, aged.medium) {
                    Released::Unknown | Released::Copy => {}
                    Released::Unplaced => stream.let_go(aged.hash),
                    Released::Block => self.stats.removals.slower += 1,
                }
            }
            self.references = self.references + stream.references() - references;
            self.aside_bytes = self.aside_bytes + stream.aside.bytes() - aside_bytes;
        }
    }
}

/// Takes one copy off a hash of a pool whose holds go by `slot`.
#[inline]
fn release(
    pool: &mut References,
    chains: &mut Chains,
    slot: Slot,
    hash: EngineHash,
    group: usize,
) -> Released {
    let Some(place) = pool.place(hash) else {
        return if pool.release_unplaced(hash, group) { Released::Unplaced } else { Released::Unknown };
    };
    if pool.take_spare(place, group) {
        pool.unrefer(hash);
        return Released::Copy;
    }
    let Some(left) = chains.release(place, slot, group) else { return Released::Unknown };
    pool.unrefer(hash);
    if left.is_empty() {
        pool.blocks = pool.blocks.saturating_sub(1);
        Released::Block
    } else {
        Released::Copy
    }
}
