//! Random histories of an engine with a full-attention group and one with a sliding window, compared with a model that
//! counts the copies of every prefix in each group.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const BLOCK: usize = 2;
/// Tokens of the window: the two blocks before a boundary.
const WINDOW: u32 = 5;
const WINDOW_BLOCKS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Window,
    Full,
}

#[derive(Clone, Debug)]
enum Step {
    /// The full group gets the prompt's blocks from `from` on, the window group those from `window_from` on; which of
    /// the two is told first.
    Compute { prompt: Vec<u32>, from: usize, window_from: usize, window_first: bool },
    /// A copy goes: the one at this place of the group's.
    Evict { kind: Kind, place: usize },
}

/// Copies by group, each as the prefix it ends.
#[derive(Default)]
struct Model {
    copies: HashMap<Kind, Vec<Vec<u32>>>,
}

// === impl Kind ===

impl Kind {
    fn group(self) -> Group {
        match self {
            Self::Window => Group { index: Some(0), kind: Some(GroupKind::SlidingWindow { tokens: WINDOW }) },
            Self::Full => Group { index: Some(1), kind: Some(GroupKind::Full) },
        }
    }
}

// === impl Model ===

impl Model {
    fn has(&self, kind: Kind, prefix: &[u32]) -> bool {
        self.copies.get(&kind).is_some_and(|copies| copies.iter().any(|copy| copy == prefix))
    }

    /// Tokens of the longest boundary below the prompt's end that full attention reaches and the window covers.
    fn hit(&self, prompt: &[u32]) -> u32 {
        let prefix = |blocks: usize| &prompt[..blocks * BLOCK];
        let boundaries = (1..).take_while(|blocks| blocks * BLOCK < prompt.len());
        let reached: Vec<usize> =
            boundaries.take_while(|blocks| self.has(Kind::Full, prefix(*blocks))).collect();
        let covered = |blocks: &usize| {
            let first = blocks.saturating_sub(WINDOW_BLOCKS) + 1;
            (first..=*blocks).all(|block| self.has(Kind::Window, prefix(block)))
        };
        let hit = reached.into_iter().rev().find(covered).unwrap_or(0);
        u32::try_from(hit * BLOCK).expect("short prompts")
    }
}

fn hash(prefix: &[u32]) -> u64 {
    prefix
        .iter()
        .fold(7, |hash: u64, token| (hash ^ u64::from(*token + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The event that the group stored these blocks of the prompt.
fn event(kind: Kind, prompt: &[u32], from: usize) -> Event {
    let blocks = prompt.len() / BLOCK;
    let hashes: Vec<u64> = (from..blocks).map(|block| hash(&prompt[..(block + 1) * BLOCK])).collect();
    let parent = (from > 0).then(|| hash(&prompt[..from * BLOCK]));
    let stored = stored(parent, &hashes, &prompt[from * BLOCK..blocks * BLOCK]);
    Event::Stored(Box::new(Stored { group: kind.group(), ..stored }))
}

fn run(steps: &[Step]) {
    let mut index = index();
    // Both groups show themselves first, as the first step of an engine does.
    let first = [Kind::Window, Kind::Full].map(|kind| event(kind, &[99, 99], 0));
    apply(&mut index, A, first.into());
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Compute { prompt, from, window_from, window_first } => {
                let blocks = prompt.len() / BLOCK;
                let (from, window_from) = ((*from).min(blocks), (*window_from).min(blocks));
                // An engine computes a block only after what comes before it, which it then holds.
                if !(1..=from).all(|block| model.has(Kind::Full, &prompt[..block * BLOCK])) {
                    continue;
                }
                let mut told = vec![(Kind::Full, from), (Kind::Window, window_from)];
                if *window_first {
                    told.reverse();
                }
                for (kind, from) in &told {
                    let copies = model.copies.entry(*kind).or_default();
                    copies.extend((*from..blocks).map(|block| prompt[..(block + 1) * BLOCK].to_vec()));
                }
                let events = told.into_iter().filter(|(_, from)| *from < blocks);
                apply(&mut index, A, events.map(|(kind, from)| event(kind, prompt, from)).collect());
            }
            Step::Evict { kind, place } => {
                let Some(copies) = model.copies.get_mut(kind).filter(|copies| !copies.is_empty()) else {
                    continue;
                };
                let prefix = copies.swap_remove(place % copies.len());
                let gone = Removed { group: kind.group().index, ..removed(&[hash(&prefix)]) };
                apply(&mut index, A, vec![Event::Removed(gone)]);
            }
        }
        for prompt in [[0, 0, 0, 0, 0, 0, 0, 0, 0], [0, 1, 0, 1, 0, 1, 0, 1, 0], [0, 0, 1, 0, 0, 0, 1, 1, 1]]
        {
            for length in 0..=prompt.len() {
                let prompt = &prompt[..length];
                assert_eq!(hit(&index, A, prompt), model.hit(prompt), "{prompt:?}");
            }
        }
    }
    assert_eq!((index.stats().unknown_removals, index.stats().skipped), (0, Skipped::default()));
    for (kind, copies) in model.copies {
        for prefix in copies {
            let gone = Removed { group: kind.group().index, ..removed(&[hash(&prefix)]) };
            apply(&mut index, A, vec![Event::Removed(gone)]);
        }
    }
    assert_eq!((index.stats().blocks, index.stats().references), (1, 1), "the block that began it");
    assert_eq!(index.stats().unknown_removals, 0);
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let prompt = || proptest::collection::vec(0_u32..2, 0..10);
    let kind = || prop_oneof![Just(Kind::Window), Just(Kind::Full)];
    let one = prop_oneof![
        (prompt(), 0_usize..4, 0_usize..5, any::<bool>()).prop_map(
            |(prompt, from, window_from, window_first)| {
                Step::Compute { prompt, from, window_from, window_first }
            }
        ),
        (kind(), any::<usize>()).prop_map(|(kind, place)| Step::Evict { kind, place }),
    ];
    proptest::collection::vec(one, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn hits_are_those_of_the_model(steps in steps()) {
        run(&steps);
    }
}
