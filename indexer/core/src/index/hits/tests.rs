use super::*;
use crate::index::tests::{BASE, remove, store, stored};
use crate::index::{ClearCause, Index, IndexLimits};
use crate::key::KeyHasher;
use crate::stream::{StaleBy, StreamId, Trust};

/// Numbers below `end` that look random.
fn random(seed: u32, end: u32) -> u32 {
    let mixed = u64::from(seed).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    u32::try_from((mixed >> 32) % u64::from(end)).expect("below a u32")
}

#[test]
fn a_seeker_finds_each_hold_wherever_it_was_before() {
    for count in [0, 1, 2, 3, 100] {
        for gap in [1, 3, 50] {
            // Each hold has as many blocks as its slot, so that they can be told apart.
            let slots: Vec<u32> = (0..count).map(|at| at * gap + random(at, gap)).collect();
            let holds: Vec<Hold> = slots
                .iter()
                .map(|slot| {
                    let mut hold = Hold::new(Slot(*slot));
                    (0..*slot).for_each(|at| hold.store(at, 0));
                    hold
                })
                .collect();
            for step in [1, 2, 7, 200] {
                let mut seeker = Seeker(&holds);
                for slot in (0..=count * gap).step_by(step) {
                    let found = seeker.seek(Slot(slot)).map(|hold| hold.reach(u32::MAX));
                    assert_eq!(found, slots.contains(&slot).then_some(slot), "{count} {gap} {step}");
                }
            }
        }
    }
}

/// Blocks of two tokens of the prompt that is looked up; it lies in three chains, for others parted from it behind the
/// fourth and behind the eighth.
const BLOCKS: u32 = 12;

fn prompt() -> Vec<u32> {
    (0..=BLOCKS * 2).collect()
}

/// The first `own` blocks of the prompt, and `others` after them.
fn parted(index: &mut Index, stream: StreamId, own: u32, others: u32) {
    let tokens: Vec<u32> = (0..own * 2).chain(1_000..1_000 + others * 2).collect();
    let hashes: Vec<u64> = (1..=u64::from(own)).chain(1_001..=1_000 + u64::from(others)).collect();
    store(index, stream, stored(None, &hashes, &tokens));
}

#[test]
fn every_one_of_many_streams_gets_what_it_holds_over_several_chains() {
    let mut index = Index::new(KeyHasher::new([9; 16]), IndexLimits::default());
    let streams = 300;
    // Names fall as slots rise.
    let name = |number: u32| StreamId(streams - number);
    for number in 0..streams {
        index.add_stream(name(number), "m");
        index.set_trust(name(number), Trust::Live);
    }
    parted(&mut index, name(0), 4, 3);
    parted(&mut index, name(1), 8, 3);
    let mut held: Vec<u32> = (0..streams).map(|number| random(number, BLOCKS + 1)).collect();
    held[0] = 4;
    held[1] = 8;
    for (number, held) in (0..).zip(&held).skip(2) {
        parted(&mut index, name(number), *held, 0);
    }
    // Holes: what is behind them does not count.
    for number in (2..streams).step_by(9).filter(|number| held[*number as usize] > 5) {
        remove(&mut index, name(number), &[6]);
    }
    for number in (2..streams).step_by(9) {
        held[number as usize] = held[number as usize].min(5);
    }
    for number in (3..streams).step_by(7) {
        index.set_trust(name(number), Trust::Stale(StaleBy::Disconnected));
        held[number as usize] = 0;
    }
    for number in (4..streams).step_by(11) {
        index.clear(name(number), ClearCause::EventsLost);
        held[number as usize] = 0;
    }
    let mut expected: Vec<(StreamId, u32)> =
        (0..).zip(&held).map(|(number, held)| (name(number), held * 2)).collect();
    expected.retain(|(_, tokens)| *tokens > 0);
    expected.reverse();
    let mut hits = Hits::default();
    index.hits(&index.key_plan().keys(&BASE, &prompt()), &mut hits);
    let found: Vec<(StreamId, u32)> = hits.as_slice().iter().map(|hit| (hit.stream, hit.tokens)).collect();
    assert_eq!(found, expected);
}

