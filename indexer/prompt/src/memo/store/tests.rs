use std::thread;

use super::*;

const VALUE_BYTES: usize = 1000 - ENTRY_BYTES;

/// Entries of `VALUE_BYTES` that fit: four in the part of each salted share, in each shard.
const CAPACITY: usize = SHARDS * 4 * 128;

fn store() -> Store<u128> {
    Store::new(CAPACITY * 1000)
}

/// Spread like real keys.
fn key(number: u128) -> Key {
    Key((number + 1).wrapping_mul(0xda94_2042_e4dd_58b5_9e37_79b9_7f4a_7c15).rotate_left(64))
}

fn salted(tenant: u8) -> ShareId {
    ShareId::salted(Key(u128::from(tenant)))
}

fn put(store: &Store<u128>, number: u128, share: ShareId) {
    store.insert(key(number), share, Arc::new(number), VALUE_BYTES);
}

fn kept(store: &Store<u128>, numbers: std::ops::Range<u128>) -> usize {
    numbers.filter(|number| store.find(key(*number)).is_some()).count()
}

#[test]
fn what_was_put_in_is_found_and_nothing_else() {
    let store = store();
    put(&store, 1, ShareId::UNSALTED);
    put(&store, 1, salted(1));
    assert_eq!(store.find(key(1)), Some(Arc::new(1)));
    assert_eq!(store.find(key(2)), None);
    assert_eq!(store.usage(), Usage { entries: 1, bytes: 1000, evicted: 0 });
}

#[test]
fn the_limit_holds_and_the_counts_are_those_of_the_entries() {
    let store = store();
    for number in 0..3 * CAPACITY as u128 {
        let size = VALUE_BYTES / 2 + usize::try_from(number % 500).unwrap();
        store.insert(key(number), salted((number % 7) as u8), Arc::new(number), size);
    }
    let usage = store.usage();
    assert!(usage.bytes <= CAPACITY * 1000 && usage.bytes > CAPACITY * 950, "{usage:?}");
    assert_eq!(usage.entries as u64 + usage.evicted, 3 * CAPACITY as u64);
    for shard in &store.shards {
        let shard = shard.read();
        assert_eq!(shard.bytes, shard.entries.values().map(|entry| entry.bytes).sum::<usize>());
        assert_eq!(shard.bytes, shard.shares.iter().map(|share| share.bytes).sum::<usize>());
        assert_eq!(shard.entries.len(), shard.shares.iter().map(|share| share.order.len()).sum::<usize>());
    }
}

#[test]
fn a_value_larger_than_a_shard_is_not_kept_and_drops_nothing() {
    let store = store();
    put(&store, 1, ShareId::UNSALTED);
    store.insert(key(2), ShareId::UNSALTED, Arc::new(2), CAPACITY * 1000 / SHARDS);
    assert_eq!(store.usage(), Usage { entries: 1, bytes: 1000, evicted: 0 });
    let off = Store::new(0);
    put(&off, 1, ShareId::UNSALTED);
    assert_eq!(off.usage(), Usage::default());
}

#[test]
fn a_flood_under_one_salt_takes_nothing_of_what_others_use_within_their_part() {
    let store = store();
    let (half, one) = (CAPACITY as u128 / 2, CAPACITY as u128 / 128);
    // A little below their parts: entries are spread over the shards by chance.
    let (unsalted, neighbour) = (0..half * 7 / 10, 100_000..100_000 + one / 4);
    for number in unsalted.clone() {
        put(&store, number, ShareId::UNSALTED);
    }
    for number in neighbour.clone() {
        put(&store, number, salted(2));
    }
    for number in 200_000..300_000 {
        put(&store, number, salted(1));
    }
    assert_eq!(kept(&store, unsalted.clone()), unsalted.count());
    assert_eq!(kept(&store, neighbour.clone()), neighbour.count());
    // Free room is the flood's meanwhile.
    assert!(kept(&store, 200_000..300_000) > CAPACITY / 2);
}

#[test]
fn salts_made_up_by_the_thousand_leave_the_unsalted_their_half() {
    let store = store();
    for number in 0..CAPACITY as u128 {
        put(&store, number, ShareId::UNSALTED);
    }
    for number in 100_000..300_000 {
        put(&store, number, salted((number % 251) as u8));
    }
    let kept = kept(&store, 0..CAPACITY as u128);
    assert!(kept * 10 > CAPACITY * 4 && kept * 10 < CAPACITY * 6, "{kept} of {CAPACITY}");
}

#[test]
fn entries_in_use_outlive_a_stream_of_others_in_their_own_share() {
    let store = store();
    let used = 0..CAPACITY as u128 / 4;
    for number in used.clone() {
        put(&store, number, ShareId::UNSALTED);
    }
    for round in 0..10_u128 {
        assert_eq!(kept(&store, used.clone()), used.clone().count(), "round {round}");
        for number in 0..CAPACITY as u128 / 4 {
            put(&store, 1_000_000 + round * 100_000 + number, ShareId::UNSALTED);
        }
    }
}

#[test]
fn a_share_whose_entries_are_all_in_use_still_makes_room() {
    let store = store();
    for number in 0..3 * CAPACITY as u128 {
        put(&store, number, ShareId::UNSALTED);
        store.find(key(number));
    }
    assert!(store.find(key(3 * CAPACITY as u128 - 1)).is_some());
    assert!(store.usage().bytes <= CAPACITY * 1000);
}

#[test]
fn threads_share_it() {
    let store = store();
    thread::scope(|scope| {
        for thread in 0..4_u8 {
            let store = &store;
            scope.spawn(move || {
                for number in 0..20_000_u128 {
                    put(store, number % 4000, salted(thread));
                    if let Some(found) = store.find(key(number % 4000)) {
                        assert_eq!(*found, number % 4000);
                    }
                }
            });
        }
    });
    assert!(store.usage().bytes <= CAPACITY * 1000);
}

/// Tenants of which each has most of the store for a time do not leave their longest orders behind.
#[test]
fn orders_of_shares_that_lost_their_entries_are_given_back() {
    const ENTRIES: usize = 1000 * SHARDS;
    let store = Store::new(ENTRIES * 1000);
    let mut number = 0;
    for share in 1..=SALTED_SHARES {
        // Enough to be as large as each of those before.
        for _ in 0..ENTRIES / share * 5 / 4 {
            put(&store, number, ShareId(share));
            number += 1;
        }
    }
    let room = |shard: &Shard<u128>| shard.shares.iter().map(|share| share.order.capacity()).sum::<usize>();
    let room: usize = store.shards.iter().map(|shard| room(&shard.read())).sum();
    let held = store.usage().entries;
    assert!(room <= 4 * held + SHARDS * SALTED_SHARES * 4 * ORDER_MIN, "room for {room}, of {held}");
}
