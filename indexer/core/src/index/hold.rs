//! What one stream holds of one chain: which of its blocks, in which KV groups, and which are only expected.
//!
//! Engines evict the end of a prompt before its beginning, so nearly always a hold is the first blocks of its chain in
//! one group: a number. Everything else (holes, further groups, speculations) lies in a box that is there only where it
//! is needed.

use crate::stream::Millis;

use super::groups::GroupMask;
use super::place::Slot;
use super::plain::HoldImage;

/// Offsets count blocks from the beginning of the chain.
#[derive(Debug, Default)]
pub(super) struct Hold {
    /// Whose it is. Here and not beside it, for a pair of both would take half as much again.
    pub(super) slot: Slot,
    /// Leading blocks that group slot 0 has.
    solid: u32,
    /// `None`: nothing else.
    rest: Option<Box<Rest>>,
}

/// What a number cannot say.
#[derive(Debug, Default)]
struct Rest {
    /// Blocks that slot 0 has behind a hole; the one at `solid` is never set.
    scattered: Bits,
    /// Slots 1 and up, by offset.
    others: Vec<GroupMask>,
    /// Sorted, disjoint, none of them empty.
    expected: Vec<Expected>,
}

/// A stretch of blocks that the stream is expected to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Expected {
    from: u32,
    /// Exclusive.
    to: u32,
    until: Millis,
}

/// A set of small numbers.
#[derive(Debug, Default)]
struct Bits(Vec<u64>);

// === impl Hold ===

impl Hold {
    /// What is held, without what is expected.
    pub(super) fn image(&self, chain: u32) -> HoldImage {
        let rest = self.rest.as_ref();
        HoldImage {
            chain,
            leading: self.solid,
            scattered: rest.map_or(Vec::new(), |rest| rest.scattered.0.clone()),
            others: rest.map_or(Vec::new(), |rest| rest.others.iter().map(|mask| mask.bits()).collect()),
        }
    }

    /// Of nothing yet.
    pub(super) fn new(slot: Slot) -> Self {
        Self { slot, ..Self::default() }
    }

    /// Group slots that have the block, by events.
    pub(super) fn stored(&self, at: u32) -> GroupMask {
        let first = at < self.solid || self.rest.as_ref().is_some_and(|rest| rest.scattered.has(at));
        let others = self.rest.as_ref().map_or(GroupMask::default(), |rest| rest.other(at));
        if first { others.with(0) } else { others }
    }

    /// Leading blocks held or expected, of those before `end`; meant for streams whose only group is in slot 0.
    #[inline]
    pub(super) fn reach(&self, end: u32) -> u32 {
        match &self.rest {
            Some(rest) if self.solid < end => rest.reach(self.solid, end),
            _ => self.solid.min(end),
        }
    }

    /// Leading blocks held, without those that [more is to be said of](Self::is_solid).
    #[inline]
    pub(super) fn solid(&self) -> u32 {
        self.solid
    }

    /// Leading blocks of group slot 0 are all there is to it; then it has one at least.
    #[inline]
    pub(super) fn is_solid(&self) -> bool {
        self.rest.is_none()
    }

    /// The same, of the blocks from `from` on: the first that is neither held nor expected, or `end`.
    pub(super) fn reach_from(&self, from: u32, end: u32) -> u32 {
        let at = from.max(self.solid.min(end));
        match &self.rest {
            Some(rest) if at < end => rest.reach(at, end),
            _ => at,
        }
    }

    /// The first block from `from` on that no group slot has, or `end`.
    pub(super) fn reach_of_any(&self, from: u32, end: u32) -> u32 {
        let from = from.max(self.solid.min(end));
        (from..end).find(|at| self.stored(*at).is_empty()).unwrap_or(end)
    }

    /// Group slots that count for a lookup: all of them where the block is expected.
    pub(super) fn counted(&self, at: u32) -> GroupMask {
        if self.is_expected(at) { GroupMask::ALL } else { self.stored(at) }
    }

