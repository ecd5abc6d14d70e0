//! Random histories of streams that do not hear of everything, compared with a model of what can be known.

use proptest::prelude::*;

use super::known::{BLOCK, Known};
use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// The prompt's blocks are computed from `from` on; `is_told`: their event is heard.
    Compute {
        prompt: Vec<u32>,
        from: usize,
        is_told: bool,
    },
    /// A copy goes: the one at this place of those held.
    Evict(usize),
    /// The engine's own hashes of the prompt are computed.
    Recognize(Vec<u32>),
    Clear,
}

/// Tokens of the prompt's blocks, up to the last that may be reused, that are so without a break.
fn reach(prompt: &[u32], counts: impl Fn(&[u32]) -> bool) -> u32 {
    let ends = (1..).map(|block| block * BLOCK).take_while(|end| *end < prompt.len());
    u32::try_from(ends.take_while(|end| counts(&prompt[..*end])).count() * BLOCK).expect("short prompts")
}

fn hash(prefix: &[u32]) -> u64 {
    prefix
        .iter()
        .fold(7, |hash: u64, token| (hash ^ u64::from(*token + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// `attached_max`: how many blocks get their place at once; the others do before the next step.
fn run(steps: &[Step], attached_max: usize) {
    let mut index = limited(IndexLimits { attached_max, ..IndexLimits::default() });
    let mut held: Vec<Vec<u32>> = Vec::new();
    let mut known = Known::default();
    for step in steps {
        match step {
            Step::Compute { prompt, from, is_told } => {
                let blocks = prompt.len() / BLOCK;
                let from = (*from).min(blocks);
                // An engine computes a block only after what comes before it, which it then holds.
                if (1..=from).any(|end| !held.iter().any(|held| *held == prompt[..end * BLOCK])) {
                    continue;
                }
                held.extend((from + 1..=blocks).map(|end| prompt[..end * BLOCK].to_vec()));
                if *is_told {
                    known.store(0, prompt, from);
                    let hashes: Vec<_> =
                        (from + 1..=blocks).map(|end| hash(&prompt[..end * BLOCK])).collect();
                    let parent = (from > 0).then(|| hash(&prompt[..from * BLOCK]));
                    store(&mut index, A, stored(parent, &hashes, &prompt[from * BLOCK..blocks * BLOCK]));
                }
            }
            Step::Evict(place) if !held.is_empty() => {
                let block = held.swap_remove(place % held.len());
                remove(&mut index, A, &[hash(&block)]);
                known.remove(0, block);
            }
            Step::Evict(_) => {}
            Step::Recognize(prompt) => {
                known.recognize(prompt);
                let hashes: Vec<_> =
                    (1..=prompt.len() / BLOCK).map(|end| EngineHash(hash(&prompt[..end * BLOCK]))).collect();
                let keys = index.key_plan().keys(&BASE, prompt);
                index.recognize(A, &keys, &hashes);
            }
            Step::Clear => {
                held.clear();
                known.clear();
                apply(&mut index, A, vec![Event::Cleared]);
            }
        }
        known.tidy();
        for _ in 0..20 {
            index.expire(Millis(0));
        }
        compare(&index, &known, &held);
    }
    while let Some(block) = held.pop() {
        remove(&mut index, A, &[hash(&block)]);
        known.remove(0, block);
    }
    compare(&index, &known, &held);
    let stats = index.stats();
    assert_eq!((stats.blocks, stats.references, stats.aside.blocks, stats.aside.bytes), (0, 0, 0, 0));
}

fn compare(index: &Index, known: &Known, held: &[Vec<u32>]) {
    for prompt in [[0, 0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1, 0, 1, 0]] {
        for length in 0..=prompt.len() {
            let prompt = &prompt[..length];
            let found = hit(index, A, prompt);
            assert_eq!(found, reach(prompt, |block| known.counts(0, block)), "{prompt:?}");
            let true_hit = reach(prompt, |block| held.iter().any(|held| held == block));
            assert!(found <= true_hit, "a phantom: {prompt:?}");
        }
    }
    let stats = index.stats();
    let blocks = index.stream_stats(A).expect("a stream").blocks;
    assert_eq!((blocks, stats.references, stats.aside.blocks), known.sizes());
    assert_eq!((stats.unknown_removals, stats.skipped), (known.unknown_removals, Skipped::default()));
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let prompt = || proptest::collection::vec(0_u32..2, 0..10);
    let one = prop_oneof![
        10 => (prompt(), 0_usize..4, proptest::bool::weighted(0.7)).prop_map(|(prompt, from, is_told)| {
            Step::Compute { prompt, from, is_told }
        }),
        8 => any::<usize>().prop_map(Step::Evict),
        4 => prompt().prop_map(Step::Recognize),
        1 => Just(Step::Clear),
    ];
    proptest::collection::vec(one, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn hits_are_those_of_the_model_and_never_phantoms(steps in steps()) {
        run(&steps, usize::MAX);
        run(&steps, 1);
    }
}
