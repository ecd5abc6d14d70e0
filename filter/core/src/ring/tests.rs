//! The two promises: few keys move, and no endpoint drowns.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn ring(count: u32) -> Ring {
    let endpoints = (0..count).map(|i| (format!("10.0.0.{i}:8000"), 1)).collect();
    let mut ring = Ring::default();
    ring.replace(EndpointSet { version: 1, endpoints });
    ring
}

fn first(ring: &Ring, key: u64) -> String {
    ring.pick(key, 1e9).first().expect("an endpoint").endpoint.clone()
}

#[test]
fn no_endpoint_known_is_no_place() {
    assert!(Ring::default().pick(1, 1.25).is_empty());
    // Requests in flight on an endpoint that was never told do not make it known.
    let mut ring = Ring::default();
    ring.acquire("10.0.0.1:8000");
    assert!(ring.pick(1, 1.25).is_empty());
}

#[test]
fn three_different_places_are_named_and_the_order_is_the_keys_own() {
    let ring = ring(8);
    let places = |key| ring.pick(key, 1.25).into_iter().map(|p| p.endpoint).collect::<Vec<_>>();
    let named = places(7);
    assert_eq!(named.len(), CANDIDATES_MAX);
    assert!(named[0] != named[1] && named[1] != named[2] && named[0] != named[2]);
    assert_eq!(places(7), named);
    assert!((0..50).any(|key| places(key) != named));
}

#[test]
fn an_endpoint_above_the_bound_is_named_last_and_not_left_out() {
    let mut ring = ring(2);
    // The other one is dead: whatever it is given fails at once.
    (0..20).for_each(|_| ring.acquire("10.0.0.1:8000"));
    for key in 0..50 {
        let places: Vec<_> = ring.pick(mix(key), 1.25).into_iter().map(|place| place.endpoint).collect();
        assert_eq!(places, ["10.0.0.0:8000", "10.0.0.1:8000"]);
    }
}

#[test]
fn an_endpoint_that_leaves_moves_only_its_own_keys() {
    let before = ring(10);
    let mut after = before.clone();
    let gone = "10.0.0.3:8000";
    let rest = (0..10).map(|i| (format!("10.0.0.{i}:8000"), 1)).filter(|(e, _)| e != gone).collect();
    after.replace(EndpointSet { version: 2, endpoints: rest });
    assert_eq!(after.version(), 2);
    let mut moved = 0;
    for key in 0..10_000 {
        let (was, is) = (first(&before, mix(key)), first(&after, mix(key)));
        if was == gone {
            moved += 1;
            // They go to the key's second choice, where a retry would have gone too.
            assert_eq!(is, before.pick(mix(key), 1e9)[1].endpoint);
        } else {
            assert_eq!(was, is);
        }
    }
    assert!((800..1200).contains(&moved), "{moved} of 10000 keys were on one endpoint of ten");
}

#[test]
fn requests_in_flight_outlive_their_endpoint_and_are_then_forgotten() {
    let mut ring = ring(2);
    ring.acquire("10.0.0.1:8000");
    ring.replace(EndpointSet { version: 2, endpoints: vec![("10.0.0.0:8000".to_owned(), 1)] });
    assert_eq!(ring.in_flight(), 1);
    assert_eq!(first(&ring, 3), "10.0.0.0:8000");
    ring.release("10.0.0.1:8000");
    ring.release("10.0.0.1:8000");
    assert_eq!((ring.in_flight(), ring.slots.len()), (0, 1));
}

#[test]
fn only_the_first_place_has_a_rank_and_retries_have_it_too() {
    let mut ring = Ring::default();
    let endpoints =
        vec![("a:1".to_owned(), 8), ("b:1".to_owned(), 8), ("c:1".to_owned(), 2), ("d:1".to_owned(), 1)];
    ring.replace(EndpointSet { version: 1, endpoints: endpoints.clone() });
    let ranks: BTreeMap<String, u32> = endpoints.into_iter().collect();
    let mut seen = std::collections::BTreeSet::new();
    for key in 0..500 {
        let places = ring.pick(mix(key), 1.25);
        let rank = places[0].rank;
        assert_eq!(rank.is_some(), ranks[&places[0].endpoint] > 1);
        for place in &places[1..] {
            assert_eq!(place.rank, None);
            assert!(
                rank.is_none_or(|rank| rank < ranks[&place.endpoint] && ring.has_rank(&place.endpoint, rank))
            );
        }
        seen.extend(rank);
    }
    assert_eq!(seen.len(), 8, "every rank is used");
    assert!(!ring.has_rank("d:1", 1) && !ring.has_rank("x:1", 0));
}

#[test]
fn what_is_no_header_value_never_enters_the_set() {
    let mut ring = Ring::default();
    let odd = ["", "a,b", "a b", "a\r\nx: y"].map(|e| (e.to_owned(), 1));
    ring.replace(EndpointSet { version: 1, endpoints: odd.into() });
    assert!(ring.pick(1, 1.25).is_empty());
}

proptest! {
    #[test]
    fn the_bound_holds_whatever_comes_and_goes(
        count in 1u32..40,
        factor in 1.0f64..3.0,
        // A key to send, or the end of the request that was sent so many before the last.
        steps in prop::collection::vec((any::<u8>(), prop::option::of(0usize..50)), 0..300),
    ) {
        let mut ring = ring(count);
        let mut running: Vec<String> = Vec::new();
        let mut load: BTreeMap<String, u32> = BTreeMap::new();
        for (key, end) in steps {
            if let Some(back) = end && back < running.len() {
                let endpoint = running.remove(running.len() - 1 - back);
                ring.release(&endpoint);
                *load.get_mut(&endpoint).expect("loaded") -= 1;
                continue;
            }
            // Few keys, so that some are hot.
            let place = ring.pick(mix(u64::from(key % 4)), factor).first().cloned().expect("a place");
            ring.acquire(&place.endpoint);
            let here = load.entry(place.endpoint.clone()).or_default();
            *here += 1;
            running.push(place.endpoint);
            let bound = (factor * running.len() as f64 / f64::from(count)).ceil();
            prop_assert!(f64::from(*here) <= bound, "{} on one of {}, {} in all", here, count, running.len());
        }
        prop_assert_eq!(ring.in_flight(), running.len() as u64);
    }

    #[test]
    fn an_endpoint_that_joins_takes_keys_only_for_itself(count in 1u32..30, keys in prop::collection::vec(any::<u64>(), 1..60)) {
        let (before, after) = (ring(count), ring(count + 1));
        let joined = format!("10.0.0.{count}:8000");
        for key in keys {
            let (was, is) = (first(&before, key), first(&after, key));
            prop_assert!(was == is || is == joined);
        }
    }
}
