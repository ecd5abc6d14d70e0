//! Block keys → how many leading tokens each stream holds. Walks from chain to chain, for each layout, until nobody
//! holds what comes next.
//!
//! Many streams may hold the beginning of a prompt, few hold much of it. So those of the first chain are gone through
//! once only, at the end, and on the way from chain to chain only those that hold something of the second. Those with
//! slower media are walked a second time, for what these add.

use crate::key::BlockKey;
use crate::prompt_keys::{Layout, PromptKeys};
use crate::stream::StreamId;

use super::cards::{Cards, Reading};
use super::chains::{Chain, Chains};
use super::groups::{GroupMask, WindowBlocks};
use super::hold::Hold;
use super::place::Slot;

mod list;
mod slower;

use list::List;
use slower::SlowerWalk;

/// What one stream holds of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    pub stream: StreamId,
    /// Leading tokens held in the engine's main pool; a multiple of the stream's block size, above 0 and below
    /// the prompt's length.
    pub tokens: u32,
}

/// The answer of a lookup, and its scratch space.
#[derive(Clone, Debug, Default)]
pub struct Hits {
    /// Sorted by stream.
    found: List,
    /// How far the prefix goes on if slower media count as well, for the few streams that have any; sorted by stream.
    with_slower: Vec<Hit>,
    /// Streams that hold the first chain and something of the second; sorted by slot. Of those with several groups too,
    /// but then it means nothing.
    deep: Vec<Deep>,
    /// Streams with several groups that have held every block so far; sorted by slot.
    grouped: Vec<GroupedWalk>,
    /// Streams with slower media that have held every block so far, here or there.
    walks: Vec<SlowerWalk>,
}

/// How far one stream holds a prompt.
#[derive(Clone, Copy, Debug)]
struct Deep {
    slot: Slot,
    /// Where it stands among the holders of the first chain.
    at: usize,
    /// Leading blocks.
    blocks: u32,
    /// It has held every block so far.
    goes_on: bool,
}

/// A stream whose blocks must be looked at one by one, and that has held every one so far.
#[derive(Clone, Copy, Debug)]
struct GroupedWalk {
    slot: Slot,
    full: GroupMask,
    windows: WindowBlocks,
    /// Unbroken blocks up to here, per windowed group.
    runs: WindowBlocks,
    /// Blocks walked.
    depth: u32,
    /// Blocks of the longest hit so far.
    hit: u32,
}

// === impl Hits ===

impl Hits {
    /// Streams that hold something, sorted.
    #[must_use]
    pub fn as_slice(&self) -> &[Hit] {
        self.found.as_slice()
    }

    /// Tokens that `stream` holds in its main pool.
    #[must_use]
    pub fn tokens(&self, stream: StreamId) -> u32 {
        tokens_of(self.as_slice(), stream)
    }

    /// Tokens that `stream` holds if slower media count as well: at least those of its main pool. An engine may need more
    /// than this to load a block back, so it is an upper bound.
    #[must_use]
    pub fn with_slower(&self, stream: StreamId) -> u32 {
        tokens_of(&self.with_slower, stream).max(self.tokens(stream))
    }

    /// Streams with slower media that hold something here or there, sorted, each with how far the prefix goes on with both.
    #[must_use]
    pub fn slower(&self) -> &[Hit] {
        &self.with_slower
    }
}

/// `hits`: sorted by stream.
fn tokens_of(hits: &[Hit], stream: StreamId) -> u32 {
    let at = hits.binary_search_by_key(&stream, |hit| hit.stream).ok();
    at.and_then(|at| hits.get(at)).map_or(0, |hit| hit.tokens)
}

pub(super) fn find(chains: &Chains, cards: &Cards, keys: &PromptKeys, out: &mut Hits) {
    let Hits { found, with_slower, deep, grouped, walks } = out;
    found.clear();
    with_slower.clear();
    for (layout, prompt) in keys.reusable() {
        deep.clear();
        grouped.clear();
        let Some((first, blocks, mut rest)) = next(chains, prompt) else { continue };
        if cards.has_grouped() {
            begin_grouped(cards, layout, first, blocks, grouped, found);
        }
        if let Some((second, more, behind)) = next(chains, rest) {
            enter(first.holds(), blocks, second.holds(), more, deep);
            go_on_grouped(cards, layout, second, more, grouped, found);
            rest = behind;
        }
        while (!grouped.is_empty() || deep.iter().any(|deep| deep.goes_on))
            && let Some((chain, more, behind)) = next(chains, rest)
        {
            go_on(chain.holds(), more, deep);
            go_on_grouped(cards, layout, chain, more, grouped, found);
            rest = behind;
        }
        if cards.are_even() {
            list_all(cards, layout, first, blocks, deep, found);
        } else {
            list_some(cards, layout, first.holds(), blocks, deep, found);
        }
        for walk in &*grouped {
            walk.end(cards, layout, found);
        }
    }
    if cards.are_shuffled() || cards.has_grouped() || keys.layouts() > 1 {
        found.as_mut_slice().sort_unstable_by_key(|hit| hit.stream);
    }
    if !cards.with_slower().is_empty() {
        slower::find(chains, cards, keys, walks, with_slower);
    }
}

