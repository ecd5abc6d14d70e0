//! Random histories of streams that do not hear of everything, compared with a model of what can be known.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const BLOCK: usize = 2;

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

/// Blocks are named by the prefix that they end.
#[derive(Default)]
struct Model {
    /// All copies the engine holds.
    held: Vec<Vec<u32>>,
    /// Copies heard of and not known to be gone.
    told: BTreeMap<Vec<u32>, usize>,
    /// Those of them whose whole prefix is known.
    placed: BTreeSet<Vec<u32>>,
    /// Those whose prefix is not, and those that others of them are behind.
    linked: BTreeSet<Vec<u32>>,
    /// Those of which no copy was known after a removal, since something is linked.
    gone: BTreeSet<Vec<u32>>,
    unknown_removals: u64,
}

// === impl Model ===

impl Model {
    fn is_told(&self, block: &[u32]) -> bool {
        self.told.get(block).is_some_and(|copies| *copies > 0)
    }

    fn compute(&mut self, prompt: &[u32], from: usize, is_told: bool) {
        let mut is_known = from == 0 || self.placed.contains(&prompt[..from * BLOCK]);
        for end in from + 1..=prompt.len() / BLOCK {
            let block = prompt[..end * BLOCK].to_vec();
            self.held.push(block.clone());
            if !is_told {
                continue;
            }
            *self.told.entry(block.clone()).or_default() += 1;
            is_known |= self.placed.contains(&block);
            if is_known {
                self.place(block);
            } else {
                self.linked.insert(block);
            }
        }
    }

    /// The block's prefix is known, so that of the linked blocks behind it is, too.
    fn place(&mut self, block: Vec<u32>) {
        self.linked.remove(&block);
        let behind = self.linked.iter().filter(|linked| parent(linked) == block).cloned().collect::<Vec<_>>();
        if self.is_told(&block) {
            self.placed.insert(block);
        }
        for linked in behind {
            self.place(linked);
        }
    }

    fn remove(&mut self, mut block: Vec<u32>) {
        if !self.is_told(&block) {
            self.unknown_removals += 1;
            self.note_gone(block);
            return;
        }
        *self.told.entry(block.clone()).or_default() -= 1;
        if self.is_told(&block) {
            return;
        }
        self.placed.remove(&block);
        self.note_gone(block.clone());
        while self.linked.contains(&block)
            && !self.is_told(&block)
            && !self.linked.iter().any(|linked| parent(linked) == block)
        {
            self.linked.remove(&block);
            block = parent(&block).to_vec();
        }
    }

    fn note_gone(&mut self, block: Vec<u32>) {
        if !self.linked.is_empty() {
            self.gone.insert(block);
        }
    }

    /// Of the prompt's blocks, those before one that is linked and was not told of itself are held, unless they went.
    fn recognize(&mut self, prompt: &[u32]) {
        let ends = (1..=prompt.len() / BLOCK).map(|block| block * BLOCK);
        let is_awaited = |end: &usize| {
            !self.linked.contains(&prompt[..*end])
                && self.linked.iter().any(|linked| *parent(linked) == prompt[..*end])
        };
        let Some(last) = ends.clone().rfind(is_awaited) else { return };
        for block in ends.take_while(|end| *end <= last).map(|end| prompt[..end].to_vec()) {
            if !self.is_told(&block) && !self.linked.contains(&block) && !self.gone.contains(&block) {
                self.told.insert(block.clone(), 1);
            }
            self.place(block);
        }
    }

    /// What went is of interest only while something is linked.
    fn tidy(&mut self) {
        if self.linked.is_empty() {
            self.gone.clear();
        }
    }

    fn hit(&self, prompt: &[u32], counts: impl Fn(&[u32]) -> bool) -> u32 {
        let ends = (1..).map(|block| block * BLOCK).take_while(|end| *end < prompt.len());
        let held = ends.take_while(|end| counts(&prompt[..*end]));
        u32::try_from(held.count() * BLOCK).expect("short prompts")
    }
}

fn parent(block: &[u32]) -> &[u32] {
    &block[..block.len() - BLOCK]
}

fn hash(prefix: &[u32]) -> u64 {
    prefix
        .iter()
        .fold(7, |hash: u64, token| (hash ^ u64::from(*token + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn run(steps: &[Step]) {
    let mut index = index();
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Compute { prompt, from, is_told } => {
                let blocks = prompt.len() / BLOCK;
                let from = (*from).min(blocks);
                // An engine computes a block only after what comes before it, which it then holds.
                if (1..=from).any(|end| !model.held.iter().any(|held| *held == prompt[..end * BLOCK])) {
                    continue;
                }
                model.compute(prompt, from, *is_told);
                if *is_told {
                    let hashes: Vec<_> =
                        (from + 1..=blocks).map(|end| hash(&prompt[..end * BLOCK])).collect();
                    let parent = (from > 0).then(|| hash(&prompt[..from * BLOCK]));
                    store(&mut index, A, stored(parent, &hashes, &prompt[from * BLOCK..blocks * BLOCK]));
                }
            }
            Step::Evict(place) if !model.held.is_empty() => {
                let block = model.held.swap_remove(place % model.held.len());
                remove(&mut index, A, &[hash(&block)]);
                model.remove(block);
            }
            Step::Evict(_) => {}
            Step::Recognize(prompt) => {
                model.recognize(prompt);
                let hashes: Vec<_> =
                    (1..=prompt.len() / BLOCK).map(|end| EngineHash(hash(&prompt[..end * BLOCK]))).collect();
                let keys = index.key_plan().keys(&BASE, prompt);
                index.recognize(A, &keys, &hashes);
            }
            Step::Clear => {
                model = Model { unknown_removals: model.unknown_removals, ..Model::default() };
                apply(&mut index, A, vec![Event::Cleared]);
            }
        }
        model.tidy();
        compare(&index, &model);
    }
    while let Some(block) = model.held.pop() {
        remove(&mut index, A, &[hash(&block)]);
        model.remove(block);
    }
    compare(&index, &model);
    let stats = index.stats();
    assert_eq!((stats.blocks, stats.references, stats.aside.blocks, stats.aside.bytes), (0, 0, 0, 0));
}

fn compare(index: &Index, model: &Model) {
    for prompt in [[0, 0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1, 0, 1, 0]] {
        for length in 0..=prompt.len() {
            let prompt = &prompt[..length];
            let found = hit(index, A, prompt);
            assert_eq!(found, model.hit(prompt, |block| model.placed.contains(block)), "{prompt:?}");
            let held = model.hit(prompt, |block| model.held.iter().any(|held| held == block));
            assert!(found <= held, "a phantom: {prompt:?}");
        }
    }
    let stats = index.stats();
    assert_eq!((stats.aside.blocks, stats.unknown_removals), (model.linked.len(), model.unknown_removals));
    assert_eq!(stats.references, model.told.values().filter(|copies| **copies > 0).count());
    assert_eq!(index.stream_stats(A).map(|stats| stats.blocks), Some(model.placed.len()));
    assert_eq!(stats.skipped, Skipped::default());
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
        run(&steps);
    }
}
