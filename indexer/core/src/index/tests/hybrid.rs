//! Random histories of an engine with a full-attention group, one with a sliding window and perhaps one with checkpoints of
//! recurrent state, some events of which are not heard, compared with a model that counts the copies of every prefix in each
//! group.

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
    Recurrent,
}

#[derive(Clone, Debug)]
enum Step {
    /// The full group gets the prompt's blocks from `from` on, the window group those from `window_from` on, the recurrent one
    /// those whose bit is set in `checkpoints`; whether the full group's event comes last, and whether it is heard.
    Compute {
        prompt: Vec<u32>,
        from: usize,
        window_from: usize,
        checkpoints: u8,
        full_last: bool,
        is_full_told: bool,
    },
    /// A copy goes: the one at this place of the group's.
    Evict { kind: Kind, place: usize },
    /// The engine's own hashes of the prompt are computed.
    Recognize(Vec<u32>),
}

// === impl Kind ===

impl Kind {
    /// Its place in the model.
    fn at(self) -> usize {
        match self {
            Self::Window => 0,
            Self::Full => 1,
            Self::Recurrent => 2,
        }
    }

    fn group(self) -> Group {
        match self {
            Self::Window => Group { index: Some(0), kind: Some(GroupKind::SlidingWindow { tokens: WINDOW }) },
            Self::Full => Group { index: Some(1), kind: Some(GroupKind::Full) },
            Self::Recurrent => Group { index: Some(2), kind: Some(GroupKind::Recurrent) },
        }
    }
}

/// Tokens of the longest boundary below the prompt's end that full attention reaches, the window covers, and a checkpoint,
/// where there are any, lies at.
fn true_hit(prompt: &[u32], is_recurrent: bool, has: impl Fn(Kind, &[u32]) -> bool) -> u32 {
    let prefix = |blocks: usize| &prompt[..blocks * BLOCK];
    let boundaries = (1..).take_while(|blocks| blocks * BLOCK < prompt.len());
    let reached: Vec<usize> = boundaries.take_while(|blocks| has(Kind::Full, prefix(*blocks))).collect();
    let covered = |blocks: &usize| {
        let first = blocks.saturating_sub(WINDOW_BLOCKS) + 1;
        (first..=*blocks).all(|block| has(Kind::Window, prefix(block)))
            && (!is_recurrent || has(Kind::Recurrent, prefix(*blocks)))
    };
    let hit = reached.into_iter().rev().find(covered).unwrap_or(0);
    u32::try_from(hit * BLOCK).expect("short prompts")
}

