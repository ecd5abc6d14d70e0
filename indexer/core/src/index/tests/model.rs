//! Random histories, compared with a model that keeps every physical block as the whole token prefix it stands for.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const STREAMS: u32 = 4;

/// One thing that happens to a stream.
#[derive(Clone, Debug)]
enum Step {
    /// The prompt's whole blocks are computed from block `from` on.
    Store {
        stream: u32,
        prompt: Vec<u32>,
        from: usize,
    },
    /// A physical block is evicted: the one at this place of those held.
    Evict {
        stream: u32,
        place: usize,
    },
    /// The cache is emptied.
    Empty {
        stream: u32,
    },
    /// The endpoint leaves and another one comes.
    Replace {
        stream: u32,
    },
    Speculate {
        stream: u32,
        prompt: Vec<u32>,
        lasts: u64,
    },
    Wait(u64),
}

/// What a stream holds: prefixes, each as often as there are copies.
#[derive(Default)]
struct Model {
    copies: HashMap<u32, Vec<Vec<u32>>>,
    /// (until when, stream, prefix, whether its event came)
    speculations: Vec<(u64, u32, Vec<u32>, bool)>,
    now: u64,
}

impl Model {
    fn hit(&self, stream: u32, prompt: &[u32]) -> u32 {
        let mut blocks = 0;
        while (blocks + 1) * 2 < prompt.len() {
            let prefix = &prompt[..(blocks + 1) * 2];
            let is_stored =
                self.copies.get(&stream).is_some_and(|copies| copies.iter().any(|copy| copy == prefix));
            let is_speculated = self
                .speculations
                .iter()
                .any(|(_, of, block, came)| *of == stream && block == prefix && !came);
            if !is_stored && !is_speculated {
                break;
            }
            blocks += 1;
        }
        u32::try_from(blocks * 2).expect("short prompts")
    }
}

/// The engine's hash of a prefix: every stream has its own seed.
fn hash(stream: u32, prefix: &[u32]) -> u64 {
    prefix.iter().fold(u64::from(stream) + 1, |hash, token| {
        (hash ^ u64::from(*token + 1))
            .wrapping_add(0x51ed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(31)
    })
}

fn run(steps: &[Step], secret: [u8; 16]) {
    let mut index = Index::new(KeyHasher::new(secret), IndexLimits::default());
    for stream in 0..STREAMS {
        begin(&mut index, stream);
    }
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Store { stream, prompt, from } => {
                let blocks = prompt.len() / 2;
                let from = (*from).min(blocks);
                // An engine computes a block only after what comes before it, which it then holds.
                let held = model.copies.entry(*stream).or_default();
                if (1..=from).any(|block| !held.iter().any(|copy| *copy == prompt[..block * 2])) {
                    continue;
                }
                let hashes: Vec<_> =
                    (from..blocks).map(|block| hash(*stream, &prompt[..(block + 1) * 2])).collect();
                for block in from..blocks {
                    let prefix = prompt[..(block + 1) * 2].to_vec();
                    for speculation in &mut model.speculations {
                        speculation.3 |= speculation.1 == *stream && speculation.2 == prefix;
                    }
                    held.push(prefix);
                }
                let parent = (from > 0).then(|| hash(*stream, &prompt[..from * 2]));
                store(&mut index, StreamId(*stream), stored(parent, &hashes, &prompt[from * 2..blocks * 2]));
            }
            Step::Evict { stream, place } => {
                let held = model.copies.entry(*stream).or_default();
                if held.is_empty() {
                    continue;
                }
                let prefix = held.swap_remove(place % held.len());
                remove(&mut index, StreamId(*stream), &[hash(*stream, &prefix)]);
            }
            Step::Empty { stream } => {
                model.copies.remove(stream);
                model.speculations.retain(|(_, of, ..)| of != stream);
                apply(&mut index, StreamId(*stream), vec![Event::Cleared]);
                relearn(&mut index, *stream);
            }
            Step::Replace { stream } => {
                model.copies.remove(stream);
                model.speculations.retain(|(_, of, ..)| of != stream);
                index.remove_stream(StreamId(*stream));
                begin(&mut index, *stream);
            }
            Step::Speculate { stream, prompt, lasts } => {
                let expires_at = model.now + lasts;
                let held = model.copies.entry(*stream).or_default();
                for block in 1..=prompt.len() / 2 {
                    let prefix = prompt[..block * 2].to_vec();
                    if !held.contains(&prefix) {
                        model.speculations.push((expires_at, *stream, prefix, false));
                    }
                }
                let keys = index.key_plan().keys(&BASE, prompt);
                index.speculate(StreamId(*stream), &keys, Millis(expires_at));
            }
            Step::Wait(ms) => {
                model.now += ms;
                let now = model.now;
                model.speculations.retain(|(expires_at, ..)| *expires_at > now);
                index.expire(Millis(now));
            }
        }
        compare(&index, &model);
    }
    index.expire(Millis(u64::MAX));
    for stream in 0..STREAMS {
        index.remove_stream(StreamId(stream));
    }
    let stats = index.stats();
    assert_eq!((stats.blocks, stats.references, stats.speculative_blocks, stats.streams), (0, 0, 0, 0));
}

