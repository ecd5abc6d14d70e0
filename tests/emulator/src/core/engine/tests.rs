use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::core::{Lora, Stored};

const BLOCK: usize = 4;

fn config(blocks: usize) -> EngineConfig {
    EngineConfig {
        block_size: BLOCK,
        blocks,
        max_batched_tokens: 32,
        max_seqs: 4,
        max_model_len: usize::MAX,
        timing: Timing {
            step_overhead: Duration::from_millis(10),
            prefill_tokens_per_second: 1000.0,
            decode_cost: Duration::from_millis(1),
        },
        seed: Seed::from_text("test"),
        reuses_empty_first: true,
    }
}

fn request(id: u64, at_ms: u64, prompt: std::ops::Range<u32>, output: usize) -> Request {
    Request::new(RequestId(id), Duration::from_millis(at_ms), prompt.collect(), vec![9; output])
}

/// Runs until idle.
fn finish(engine: &mut Engine) -> Effects {
    let mut all = Effects::default();
    while let Some(wake) = engine.next_wake() {
        let effects = engine.step(wake);
        all.tokens.extend(effects.tokens);
        all.batches.extend(effects.batches);
    }
    all
}

fn hit_of(effects: &Effects) -> usize {
    effects.tokens[0].cached_tokens
}

#[test]
fn the_last_block_is_always_computed_and_stored_again() {
    let mut engine = Engine::new(config(64));
    for (prompt, hit) in [(0..8, 0), (0..8, 4), (0..9, 8), (0..7, 4)] {
        engine.submit(request(0, 0, prompt.clone(), 1)).unwrap();
        assert_eq!(hit_of(&finish(&mut engine)), hit, "{prompt:?}");
    }
    let copies: Vec<usize> = engine.snapshot().cached.iter().map(|block| block.copies).collect();
    assert_eq!(copies.iter().sum::<usize>(), 3, "two blocks, one of them twice: {copies:?}");
}

#[test]
fn salts_and_adapters_share_nothing() {
    let mut engine = Engine::new(config(64));
    let plain = request(0, 0, 0..9, 1);
    let lora = Lora { id: 1, name: "a".into() };
    let variants = [
        plain.clone(),
        Request { salt: Some("s".into()), ..plain.clone() },
        Request { lora: Some(lora.clone()), ..plain.clone() },
        Request { lora: Some(lora), salt: Some("s".into()), ..plain },
    ];
    for pass_hit in [0, 8] {
        for variant in &variants {
            engine.submit(variant.clone()).unwrap();
            assert_eq!(hit_of(&finish(&mut engine)), pass_hit);
        }
    }
}

#[test]
fn a_step_takes_what_the_formula_says() {
    let mut engine = Engine::new(config(64));
    engine.submit(request(0, 100, 0..20, 2)).unwrap();
    assert_eq!(engine.next_wake(), Some(Duration::from_millis(100)));
    let tokens = finish(&mut engine).tokens;
    let times: Vec<u128> = tokens.iter().map(|token| token.at.as_millis()).collect();
    // 10 ms and 20 prompt tokens at 1 ms; then 10 ms and one decode at 1 ms.
    assert_eq!(times, [130, 141]);
}

#[test]
fn a_long_prompt_is_computed_in_chunks_of_the_budget() {
    let mut engine = Engine::new(config(64));
    engine.submit(request(0, 0, 0..70, 1)).unwrap();
    let effects = finish(&mut engine);
    let stored: Vec<usize> = effects.batches.iter().map(|batch| batch.events.len()).collect();
    assert_eq!(stored, [1, 1, 1]);
    assert_eq!(effects.tokens[0].at, Duration::from_millis(10 + 32 + 10 + 32 + 10 + 6));
}

#[test]
fn a_slow_engine_takes_longer_from_its_next_step_on() {
    let mut engine = Engine::new(config(64));
    engine.set_slowdown(3.0);
    engine.submit(request(0, 0, 0..20, 1)).unwrap();
    assert_eq!(finish(&mut engine).tokens[0].at, Duration::from_millis(90));
}

#[test]
fn late_calls_do_not_shift_later_steps() {
    let run = |late_ms: u64| {
        let mut engine = Engine::new(config(64));
        engine.submit(request(0, 0, 0..20, 5)).unwrap();
        let mut tokens = Vec::new();
        while let Some(wake) = engine.next_wake() {
            tokens.extend(engine.step(wake + Duration::from_millis(late_ms)).tokens);
        }
        tokens
    };
    assert_eq!(run(0), run(7));
}

#[test]
fn what_came_during_a_step_waits_for_the_next() {
    let mut engine = Engine::new(config(64));
    engine.submit(request(0, 0, 0..20, 1)).unwrap();
    engine.submit(request(1, 5, 100..110, 1)).unwrap();
    let times: Vec<u128> = finish(&mut engine).tokens.iter().map(|token| token.at.as_millis()).collect();
    assert_eq!(times, [30, 50]);
}

