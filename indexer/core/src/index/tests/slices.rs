//! Events longer than a slice, and lookups beside them.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// So many blocks of the prompt number `which`, and its tokens with one more than a hit can cover.
fn prompt(which: u32, blocks: u32) -> (Vec<u64>, Vec<u32>) {
    let hashes = (0..blocks).map(|at| u64::from(which) << 32 | u64::from(at)).collect();
    let tokens = (0..=2 * blocks).map(|at| which << 16 | at).collect();
    (hashes, tokens)
}

/// The event that stores all of it.
fn whole(which: u32, blocks: u32) -> Stored {
    let (hashes, tokens) = prompt(which, blocks);
    let all = 2 * hashes.len();
    stored(None, &hashes, &tokens[..all])
}

#[test]
fn a_hash_that_comes_twice_in_an_event_ends_it_wherever_that_is() {
    const BLOCKS: u32 = 100;
    for (first, again) in [(0, 1), (0, 15), (3, 16), (15, 16), (16, 40), (40, 49), (0, 63), (63, 64), (9, 99)]
    {
        let mut index = index();
        let mut event = whole(1, BLOCKS);
        event.hashes[again] = event.hashes[first];
        store(&mut index, A, event.clone());
        let (_, tokens) = prompt(1, BLOCKS);
        let held = u32::try_from(again).unwrap();
        assert_eq!(hit(&index, A, &tokens), 2 * held, "{first} {again}");
        let stats = index.stats();
        assert_eq!((stats.references, stats.blocks), (again, again));
        assert_eq!(stats.skipped.conflicting_hash, 1);
        assert_eq!(stats.skipped.unknown_parent, u64::from(BLOCKS - held - 1));
        assert!(index.copies(A).all(|(_, copies)| copies == 1), "what was left out is not counted");
        let held: Vec<u64> = event.hashes[..again].iter().map(|hash| hash.0).collect();
        remove(&mut index, A, &held);
        let stats = index.stats();
        assert_eq!((stats.references, stats.blocks, stats.unknown_removals), (0, 0, 0));
    }
}

#[test]
fn an_event_is_cut_where_the_room_ends() {
    for room in [1, 15, 16, 17, 40, 63, 64, 65] {
        let mut index = limited(IndexLimits { references_max: room, ..IndexLimits::default() });
        store(&mut index, A, whole(1, 100));
        let (hashes, tokens) = prompt(1, 100);
        assert_eq!(hit(&index, A, &tokens), 2 * u32::try_from(room).unwrap());
        assert_eq!((index.stats().references, index.stats().skipped.capacity), (room, 1));
        remove(&mut index, A, &hashes);
        assert_eq!((index.stats().references, index.stats().blocks), (0, 0));
        assert_eq!(index.stats().unknown_removals, 100 - u64::try_from(room).unwrap());
    }
}

#[test]
fn a_hash_removed_twice_in_an_event_was_held_once() {
    let mut index = index();
    store(&mut index, A, whole(1, 20));
    let (mut hashes, tokens) = prompt(1, 20);
    hashes.extend([19, 18].map(|at| 1 << 32 | at));
    remove(&mut index, A, &hashes[18..]);
    assert_eq!(hit(&index, A, &tokens), 36);
    assert_eq!((index.stats().references, index.stats().unknown_removals), (18, 2));
}

#[test]
fn blocks_leave_in_any_order_and_each_is_an_eviction() {
    const BLOCKS: u32 = 150;
    type Order = fn(&mut Vec<u64>);
    let orders: [Order; 3] = [|_| {}, |hashes| hashes.reverse(), |hashes| hashes.rotate_left(70)];
    for order in orders {
        let mut index = index();
        store(&mut index, A, whole(1, BLOCKS));
        store(&mut index, B, whole(1, BLOCKS));
        let (mut hashes, tokens) = prompt(1, BLOCKS);
        order(&mut hashes);
        for some in hashes.chunks(40) {
            remove(&mut index, A, some);
        }
        let evicted = |stream| index.stream_stats(stream).map(|stats| (stats.blocks, stats.evicted));
        assert_eq!(evicted(A), Some((0, u64::from(BLOCKS))));
        assert_eq!(evicted(B), Some((usize::try_from(BLOCKS).unwrap(), 0)));
        assert_eq!((hit(&index, A, &tokens), hit(&index, B, &tokens)), (0, 2 * BLOCKS));
        assert_eq!(index.stats().removals.engine_removed, u64::from(BLOCKS));
        remove(&mut index, B, &hashes);
        assert_eq!((index.stats().references, index.stats().blocks), (0, 0));
    }
}

