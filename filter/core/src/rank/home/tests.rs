use proptest::prelude::*;

use super::*;

const FLEET: [(&str, u32); 5] =
    [("10.0.0.1:80", 0), ("10.0.0.1:80", 1), ("10.0.0.2:80", 0), ("10.0.0.3:80", 0), ("10.0.0.4:80", 0)];
/// Of a prompt.
const TOKENS: u32 = 2048;

fn at_start(key: u64) -> Landmark {
    Landmark { behind: 0, key }
}

/// The tokens away from home at each place, where they hold so many tokens of the prompt.
fn away(home: &Home, fleet: &[(&'static str, u32)], held: &[u32]) -> Vec<f64> {
    let holding = |place| held.get(place).copied().unwrap_or(0);
    let mut candidates: Vec<Candidate> = (0..fleet.len())
        .map(|place| Candidate { cached_tokens: holding(place), ..Candidate::default() })
        .collect();
    home.settle(TOKENS, fleet.iter().copied(), &mut candidates);
    candidates.iter().map(|candidate| candidate.away_tokens).collect()
}

fn home_of(key: u64, fleet: &[(&'static str, u32)]) -> (&'static str, u32) {
    let home = Home { unknown: at_start(key), unheard: None, weight: 1.0, apart: None };
    let away = away(&home, fleet, &[]);
    let homes: Vec<usize> = (0..fleet.len()).filter(|at| away[*at] == 0.0).collect();
    assert_eq!((homes.len(), away.len()), (1, fleet.len()), "{away:?}");
    let whole = f64::from(TOKENS)..=f64::from(TOKENS) + ORDER_TOKENS;
    assert!(away.iter().all(|tokens| *tokens == 0.0 || whole.contains(tokens)), "{away:?}");
    fleet[homes[0]]
}

/// Three that decide and all pick, the one with so many before it.
fn share(before: usize) -> Deciders {
    Deciders { others: 2, share: Share { before, of: 3 } }
}

/// So many picks of one moment, of prompts with these keys.
fn picked(keys: impl IntoIterator<Item = u64>) -> Unheard {
    let mut unheard = Unheard::default();
    keys.into_iter().for_each(|key| unheard.note(1000, Some(at_start(key))));
    unheard
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
        unheard.note(1000, None);
        weights.push(unheard.weight(2, 1000));
    }
    assert_eq!(weights, [0.0625, 0.125, 0.1875, 0.25, 0.3125]);
    assert_eq!([0, 1, 9].map(|others| unheard.weight(others, 1000)), [0.0, 0.15625, 1.0]);
    assert_eq!(unheard.weight(2, 1004), 0.3125);
    assert_eq!(unheard.weight(2, 1005), 0.0, "they have heard of them");
    unheard.note(1005, None);
    assert_eq!(unheard.picks.len(), 1, "what all have heard of is forgotten");
    (0..1000).for_each(|_| unheard.note(1005, None));
    assert_eq!((unheard.weight(1, 1005), unheard.picks.len()), (1.0, KEPT));
}

/// After a silence: the order decides between equals, and weighs no more than a fraction of a prompt.
#[test]
fn equal_endpoints_are_told_apart_by_the_prompt_where_others_decide() {
    let mut firsts = [0; FLEET.len()];
    for key in 0..1000 {
        let home = picked([77]).home(share(0), 3000, at_start(key), |_| false).unwrap();
        let away = away(&home, &FLEET, &[]);
        assert!(away.iter().all(|tokens| (0.0..ORDER_TOKENS).contains(tokens)), "{away:?}");
        let first = away.iter().position(|tokens| *tokens == 0.0).unwrap();
        assert_eq!(FLEET[first], home_of(key, &FLEET), "{key}");
        firsts[first] += 1;
    }
    assert!(firsts.iter().all(|count| (150..250).contains(count)), "{firsts:?}");
    let known = picked([77]).home(share(0), 3000, Landmark { behind: TOKENS, key: 7 }, |_| false).unwrap();
    assert_eq!(away(&known, &FLEET, &[TOKENS, 0, TOKENS]), [0.0; 5], "nothing of it is new");
}

#[test]
fn each_has_endpoints_of_its_own_for_what_comes_one_at_a_time() {
    let unheard = picked([1]);
    let own_of = |before, fleet: &[(&'static str, u32)], now| {
        let home = unheard.home(share(before), now, at_start(7), |_| false).unwrap();
        let away = away(&home, fleet, &[]);
        let own = |at: &usize| away[*at] == 0.0;
        (0..fleet.len()).filter(own).map(|at| fleet[at]).collect::<std::collections::BTreeSet<_>>()
    };
    let reversed: Vec<_> = FLEET.into_iter().rev().collect();
    let all: Vec<_> = (0..3).flat_map(|before| own_of(before, &FLEET, 1005)).collect();
    let distinct: std::collections::BTreeSet<_> = all.iter().copied().collect();
    assert_eq!((all.len(), distinct.len()), (FLEET.len(), FLEET.len()), "{all:?}");
    for before in 0..3 {
        assert_eq!(own_of(before, &FLEET, 1005), own_of(before, &reversed, 1005));
        for now in [1004, 2000] {
            assert_eq!(
                own_of(before, &FLEET, now),
                own_of(0, &FLEET, now),
                "not one at a time: the prompt decides"
            );
        }
        assert_eq!(
            own_of(before, &FLEET[..2], 1005),
            own_of(0, &FLEET[..2], 1005),
            "too few for each to have one"
        );
    }
}

/// Who does not pick needs no endpoints kept free for it.
#[test]
fn only_those_who_pick_have_a_share() {
    let heard = |id, picked_at_ms| Other { id, picked_at_ms };
    let of = |own, others: &[Other]| Deciders::of(own, others.iter().copied(), 15_000);
    let table: [(&[Other], Deciders); 4] = [
        (&[], Deciders { others: 0, share: Share { before: 0, of: 1 } }),
        (&[heard(3, None), heard(9, Some(5000))], Deciders { others: 2, share: Share { before: 0, of: 1 } }),
        (&[heard(3, Some(5001)), heard(9, None)], Deciders { others: 2, share: Share { before: 1, of: 2 } }),
        (
            &[heard(3, Some(15_000)), heard(4, Some(15_001)), heard(9, Some(14_500))],
            Deciders { others: 3, share: Share { before: 2, of: 4 } },
        ),
    ];
    for (others, expected) in table {
        assert_eq!(of(7, others), expected, "{others:?}");
    }
    let alone = of(7, &[heard(3, None), heard(9, Some(5000))]);
    let firsts = (0..1000).map(|key| {
        let home = picked([1]).home(alone, 1005, at_start(key), |_| false).unwrap();
        away(&home, &FLEET, &[]).iter().position(|tokens| *tokens == 0.0).unwrap()
    });
    let mut counts = [0; FLEET.len()];
    firsts.for_each(|first| counts[first] += 1);
    assert!(counts.iter().all(|count| (150..250).contains(count)), "one at a time, all at one: {counts:?}");
}

/// The others would compute it at its home: a second copy is best made there.
#[test]
fn a_copy_of_what_others_have_not_heard_of_is_dear_away_from_its_home() {
    let unheard = picked(0..20);
    let held_by_first = [TOKENS - 48, 0, 0, 0, 0];
    for key in 0..9 {
        let unknown = Landmark { behind: TOKENS - 48, key: 77 };
        let home = unheard.home(share(0), 1004, unknown, |block| block == at_start(key)).unwrap();
        assert_eq!(home.unheard, Some(at_start(key)));
        let without = Home { unheard: None, ..home };
        let with = away(&home, &FLEET, &held_by_first);
        let extra: Vec<f64> = with
            .iter()
            .zip(away(&without, &FLEET, &held_by_first))
            .map(|(with, without)| with - without)
            .collect();
        let copy = f64::from(TOKENS - 48) * COPY_SHARE;
        let expected: Vec<f64> = (0..FLEET.len())
            .map(|place| if place == 0 || FLEET[place] == home_of(key, &FLEET) { 0.0 } else { copy })
            .collect();
        assert!(extra.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6), "{extra:?} {expected:?}");
    }
    let found = |now, behind, key| {
        let home = unheard
            .home(share(0), now, Landmark { behind, key: 77 }, |block| block == at_start(key))
            .unwrap();
        home.unheard
    };
    assert_eq!(found(1004, TOKENS, 20), None, "never picked here");
    assert_eq!(found(1005, TOKENS, 3), None, "they have heard of it");
    assert_eq!(found(1004, 0, 3), None, "nobody holds it: it is what is unknown");
}

#[test]
fn what_came_first_of_a_prompt_is_where_others_look_for_it() {
    let mut unheard = picked([1, 2, 3]);
    unheard.note(1001, Some(Landmark { behind: 512, key: 4 }));
    let unknown = Landmark { behind: 1024, key: 5 };
    let of = |keys: &[u64]| {
        unheard.home(share(0), 1001, unknown, |block| keys.contains(&block.key)).unwrap().unheard
    };
    assert_eq!(of(&[2, 4]), Some(at_start(2)));
    assert_eq!(of(&[4]), Some(Landmark { behind: 512, key: 4 }));
    assert_eq!(of(&[5]), None);
}

proptest! {
    #[test]
    fn alone_there_is_nothing_to_agree_on(
        keys in prop::collection::vec(any::<u64>(), 0..40),
        key in any::<u64>(),
        behind in any::<u32>(),
        now in 990u64..1020,
    ) {
        let unheard = picked(keys);
        prop_assert_eq!(unheard.home(Deciders { others: 0, share: Share { before: 0, of: 1 } }, now, Landmark { behind, key }, |_| true), None);
    }

    #[test]
    fn nobody_is_further_away_than_all_of_the_prompt_and_its_place(
        keys in prop::collection::vec(any::<u64>(), 0..40),
        key in any::<u64>(),
        held in prop::collection::vec(0..=TOKENS, FLEET.len()),
        (before, deciders) in (2usize..9).prop_flat_map(|deciders| (0..deciders, Just(deciders))),
        now in 1001u64..1009,
    ) {
        let most = held.iter().copied().max().unwrap_or(0);
        let unknown = Landmark { behind: most, key };
        let home = picked(keys).home(Deciders { others: deciders - 1, share: Share { before, of: deciders } }, now, unknown, |_| true).unwrap();
        let away = away(&home, &FLEET, &held);
        let limit = f64::from(TOKENS) + ORDER_TOKENS;
        prop_assert!(away.iter().all(|tokens| (0.0..=limit).contains(tokens)), "{:?}", away);
        prop_assert!(away.iter().zip(&held).any(|(tokens, _)| *tokens <= f64::from(most)), "{:?}", away);
    }
}