#[test]
fn reset_fails_under_a_request_and_is_published_with_the_next_batch() {
    let mut engine = Engine::new(config(64));
    engine.submit(request(0, 0, 0..9, 2)).unwrap();
    engine.step(Duration::ZERO);
    assert!(!engine.reset_prefix_cache());
    finish(&mut engine);
    assert!(engine.reset_prefix_cache());
    assert!(engine.snapshot().cached.is_empty());
    engine.submit(request(1, 0, 0..9, 1)).unwrap();
    let effects = finish(&mut engine);
    assert_eq!(effects.batches[0].events[0], KvEvent::Cleared);
    assert_eq!(hit_of(&effects), 0);
}

#[test]
fn an_aborted_request_leaves_its_blocks_cached_and_free() {
    let mut engine = Engine::new(config(64));
    engine.submit(request(0, 0, 0..9, 50)).unwrap();
    engine.step(Duration::ZERO);
    engine.abort(RequestId(0));
    let summary = engine.summary();
    assert_eq!((summary.running, summary.usage, summary.counters.aborted), (0, 0.0, 1));
    assert!(finish(&mut engine).tokens.is_empty());
    engine.submit(request(1, 1000, 0..9, 1)).unwrap();
    assert_eq!(hit_of(&finish(&mut engine)), 8);
}

#[test]
fn requests_that_can_never_fit_are_refused() {
    let mut engine = Engine::new(config(5));
    let refused = |engine: &mut Engine, request| engine.submit(request).unwrap_err();
    assert_eq!(refused(&mut engine, request(0, 0, 0..0, 1)), SubmitError::EmptyPrompt);
    assert_eq!(refused(&mut engine, request(0, 0, 0..1, 0)), SubmitError::NoOutput);
    let too_long = SubmitError::TooLong { prompt: 10, output: 7, limit: 16 };
    assert_eq!(refused(&mut engine, request(0, 0, 0..10, 7)), too_long);
    assert_eq!(engine.submit(request(0, 0, 0..10, 6)), Ok(()));
}

/// The cache as somebody would know it who only follows the events: copies by digest.
#[derive(Default)]
struct Follower(HashMap<Digest, usize>);

impl Follower {
    fn follow(&mut self, batches: &[Batch]) {
        for event in batches.iter().flat_map(|batch| &batch.events) {
            match event {
                KvEvent::Stored(Stored { hashes, tokens, block_size, .. }) => {
                    assert_eq!(tokens.len(), hashes.len() * block_size);
                    hashes.iter().for_each(|hash| *self.0.entry(*hash).or_default() += 1);
                }
                KvEvent::Removed(hashes) => hashes.iter().for_each(|hash| {
                    let copies = self.0.get_mut(hash).expect("only stored blocks are removed");
                    *copies -= 1;
                    if *copies == 0 {
                        self.0.remove(hash);
                    }
                }),
                KvEvent::Cleared => self.0.clear(),
            }
        }
    }
}

proptest! {
    /// Whatever is asked, in however small a pool: every request is answered completely, events tell the truth, and
    /// nothing stays held.
    #[test]
    fn events_add_up_to_the_cache(
        requests in prop::collection::vec((0_u32..4, 1_usize..40, 1_usize..20, 0_u64..200), 1..30),
        blocks in 16_usize..40,
    ) {
        let mut engine = Engine::new(config(blocks));
        let mut follower = Follower::default();
        let mut arrivals: Vec<u64> = requests.iter().map(|request| request.3).collect();
        arrivals.sort_unstable();
        let mut wanted = HashMap::new();
        for (id, ((family, prompt, output, _), at)) in requests.iter().zip(arrivals).enumerate() {
            let from = family * 1000;
            engine.submit(request(id as u64, at, from..from + *prompt as u32, *output)).unwrap();
            wanted.insert(RequestId(id as u64), *output);
        }
        let effects = finish(&mut engine);
        follower.follow(&effects.batches);
        for token in &effects.tokens {
            let left = wanted.get_mut(&token.request).unwrap();
            *left -= 1;
            prop_assert_eq!(token.last, *left == 0);
        }
        prop_assert!(wanted.values().all(|left| *left == 0));
        let snapshot = engine.snapshot();
        let cached: HashMap<Digest, usize> = snapshot.cached.iter().map(|b| (b.digest, b.copies)).collect();
        prop_assert_eq!(cached, follower.0);
        prop_assert_eq!(snapshot.usage, 0.0);
        prop_assert_eq!(snapshot.counters.finished as usize, requests.len());
    }
}