    pub(super) fn is_expected(&self, at: u32) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.expected.iter().any(|expected| expected.covers(at)))
    }

    /// Nothing is held and nothing expected.
    pub(super) fn is_empty(&self) -> bool {
        self.solid == 0 && self.rest.is_none()
    }

    /// Offset behind the last block that is held or expected.
    pub(super) fn end(&self) -> u32 {
        self.rest.as_ref().map_or(self.solid, |rest| rest.end().max(self.solid))
    }

    /// The events of the stream tell what it holds from here on, so it is not expected any more: a speculation that
    /// outlived the block's arrival would hide its eviction.
    pub(super) fn store(&mut self, at: u32, slot: usize) {
        if slot == 0 && at == self.solid && self.rest.is_none() {
            self.solid += 1;
            return;
        }
        let rest = self.rest.get_or_insert_default();
        rest.unexpect(at, at + 1, Millis(u64::MAX));
        if slot > 0 {
            rest.set_other(at, slot);
        } else if at > self.solid {
            rest.scattered.set(at);
        } else if at == self.solid {
            self.solid += 1;
            while rest.scattered.take(self.solid) {
                self.solid += 1;
            }
        }
        self.tidy();
    }

    /// [`store`](Self::store) of so many blocks from `at` on, if they are the next ones of a hold that a number tells.
    /// `false`: nothing was done.
    #[inline]
    pub(super) fn store_run(&mut self, at: u32, length: u32, slot: usize) -> bool {
        let is_next = slot == 0 && at == self.solid && self.rest.is_none();
        if is_next {
            self.solid += length;
        }
        is_next
    }

    /// [`release`](Self::release) of the blocks from `from` to `to`, if they are the last ones of a hold that a number
    /// tells. `false`: nothing was done.
    #[inline]
    pub(super) fn release_run(&mut self, from: u32, to: u32, slot: usize) -> bool {
        let are_last = slot == 0 && to == self.solid && from < to && self.rest.is_none();
        if are_last {
            self.solid = from;
        }
        are_last
    }

    /// The slot no longer has the block.
    pub(super) fn release(&mut self, at: u32, slot: usize) {
        if slot > 0 {
            if let Some(rest) = &mut self.rest {
                rest.clear_other(at, slot);
            }
        } else if at < self.solid {
            let behind = at + 1..self.solid;
            self.solid = at;
            if !behind.is_empty() {
                self.rest.get_or_insert_default().scattered.set_all(behind);
            }
        } else if let Some(rest) = &mut self.rest {
            rest.scattered.take(at);
        }
        self.tidy();
    }

    /// Expects the blocks from `from` to `to` until then, or longer where they are expected longer already. Returns
    /// how many were not expected before.
    pub(super) fn expect(&mut self, from: u32, to: u32, until: Millis) -> u32 {
        if from >= to {
            return 0;
        }
        self.rest.get_or_insert_default().expect(from, to, until)
    }

    /// Expects nothing any more whose time is `until` or earlier. Returns how many blocks that were.
    pub(super) fn expire(&mut self, until: Millis) -> u32 {
        let Some(rest) = &mut self.rest else { return 0 };
        let expired = rest.unexpect(0, u32::MAX, until);
        self.tidy();
        expired
    }

    fn tidy(&mut self) {
        if self.rest.as_ref().is_some_and(|rest| rest.is_empty()) {
            self.rest = None;
        }
    }
}

// === impl Rest ===

impl Rest {
    /// [`Hold::reach`] where the blocks before `at` are held.
    #[inline(never)]
    fn reach(&self, mut at: u32, end: u32) -> u32 {
        while at < end {
            match self.expected.iter().find(|expected| expected.covers(at)) {
                Some(expected) => at = expected.to,
                None if self.scattered.has(at) => at += 1,
                None => break,
            }
        }
        at.min(end)
    }

    fn is_empty(&self) -> bool {
        self.scattered.0.is_empty() && self.others.is_empty() && self.expected.is_empty()
    }

    fn end(&self) -> u32 {
        let others = u32::try_from(self.others.len()).unwrap_or(u32::MAX);
        let expected = self.expected.last().map_or(0, |last| last.to);
        self.scattered.end().max(others).max(expected)
    }

    fn other(&self, at: u32) -> GroupMask {
        self.others.get(index(at)).copied().unwrap_or_default()
    }

