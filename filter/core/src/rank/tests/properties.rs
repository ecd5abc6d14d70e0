//! What holds for every policy, or for the cost rule, whatever the candidates.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn any_candidate() -> impl Strategy<Value = Candidate> {
    let load = (0u32..4000, 0u64..20_000, 0u32..20, 0u32..100);
    let memory = (0.0..=1.0, prop::option::of(0u64..50_000), 0.0..=1.0);
    let speed = (0.25..4.0, 0.1..4.0, 0.1..=1.0);
    let rest = (0.0..20_000.0, 0.0..20_000.0, 0u64..50);
    (load, memory, speed, rest).prop_map(|(load, memory, speed, rest)| Candidate {
        cached_tokens: load.0,
        queued_tokens: load.1,
        waiting_sequences: load.2,
        active_sequences: load.2 + load.3,
        kv_usage: memory.0,
        room_tokens: memory.1,
        pressure: memory.2,
        slowness: speed.0,
        capacity: speed.1,
        ramp: speed.2,
        recent_tokens: rest.0,
        penalty: rest.1,
        last_cold: rest.2,
        // Nobody decides beside us.
        away_tokens: 0.0,
    })
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(&Policy::NAMES[..]).prop_map(|name| Policy::by_name(name).unwrap())
}

/// The position of a candidate in a ranking without ties.
fn position(candidates: &[Candidate], index: usize) -> usize {
    let strict = Demand { tie_tokens: 0, ..DEMAND };
    // Lots in order of the candidates, so that equals keep it.
    let mut lot = 0;
    let mut random = || {
        lot += 1;
        lot
    };
    let ranking = rank(COST, strict, candidates, 0, &mut random);
    ranking.iter().position(|ranked| ranked.index == index).unwrap()
}

proptest! {
    #[test]
    fn every_candidate_is_ranked_once_with_a_finite_cost(
        policy in any_policy(),
        candidates in vec(any_candidate(), 0..12),
        turn in any::<u64>(),
        seed in 1u64..,
    ) {
        let ranking = rank(policy, DEMAND, &candidates, turn, &mut lots(seed));
        let mut indices: Vec<usize> = ranking.iter().map(|ranked| ranked.index).collect();
        prop_assert!(ranking.iter().all(|ranked| ranked.cost.is_finite()));
        indices.sort_unstable();
        prop_assert_eq!(indices, (0..candidates.len()).collect::<Vec<_>>());
    }

    #[test]
    fn figures_that_no_endpoint_has_do_no_harm(policy in any_policy(), value in any::<f64>(), count in any::<u64>()) {
        let strange = Candidate {
            queued_tokens: count,
            room_tokens: Some(count),
            kv_usage: value,
            pressure: value,
            slowness: value,
            capacity: value,
            ramp: value,
            recent_tokens: value,
            penalty: value,
            ..idle(0)
        };
        let demand = Demand { further_tokens: count / 2, output_tokens: count, ..DEMAND };
        prop_assert_eq!(rank(policy, demand, &[strange, idle(0)], count, &mut lots(1)).len(), 2);
    }

    /// More of what is bad never brings an endpoint forward, more of what is good never back.
    #[test]
    fn cost_is_monotonic(
        candidates in vec(any_candidate(), 2..8),
        which in any::<prop::sample::Index>(),
        change in 0usize..8,
        by in 1u32..5000,
    ) {
        let index = which.index(candidates.len());
        let mut worse = candidates.clone();
        let endpoint = &mut worse[index];
        match change {
            0 => endpoint.queued_tokens += u64::from(by),
            1 => endpoint.active_sequences += by,
            2 => endpoint.penalty += f64::from(by),
            3 => endpoint.slowness += f64::from(by),
            4 => endpoint.ramp /= f64::from(by),
            5 => endpoint.capacity /= f64::from(by),
            6 => endpoint.room_tokens = endpoint.room_tokens.map(|room| room.saturating_sub(by.into())),
            _ => endpoint.pressure = 1.0,
        }
        prop_assert!(position(&worse, index) >= position(&candidates, index));
    }

    /// A prefix that an endpoint comes to hold never costs it its place, as long as it is not a longer one than anybody's:
    /// that would charge the others for copies, which is the same the other way round.
    #[test]
    fn holding_more_never_hurts(candidates in vec(any_candidate(), 2..8), which in any::<prop::sample::Index>()) {
        let index = which.index(candidates.len());
        let mut warmer = candidates.clone();
        warmer[index].cached_tokens = candidates.iter().map(|c| c.cached_tokens).max().unwrap();
        prop_assert!(position(&warmer, index) <= position(&candidates, index));
    }

    /// Without anything to reuse, and with equal endpoints, the cost rule is that of the least tokens.
    #[test]
    fn without_reuse_cost_is_least_tokens(queues in vec(0u64..100_000, 2..12)) {
        let candidates: Vec<Candidate> =
            queues.iter().map(|&queued_tokens| Candidate { queued_tokens, ..idle(0) }).collect();
        let strict = Demand { tie_tokens: 0, ..DEMAND };
        let ranking = rank(COST, strict, &candidates, 0, &mut lots(5));
        let ranked: Vec<u64> = ranking.iter().map(|r| candidates[r.index].queued_tokens).collect();
        prop_assert!(ranked.is_sorted(), "{ranked:?}");
    }
}