#[test]
fn a_group_that_lacks_a_block_takes_nothing_from_the_group_that_has_it() {
    let mut index = index();
    let group = |index, kind| Group { index: Some(index), kind: Some(kind) };
    store(&mut index, A, Stored { group: group(0, GroupKind::Full), ..whole(1, 20) });
    store(&mut index, A, Stored { group: group(1, GroupKind::Full), ..whole(2, 1) });
    let (hashes, _) = prompt(1, 20);
    let before: Vec<_> = index.copies(A).collect();
    apply(&mut index, A, vec![Event::Removed(Removed { group: Some(1), ..removed(&hashes) })]);
    assert_eq!((index.stats().references, index.stats().unknown_removals), (21, 20));
    let after: std::collections::BTreeMap<_, _> = index.copies(A).collect();
    assert_eq!(after, before.into_iter().collect());
}

#[test]
fn a_long_prompt_is_speculated_on_to_its_end_or_to_the_limit() {
    for (limit, expected) in [(usize::MAX, 200), (130, 130), (64, 64), (0, 0)] {
        let mut index = limited(IndexLimits { speculative_max: limit, ..IndexLimits::default() });
        store(&mut index, A, whole(1, 1));
        let (_, tokens) = prompt(2, 200);
        index.speculate(A, &index.key_plan().keys(&BASE, &tokens), Millis(10));
        assert_eq!(hit(&index, A, &tokens), 2 * expected);
        let stats = index.stats();
        assert_eq!(stats.admissions.speculative, u64::from(expected));
        assert_eq!(stats.skipped.speculative_capacity, u64::from(expected < 200));
        index.expire(Millis(10));
        assert_eq!((index.stats().speculative_blocks, index.stats().blocks), (0, 1));
        assert_eq!(index.stats().removals.expired, u64::from(expected));
    }
}

#[test]
fn lookups_and_speculations_beside_events_see_what_is_held_and_leave_nothing_behind() {
    const BLOCKS: u32 = 40;
    const ROUNDS: u32 = 300;
    let mut index = index();
    store(&mut index, A, whole(0, BLOCKS));
    store(&mut index, B, whole(0, 1));
    let reader = index.reader();
    let keys = |which| index.key_plan().keys(&BASE, &prompt(which, BLOCKS).1);
    let (constant, changing): (_, Vec<_>) = (keys(0), (1..5).map(keys).collect());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for at in 0..2_u64 {
            let (reader, constant, changing, is_over) = (reader.clone(), &constant, &changing, &is_over);
            scope.spawn(move || {
                let mut hits = Hits::default();
                while !is_over.load(Ordering::Acquire) {
                    reader.hits(constant, &mut hits);
                    assert_eq!(hits.tokens(A), 2 * BLOCKS, "nothing of it is ever changed");
                    for keys in changing {
                        reader.hits(keys, &mut hits);
                        assert!(hits.tokens(A) <= 2 * BLOCKS && hits.tokens(A).is_multiple_of(2));
                        reader.speculate(B, keys, Millis(at));
                    }
                }
            });
        }
        for round in 0..ROUNDS {
            for which in 1..5 {
                store(&mut index, A, whole(which, BLOCKS));
            }
            if round % 7 == 0 {
                index.clear(B, ClearCause::Restarted);
                store(&mut index, B, whole(0, 1));
            }
            index.expire(Millis(1));
            for which in 1..5 {
                let (mut hashes, _) = prompt(which, BLOCKS);
                hashes.reverse();
                remove(&mut index, A, &hashes);
            }
        }
        is_over.store(true, Ordering::Release);
    });
    index.expire(Millis(1));
    let stats = index.stats();
    assert_eq!((stats.blocks, stats.speculative_blocks), (usize::try_from(BLOCKS).unwrap(), 0));
    assert_eq!(stats.references, usize::try_from(BLOCKS).unwrap() + 1);
    let mut hits = Hits::default();
    index.hits(&constant, &mut hits);
    assert_eq!((hits.tokens(A), hits.tokens(B)), (2 * BLOCKS, 2));
    for keys in &changing {
        index.hits(keys, &mut hits);
        assert_eq!(hits.as_slice(), []);
    }
}