fn hash(prefix: &[u32]) -> u64 {
    prefix
        .iter()
        .fold(7, |hash: u64, token| (hash ^ u64::from(*token + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The event that the group stored these blocks of the prompt, from `from` on.
fn event(kind: Kind, prompt: &[u32], from: usize, told: &[usize]) -> Event {
    let blocks = prompt.len() / BLOCK;
    let hashes: Vec<u64> = told.iter().map(|block| hash(&prompt[..(block + 1) * BLOCK])).collect();
    let parent = (from > 0).then(|| hash(&prompt[..from * BLOCK]));
    let stored = stored(parent, &hashes, &prompt[from * BLOCK..blocks * BLOCK]);
    Event::Stored(Box::new(Stored { group: kind.group(), ..stored }))
}

fn run(steps: &[Step], is_recurrent: bool) {
    let mut index = index();
    let mut kinds = vec![Kind::Window, Kind::Full];
    kinds.extend(is_recurrent.then_some(Kind::Recurrent));
    // All groups show themselves first, as the first step of an engine does.
    apply(&mut index, A, kinds.iter().map(|kind| event(*kind, &[99, 99], 0, &[0])).collect());
    let mut held: Vec<(Kind, Vec<u32>)> = Vec::new();
    let mut known = Known::with_full(Kind::Full.at());
    for step in steps {
        match step {
            Step::Compute { prompt, from, window_from, checkpoints, full_last, is_full_told } => {
                let blocks = prompt.len() / BLOCK;
                let (from, window_from) = ((*from).min(blocks), (*window_from).min(blocks));
                // An engine computes a block only after what comes before it, which it then holds.
                let has =
                    |block: &[u32]| held.iter().any(|(kind, copy)| *kind == Kind::Full && copy == block);
                if !(1..=from).all(|block| has(&prompt[..block * BLOCK])) {
                    continue;
                }
                let kept = (from..blocks).filter(|block| checkpoints >> block & 1 == 1 && is_recurrent);
                let mut told = vec![
                    (Kind::Full, from, (from..blocks).collect::<Vec<_>>()),
                    (Kind::Window, window_from, (window_from..blocks).collect()),
                    (Kind::Recurrent, from, kept.collect()),
                ];
                if *full_last {
                    told.reverse();
                }
                told.retain(|(_, _, blocks)| !blocks.is_empty());
                let prefix = |block: &usize| prompt[..(block + 1) * BLOCK].to_vec();
                for (kind, _, blocks) in &told {
                    held.extend(blocks.iter().map(|block| (*kind, prefix(block))));
                }
                told.retain(|(kind, _, _)| *is_full_told || *kind != Kind::Full);
                for (kind, from, blocks) in &told {
                    match kind {
                        Kind::Full => known.store(kind.at(), prompt, *from),
                        Kind::Window | Kind::Recurrent => {
                            blocks.iter().for_each(|block| known.store_by_hash(kind.at(), prefix(block)));
                        }
                    }
                }
                let events = told.iter().map(|(kind, from, blocks)| event(*kind, prompt, *from, blocks));
                apply(&mut index, A, events.collect());
            }
            Step::Evict { kind, place } => {
                let copies = || held.iter().enumerate().filter(|(_, (of, _))| of == kind);
                let count = copies().count();
                let Some((at, _)) = copies().nth(place.checked_rem(count).unwrap_or(0)) else { continue };
                evict(&mut index, &mut known, held.swap_remove(at));
            }
            Step::Recognize(prompt) => {
                known.recognize(prompt);
                let hashes: Vec<_> =
                    (1..=prompt.len() / BLOCK).map(|end| EngineHash(hash(&prompt[..end * BLOCK]))).collect();
                let keys = index.key_plan().keys(&BASE, prompt);
                index.recognize(A, &keys, &hashes);
            }
        }
        known.tidy();
        for prompt in [[0, 0, 0, 0, 0, 0, 0, 0, 0], [0, 1, 0, 1, 0, 1, 0, 1, 0], [0, 0, 1, 0, 0, 0, 1, 1, 1]]
        {
            for length in 0..=prompt.len() {
                let prompt = &prompt[..length];
                let found = hit(&index, A, prompt);
                let expected = true_hit(prompt, is_recurrent, |kind, block| known.counts(kind.at(), block));
                assert_eq!(found, expected, "{prompt:?}");
                let has = |kind, block: &[u32]| held.iter().any(|(of, copy)| *of == kind && copy == block);
                assert!(found <= true_hit(prompt, is_recurrent, has), "a phantom: {prompt:?}");
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
    let kind = || prop_oneof![Just(Kind::Window), Just(Kind::Full), Just(Kind::Recurrent)];
    let one = prop_oneof![
        (prompt(), 0_usize..4, 0_usize..5, any::<u8>(), any::<bool>(), proptest::bool::weighted(0.8))
            .prop_map(|(prompt, from, window_from, checkpoints, full_last, is_full_told)| {
                Step::Compute { prompt, from, window_from, checkpoints, full_last, is_full_told }
            }),
        (kind(), any::<usize>()).prop_map(|(kind, place)| Step::Evict { kind, place }),
        prompt().prop_map(Step::Recognize),
    ];
    proptest::collection::vec(one, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn hits_are_those_of_the_model(steps in steps(), is_recurrent in any::<bool>()) {
        run(&steps, is_recurrent);
    }
}
