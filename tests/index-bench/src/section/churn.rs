//! Ten million blocks through a bounded number of resident ones: whether memory stays flat.

use super::{BLOCK_SIZE, Effort};
use crate::alloc::growth;
use crate::block::{Block, Change, chain, removals, stores};
use crate::contestant::{self, Contestant, Setting, apply_all};
use crate::report::{Row, Section};
use crate::workload::{Contents, SHARED_BLOCKS};

const WORKERS: usize = 64;

/// Prompts at any time, each with 128 blocks of its own behind 64 that all of them share: 200,000 blocks.
const PROMPTS: usize = 1_562;
const OWN_BLOCKS: usize = 128;

/// Each brings new prompts in the place of all: 10 million blocks in all.
const ROUNDS: usize = 50;

/// Rounds after which the memory is told.
const TOLD: [usize; 5] = [1, 2, 10, 25, 50];

pub(crate) fn run(effort: Effort) -> Section {
    let all: Vec<Vec<f64>> = (0..contestant::COUNT).map(|which| megabytes(which, effort)).collect();
    let label = |at: usize| match TOLD.get(at) {
        Some(round) => format!("after {round} rounds of 200,000 blocks"),
        None => "after that, swept".to_owned(),
    };
    let row = |at: usize| Row::new(label(at), "MB", all.iter().map(|one| Some(one[at])).collect());
    let mut rows: Vec<Row> = (0..=TOLD.len()).map(row).collect();
    let flat = all.iter().map(|one| Some(one[TOLD.len() - 1] / one[1])).collect();
    rows.push(Row::new("after 50 rounds, of what it was after 2", "x", flat).with_bar(1.05));
    let about = "CHURN: megabytes allocated with 200,000 blocks held, of which each round replaces all but a shared \
                 beginning, one prompt at a time";
    Section { name: "churn", about: about.to_owned(), rows }
}

fn megabytes(which: usize, effort: Effort) -> Vec<f64> {
    let setting = Setting { workers: WORKERS, block_size: BLOCK_SIZE };
    let mut contents = Contents::default();
    let beginning = chain(None, contents.fresh(SHARED_BLOCKS));
    let mut resident: Vec<Vec<Block>> = vec![Vec::new(); effort.scaled(PROMPTS)];
    let (mut one, mut bytes) = growth(|| contestant::one(which, setting));
    let (_, begun) = growth(|| {
        let beginnings =
            (0..WORKERS as u32).flat_map(|worker| stores(worker, None, &beginning, SHARED_BLOCKS));
        apply_all(&mut *one, beginnings);
    });
    bytes += begun;
    let mut told = Vec::new();
    for round in 1..=ROUNDS {
        for (prompt, old) in resident.iter_mut().enumerate() {
            let new = chain(beginning.last().copied(), contents.fresh(OWN_BLOCKS));
            let worker = (prompt % WORKERS) as u32;
            let parent = beginning.last().map(|block| block.hash);
            // The changes are made and dropped inside: they must not be counted on one side only.
            bytes += growth(|| apply_all(&mut *one, replace(worker, old, &new, parent).into_iter())).1;
            *old = new;
        }
        if TOLD.contains(&round) {
            told.push(bytes as f64 / 1e6);
        }
    }
    check(&mut *one, &beginning, &resident);
    bytes += growth(|| one.sweep()).1;
    told.push(bytes as f64 / 1e6);
    told
}

fn replace(worker: u32, old: &[Block], new: &[Block], parent: Option<u64>) -> Vec<Change> {
    let mut changes = removals(worker, old, OWN_BLOCKS);
    changes.extend(stores(worker, parent, new, OWN_BLOCKS));
    changes
}

/// What is resident is found, at the worker that holds it.
fn check(one: &mut dyn Contestant, beginning: &[Block], resident: &[Vec<Block>]) {
    for (prompt, own) in resident.iter().enumerate().step_by(97) {
        let blocks = [beginning, own].concat();
        one.set_prompts(&[&blocks]);
        one.lookup(0);
        let holder = (prompt % WORKERS) as u32;
        let depth = |worker| if worker == holder { SHARED_BLOCKS + OWN_BLOCKS } else { SHARED_BLOCKS };
        let expected: Vec<_> = (0..WORKERS as u32).map(|worker| (worker, depth(worker) as u32)).collect();
        assert_eq!(one.answer(), expected, "{} knows what is held", one.name());
    }
}
