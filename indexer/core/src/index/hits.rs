//! Block keys → how many leading tokens each stream holds. Walks from chain to chain, for each block size, until nobody
//! holds what comes next. Streams with slower media are walked a second time, for what those add.

use crate::prompt_keys::{Layout, PromptKeys};
use crate::stream::StreamId;

use super::chains::Chains;
use super::groups::{GroupMask, WindowBlocks};
use super::hold::Hold;
use super::place::Slot;
use super::streams::{Reading, Streams};

mod slower;

use slower::SlowerWalk;

/// What one stream holds of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    pub stream: StreamId,
    /// Leading tokens held in the engine's main pool; a multiple of the stream's block size, below the prompt's length.
    pub tokens: u32,
    /// How far the prefix goes on if slower media count as well; at least as far as `tokens`, and above 0. An engine may
    /// need more than this to load a block back, so it is an upper bound.
    pub with_slower: u32,
}

/// The answer of a lookup, and its scratch space.
#[derive(Clone, Debug, Default)]
pub struct Hits {
    /// Sorted by stream.
    found: Vec<Hit>,
    /// Streams with one group that have held every block so far; sorted by slot.
    plain: Vec<Slot>,
    /// The same of streams with several groups.
    grouped: Vec<GroupedWalk>,
    /// Streams with slower media that have held every block so far, here or there.
    slower: Vec<SlowerWalk>,
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

/// One lookup for one block size, on its way.
struct Search<'a> {
    streams: &'a Streams,
    layout: Layout,
    /// Blocks behind the walks.
    depth: u32,
    found: &'a mut Vec<Hit>,
}

// === impl Hits ===

impl Hits {
    /// Streams that hold something, sorted.
    #[must_use]
    pub fn as_slice(&self) -> &[Hit] {
        &self.found
    }

    /// Tokens that `stream` holds in its main pool.
    #[must_use]
    pub fn tokens(&self, stream: StreamId) -> u32 {
        self.of(stream).map_or(0, |hit| hit.tokens)
    }

    /// Tokens that `stream` holds if slower media count as well.
    #[must_use]
    pub fn with_slower(&self, stream: StreamId) -> u32 {
        self.of(stream).map_or(0, |hit| hit.with_slower)
    }

    fn of(&self, stream: StreamId) -> Option<&Hit> {
        let at = self.found.binary_search_by_key(&stream, |hit| hit.stream).ok()?;
        self.found.get(at)
    }
}

pub(super) fn find(chains: &Chains, streams: &Streams, keys: &PromptKeys, out: &mut Hits) {
    let Hits { found, plain, grouped, slower } = out;
    found.clear();
    for (layout, prompt) in keys.reusable() {
        plain.clear();
        grouped.clear();
        let mut search = Search { streams, layout, depth: 0, found: &mut *found };
        let mut rest = prompt;
        while let Some(next) = rest.first()
            && let Some(chain) = chains.beginning(*next)
        {
            let common = chain.common(rest);
            let blocks = u32::try_from(common).unwrap_or(u32::MAX);
            if search.depth == 0 {
                search.begin(chain.holds(), blocks, plain, grouped);
            } else {
                search.go_on(chain.holds(), blocks, plain, grouped);
            }
            search.depth += blocks;
            rest = rest.get(common..).unwrap_or_default();
            if plain.is_empty() && grouped.is_empty() {
                break;
            }
        }
        for slot in &*plain {
            search.end(*slot, search.depth);
        }
        for walk in &*grouped {
            search.end(walk.slot, walk.hit);
        }
    }
    // Nearly sorted already, which this sort makes use of.
    found.sort_by_key(|hit| hit.stream);
    if !streams.with_slower().is_empty() {
        slower::find(chains, streams, keys, slower, found);
    }
}

/// Tokens of so many blocks found. Engines whose hashes look ahead compute the last one again, for their drafter.
#[inline]
fn usable_tokens(layout: Layout, blocks: u32) -> u32 {
    blocks.saturating_sub(u32::from(layout.ahead() > 0)).saturating_mul(layout.size())
}

// === impl Search ===

impl Search<'_> {
    /// The first chain: whoever holds something of it is looked at.
    fn begin(
        &mut self,
        holds: &[(Slot, Hold)],
        blocks: u32,
        plain: &mut Vec<Slot>,
        grouped: &mut Vec<GroupedWalk>,
    ) {
        for (slot, hold) in holds {
            match self.streams.get(*slot).and_then(|stream| stream.reading(self.layout)) {
                None => {}
                Some(Reading::Plain) => {
                    let goes_on = self.takes(*slot, hold, blocks);
                    plain.extend(goes_on.then_some(*slot));
                }
                Some(Reading::Grouped { full, windows }) => {
                    let runs = WindowBlocks::default();
                    let mut walk = GroupedWalk { slot: *slot, full, windows, runs, depth: 0, hit: 0 };
                    if walk.takes(hold, blocks) { grouped.push(walk) } else { self.end(*slot, walk.hit) }
                }
            }
        }
    }

    /// A further chain: only who has held everything before it is looked at.
    fn go_on(
        &mut self,
        holds: &[(Slot, Hold)],
        blocks: u32,
        plain: &mut Vec<Slot>,
        grouped: &mut Vec<GroupedWalk>,
    ) {
        let mut seeker = Seeker(holds);
        plain.retain(|slot| match seeker.seek(*slot) {
            Some(hold) => self.takes(*slot, hold, blocks),
            None => {
                self.end(*slot, self.depth);
                false
            }
        });
        let mut seeker = Seeker(holds);
        grouped.retain_mut(|walk| {
            let goes_on = seeker.seek(walk.slot).is_some_and(|hold| walk.takes(hold, blocks));
            if !goes_on {
                self.end(walk.slot, walk.hit);
            }
            goes_on
        });
    }

    /// Takes the first `blocks` of a chain, all at once; `false`: not all of them are held, so the walk is over.
    #[inline]
    fn takes(&mut self, slot: Slot, hold: &Hold, blocks: u32) -> bool {
        let reach = hold.reach(blocks);
        if reach < blocks {
            self.end(slot, self.depth + reach);
        }
        reach == blocks
    }

    #[inline]
    fn end(&mut self, slot: Slot, hit: u32) {
        let tokens = usable_tokens(self.layout, hit);
        if tokens > 0
            && let Some(stream) = self.streams.get(slot)
        {
            self.found.push(Hit { stream: stream.id, tokens, with_slower: tokens });
        }
    }
}

/// Finds holds by rising slots.
struct Seeker<'a>(&'a [(Slot, Hold)]);

// === impl Seeker ===

impl<'a> Seeker<'a> {
    fn seek(&mut self, slot: Slot) -> Option<&'a Hold> {
        while let [(first, hold), behind @ ..] = self.0 {
            if *first == slot {
                return Some(hold);
            }
            if *first > slot {
                return None;
            }
            self.0 = behind;
        }
        None
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
