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
        let full = chains.chains.capacity();
        for (at, place) in (0_u32..).zip(&places) {
            if at != stays {
                chains.release(*place, slot, 0);
            }
        }
        assert_eq!(chains.blocks(), 1);
        assert_eq!(chains.find(None, key(stays.into())).map(|place| place.chain), Some(ChainId(stays)));
        // Chains are found by their number, so those before the one that stays are kept, to be used again first.
        let most = index(stays) * SHRINK_BELOW + 2 * SHRINK_BELOW;
        assert!(chains.chains.capacity() <= most.min(full), "{stays}: {}", chains.chains.capacity());
        assert!(chains.heads.capacity() < 8 * SHRINK_BELOW, "{}", chains.heads.capacity());
        assert!(chains.free.len() <= chains.chains.capacity(), "{stays}: {}", chains.free.len());
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
    assert!(chains.chains.len() <= 201, "{}", chains.chains.len());
    assert!(chains.free.len() <= chains.chains.capacity(), "{}", chains.free.len());
}