    fn set_other(&mut self, at: u32, slot: usize) {
        if self.others.len() <= index(at) {
            self.others.resize(index(at) + 1, GroupMask::default());
        }
        if let Some(mask) = self.others.get_mut(index(at)) {
            *mask = mask.with(slot);
        }
    }

    fn clear_other(&mut self, at: u32, slot: usize) {
        if let Some(mask) = self.others.get_mut(index(at)) {
            *mask = mask.without(slot);
        }
        while self.others.last().is_some_and(|mask| mask.is_empty()) {
            self.others.pop();
        }
    }

    fn expect(&mut self, from: u32, to: u32, until: Millis) -> u32 {
        let mut stretches = Vec::with_capacity(self.expected.len() + 2);
        let mut next = from;
        let mut first = 0;
        for old in std::mem::take(&mut self.expected) {
            if old.to <= from || old.from >= to {
                if old.from >= to && next < to {
                    first += to - next;
                    push(&mut stretches, Expected { from: next, to, until });
                    next = to;
                }
                push(&mut stretches, old);
                continue;
            }
            push(&mut stretches, Expected { to: from.max(old.from), ..old });
            first += old.from.saturating_sub(next);
            push(&mut stretches, Expected { from: next, to: old.from.max(next), until });
            let both = Expected { from: old.from.max(from), to: old.to.min(to), until: old.until.max(until) };
            push(&mut stretches, both);
            next = both.to;
            push(&mut stretches, Expected { from: old.from.max(to), ..old });
        }
        first += to.saturating_sub(next);
        push(&mut stretches, Expected { from: next, to, until });
        self.expected = stretches;
        first
    }

    /// Drops what is expected from `from` to `to`, no longer than `until`.
    fn unexpect(&mut self, from: u32, to: u32, until: Millis) -> u32 {
        if !self.expected.iter().any(|old| old.until <= until && old.from < to && from < old.to) {
            return 0;
        }
        let mut dropped = 0;
        let mut stretches = Vec::with_capacity(self.expected.len() + 1);
        for old in std::mem::take(&mut self.expected) {
            if old.until > until || old.from >= to || from >= old.to {
                push(&mut stretches, old);
                continue;
            }
            push(&mut stretches, Expected { to: from.max(old.from), ..old });
            push(&mut stretches, Expected { from: to.min(old.to), ..old });
            dropped += old.to.min(to) - old.from.max(from);
        }
        self.expected = stretches;
        dropped
    }
}

/// Appends a stretch, unless it is empty; one that goes on from the last with the same time is made part of it.
fn push(stretches: &mut Vec<Expected>, stretch: Expected) {
    if stretch.from >= stretch.to {
        return;
    }
    match stretches.last_mut() {
        Some(last) if last.to == stretch.from && last.until == stretch.until => last.to = stretch.to,
        _ => stretches.push(stretch),
    }
}

// === impl Expected ===

impl Expected {
    fn covers(&self, at: u32) -> bool {
        (self.from..self.to).contains(&at)
    }
}

// === impl Bits ===

impl Bits {
    const WIDTH: u32 = u64::BITS;

    fn has(&self, at: u32) -> bool {
        self.0.get(index(at / Self::WIDTH)).is_some_and(|word| word >> (at % Self::WIDTH) & 1 == 1)
    }

    fn set(&mut self, at: u32) {
        self.set_all(at..at + 1);
    }

    fn set_all(&mut self, range: std::ops::Range<u32>) {
        let words = index(range.end.div_ceil(Self::WIDTH));
        if self.0.len() < words {
            self.0.resize(words, 0);
        }
        for at in range {
            if let Some(word) = self.0.get_mut(index(at / Self::WIDTH)) {
                *word |= 1 << (at % Self::WIDTH);
            }
        }
    }

    /// Whether it was set; it is not any more.
    fn take(&mut self, at: u32) -> bool {
        let had = self.has(at);
        if had && let Some(word) = self.0.get_mut(index(at / Self::WIDTH)) {
            *word &= !(1 << (at % Self::WIDTH));
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        had
    }

    /// Behind the last one set.
    fn end(&self) -> u32 {
        let Some(last) = self.0.last() else { return 0 };
        let words = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        words.saturating_mul(Self::WIDTH).saturating_sub(last.leading_zeros())
    }
}

fn index(at: u32) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
