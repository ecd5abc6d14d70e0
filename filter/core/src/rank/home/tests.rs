use super::*;

const FLEET: [(&str, u32); 5] =
    [("10.0.0.1:80", 0), ("10.0.0.1:80", 1), ("10.0.0.2:80", 0), ("10.0.0.3:80", 0), ("10.0.0.4:80", 0)];

fn home_of(key: u64, fleet: &[(&'static str, u32)]) -> (&'static str, u32) {
    let distances = Home::of(key, 1.0).unwrap().distances(fleet.iter().copied());
    let homes: Vec<usize> = (0..fleet.len()).filter(|at| distances[*at] == 0.0).collect();
    assert_eq!((homes.len(), distances.len()), (1, fleet.len()), "{distances:?}");
    assert!(distances.iter().all(|distance| [0.0, 1.0].contains(distance)), "{distances:?}");
    fleet[homes[0]]
}

#[test]
fn whoever_decides_and_in_whatever_order_it_knows_them_has_the_same_home() {
    let reversed: Vec<_> = FLEET.into_iter().rev().collect();
    for key in 0..1000 {
        assert_eq!(home_of(key, &FLEET), home_of(key, &reversed), "{key}");
    }
}

#[test]
fn homes_are_spread_over_endpoints_and_their_ranks() {
    for place in FLEET {
        let count = (0..10_000).filter(|key| home_of(*key, &FLEET) == place).count();
        assert!((1800..2200).contains(&count), "{place:?}: {count}");
    }
}

#[test]
fn an_endpoint_that_leaves_moves_only_what_was_at_home_there() {
    for key in 0..1000 {
        let (before, after) = (home_of(key, &FLEET), home_of(key, &FLEET[1..]));
        assert!(before == after || before == FLEET[0], "{key}: {before:?} {after:?}");
    }
}

#[test]
fn a_home_counts_while_picks_are_unheard_where_others_decide() {
    let mut unheard = Unheard::default();
    assert_eq!(unheard.weight(2, 1000), 0.0, "nothing comes");
    let mut weights = Vec::new();
    for _ in 0..5 {
        unheard.note(1000);
        weights.push(unheard.weight(2, 1000));
    }
    assert_eq!(weights, [0.0, 0.0, 0.5, 1.0, 1.0]);
    assert_eq!([0, 1, 9].map(|others| unheard.weight(others, 1000)), [0.0, 0.25, 1.0]);
    assert_eq!(unheard.weight(2, 1004), 1.0);
    assert_eq!(unheard.weight(2, 1005), 0.0, "they have heard of them");
    (0..100).for_each(|_| unheard.note(1010));
    assert_eq!((unheard.weight(1, 1010), unheard.picks_ms.len()), (1.0, KEPT));
    assert_eq!(Home::of(7, unheard.weight(0, 1010)), None, "alone, there is nothing to agree on");
}
