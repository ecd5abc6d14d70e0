//! A trace through eight workers, each with a cache of a million tokens: the lookup of each request as it comes, then
//! the stores and evictions that it causes.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::Effort;
use crate::alloc::growth;
use crate::block::{Block, Change, chain};
use crate::caches::Caches;
use crate::contestant::{self, Setting, turns};
use crate::measure::{Samples, Spread, median, median_spread};
use crate::report::{Row, Section};
use crate::trace::{Request, Summary, TRACE_BLOCK, Trace};

const WORKERS: usize = 8;

/// Tokens that each worker's cache holds.
const CAPACITY: usize = 1 << 20;

/// Tokens of a block.
const BLOCK_SIZES: [usize; 2] = [16, 128];

/// Passes through the trace; each takes seconds.
const ROUNDS_MAX: usize = 3;

/// Every so manieth answer is compared with what the caches in fact hold; all answers are compared with each other.
const CHECKED: usize = 16;

/// What one pass came to.
struct Pass {
    lookups: Spread,
    /// Nanoseconds per block.
    store: f64,
    store_from_tokens: f64,
    remove: f64,
    bytes: f64,
    /// Stands for all answers.
    answers: u64,
}

pub(crate) fn run(effort: Effort, trace: &Trace) -> Section {
    let requests = &trace.requests[..effort.scaled(trace.requests.len())];
    let rows = BLOCK_SIZES.iter().flat_map(|size| of_block_size(*size, requests, effort)).collect();
    let Summary { requests, tokens_p50, tokens_p99, reuse } = trace.summary();
    let about = format!(
        "TRACE ({}): {requests} requests of {tokens_p50} tokens (p99 {tokens_p99}), {:.1} % of the blocks seen before, \
         to 8 workers in turns with a million tokens each",
        trace.origin,
        100.0 * reuse
    );
    Section { name: "trace", about, rows }
}

fn of_block_size(block_size: usize, requests: &[Request], effort: Effort) -> Vec<Row> {
    let mut passes: Vec<Vec<Pass>> = (0..contestant::COUNT).map(|_| Vec::new()).collect();
    for round in 0..effort.rounds.min(ROUNDS_MAX) {
        for turn in turns(round, passes.len()) {
            passes[turn].push(pass(turn, block_size, requests));
        }
    }
    let answers = passes[0][0].answers;
    assert!(passes.iter().flatten().all(|pass| pass.answers == answers), "all answer alike");
    let lookups: Vec<Spread> = passes
        .iter()
        .map(|rounds| median_spread(&rounds.iter().map(|pass| pass.lookups).collect::<Vec<_>>()))
        .collect();
    let lookup = |figure: &str, of: fn(&Spread) -> f64| {
        let figures = lookups.iter().map(|spread| Some(of(spread))).collect();
        Row::new(format!("blocks of {block_size}, lookup {figure}"), "ns", figures)
    };
    let per_block = |what: &str, unit, of: fn(&Pass) -> f64| {
        let figures = passes.iter().map(|rounds| Some(median(rounds.iter().map(of)))).collect();
        Row::new(format!("blocks of {block_size}, {what}"), unit, figures)
    };
    let mut hashed = per_block("store, hashed before", "ns", |pass| pass.store);
    hashed.figures[0] = None;
    vec![
        lookup("p50", |spread| spread.p50),
        lookup("p99", |spread| spread.p99),
        lookup("mean", |spread| spread.mean),
        per_block("store, from tokens", "ns", |pass| pass.store_from_tokens),
        hashed,
        per_block("remove", "ns", |pass| pass.remove),
        per_block("memory per block held at the end", "B", |pass| pass.bytes),
    ]
}

fn pass(which: usize, block_size: usize, requests: &[Request]) -> Pass {
    let setting = Setting { workers: WORKERS, block_size };
    let mut caches = Caches::new(WORKERS, CAPACITY / block_size);
    let (mut one, mut bytes) = growth(|| contestant::one(which, setting));
    let mut lookups = Samples::default();
    let mut answers = DefaultHasher::new();
    let (mut hashing, mut storing, mut removing) = (0.0, 0.0, 0.0);
    let (mut stored, mut removed) = (0, 0);
    for (number, request) in requests.iter().enumerate() {
        let prompt = blocks(request, block_size);
        one.set_prompts(&[&prompt]);
        lookups.push(one.lookup(0));
        let answer = one.answer();
        let turn = caches.serve(&prompt, number % CHECKED == 0);
        if number % CHECKED == 0 {
            assert_eq!(answer, turn.held, "{} knows what is held at request {number}", one.name());
        }
        answer.hash(&mut answers);
        stored += turn.stores.iter().map(count).sum::<usize>();
        removed += turn.removals.iter().map(count).sum::<usize>();
        let changed = growth(|| {
            hashing += one.prepare(&turn.stores).as_nanos() as f64;
            storing += one.apply().as_nanos() as f64;
            one.prepare(&turn.removals);
            removing += one.apply().as_nanos() as f64;
        });
        bytes += changed.1;
    }
    let (stored, removed) = (stored.max(1) as f64, removed.max(1) as f64);
    Pass {
        lookups: lookups.spread(),
        store: storing / stored,
        store_from_tokens: (hashing + storing) / stored,
        remove: removing / removed,
        bytes: bytes as f64 / caches.blocks() as f64,
        answers: answers.finish(),
    }
}

/// The prompt's whole blocks of this size.
fn blocks(request: &Request, block_size: usize) -> Vec<Block> {
    let parts = (TRACE_BLOCK / block_size) as u64;
    let contents = request.blocks.iter().flat_map(|block| (0..parts).map(move |part| block * parts + part));
    chain(None, contents.take(request.tokens / block_size))
}

fn count(change: &Change) -> usize {
    match change {
        Change::Store { blocks, .. } => blocks.len(),
        Change::Remove { hashes, .. } => hashes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_its_whole_blocks_of_either_size() {
        let request = Request { tokens: 1_000, blocks: vec![0, 5] };
        assert_eq!(blocks(&request, 16).len(), 62);
        assert_eq!(blocks(&request, 128).len(), 7);
        let other = Request { tokens: 512, blocks: vec![0] };
        assert_eq!(blocks(&request, 16)[..32], blocks(&other, 16)[..], "equal blocks are equal");
    }
}
