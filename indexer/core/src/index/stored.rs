//! Applying `BlockStored`.

use std::num::NonZeroU32;

use hashbrown::hash_map::Entry;

use crate::event::{EngineHash, Medium, Stored};
use crate::key::BlockKey;
use crate::stream::StreamId;

use super::blocks::Added;
use super::groups::{GROUPS_MAX, Role};
use super::stats::Origin;
use super::streams::HashEntry;
use super::{Index, count, namespace};

impl Index {
    pub(super) fn store(&mut self, id: StreamId, stored: &Stored, origin: Origin) {
        let blocks = count(stored.hashes.len());
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stored.medium != Medium::Gpu {
            self.stats.skipped.other_medium += blocks;
            return;
        }
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
        let Some((group, role)) = stream.groups.note(stored.group, size, fills) else {
            self.stats.skipped.groups += blocks;
            return;
        };
        if role != Role::Full {
            for hash in &stored.hashes {
                if !self.reference_by_hash(id, *hash, group, origin) {
                    return;
                }
            }
            return;
        }
        if !fills {
            self.stats.skipped.token_mismatch += blocks;
            return;
        }
        if *stream.block_size.get_or_insert(size) != size {
            self.stats.skipped.block_size += blocks;
            return;
        }
        let first = match stored.parent {
            None => Some(self.hasher.root(&namespace::of_first_block(&stream.model, stored))),
            Some(parent) => stream.key_of(parent),
        };
        let Some(mut key) = first else {
            self.stats.skipped.unknown_parent += blocks;
            return;
        };
        for (position, (hash, tokens)) in
            stored.hashes.iter().zip(stored.tokens.chunks_exact(width)).enumerate()
        {
            key = self.hasher.block(key, tokens, &namespace::extras_of(stored, position));
            if !self.reference(id, *hash, key, group, origin) {
                return;
            }
        }
    }

    /// Counts a copy of the block `key`, known to the engine as `hash`. `false`: there is no room for it, and so no
    /// use in what comes after it.
    fn reference(
        &mut self,
        id: StreamId,
        hash: EngineHash,
        key: BlockKey,
        group: usize,
        origin: Origin,
    ) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        let is_full = self.references >= self.limits.references_max
            || stream.hashes.len() >= self.limits.stream_references_max;
        let mut earlier = [0; GROUPS_MAX];
        let references = match stream.hashes.entry(hash) {
            Entry::Vacant(_) if is_full => {
                self.stats.skipped.capacity += 1;
                return false;
            }
            Entry::Vacant(vacant) => {
                self.references += 1;
                vacant.insert(HashEntry::Keyed { key, references: 0 })
            }
            Entry::Occupied(occupied) => {
                let entry = occupied.into_mut();
                match entry {
                    HashEntry::Keyed { key: known, .. } if *known != key => {
                        self.stats.skipped.conflicting_hash += 1;
                        return true;
                    }
                    HashEntry::Keyed { .. } => {}
                    HashEntry::Unkeyed { references } => {
                        earlier = *references;
                        let references = earlier.iter().map(|copies| u32::from(*copies)).sum();
                        *entry = HashEntry::Keyed { key, references };
                    }
                }
                entry
            }
        };
        let mut is_first = false;
        for (group, copies) in earlier.into_iter().enumerate().filter(|(_, copies)| *copies > 0) {
            is_first |= self.blocks.add(key, id, group, copies) == Added::First;
        }
        match self.blocks.add(key, id, group, 1) {
            Added::TooMany => self.stats.skipped.copies += 1,
            added => {
                is_first |= added == Added::First;
                if let HashEntry::Keyed { references, .. } = references {
                    *references += 1;
                }
            }
        }
        if is_first {
            stream.blocks += 1;
            match origin {
                Origin::Published => self.stats.admissions.stored += 1,
                Origin::Replayed => self.stats.admissions.restored += 1,
            }
        }
        true
    }

    /// The same for a group whose tokens do not tell which blocks are meant: by hash alone. Groups share the hashes,
    /// so the full-attention group's event tells the key, sooner or later in the same batch.
    fn reference_by_hash(&mut self, id: StreamId, hash: EngineHash, group: usize, origin: Origin) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        if let Some(key) = stream.key_of(hash) {
            return self.reference(id, hash, key, group, origin);
        }
        let is_full = self.references >= self.limits.references_max
            || stream.hashes.len() >= self.limits.stream_references_max;
        let entry = match stream.hashes.entry(hash) {
            Entry::Vacant(_) if is_full => {
                self.stats.skipped.capacity += 1;
                return false;
            }
            Entry::Vacant(vacant) => {
                self.references += 1;
                vacant.insert(HashEntry::Unkeyed { references: [0; GROUPS_MAX] })
            }
            Entry::Occupied(occupied) => occupied.into_mut(),
        };
        if let HashEntry::Unkeyed { references } = entry
            && let Some(references) = references.get_mut(group)
        {
            *references = references.saturating_add(1);
        }
        true
    }
}
