use super::*;

fn key(at: u64) -> BlockKey {
    BlockKey(at.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// So many chains of one block each, held by a stream.
fn filled(chains: u32, slot: Slot) -> (Chains, Vec<Place>) {
    let mut all = Chains::new(1 << 20);
    let places = (0..chains).map(|at| {
        let place = all.place(None, key(at.into()), 0);
        all.store(place, slot, 0);
        place
    });
    let places = places.collect();
    (all, places)
}

#[test]
fn memory_is_given_back_although_one_chain_stays() {
    const CHAINS: u32 = 10_000;
    let slot = Slot::default();
    for stays in [0, 7, CHAINS / 2] {
        let (mut chains, places) = filled(CHAINS, slot);
        for (at, place) in (0_u32..).zip(&places) {
            if at != stays {
                chains.release(*place, slot, 0);
            }
        }
        assert_eq!(chains.blocks(), 1);
        let left = places[index(stays)].chain;
        assert_eq!(chains.find(None, key(stays.into())).map(|place| place.chain), Some(left));
        // Chains are found by their number, so those before the one that stays are kept, to be used again first.
        assert_eq!(chains.chains.end(), index(left.0) + 1);
        assert!(chains.chains.room() < index(stays) + 1_024, "{stays}");
        assert!(chains.heads.capacity() < heads::TABLES * SHRINK_BELOW, "{}", chains.heads.capacity());
        let most = chains.chains.end() * 2 + SHRINK_BELOW;
        assert!(
            chains.free.len() <= most && chains.free.capacity() <= 2 * most,
            "{stays}: {}",
            chains.free.len()
        );
        let next = chains.place(None, key(u64::from(CHAINS)), 0);
        assert_eq!(next.chain, ChainId(u32::from(stays == 0)), "the lowest that is not used");
    }
}

#[test]
fn no_chain_is_given_out_twice_at_a_time() {
    let slot = Slot::default();
    let (mut chains, mut places) = filled(100, slot);
    let mut next = 100_u64;
    // The order of releases comes from a small generator, so that chains end everywhere and at the end.
    let mut random = 1_u64;
    for round in 0..2_000_u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round | 1);
        let grows = places.len() < 20 || (places.len() < 200 && random >> 63 == 1);
        if grows {
            let place = chains.place(None, key(next), 0);
            assert!(!places.contains(&place), "{place:?}");
            chains.store(place, slot, 0);
            places.push(place);
            next += 1;
        } else {
            let at = usize::try_from(random >> 33).unwrap_or(0) % places.len();
            assert!(chains.release(places.swap_remove(at), slot, 0).is_some());
        }
        assert_eq!(chains.blocks(), places.len());
    }
    assert!(chains.chains.end() <= 201, "{}", chains.chains.end());
    assert!(chains.free.len() <= chains.chains.end() * 2 + SHRINK_BELOW, "{}", chains.free.len());
}

const HOLDER: Holder = Holder { slot: Slot(0), group: 0 };

/// What is seen of these keys.
fn look(chains: &Chains, after: Option<Place>, keys: &[BlockKey]) -> Sight {
    let beginnings = keys.iter().rposition(|key| chains.begins(*key)).map_or(0, |last| last + 1);
    chains.look(after, Keys { keys, before: 0, behind: 0 }, beginnings)
}

/// Enters these keys after the block at `after`, with what was seen before.
fn enter(chains: &mut Chains, after: Option<Place>, keys: &[BlockKey], sight: Sight) -> Vec<Place> {
    let mut entered = [Entered::default(); 64];
    let mut sight = sight;
    let run = Keys { keys, before: 0, behind: 0 };
    let count = chains.enter_run(HOLDER, after, run, &mut sight, &mut entered);
    entered[..count].iter().map(|entered| entered.place).collect()
}

#[test]
fn a_chain_that_another_begins_between_look_and_entry_is_gone_on_in() {
    for begun in 0..8 {
        let keys: Vec<_> = (0..8).map(key).collect();
        let mut chains = Chains::new(1 << 20);
        let sight = look(&chains, None, &keys);
        let other = chains.place(None, key(begun), 0);
        let places = enter(&mut chains, None, &keys, sight);
        assert_eq!((places.len(), chains.blocks()), (8, 8), "no key has two places");
        assert_eq!(places[index(u32::try_from(begun).unwrap())], other);
        let known: Vec<_> = chains.find(None, keys[0]).into_iter().collect();
        assert_eq!(known, places[..1]);
    }
}

#[test]
fn a_run_goes_from_chain_to_chain_and_ends_where_the_room_does() {
    let keys: Vec<_> = (0..20).map(key).collect();
    let mut chains = Chains::new(20);
    let sight = look(&chains, None, &keys[..6]);
    let first = enter(&mut chains, None, &keys[..6], sight);
    // Others part after four blocks, and one of theirs begins a chain.
    let others: Vec<_> = keys[..4].iter().copied().chain((100..103).map(key)).collect();
    let sight = look(&chains, None, &others);
    let second = enter(&mut chains, None, &others, sight);
    assert_eq!(first[..4], second[..4]);
    assert_eq!(chains.blocks(), 9);
    let again = look(&chains, None, &others);
    assert_eq!(enter(&mut chains, None, &others, again), second);
    let sight = look(&chains, first.last().copied(), &keys[6..]);
    let rest = enter(&mut chains, first.last().copied(), &keys[6..], sight);
    assert_eq!((rest.len(), chains.blocks()), (11, 20));
    assert!(rest.iter().all(|place| place.chain == first[0].chain));
}

#[test]
fn what_is_released_as_a_stretch_is_what_is_released_block_by_block() {
    let keys: Vec<_> = (0..10).map(key).collect();
    for (from, to) in [(0, 10), (4, 10), (9, 10), (3, 7), (10, 10)] {
        let filled = || {
            let mut chains = Chains::new(1 << 20);
            let sight = look(&chains, None, &keys);
            let places = enter(&mut chains, None, &keys, sight);
            (chains, places)
        };
        let (mut chains, places) = filled();
        let is_end = chains.release_run(places[0].chain, HOLDER, from, to);
        assert_eq!(is_end, from < to && to == 10, "{from} {to}");
        if is_end {
            let (mut one_by_one, places) = filled();
            for place in places[index(from)..].iter().rev() {
                assert!(one_by_one.release(*place, HOLDER.slot, HOLDER.group).is_some());
            }
            assert_eq!(chains.blocks(), one_by_one.blocks());
            for (place, key) in places.iter().zip(&keys) {
                assert_eq!(chains.key(*place), one_by_one.key(*place));
                assert_eq!(chains.find(None, *key), one_by_one.find(None, *key));
            }
        }
    }
}