/// Tokens of so many blocks found.
fn usable_tokens(layout: Layout, blocks: u32) -> u32 {
    blocks.saturating_sub(blocks_dropped(layout)).saturating_mul(layout.size())
}

/// Engines whose hashes look ahead compute the last block found again, for their drafter.
fn blocks_dropped(layout: Layout) -> u32 {
    (layout.ahead() > 0).into()
}

/// The chain that the rest of a prompt begins with, how many blocks of it that are, and what comes behind them.
#[inline]
fn next<'a, 'p>(chains: &'a Chains, rest: &'p [BlockKey]) -> Option<(&'a Chain, u32, &'p [BlockKey])> {
    let chain = chains.beginning(*rest.first()?)?;
    let common = chain.common(rest);
    Some((chain, u32::try_from(common).unwrap_or(u32::MAX), rest.get(common..).unwrap_or_default()))
}

/// From the first chain into the second: who holds all `blocks` of the first, and something of the `more` of the second.
fn enter(first: &[Hold], blocks: u32, second: &[Hold], more: u32, deep: &mut Vec<Deep>) {
    let mut seeker = Seeker(first);
    for hold in second {
        if seeker.seek(hold.slot).is_some_and(|before| before.reach(blocks) == blocks) {
            let at = first.len() - seeker.0.len();
            let reach = hold.reach(more);
            deep.push(Deep { slot: hold.slot, at, blocks: blocks + reach, goes_on: reach == more });
        }
    }
}

/// From a later chain into the next one.
fn go_on(holds: &[Hold], more: u32, deep: &mut [Deep]) {
    let mut seeker = Seeker(holds);
    for deep in deep.iter_mut().filter(|deep| deep.goes_on) {
        let reach = seeker.seek(deep.slot).map_or(0, |hold| hold.reach(more));
        deep.blocks += reach;
        deep.goes_on = reach == more;
    }
}

/// Lists the streams that hold the first chain where all streams are read alike, so that nothing is asked of any of them:
/// hundreds may hold it. A function of its own, so that what its loops work with stays in registers.
#[inline(never)]
fn list_all(cards: &Cards, layout: Layout, first: &Chain, blocks: u32, deep: &[Deep], found: &mut List) {
    let (holds, names) = (first.holds(), cards.names());
    let places = found.take(holds.len());
    // No product is above the number of the prompt's tokens.
    let tokens = |blocks: u32| blocks.wrapping_mul(layout.size());
    let mut has_empty = false;
    if first.least() >= blocks {
        list_each(holds, names, places, |_| tokens(blocks));
    } else {
        list_each(holds, names, places, |hold| tokens(hold.solid().min(blocks)));
        if !first.note_least() {
            for (place, hold) in places.iter_mut().zip(holds) {
                place.tokens = tokens(hold.reach(blocks));
            }
            has_empty = true;
        }
    }
    for deep in deep {
        if let Some(place) = places.get_mut(deep.at) {
            place.tokens = tokens(deep.blocks);
        }
    }
    if has_empty {
        found.drop_empty(holds.len());
    }
}

#[inline(always)]
fn list_each(holds: &[Hold], names: &[StreamId], places: &mut [Hit], tokens: impl Fn(&Hold) -> u32) {
    if holds.len() == names.len() {
        // Every slot, one after the other.
        for ((place, hold), name) in places.iter_mut().zip(holds).zip(names) {
            *place = Hit { stream: *name, tokens: tokens(hold) };
        }
    } else {
        for (place, hold) in places.iter_mut().zip(holds) {
            let name = names.get(hold.slot.index()).copied().unwrap_or_default();
            *place = Hit { stream: name, tokens: tokens(hold) };
        }
    }
}

