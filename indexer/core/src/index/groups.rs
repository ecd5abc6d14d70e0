//! KV groups of one stream: which must hold a block, and which limit where a hit may end.

use std::num::NonZeroU32;

use crate::event::{Group, GroupKind};

/// Most KV groups tracked per stream. Models of today have up to seven; of more, the later ones do not limit hits.
pub(super) const GROUPS_MAX: usize = 8;

/// Something small per group slot: copies, or a mark.
pub(super) type PerGroup = [u8; GROUPS_MAX];

/// A set of group slots: a byte each, its highest bit being the mark. A lookup makes one per block and holder, so it is
/// made from the counts of all groups at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupMask(u64);

/// The groups seen so far; a group's place is its slot.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    seen: Vec<SeenGroup>,
}

#[derive(Clone, Copy, Debug)]
struct SeenGroup {
    index: Option<u32>,
    role: Role,
    block_size: NonZeroU32,
}

/// What a group means for hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Must hold every block of a hit.
    Full,
    /// Must hold the blocks of the last `tokens` before the end of a hit.
    Window { tokens: u32 },
    /// Does not limit hits, as far as is known.
    Other,
}

/// Blocks that each group must hold before the end of a hit, by slot; 0: no limit.
pub(super) type WindowBlocks = [u32; GROUPS_MAX];

// === impl GroupMask ===

impl GroupMask {
    const HIGHEST: u64 = u64::from_ne_bytes([0x80; GROUPS_MAX]);

    pub(super) const ALL: Self = Self(Self::HIGHEST);

    /// The groups whose byte is not 0.
    #[inline]
    pub(super) fn of(groups: PerGroup) -> Self {
        let bytes = u64::from_le_bytes(groups);
        // Adding 0x7f carries into the highest bit of every byte with a lower bit set, and never beyond it.
        let carried = (bytes & !Self::HIGHEST) + !Self::HIGHEST;
        Self((carried | bytes) & Self::HIGHEST)
    }

    #[inline]
    pub(super) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) fn has(self, slot: usize) -> bool {
        (self.0 >> (8 * slot)) & 0x80 != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

// === impl Groups ===

impl Groups {
    pub(super) fn find(&self, index: Option<u32>) -> Option<usize> {
        self.seen.iter().position(|group| group.index == index)
    }

    /// Notes what an event tells of its group. `fills`: its tokens are exactly those of its hashes. Returns slot and
    /// role; `None` where there is no slot left.
    ///
    /// Before vLLM 0.22 kinds are not told. A group that once left hashes out is no full one; until then it is taken
    /// for one, which demands too much rather than too little.
    pub(super) fn note(
        &mut self,
        group: Group,
        block_size: NonZeroU32,
        fills: bool,
    ) -> Option<(usize, Role)> {
        let told = match group.kind {
            Some(GroupKind::Full) => Role::Full,
            Some(GroupKind::SlidingWindow { tokens }) => Role::Window { tokens },
            Some(GroupKind::Other) => Role::Other,
            None if group.index.is_none() || fills => Role::Full,
            None => Role::Other,
        };
        if let Some(slot) = self.find(group.index) {
            let seen = self.seen.get_mut(slot)?;
            if group.kind.is_some() || told == Role::Other {
                seen.role = told;
            }
            return Some((slot, seen.role));
        }
        if self.seen.len() == GROUPS_MAX {
            return None;
        }
        self.seen.push(SeenGroup { index: group.index, role: told, block_size });
        Some((self.seen.len() - 1, told))
    }

    /// The groups that must hold every block.
    pub(super) fn full(&self) -> GroupMask {
        let mut full = PerGroup::default();
        for (mark, group) in full.iter_mut().zip(&self.seen) {
            *mark = u8::from(group.role == Role::Full);
        }
        GroupMask::of(full)
    }

    /// Blocks needed before the end of a hit. Windows over blocks of another size than `block_size` cannot be laid
    /// along the chain and do not limit.
    pub(super) fn windows(&self, block_size: NonZeroU32) -> WindowBlocks {
        let mut windows = WindowBlocks::default();
        for (blocks, group) in windows.iter_mut().zip(&self.seen) {
            if let Role::Window { tokens } = group.role
                && group.block_size == block_size
            {
                // The token to be computed is itself in the window.
                *blocks = tokens.saturating_sub(1).div_ceil(block_size.get());
            }
        }
        windows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_holds_the_groups_whose_byte_is_not_zero() {
        for byte in [1, 0x7f, 0x80, 0xff] {
            for pattern in 0..=u8::MAX {
                let groups = std::array::from_fn(|slot| if pattern >> slot & 1 == 1 { byte } else { 0 });
                let mask = GroupMask::of(groups);
                for slot in 0..GROUPS_MAX {
                    assert_eq!(mask.has(slot), pattern >> slot & 1 == 1, "{byte} at {slot} of {groups:?}");
                }
                assert!(GroupMask::ALL.contains(mask));
                assert_eq!(mask.is_empty(), pattern == 0);
            }
        }
    }
}
