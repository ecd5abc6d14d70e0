//! KV groups of one stream: which must hold a block, and which limit where a hit may end.

use std::num::NonZeroU32;

use crate::event::{Group, GroupKind};

use super::place::GROUPS_MAX;
use super::plain::GroupImage;

/// A set of group slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupMask(u8);

/// The groups seen so far; a group's place is its slot.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    seen: Vec<SeenGroup>,
    /// There is one group, and it is a full one.
    is_one_full: bool,
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
    /// Must hold the last block of a hit: the state behind it.
    Recurrent,
    /// Does not limit hits, as far as is known.
    Other,
}

/// Blocks that each group must hold before the end of a hit, by slot; 0: no limit.
pub(super) type WindowBlocks = [u32; GROUPS_MAX];

// === impl GroupMask ===

impl GroupMask {
    pub(super) const ALL: Self = Self(u8::MAX);

    #[inline]
    pub(super) fn with(self, slot: usize) -> Self {
        Self(self.0 | Self::bit(slot))
    }

    #[inline]
    pub(super) fn without(self, slot: usize) -> Self {
        Self(self.0 & !Self::bit(slot))
    }

    #[inline]
    pub(super) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    #[inline]
    pub(super) fn has(self, slot: usize) -> bool {
        self.0 & Self::bit(slot) != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn slots(self) -> impl Iterator<Item = usize> {
        (0..GROUPS_MAX).filter(move |slot| self.has(*slot))
    }

    /// A bit per slot, the lowest for the first.
    pub(super) fn bits(self) -> u8 {
        self.0
    }

    /// Slots are below [`GROUPS_MAX`].
    fn bit(slot: usize) -> u8 {
        1 << (slot % GROUPS_MAX)
    }
}

// === impl Groups ===

impl Groups {
    pub(super) fn image(&self) -> Vec<GroupImage> {
        let image = |group: &SeenGroup| GroupImage {
            index: group.index,
            kind: match group.role {
                Role::Full => GroupKind::Full,
                Role::Window { tokens } => GroupKind::SlidingWindow { tokens },
                Role::Recurrent => GroupKind::Recurrent,
                Role::Other => GroupKind::Other,
            },
            block_size: group.block_size.get(),
        };
        self.seen.iter().map(image).collect()
    }

    /// `None`: more than are tracked, or one without a block size.
    pub(super) fn restore(image: &[GroupImage]) -> Option<Self> {
        let seen = |group: &GroupImage| {
            let role = Role::of(group.kind);
            Some(SeenGroup { index: group.index, role, block_size: NonZeroU32::new(group.block_size)? })
        };
        if image.len() > GROUPS_MAX {
            return None;
        }
        let mut groups = Self { seen: image.iter().map(seen).collect::<Option<_>>()?, is_one_full: false };
        groups.note_one_full();
        Some(groups)
    }

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
            Some(kind) => Role::of(kind),
            None if group.index.is_none() || fills => Role::Full,
            None => Role::Other,
        };
        if let Some(slot) = self.find(group.index) {
            let seen = self.seen.get_mut(slot)?;
            if group.kind.is_some() || told == Role::Other {
                seen.role = told;
            }
            let role = seen.role;
            self.note_one_full();
            return Some((slot, role));
        }
        if self.seen.len() == GROUPS_MAX {
            return None;
        }
        self.seen.push(SeenGroup { index: group.index, role: told, block_size });
        self.note_one_full();
        Some((self.seen.len() - 1, told))
    }

    /// The group in this slot is a full one.
    pub(super) fn is_full(&self, slot: usize) -> bool {
        self.seen.get(slot).is_some_and(|group| group.role == Role::Full)
    }

    /// The group is a full one, or nothing is known of it.
    pub(super) fn may_be_full(&self, index: Option<u32>) -> bool {
        let seen = self.seen.iter().find(|group| group.index == index);
        seen.is_none_or(|group| group.role == Role::Full)
    }

    /// There is one group, and it is a full one.
    #[inline]
    pub(super) fn is_one_full(&self) -> bool {
        self.is_one_full
    }

    fn note_one_full(&mut self) {
        self.is_one_full = matches!(self.seen.as_slice(), [SeenGroup { role: Role::Full, .. }]);
    }

    /// There is a group that must hold every block.
    pub(super) fn has_full(&self) -> bool {
        self.is_one_full || !self.full().is_empty()
    }

    /// The groups that must hold every block.
    pub(super) fn full(&self) -> GroupMask {
        let full = self.seen.iter().enumerate().filter(|(_, group)| group.role == Role::Full);
        full.fold(GroupMask::default(), |mask, (slot, _)| mask.with(slot))
    }

    /// Blocks needed before the end of a hit. Windows over blocks of another size than `block_size` cannot be laid
    /// along the chain and do not limit. A checkpoint lies at one boundary, whatever the size of its group's blocks: it has
    /// the hash of the chain up to there.
    pub(super) fn windows(&self, block_size: u32) -> WindowBlocks {
        let mut windows = WindowBlocks::default();
        for (blocks, group) in windows.iter_mut().zip(&self.seen) {
            *blocks = match group.role {
                // The token to be computed is itself in the window.
                Role::Window { tokens } if group.block_size.get() == block_size => {
                    tokens.saturating_sub(1).div_ceil(block_size)
                }
                Role::Recurrent => 1,
                Role::Full | Role::Window { .. } | Role::Other => 0,
            };
        }
        windows
    }
}

// === impl Role ===

impl Role {
    fn of(kind: GroupKind) -> Self {
        match kind {
            GroupKind::Full => Self::Full,
            GroupKind::SlidingWindow { tokens } => Self::Window { tokens },
            GroupKind::Recurrent => Self::Recurrent,
            GroupKind::Other => Self::Other,
        }
    }
}
