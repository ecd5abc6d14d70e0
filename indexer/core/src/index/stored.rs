//! Applying `BlockStored`.

use std::num::NonZeroU32;

use crate::event::Stored;
use crate::prompt_keys::Layout;

use super::entering::{Entering, Entry, Layer};
use super::groups::Role;
use super::place::Slot;
use super::slices::Run;
use super::stats::Origin;
use super::{Index, count, namespace, slower};

impl Index {
    pub(super) fn store(&mut self, slot: Slot, stored: &Stored, origin: Origin) {
        match stored.medium.slower() {
            None => self.store_main(slot, stored, origin),
            Some(medium) => self.store_slower(slot, stored, medium, origin),
        }
    }

    fn store_main(&mut self, slot: Slot, stored: &Stored, origin: Origin) {
        let blocks = count(stored.hashes.len());
        let Some(stream) = self.streams.get_mut(slot) else { return };
        let Some(size) = NonZeroU32::new(stored.block_size) else {
            self.stats.skipped.placeholder += blocks;
            return;
        };
        if stored.has_lora_id && stored.lora_name.is_none() {
            self.stats.skipped.unnamed_lora += blocks;
            return;
        }
        let width = usize::try_from(size.get()).unwrap_or(usize::MAX);
        let fills = stored.hashes.len().checked_mul(width) == Some(stored.tokens.len());
        let read_by = (stream.layout, stream.groups.is_one_full());
        let Some((group, role)) = stream.groups.note(stored.group, size, fills) else {
            self.stats.skipped.groups += blocks;
            return;
        };
        let layout = namespace::layout_of(stored, size);
        let fits = |learnt: Layout, layout: Layout| {
            // A block with fewer tokens ahead is one that no prompt asks for.
            layout.size() == learnt.size() && layout.ahead() <= learnt.ahead()
        };
        let layout = layout.filter(|_| fills);
        let learnt = layout.filter(|_| role == Role::Full).map(|layout| *stream.layout.get_or_insert(layout));
        if read_by != (stream.layout, stream.groups.is_one_full()) {
            // Before lookups see the first block that is to be read so.
            self.note(slot);
        }
        if let (Some(learnt), Some(layout)) = (learnt, layout)
            && fits(learnt, layout)
            && self.enter_in_slices(&Run { slot, group, stored, width, origin })
        {
            return;
        }
        if let Some(stream) = self.streams.get(slot) {
            stream.pool.fetch_known(&stored.hashes);
        }
        self.change(slot, Entry::Told(origin), |entering| {
            let layer = Layer::Main { group };
            if role != Role::Full {
                entering.enter_by_hash(&stored.hashes, layer);
                return;
            }
            let (Some(learnt), Some(layout)) = (learnt, layout) else {
                entering.skipped.token_mismatch += blocks;
                return;
            };
            if fits(learnt, layout) {
                entering.enter(stored, stored.hashes.iter().copied(), width, layer);
            } else {
                entering.skipped.block_size += blocks;
            }
        });
    }

    /// Blocks in a slower medium: by their tokens where those are told, else by hash alone.
    fn store_slower(&mut self, slot: Slot, stored: &Stored, medium: usize, origin: Origin) {
        let blocks = count(stored.hashes.len());
        let Some(stream) = self.streams.get_mut(slot) else { return };
        stream.has_other_media = true;
        if !stream.groups.may_be_full(stored.group.index) {
            self.stats.skipped.other_medium += blocks;
            return;
        }
        let is_placeholder = stored.tokens.is_empty() || stored.block_size == 0;
        // Engines with such drafters have no connectors.
        let size = stream.layout.filter(|layout| layout.ahead() == 0).map(Layout::size);
        let told = stored.block_size;
        if !is_placeholder && stored.has_lora_id && stored.lora_name.is_none() {
            self.stats.skipped.unnamed_lora += blocks;
            return;
        }
        let width = usize::try_from(told).unwrap_or(usize::MAX);
        if !is_placeholder && stored.hashes.len().checked_mul(width) != Some(stored.tokens.len()) {
            self.stats.skipped.token_mismatch += blocks;
            return;
        }
        self.begin_slower(slot);
        self.change(slot, Entry::Told(origin), |entering| {
            let layer = Layer::Slower { medium };
            if is_placeholder {
                entering.enter_by_hash(&stored.hashes, layer);
                return;
            }
            // Connectors may store several of the engine's blocks under one hash.
            let parts = size.and_then(|size| told.is_multiple_of(size).then_some(told / size));
            let has_room_for_extras = |parts| parts == 1 || stored.extra_keys.is_empty();
            let slower = entering.stream.slower.as_mut();
            let learn = |parts: &u32| slower.is_some_and(|slower| slower.learn_parts(medium, *parts));
            match parts.filter(|parts| has_room_for_extras(*parts)).filter(learn) {
                None => entering.skipped.block_size += blocks,
                Some(parts) => {
                    let hashes = stored.hashes.iter().flat_map(|hash| slower::parts(*hash, parts));
                    let width = size.map_or(usize::MAX, |size| usize::try_from(size).unwrap_or(usize::MAX));
                    entering.enter(stored, hashes, width, layer);
                }
            }
        });
    }

    /// Lets blocks enter a stream, and keeps sums and limits.
    pub(super) fn change(&mut self, slot: Slot, entry: Entry, enter: impl FnOnce(&mut Entering<'_>)) {
        let room = self.limits.references_max.saturating_sub(self.references);
        let Some(stream) = self.streams.get_mut(slot) else { return };
        let (references, aside_bytes) = (stream.references(), stream.aside.bytes());
        let mut shown = self.shown.write();
        let mut entering = Entering {
            hasher: &self.hasher,
            references_max: (references + room).min(self.limits.stream_references_max),
            stream,
            slot,
            chains: &mut shown.chains,
            arrivals: &mut self.arrivals,
            attached: &mut self.stats.aside.attached,
            admissions: &mut self.stats.admissions,
            skipped: &mut self.stats.skipped,
            entry,
            attach_left: self.limits.attached_max,
            now: self.now,
        };
        enter(&mut entering);
        entering.keep_aside_within(self.limits.stream_aside_bytes_max);
        let stream = entering.stream;
        self.references = self.references + stream.references() - references;
        self.aside_bytes = self.aside_bytes + stream.aside.bytes() - aside_bytes;
        drop(shown);
        self.keep_aside_within_all();
    }
}