fn begin(index: &mut Index, stream: u32) {
    index.add_stream(StreamId(stream), "m");
    index.set_trust(StreamId(stream), Trust::Live);
    relearn(index, stream);
}

/// Tells the stream's block size, by a block that no prompt begins with.
fn relearn(index: &mut Index, stream: u32) {
    store(index, StreamId(stream), stored(None, &[u64::MAX], &[999, 999]));
}

fn compare(index: &Index, model: &Model) {
    for prompt in [[0, 0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 1, 0], [1, 1, 1, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1, 0]]
    {
        for length in 0..=prompt.len() {
            for stream in 0..STREAMS {
                let prompt = &prompt[..length];
                assert_eq!(
                    hit(index, StreamId(stream), prompt),
                    model.hit(stream, prompt),
                    "{stream}: {prompt:?}"
                );
            }
        }
    }
    let stats = index.stats();
    for stream in 0..STREAMS {
        let mut held = model.copies.get(&stream).cloned().unwrap_or_default();
        held.sort();
        held.dedup();
        assert_eq!(index.stream_stats(StreamId(stream)).map(|stats| stats.blocks), Some(held.len() + 1));
    }
    let added = stats.admissions.stored;
    let gone = stats.removals.engine_removed + stats.removals.engine_cleared + stats.removals.endpoint_gone;
    let blocks: usize = (0..STREAMS)
        .filter_map(|stream| index.stream_stats(StreamId(stream)))
        .map(|stats| stats.blocks)
        .sum();
    assert_eq!(added - gone, count(blocks), "admissions less removals are what is held");
    assert_eq!(stats.references, blocks, "one hash per block here");
    assert_eq!(stats.speculative_blocks, model.speculations.len());
    assert_eq!((stats.unknown_removals, stats.skipped), (0, Skipped::default()));
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few tokens and short prompts, so that chains meet often.
    let prompt = || proptest::collection::vec(0_u32..2, 0..8);
    let stream = || 0..STREAMS;
    let one = prop_oneof![
        8 => (stream(), prompt(), 0_usize..4).prop_map(|(stream, prompt, from)| Step::Store { stream, prompt, from }),
        8 => (stream(), any::<usize>()).prop_map(|(stream, place)| Step::Evict { stream, place }),
        1 => stream().prop_map(|stream| Step::Empty { stream }),
        1 => stream().prop_map(|stream| Step::Replace { stream }),
        2 => (stream(), prompt(), 1_u64..50)
            .prop_map(|(stream, prompt, lasts)| Step::Speculate { stream, prompt, lasts }),
        2 => (0_u64..30).prop_map(Step::Wait),
    ];
    proptest::collection::vec(one, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn hits_and_counters_are_those_of_the_model(steps in steps()) {
        // Where chains begin and part does not depend on the keys' values, so another secret must give the same.
        run(&steps, [3; 16]);
        run(&steps, [200; 16]);
    }
}
