//! Random histories of an engine with a full-attention group and one with a sliding window, some events of which are not
//! heard, compared with a model that counts the copies of every prefix in each group.

use proptest::prelude::*;

use super::known::{BLOCK, Known};
use super::*;

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
    /// the two is told first, and whether the full group's event is heard.
    Compute { prompt: Vec<u32>, from: usize, window_from: usize, window_first: bool, is_full_told: bool },
    /// A copy goes: the one at this place of the group's.
    Evict { kind: Kind, place: usize },
}

// === impl Kind ===

impl Kind {
    /// Its place in the model.
    fn at(self) -> usize {
        match self {
            Self::Window => 0,
            Self::Full => 1,
        }
    }

    fn group(self) -> Group {
        match self {
            Self::Window => Group { index: Some(0), kind: Some(GroupKind::SlidingWindow { tokens: WINDOW }) },
            Self::Full => Group { index: Some(1), kind: Some(GroupKind::Full) },
        }
    }
}

/// Tokens of the longest boundary below the prompt's end that full attention reaches and the window covers.
fn true_hit(prompt: &[u32], has: impl Fn(Kind, &[u32]) -> bool) -> u32 {
    let prefix = |blocks: usize| &prompt[..blocks * BLOCK];
    let boundaries = (1..).take_while(|blocks| blocks * BLOCK < prompt.len());
    let reached: Vec<usize> = boundaries.take_while(|blocks| has(Kind::Full, prefix(*blocks))).collect();
    let covered = |blocks: &usize| {
        let first = blocks.saturating_sub(WINDOW_BLOCKS) + 1;
        (first..=*blocks).all(|block| has(Kind::Window, prefix(block)))
    };
    let hit = reached.into_iter().rev().find(covered).unwrap_or(0);
    u32::try_from(hit * BLOCK).expect("short prompts")
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
    let mut held: Vec<(Kind, Vec<u32>)> = Vec::new();
    let mut known = Known::default();
    for step in steps {
        match step {
            Step::Compute { prompt, from, window_from, window_first, is_full_told } => {
                let blocks = prompt.len() / BLOCK;
                let (from, window_from) = ((*from).min(blocks), (*window_from).min(blocks));
                // An engine computes a block only after what comes before it, which it then holds.
                let has =
                    |block: &[u32]| held.iter().any(|(kind, copy)| *kind == Kind::Full && copy == block);
                if !(1..=from).all(|block| has(&prompt[..block * BLOCK])) {
                    continue;
                }
                let mut told = vec![(Kind::Full, from), (Kind::Window, window_from)];
                if *window_first {
                    told.reverse();
                }
                for (kind, from) in &told {
                    held.extend((*from..blocks).map(|block| (*kind, prompt[..(block + 1) * BLOCK].to_vec())));
                }
                told.retain(|(kind, from)| *from < blocks && (*is_full_told || *kind == Kind::Window));
                for (kind, from) in &told {
                    match kind {
                        Kind::Full => known.store(kind.at(), prompt, *from),
                        Kind::Window => (from + 1..=blocks)
                            .for_each(|end| known.store_by_hash(kind.at(), prompt[..end * BLOCK].to_vec())),
                    }
                }
                apply(&mut index, A, told.iter().map(|(kind, from)| event(*kind, prompt, *from)).collect());
            }
            Step::Evict { kind, place } => {
                let copies = || held.iter().enumerate().filter(|(_, (of, _))| of == kind);
                let count = copies().count();
                let Some((at, _)) = copies().nth(place.checked_rem(count).unwrap_or(0)) else { continue };
                evict(&mut index, &mut known, held.swap_remove(at));
            }
        }
        for prompt in [[0, 0, 0, 0, 0, 0, 0, 0, 0], [0, 1, 0, 1, 0, 1, 0, 1, 0], [0, 0, 1, 0, 0, 0, 1, 1, 1]]
        {
            for length in 0..=prompt.len() {
                let prompt = &prompt[..length];
                let found = hit(&index, A, prompt);
                let expected = true_hit(prompt, |kind, block| known.counts(kind.at(), block));
                assert_eq!(found, expected, "{prompt:?}");
                let has = |kind, block: &[u32]| held.iter().any(|(of, copy)| *of == kind && copy == block);
                assert!(found <= true_hit(prompt, has), "a phantom: {prompt:?}");
            }
        }
        compare(&index, &known);
    }
    while let Some(copy) = held.pop() {
        evict(&mut index, &mut known, copy);
    }
    compare(&index, &known);
    assert_eq!((index.stats().blocks, index.stats().references), (1, 1), "the block that began it");
}

fn evict(index: &mut Index, known: &mut Known, (kind, block): (Kind, Vec<u32>)) {
    let gone = Removed { group: kind.group().index, ..removed(&[hash(&block)]) };
    apply(index, A, vec![Event::Removed(gone)]);
    known.remove(kind.at(), block);
}

/// Besides the block that began it.
fn compare(index: &Index, known: &Known) {
    let stats = index.stats();
    let (_, hashes, aside) = known.sizes();
    assert_eq!((stats.references, stats.aside.blocks), (hashes + 1, aside));
    assert_eq!((stats.unknown_removals, stats.skipped), (known.unknown_removals, Skipped::default()));
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let prompt = || proptest::collection::vec(0_u32..2, 0..10);
    let kind = || prop_oneof![Just(Kind::Window), Just(Kind::Full)];
    let one = prop_oneof![
        (prompt(), 0_usize..4, 0_usize..5, any::<bool>(), proptest::bool::weighted(0.8)).prop_map(
            |(prompt, from, window_from, window_first, is_full_told)| {
                Step::Compute { prompt, from, window_from, window_first, is_full_told }
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
