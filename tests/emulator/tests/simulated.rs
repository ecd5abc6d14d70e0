//! The simulated replica against the emulated engine, which is held to recordings of real ones: on the same requests both
//! give the same times, hits, preemptions and caches.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::time::Duration;

use engine_emulator::core::{Engine, EngineConfig, KvEvent, Request, RequestId, Seed, Timing};
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use warmpath_kv::Event;
use warmpath_lab::prompt::{Prompt, PromptBuilder};
use warmpath_lab::replica::{self, Effects, Job, Replica, ReplicaSpec};

const BLOCK: u32 = 4;

/// A request in both forms.
struct Twin {
    at: Duration,
    tokens: Vec<u32>,
    prompt: Prompt,
    output: u32,
}

/// First token, last token, hit.
type Times = BTreeMap<usize, (Duration, Duration, usize)>;

/// Blocks stored and removed by one batch.
type Changes = Vec<(usize, usize)>;

fn twins(seed: u64, count: usize) -> Vec<Twin> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut at = Duration::ZERO;
    (0..count)
        .map(|number| {
            at += Duration::from_micros(random.random_range(0..60_000));
            let stretches = [
                (random.random_range(0..4u64), random.random_range(1..40u32)),
                (1000 + number as u64, random.random_range(0..20)),
            ];
            let mut prompt = PromptBuilder::new(BLOCK);
            let mut tokens = Vec::new();
            for (content, length) in stretches {
                prompt = prompt.text(content, length);
                tokens.extend((0..length).map(|i| content as u32 * 1000 + i));
            }
            Twin { at, tokens, prompt: prompt.build(), output: random.random_range(1..30) }
        })
        .collect()
}

fn emulated(twins: &[Twin], blocks: u32) -> (Times, Changes, u64, usize) {
    let mut engine = Engine::new(EngineConfig {
        block_size: BLOCK as usize,
        // It keeps one back.
        blocks: blocks as usize + 1,
        max_batched_tokens: 24,
        max_seqs: 5,
        max_model_len: usize::MAX,
        timing: Timing {
            step_overhead: Duration::from_millis(10),
            prefill_tokens_per_second: 900.0,
            decode_cost: Duration::from_micros(700),
        },
        seed: Seed::from_text("lab"),
        reuses_empty_first: true,
    });
    let (mut times, mut changes) = (Times::new(), Changes::new());
    let mut waiting = twins.iter().enumerate().peekable();
    loop {
        let due = waiting.peek().map(|(_, twin)| twin.at);
        match (due, engine.next_wake()) {
            (Some(due), wake) if wake.is_none_or(|wake| due <= wake) => {
                let (number, twin) = waiting.next().unwrap();
                let output = (0..twin.output).map(|i| 1_000_000 + number as u32 * 100 + i).collect();
                engine
                    .submit(Request::new(RequestId(number as u64), due, twin.tokens.clone(), output))
                    .unwrap();
            }
            (_, Some(wake)) => {
                let effects = engine.step(wake);
                for token in effects.tokens {
                    let id = usize::try_from(token.request.0).unwrap();
                    let times = times.entry(id).or_insert((token.at, token.at, token.cached_tokens));
                    times.1 = token.at;
                }
                for batch in effects.batches {
                    let count = |event: &KvEvent| match event {
                        KvEvent::Stored(stored) => (stored.hashes.len(), 0),
                        KvEvent::Removed(hashes) => (0, hashes.len()),
                        KvEvent::Cleared => (0, 0),
                    };
                    changes.push(sum(batch.events.iter().map(count)));
                }
            }
            (None, None) => break,
            (Some(_), None) => unreachable!("the first arm takes it"),
        }
    }
    let snapshot = engine.snapshot();
    let copies = snapshot.cached.iter().map(|block| block.copies).sum();
    (times, changes, snapshot.counters.preemptions, copies)
}

fn simulated(twins: &[Twin], blocks: u32) -> (Times, Changes, u64, usize) {
    let spec = ReplicaSpec {
        block_tokens: BLOCK,
        blocks,
        max_batched_tokens: 24,
        max_seqs: 5,
        timing: replica::Timing {
            step_overhead: Duration::from_millis(10),
            prefill_tokens_per_second: 900.0,
            decode_cost: Duration::from_micros(700),
        },
    };
    let mut replica = Replica::new(spec, Duration::ZERO);
    let (mut times, mut changes) = (Times::new(), Changes::new());
    let mut effects = Effects::default();
    let mut waiting = twins.iter().enumerate().peekable();
    loop {
        let due = waiting.peek().map(|(_, twin)| twin.at);
        match (due, replica.next_wake()) {
            (Some(due), wake) if wake.is_none_or(|wake| due <= wake) => {
                let (id, twin) = waiting.next().unwrap();
                replica.submit(Job { id, arrived: due, prompt: twin.prompt.clone(), output: twin.output });
            }
            (_, Some(wake)) => {
                replica.step(wake, &mut effects);
                for first in effects.firsts.drain(..) {
                    times.insert(first.id, (first.at, first.at, first.cached as usize));
                }
                for (id, at) in effects.lasts.drain(..) {
                    times.get_mut(&id).unwrap().1 = at;
                }
                for batch in effects.batches.drain(..) {
                    let count = |event: &Event| match event {
                        Event::Stored(stored) => (stored.hashes.len(), 0),
                        Event::Removed(removed) => (0, removed.hashes.len()),
                        Event::Cleared => (0, 0),
                    };
                    changes.push(sum(batch.events.iter().map(count)));
                }
                assert!(replica.check());
            }
            (None, None) => break,
            (Some(_), None) => unreachable!("the first arm takes it"),
        }
    }
    let copies = replica.contents().map(|(_, copies)| copies).sum();
    (times, changes, replica.counters().preemptions, copies)
}

fn sum(parts: impl Iterator<Item = (usize, usize)>) -> (usize, usize) {
    parts.fold((0, 0), |all, part| (all.0 + part.0, all.1 + part.1))
}

#[test]
fn replica_and_emulated_engine_agree_on_random_requests() {
    let mut preemptions = 0;
    for seed in 0..60 {
        let twins = twins(seed, 60);
        // From so tight that requests throw each other out to room for all.
        for blocks in [24, 40, 400] {
            let (times, changes, preempted, copies) = emulated(&twins, blocks);
            assert_eq!(times.len(), twins.len());
            let (times_here, changes_here, preempted_here, copies_here) = simulated(&twins, blocks);
            assert_eq!(times_here, times, "seed {seed}, {blocks} blocks");
            assert_eq!(changes_here, changes, "seed {seed}, {blocks} blocks");
            assert_eq!((preempted_here, copies_here), (preempted, copies), "seed {seed}, {blocks} blocks");
            preemptions += preempted;
        }
    }
    assert!(preemptions > 100, "{preemptions} preemptions only");
}
