//! How far a prefix goes on if slower media count as well: a walk of its own, over the few streams that have any.

use crate::prompt_keys::{Layout, PromptKeys};

use super::super::cards::{Cards, Reading, StreamCard};
use super::super::chains::{Chain, Chains};
use super::super::hold::Hold;
use super::super::place::Slot;
use super::{Hit, usable_tokens};

/// A stream that has held every block so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlowerWalk {
    slot: Slot,
    slower: Slot,
    reading: Reading,
}

/// Lists, sorted by stream, how far each holds the prompt.
pub(super) fn find(
    chains: &Chains,
    cards: &Cards,
    keys: &PromptKeys,
    walks: &mut Vec<SlowerWalk>,
    found: &mut Vec<Hit>,
) {
    for (layout, prompt) in keys.reusable() {
        walks.clear();
        walks.extend(cards.with_slower().iter().filter_map(|slot| walk(cards.stream(*slot)?, *slot, layout)));
        let (mut rest, mut depth) = (prompt, 0);
        while !walks.is_empty()
            && let Some(next) = rest.first()
            && let Some(chain) = chains.beginning(*next)
        {
            let common = chain.common(rest);
            let blocks = u32::try_from(common).unwrap_or(u32::MAX);
            walks.retain(|walk| {
                let reach = walk.reach(chain, blocks);
                if reach < blocks {
                    end(cards, walk, usable_tokens(layout, depth + reach), found);
                }
                reach == blocks
            });
            depth += blocks;
            rest = rest.get(common..).unwrap_or_default();
        }
        for walk in &*walks {
            end(cards, walk, usable_tokens(layout, depth), found);
        }
    }
    found.sort_unstable_by_key(|hit| hit.stream);
}

fn walk(stream: &StreamCard, slot: Slot, layout: Layout) -> Option<SlowerWalk> {
    let reading = stream.reading(layout)?;
    stream.slower.map(|slower| SlowerWalk { slot, slower, reading })
}

fn end(cards: &Cards, walk: &SlowerWalk, tokens: u32, found: &mut Vec<Hit>) {
    if tokens > 0
        && let Some(stream) = cards.stream(walk.slot)
    {
        found.push(Hit { stream: stream.id, tokens });
    }
}

// === impl SlowerWalk ===

impl SlowerWalk {
    /// How many of the chain's first `blocks` are held without a break, each in the main pool or elsewhere.
    fn reach(&self, chain: &Chain, blocks: u32) -> u32 {
        let (main, slower) = (chain.hold(self.slot), chain.hold(self.slower));
        let mut at = 0;
        while at < blocks {
            let before = at;
            at = main.map_or(at, |hold| self.reach_in_main(hold, at, blocks));
            at = slower.map_or(at, |hold| hold.reach_of_any(at, blocks));
            if at == before {
                break;
            }
        }
        at
    }

    fn reach_in_main(&self, hold: &Hold, from: u32, end: u32) -> u32 {
        match self.reading {
            Reading::Plain => hold.reach_from(from, end),
            Reading::Grouped { full, .. } => {
                (from..end).find(|at| !hold.counted(*at).contains(full)).unwrap_or(end)
            }
        }
    }
}
