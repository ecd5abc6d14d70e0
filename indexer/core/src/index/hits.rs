//! Block keys → how many leading tokens each stream holds. Walks the chain of each block size from the root until nobody
//! holds the next block.

use hashbrown::HashMap;

use crate::prompt_keys::PromptKeys;
use crate::stream::StreamId;

use super::blocks::{BlockTable, Holder};
use super::groups::{GroupMask, WindowBlocks};
use super::streams::StreamBlocks;

/// What one stream holds of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    pub stream: StreamId,
    /// Leading tokens held; a multiple of the stream's block size, above 0 and below the prompt's length.
    pub tokens: u32,
}

/// The answer of a lookup, and its scratch space.
#[derive(Clone, Debug, Default)]
pub struct Hits {
    found: Vec<Hit>,
    walks: Vec<Walk>,
}

/// A stream that has held every block so far.
#[derive(Clone, Copy, Debug)]
struct Walk {
    stream: StreamId,
    full: GroupMask,
    windows: WindowBlocks,
    has_windows: bool,
    /// Unbroken blocks up to here, per windowed group.
    runs: WindowBlocks,
    /// Blocks walked.
    depth: u32,
    /// Blocks of the longest hit so far.
    hit: u32,
}

// === impl Hits ===

impl Hits {
    /// Streams that hold something, in no particular order.
    #[must_use]
    pub fn as_slice(&self) -> &[Hit] {
        &self.found
    }

    /// Tokens that `stream` holds.
    #[must_use]
    pub fn tokens(&self, stream: StreamId) -> u32 {
        self.found.iter().find(|hit| hit.stream == stream).map_or(0, |hit| hit.tokens)
    }
}

pub(super) fn find(
    blocks: &BlockTable,
    streams: &HashMap<StreamId, StreamBlocks>,
    keys: &PromptKeys,
    out: &mut Hits,
) {
    out.found.clear();
    for (size, chain) in keys.reusable() {
        let size = size.get();
        let Some((first, chain)) = chain.split_first() else { continue };
        out.walks.clear();
        for holder in blocks.holders(*first) {
            if let Some(mut walk) = Walk::begin(holder, streams, size)
                && walk.step(holder)
            {
                out.walks.push(walk);
            }
        }
        let found = &mut out.found;
        for key in chain {
            if out.walks.is_empty() {
                break;
            }
            // Both are sorted by stream.
            let mut holders = blocks.holders(*key);
            out.walks.retain_mut(|walk| {
                while let [first, rest @ ..] = holders
                    && first.stream < walk.stream
                {
                    holders = rest;
                }
                let goes_on = match holders {
                    [holder, ..] if holder.stream == walk.stream => walk.step(holder),
                    _ => false,
                };
                if !goes_on {
                    walk.end(size, found);
                }
                goes_on
            });
        }
        for walk in &out.walks {
            walk.end(size, found);
        }
    }
}

// === impl Walk ===

impl Walk {
    fn begin(holder: &Holder, streams: &HashMap<StreamId, StreamBlocks>, size: u32) -> Option<Self> {
        let stream = streams.get(&holder.stream).filter(|stream| stream.trust.is_scored())?;
        let block_size = stream.block_size.filter(|learnt| learnt.get() == size)?;
        let full = stream.groups.full();
        let windows = stream.groups.windows(block_size);
        (!full.is_empty()).then(|| Self {
            stream: holder.stream,
            full,
            has_windows: windows != WindowBlocks::default(),
            windows,
            runs: WindowBlocks::default(),
            depth: 0,
            hit: 0,
        })
    }

    /// Takes the next block; `false`: it is not held, so the walk is over.
    #[inline]
    fn step(&mut self, holder: &Holder) -> bool {
        let groups = holder.groups();
        if !groups.contains(self.full) {
            return false;
        }
        self.depth += 1;
        if !self.has_windows {
            self.hit = self.depth;
            return true;
        }
        let mut may_end_here = true;
        for (slot, (run, window)) in self.runs.iter_mut().zip(self.windows).enumerate() {
            if window > 0 {
                *run = if groups.has(slot) { *run + 1 } else { 0 };
                may_end_here &= *run >= window.min(self.depth);
            }
        }
        if may_end_here {
            self.hit = self.depth;
        }
        true
    }

    fn end(&self, size: u32, found: &mut Vec<Hit>) {
        if self.hit > 0 {
            found.push(Hit { stream: self.stream, tokens: self.hit.saturating_mul(size) });
        }
    }
}