/// The same where it must be asked of each stream how it is read. Those with several groups are listed elsewhere.
#[inline(never)]
fn list_some(
    cards: &Cards,
    layout: Layout,
    first: &[Hold],
    blocks: u32,
    mut deep: &[Deep],
    found: &mut List,
) {
    let begin = found.len();
    let mut count = 0;
    let dropped = blocks_dropped(layout);
    let size = layout.size();
    let mut places = found.take(first.len()).iter_mut();
    for hold in first {
        let mut reach = hold.reach(blocks);
        if let [next, behind @ ..] = deep
            && next.slot == hold.slot
        {
            deep = behind;
            reach = next.blocks;
        }
        if reach > dropped
            && let Some(stream) = cards.plain(hold.slot, layout)
            && let Some(place) = places.next()
        {
            *place = Hit { stream, tokens: (reach - dropped).saturating_mul(size) };
            count += 1;
        }
    }
    found.truncate(begin + count);
}

/// The first chain, for streams with several groups: whoever holds something of it is looked at.
#[cold]
fn begin_grouped(
    cards: &Cards,
    layout: Layout,
    first: &Chain,
    blocks: u32,
    grouped: &mut Vec<GroupedWalk>,
    found: &mut List,
) {
    for hold in first.holds() {
        let slot = hold.slot;
        let reading = cards.stream(slot).and_then(|stream| stream.reading(layout));
        if let Some(Reading::Grouped { full, windows }) = reading {
            let runs = WindowBlocks::default();
            let mut walk = GroupedWalk { slot, full, windows, runs, depth: 0, hit: 0 };
            if walk.takes(hold, blocks) { grouped.push(walk) } else { walk.end(cards, layout, found) }
        }
    }
}

/// A further chain, for those of them that have held everything before it.
fn go_on_grouped(
    cards: &Cards,
    layout: Layout,
    chain: &Chain,
    more: u32,
    grouped: &mut Vec<GroupedWalk>,
    found: &mut List,
) {
    let mut seeker = Seeker(chain.holds());
    grouped.retain_mut(|walk| {
        let goes_on = seeker.seek(walk.slot).is_some_and(|hold| walk.takes(hold, more));
        if !goes_on {
            walk.end(cards, layout, found);
        }
        goes_on
    });
}

/// Finds holds by rising slots.
struct Seeker<'a>(&'a [Hold]);

// === impl Seeker ===

impl<'a> Seeker<'a> {
    /// Where every slot has a hold, it is known where; else looks twice as far ahead each time, and then between the last two:
    /// one of few is found among many in few steps, and the next one at once.
    fn seek(&mut self, slot: Slot) -> Option<&'a Hold> {
        let first = self.0.first()?.slot;
        if let Some(at) = slot.index().checked_sub(first.index())
            && let Some(rest @ [hold, ..]) = self.0.get(at..)
            && hold.slot == slot
        {
            self.0 = rest;
            return Some(hold);
        }
        let mut end = 1;
        while self.0.get(end - 1).is_some_and(|hold| hold.slot < slot) {
            end *= 2;
        }
        let begin = end / 2;
        let near = self.0.get(begin..end.min(self.0.len())).unwrap_or_default();
        let at = begin + near.partition_point(|hold| hold.slot < slot);
        self.0 = self.0.get(at..).unwrap_or_default();
        self.0.first().filter(|hold| hold.slot == slot)
    }
}

// === impl GroupedWalk ===

impl GroupedWalk {
    /// Takes the first `blocks` of a chain, one by one; `false`: not all of them are held, so the walk is over.
    fn takes(&mut self, hold: &Hold, blocks: u32) -> bool {
        for at in 0..blocks {
            let groups = hold.counted(at);
            if !groups.contains(self.full) {
                return false;
            }
            self.depth += 1;
            if self.may_end(groups) {
                self.hit = self.depth;
            }
        }
        true
    }

    /// Lists the longest hit, if there is one.
    fn end(&self, cards: &Cards, layout: Layout, found: &mut List) {
        let tokens = usable_tokens(layout, self.hit);
        if tokens > 0
            && let Some(stream) = cards.stream(self.slot)
        {
            found.push(Hit { stream: stream.id, tokens });
        }
    }

    /// Whether a hit may end behind this block: every windowed group has the blocks just before the boundary.
    fn may_end(&mut self, groups: GroupMask) -> bool {
        let mut may_end = true;
        for (slot, (run, window)) in self.runs.iter_mut().zip(&self.windows).enumerate() {
            if *window > 0 {
                *run = if groups.has(slot) { *run + 1 } else { 0 };
                may_end &= *run >= (*window).min(self.depth);
            }
        }
        may_end
    }
}

#[cfg(test)]
mod tests;
