//! Lookups while 100,000 events a second are applied.

use super::{Effort, holding};
use crate::block::{Block, Change, Random, chain, removals, stores};
use crate::contestant::{Contestant, Race, turns};
use crate::measure::{Spread, median, median_spread};
use crate::report::{Row, Section};
use crate::workload::{Contents, Shape, Size, Workload};

const WORKERS: usize = 64;
const LENGTH: usize = 192;

/// Events a second.
const RATE: u32 = 100_000;

/// Events of one round: two seconds.
const EVENTS: usize = 200_000;

/// Blocks of an event: one, as of an engine that writes its answers, and some.
const EVENT_BLOCKS: [usize; 2] = [1, 8];

/// Most nanoseconds of 99 % of our lookups.
const BAR: f64 = 1_000.0;

pub(crate) fn run(effort: Effort) -> Section {
    let mut contents = Contents::default();
    let memberships = effort.scaled(1_000_000);
    let size = Size { shape: Shape::Mixed, workers: WORKERS, length: LENGTH, memberships };
    let workload = Workload::new(size, &mut contents);
    let mut contestants = holding(&workload, WORKERS);
    let prompts: Vec<&[Block]> = workload.prompts.iter().map(|prompt| &*prompt.blocks).collect();
    contestants.iter_mut().for_each(|contestant| contestant.set_prompts(&prompts));
    let mut order: Vec<usize> = (0..prompts.len()).collect();
    Random::new(0).shuffle(&mut order);
    let rows = EVENT_BLOCKS
        .iter()
        .flat_map(|event_blocks| of_events(*event_blocks, &order, &mut contestants, &mut contents, effort))
        .collect();
    let about = "READERS BESIDE WRITES: lookups of 192 blocks, 1 M memberships, mixed, 64 workers, on one core, while \
                 100,000 events a second, half of them stores and half removals, are applied on another";
    Section { name: "readers", about: about.to_owned(), rows }
}

fn of_events(
    event_blocks: usize,
    order: &[usize],
    contestants: &mut [Box<dyn Contestant>],
    contents: &mut Contents,
    effort: Effort,
) -> Vec<Row> {
    let mut spreads: Vec<Vec<Spread>> = vec![Vec::new(); contestants.len()];
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); contestants.len()];
    let mut wrong: Vec<Option<f64>> = vec![None; contestants.len()];
    for round in 0..effort.rounds.min(3) {
        let changes = feed(effort.scaled(EVENTS), event_blocks, contents);
        for turn in turns(round, contestants.len()) {
            let one = &mut contestants[turn];
            let expected: Vec<_> = order.iter().map(|prompt| found(&mut **one, *prompt)).collect();
            one.prepare(&changes);
            let Some(raced) = one.race(&Race { rate: RATE, prompts: order, expected: &expected }) else {
                continue;
            };
            assert!(turn > 0 || raced.wrong == 0, "{} of our answers were wrong", raced.wrong);
            wrong[turn] = Some(wrong[turn].unwrap_or_default() + raced.wrong as f64);
            rates[turn].push(raced.rate / 1_000.0);
            spreads[turn].push(raced.lookups.spread());
        }
    }
    let figures = |of: fn(&Spread) -> f64| -> Vec<Option<f64>> {
        spreads.iter().map(|rounds| (!rounds.is_empty()).then(|| of(&median_spread(rounds)))).collect()
    };
    let rates = rates.into_iter().map(|rounds| (!rounds.is_empty()).then(|| median(rounds))).collect();
    let label = |what: &str| format!("{event_blocks} blocks an event, {what}");
    vec![
        Row::new(label("p50"), "ns", figures(|spread| spread.p50)),
        Row::new(label("p99"), "ns", figures(|spread| spread.p99)).with_bar(BAR),
        Row::new(label("mean"), "ns", figures(|spread| spread.mean)),
        Row::new(label("thousand events a second"), "k/s", rates),
        Row::new(label("wrong answers"), "", wrong),
    ]
}

/// Workers found, and their blocks in all.
fn found(one: &mut dyn Contestant, prompt: usize) -> (usize, u64) {
    one.lookup(prompt);
    let answer = one.answer();
    (answer.len(), answer.iter().map(|(_, blocks)| u64::from(*blocks)).sum())
}

/// So many events: each worker in turn stores a piece of a new prompt and evicts one of its last prompt.
fn feed(count: usize, event_blocks: usize, contents: &mut Contents) -> Vec<Change> {
    let mut changes = Vec::with_capacity(count + 2 * WORKERS * LENGTH);
    let mut evicting: Vec<Vec<Change>> = vec![Vec::new(); WORKERS];
    while changes.len() < count {
        let prompts: Vec<Vec<Block>> = (0..WORKERS).map(|_| chain(None, contents.fresh(LENGTH))).collect();
        let storing =
            |(worker, blocks): (usize, &Vec<Block>)| stores(worker as u32, None, blocks, event_blocks);
        let storing: Vec<Vec<Change>> = prompts.iter().enumerate().map(storing).collect();
        for piece in 0..LENGTH.div_ceil(event_blocks) {
            for worker in 0..WORKERS {
                changes.extend(storing[worker].get(piece).cloned());
                changes.extend(evicting[worker].get(piece).cloned());
            }
        }
        let evict = |(worker, blocks): (usize, &Vec<Block>)| removals(worker as u32, blocks, event_blocks);
        evicting = prompts.iter().enumerate().map(evict).collect();
    }
    changes.truncate(count);
    changes
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn what_is_fed_stores_after_a_parent_and_removes_what_was_stored() {
        let changes = feed(40_000, 8, &mut Contents::default());
        assert_eq!(changes.len(), 40_000);
        let mut held = HashSet::new();
        let (mut stored, mut removed) = (0, 0);
        for change in changes {
            match change {
                Change::Store { worker, parent, blocks } => {
                    assert!(parent.is_none_or(|parent| held.contains(&(worker, parent))));
                    stored += blocks.len();
                    held.extend(blocks.iter().map(|block| (worker, block.hash)));
                }
                Change::Remove { worker, hashes } => {
                    removed += hashes.len();
                    assert!(hashes.iter().all(|hash| held.remove(&(worker, *hash))));
                }
            }
        }
        assert!(held.len() <= 2 * WORKERS * LENGTH, "bounded");
        assert!(removed * 10 > stored * 9, "{removed} of {stored}");
    }
}