/// What a lookup found of all holders of a chain serves the next one, until any of them changes.
#[test]
fn what_was_found_of_all_holders_holds_until_one_changes() {
    const STREAMS: u32 = 40;
    let mut index = Index::new(KeyHasher::new([9; 16]), IndexLimits::default());
    for number in 0..STREAMS {
        index.add_stream(StreamId(number), "m");
        index.set_trust(StreamId(number), Trust::Live);
    }
    let mut held = vec![[false; BLOCKS as usize]; STREAMS as usize];
    let mut hits = Hits::default();
    let mut whole = 0;
    for step in 0..4_000 {
        let stream = random(3 * step, STREAMS);
        let blocks = &mut held[stream as usize];
        // The first half of the prompt changes less often, so that all of them hold it for a while.
        let (at, to) = match random(3 * step + 1, 100) {
            0 => (0, BLOCKS),
            1 => (random(step, BLOCKS / 2), BLOCKS / 2),
            _ => (BLOCKS / 2 + random(step, BLOCKS / 2), BLOCKS),
        };
        if random(3 * step + 2, 2) == 0 {
            let gone: Vec<u64> =
                (at..to).rev().filter(|at| blocks[*at as usize]).map(|at| u64::from(at) + 1).collect();
            remove(&mut index, StreamId(stream), &gone[..gone.len().min(2)]);
            gone.iter().take(2).for_each(|hash| blocks[*hash as usize - 1] = false);
        } else {
            for at in 0..BLOCKS {
                if !blocks[at as usize] {
                    let parent = (at > 0).then_some(u64::from(at));
                    store(
                        &mut index,
                        StreamId(stream),
                        stored(parent, &[u64::from(at) + 1], &[2 * at, 2 * at + 1]),
                    );
                    blocks[at as usize] = true;
                }
            }
        }
        for asked in [3, BLOCKS / 2, BLOCKS] {
            let keys = index.key_plan().keys(&BASE, &prompt()[..=2 * asked as usize]);
            index.hits(&keys, &mut hits);
            let reach = |blocks: &[bool]| blocks.iter().take(asked as usize).take_while(|has| **has).count();
            let expected: Vec<_> = (0..)
                .zip(held.iter().map(|blocks| 2 * reach(blocks)))
                .filter(|(_, tokens)| *tokens > 0)
                .collect();
            let found: Vec<_> =
                hits.as_slice().iter().map(|hit| (hit.stream.0, hit.tokens as usize)).collect();
            assert_eq!(found, expected, "step {step}, {asked} blocks");
            let first = keys.reusable().next().and_then(|(_, keys)| keys.first().copied());
            let shown = index.shown.read();
            let least = first.and_then(|first| shown.chains.beginning(first)).map_or(0, Chain::least);
            whole += usize::from(least >= asked);
        }
    }
    assert!(whole > 1_000, "all of them held the prompt in {whole} lookups");
}

#[test]
fn a_stream_that_comes_to_have_several_groups_is_read_otherwise_from_then_on() {
    use crate::event::{Group, GroupKind, Stored};

    let mut index = Index::new(KeyHasher::new([9; 16]), IndexLimits::default());
    index.add_stream(StreamId(1), "m");
    index.set_trust(StreamId(1), Trust::Live);
    let of_group = |kind, number, hashes: &[u64], tokens: &[u32]| Stored {
        group: Group { index: Some(number), kind: Some(kind) },
        ..stored(None, hashes, tokens)
    };
    let tokens = |index: &Index| {
        let mut hits = Hits::default();
        index.hits(&index.key_plan().keys(&BASE, &prompt()), &mut hits);
        hits.tokens(StreamId(1))
    };
    store(&mut index, StreamId(1), of_group(GroupKind::Full, 0, &[1, 2, 3, 4], &[0, 1, 2, 3, 4, 5, 6, 7]));
    assert_eq!(tokens(&index), 8);
    // The window needs the one block before a boundary, and has only the second.
    let window = GroupKind::SlidingWindow { tokens: 2 };
    store(&mut index, StreamId(1), of_group(window, 1, &[2], &[2, 3]));
    assert_eq!(tokens(&index), 4);
    index.set_trust(StreamId(1), Trust::Silent);
    assert_eq!(tokens(&index), 0);
}
