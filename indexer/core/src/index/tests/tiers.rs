//! Random histories of an engine that offloads blocks, compared with a model that keeps every copy in every medium.

use proptest::prelude::*;

use super::*;

const BLOCK: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    /// The prompt's blocks from `from` on come to a medium, told with their tokens.
    Store { medium: Medium, prompt: Vec<u32>, from: usize },
    /// A block that is held somewhere comes to a medium, told by its hash.
    Offload { medium: Medium, place: usize },
    /// A copy goes: the one at this place of all.
    Evict(usize),
    /// The main pool is emptied.
    Clear,
    /// The engine restarts.
    Restart,
}

/// Copies of blocks, each named by the prefix that it ends.
#[derive(Default)]
struct Model {
    copies: Vec<(Medium, Vec<u32>)>,
}

// === impl Model ===

impl Model {
    fn has(&self, is_counted: impl Fn(Medium) -> bool, block: &[u32]) -> bool {
        self.copies.iter().any(|(medium, copy)| is_counted(*medium) && copy == block)
    }

    fn hit(&self, prompt: &[u32], is_counted: impl Fn(Medium) -> bool) -> u32 {
        let ends = (1..).map(|block| block * BLOCK).take_while(|end| *end < prompt.len());
        let held = ends.take_while(|end| self.has(&is_counted, &prompt[..*end]));
        u32::try_from(held.count() * BLOCK).expect("short prompts")
    }

    /// Distinct blocks and distinct hashes of the main pool, or of all slower media.
    fn blocks(&self, is_counted: impl Fn(Medium) -> bool) -> usize {
        let mut blocks: Vec<_> =
            self.copies.iter().filter(|(medium, _)| is_counted(*medium)).map(|(_, block)| block).collect();
        blocks.sort();
        blocks.dedup();
        blocks.len()
    }
}

fn is_main(medium: Medium) -> bool {
    medium == Medium::Gpu
}

fn hash(prefix: &[u32]) -> u64 {
    prefix
        .iter()
        .fold(7, |hash: u64, token| (hash ^ u64::from(*token + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn run(steps: &[Step]) {
    let mut index = index();
    // A block that shows the stream's block size; `relearn` tells it again after it is forgotten.
    let relearn = |index: &mut Index| store(index, A, stored(None, &[u64::MAX], &[999, 999]));
    relearn(&mut index);
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Store { medium, prompt, from } => {
                let blocks = prompt.len() / BLOCK;
                let from = (*from).min(blocks);
                if from > 0 && !model.has(|_| true, &prompt[..from * BLOCK]) {
                    continue;
                }
                let hashes: Vec<_> = (from + 1..=blocks).map(|end| hash(&prompt[..end * BLOCK])).collect();
                let parent = (from > 0).then(|| hash(&prompt[..from * BLOCK]));
                model.copies.extend((from + 1..=blocks).map(|end| (*medium, prompt[..end * BLOCK].to_vec())));
                let told = stored(parent, &hashes, &prompt[from * BLOCK..blocks * BLOCK]);
                store(&mut index, A, Stored { medium: *medium, ..told });
            }
            Step::Offload { medium, place } if !model.copies.is_empty() => {
                let (_, block) = model.copies[place % model.copies.len()].clone();
                let told = stored(None, &[hash(&block)], &[]);
                store(&mut index, A, Stored { medium: *medium, block_size: 0, ..told });
                model.copies.push((*medium, block));
            }
            Step::Evict(place) if !model.copies.is_empty() => {
                let (medium, block) = model.copies.swap_remove(place % model.copies.len());
                let gone = Removed { medium, ..removed(&[hash(&block)]) };
                apply(&mut index, A, vec![Event::Removed(gone)]);
            }
            Step::Offload { .. } | Step::Evict(_) => {}
            Step::Clear => {
                model.copies.retain(|(medium, _)| !is_main(*medium));
                apply(&mut index, A, vec![Event::Cleared]);
                relearn(&mut index);
            }
            Step::Restart => {
                model.copies.clear();
                index.clear(A, ClearCause::Restarted);
                relearn(&mut index);
            }
        }
        compare(&index, &model);
    }
    index.remove_stream(A);
    assert_eq!((index.stats().blocks, index.stats().references), (0, 0));
}

fn compare(index: &Index, model: &Model) {
    for prompt in [[0, 0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1, 0, 1, 0]] {
        for length in 0..=prompt.len() {
            let prompt = &prompt[..length];
            assert_eq!(hit(index, A, prompt), model.hit(prompt, is_main), "{prompt:?}");
            assert_eq!(hit_with_slower(index, A, prompt), model.hit(prompt, |_| true), "{prompt:?}");
        }
    }
    let (main, slower) = (model.blocks(is_main) + 1, model.blocks(|medium| !is_main(medium)));
    let stats = index.stream_stats(A).expect("a stream");
    assert_eq!((stats.blocks, stats.slower_blocks), (main, slower));
    let stats = index.stats();
    assert_eq!((stats.references, stats.aside.blocks), (main + slower, 0));
    assert_eq!(stats.admissions.slower - stats.removals.slower, count(slower));
    assert_eq!((stats.unknown_removals, stats.skipped), (0, Skipped::default()));
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let prompt = || proptest::collection::vec(0_u32..2, 0..10);
    let slower = || prop_oneof![2 => Just(Medium::Cpu), 1 => Just(Medium::Disk), 1 => Just(Medium::Storage)];
    let medium = prop_oneof![3 => Just(Medium::Gpu), 1 => slower()];
    let one = prop_oneof![
        6 => (medium, prompt(), 0_usize..4)
            .prop_map(|(medium, prompt, from)| Step::Store { medium, prompt, from }),
        6 => (slower(), any::<usize>()).prop_map(|(medium, place)| Step::Offload { medium, place }),
        10 => any::<usize>().prop_map(Step::Evict),
        1 => Just(Step::Clear),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(one, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn hits_are_those_of_the_model(steps in steps()) {
        run(&steps);
    }
}
