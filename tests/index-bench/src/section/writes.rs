//! What it costs to store and to remove a block, one writer, nobody reading.

use std::time::Duration;

use super::{Effort, holding};
use crate::block::{Block, Change, chain, removals, stores};
use crate::contestant::turns;
use crate::measure::median;
use crate::report::{Row, Section};
use crate::workload::{Contents, Shape, Size, Workload};

const WORKERS: usize = 64;

/// Prompts stored and removed in one round, all at the same time.
const PROMPTS: usize = 256;
const LENGTH: usize = 192;

/// Blocks of an event.
const EVENT_BLOCKS: [usize; 3] = [1, 8, 192];

/// Nanoseconds per block in one round.
#[derive(Clone, Copy)]
struct Cost {
    hash: f64,
    store: f64,
    remove: f64,
}

pub(crate) fn run(effort: Effort) -> Section {
    let mut contents = Contents::default();
    let memberships = effort.scaled(1_000_000);
    let size = Size { shape: Shape::Unique, workers: WORKERS, length: LENGTH, memberships };
    let workload = Workload::new(size, &mut contents);
    let mut contestants = holding(&workload, WORKERS);
    let mut rows = Vec::new();
    for event_blocks in EVENT_BLOCKS {
        let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); contestants.len()];
        for round in 0..effort.rounds {
            let prompts: Vec<Vec<Block>> =
                (0..effort.scaled(PROMPTS)).map(|_| chain(None, contents.fresh(LENGTH))).collect();
            let blocks = (prompts.len() * LENGTH) as f64;
            let stores = at_once(&prompts, |worker, blocks| stores(worker, None, blocks, event_blocks));
            let removals = at_once(&prompts, |worker, blocks| removals(worker, blocks, event_blocks));
            for turn in turns(round, contestants.len()) {
                let one = &mut contestants[turn];
                let per_block = |time: Duration| time.as_nanos() as f64 / blocks;
                let hash = per_block(one.prepare(&stores));
                let store = per_block(one.apply());
                one.prepare(&removals);
                let remove = per_block(one.apply());
                costs[turn].push(Cost { hash, store, remove });
            }
        }
        rows.extend(of_events(event_blocks, &costs));
    }
    let about = "WRITES: CPU time of the writing thread in nanoseconds per block, a million others held, 256 prompts of \
                 192 blocks in turns";
    Section { name: "writes", about: about.to_owned(), rows }
}

fn of_events(event_blocks: usize, costs: &[Vec<Cost>]) -> [Row; 3] {
    let figures = |of: fn(&Cost) -> f64| -> Vec<Option<f64>> {
        costs.iter().map(|rounds| Some(median(rounds.iter().map(of)))).collect()
    };
    let given = |(which, figure): (usize, Option<f64>)| if which == 0 { None } else { figure };
    let applied = figures(|cost| cost.store).into_iter().enumerate().map(given).collect();
    let label = |what: &str| format!("{event_blocks} blocks an event, {what}");
    [
        Row::new(label("store, from tokens"), "ns", figures(|cost| cost.hash + cost.store)),
        Row::new(label("store, hashed before"), "ns", applied),
        Row::new(label("remove"), "ns", figures(|cost| cost.remove)),
    ]
}

/// The changes of all prompts: the first of each, then the second of each, as engines work on many prompts at once.
fn at_once(prompts: &[Vec<Block>], of: impl Fn(u32, &[Block]) -> Vec<Change>) -> Vec<Change> {
    let worker = |prompt: usize| (prompt % WORKERS) as u32;
    let mut each: Vec<_> =
        prompts.iter().enumerate().map(|(prompt, blocks)| of(worker(prompt), blocks).into_iter()).collect();
    let mut changes = Vec::new();
    loop {
        let before = changes.len();
        changes.extend(each.iter_mut().filter_map(Iterator::next));
        if changes.len() == before {
            return changes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_take_turns_and_none_is_cut() {
        let prompts = [chain(None, 0..3), chain(None, 3..4)];
        let changes = at_once(&prompts, |worker, blocks| stores(worker, None, blocks, 1));
        let workers: Vec<u32> = changes
            .iter()
            .map(|change| match change {
                Change::Store { worker, .. } | Change::Remove { worker, .. } => *worker,
            })
            .collect();
        assert_eq!(workers, [0, 1, 0, 0]);
    }
}
