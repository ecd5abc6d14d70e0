use super::*;

mod properties;

const DEMAND: Demand = Demand { prompt_tokens: 3136, further_tokens: 0, output_tokens: 0, tie_tokens: 16 };
const COST: Policy = Policy::COST;

fn idle(cached_tokens: u32) -> Candidate {
    Candidate { cached_tokens, ..Candidate::default() }
}

/// Xorshift: the same numbers in every run.
fn lots(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

fn order(policy: Policy, candidates: &[Candidate], turn: u64) -> Vec<usize> {
    let mut random = lots(7);
    rank(policy, DEMAND, candidates, turn, &mut random).into_iter().map(|r| r.index).collect()
}

/// How often each candidate comes first in 8,000 rankings.
fn wins<const N: usize>(policy: Policy, candidates: &[Candidate; N]) -> [u32; N] {
    let mut random = lots(1);
    let mut wins = [0; N];
    for turn in 0..8000 {
        let ranking = rank(policy, DEMAND, candidates, turn, &mut random);
        wins[ranking[0].index] += 1;
    }
    wins
}

#[test]
fn the_holder_wins_while_its_queue_is_cheaper_than_a_copy() {
    let mut warm = idle(3072);
    assert_eq!(order(COST, &[idle(0), warm.clone()], 0), [1, 0]);
    warm.queued_tokens = 3000;
    assert_eq!(order(COST, &[idle(0), warm.clone()], 0), [1, 0]);
    warm.queued_tokens = 3200;
    assert_eq!(order(COST, &[idle(0), warm], 0), [0, 1]);
}

#[test]
fn a_copy_costs_more_under_cache_pressure() {
    let mut warm = idle(3072);
    warm.queued_tokens = 3200;
    let mut cold = idle(0);
    cold.pressure = 1.0;
    assert_eq!(order(COST, &[cold, warm], 0), [1, 0]);
}

#[test]
fn slow_busy_full_young_or_distrusted_endpoints_lose() {
    for change in [
        (|c: &mut Candidate| c.slowness = 2.0) as fn(&mut Candidate),
        |c| c.active_sequences = 10,
        |c| c.penalty = 500.0,
        |c| c.room_tokens = Some(1000),
        |c| (c.active_sequences, c.ramp) = (1, 0.1),
    ] {
        let mut worse = idle(0);
        change(&mut worse);
        assert_eq!(order(COST, &[worse, idle(0)], 0), [1, 0]);
    }
}

#[test]
fn a_young_endpoint_is_given_its_first_request_at_once_and_few_more() {
    let young = Candidate { ramp: 0.1, ..idle(0) };
    let old = Candidate { queued_tokens: 100, active_sequences: 4, ..idle(0) };
    assert_eq!(order(COST, &[young.clone(), old.clone()], 0), [0, 1]);
    let busy = Candidate { queued_tokens: 50, active_sequences: 1, ..young };
    assert_eq!(order(COST, &[busy, old], 0), [1, 0]);
}

#[test]
fn memory_that_is_short_costs_what_is_missing() {
    let ranked = |room_tokens, output_tokens| {
        let candidate = Candidate { room_tokens, queued_tokens: 64, ..idle(3072) };
        rank(COST, Demand { output_tokens, ..DEMAND }, &[candidate], 0, &mut lots(1))[0].clone()
    };
    assert_eq!(ranked(None, 256).missing_tokens, 0);
    assert_eq!(ranked(Some(384), 256).missing_tokens, 0);
    assert_eq!(ranked(Some(300), 256).missing_tokens, 84);
    assert_eq!(ranked(Some(300), 256).cost, ranked(None, 256).cost + 84.0);
}

/// A burst with a new prefix: nobody else waits anywhere, so a copy on an idle endpoint is in nobody's way, while each
/// further request on the holder is in the way of those behind it.
#[test]
fn what_is_computed_costs_more_where_others_wait() {
    let waits = |waiting_sequences| Candidate { waiting_sequences, queued_tokens: 1000, ..idle(2048) };
    assert_eq!(order(COST, &[waits(0), idle(0)], 0), [0, 1]);
    assert_eq!(order(COST, &[waits(20), idle(0)], 0), [1, 0]);
    let Policy::Cost(weights) = COST else { panic!("{COST:?}") };
    let without = Policy::Cost(CostWeights { behind: 0.0, ..weights });
    assert_eq!(order(without, &[waits(20), idle(0)], 0), [0, 1]);
}

/// Of an endpoint three times as fast, three times the tokens and sequences are as long a queue.
#[test]
fn those_behind_wait_for_as_long_as_the_endpoint_takes() {
    let small = Candidate { queued_tokens: 3136, waiting_sequences: 4, active_sequences: 4, ..idle(0) };
    let large = |waiting_sequences, queued_tokens| Candidate {
        queued_tokens,
        waiting_sequences,
        active_sequences: waiting_sequences,
        slowness: 1.0 / 3.0,
        capacity: 3.0,
        ..idle(0)
    };
    assert_eq!(order(COST, &[small.clone(), large(12, 9000)], 0), [1, 0]);
    assert_eq!(order(COST, &[small, large(18, 12_000)], 0), [0, 1]);
}

#[test]
fn work_of_late_counts_where_it_has_a_price() {
    let Policy::Cost(weights) = COST else { panic!("{COST:?}") };
    let spread = Policy::Cost(CostWeights { recent: 0.5, ..weights });
    let worked = Candidate { recent_tokens: 10_000.0, ..idle(3072) };
    assert_eq!(order(COST, &[worked.clone(), idle(0)], 0), [0, 1]);
    assert_eq!(order(spread, &[worked, idle(0)], 0), [1, 0]);
}

/// What somebody holds is no reason to go home, and a home that is far behind is left.
#[test]
fn what_nobody_holds_goes_home_while_others_decide() {
    let home = Candidate { queued_tokens: 3136 * 7, ..idle(0) };
    let away =
        |cached_tokens| Candidate { away_tokens: f64::from(3136 - cached_tokens), ..idle(cached_tokens) };
    assert_eq!(order(COST, &[away(0), home.clone()], 0), [1, 0]);
    assert_eq!(order(COST, &[idle(0), home.clone()], 0), [0, 1], "nobody decides beside us");
    assert_eq!(order(COST, &[away(3072), home.clone()], 0), [0, 1]);
    let far_behind = Candidate { queued_tokens: 3136 * 9, ..home };
    assert_eq!(order(COST, &[away(0), far_behind.clone()], 0), [0, 1]);
    let Policy::Cost(weights) = COST else { panic!("{COST:?}") };
    let dearer = Policy::Cost(CostWeights { agree: 10.0, ..weights });
    assert_eq!(order(dearer, &[away(0), far_behind], 0), [1, 0]);
}

#[test]
fn round_robin_takes_every_endpoint_in_turn() {
    let three = [idle(0), idle(3072), idle(0)];
    let firsts: Vec<usize> =
        (0..6).filter_map(|turn| order(Policy::RoundRobin, &three, turn).first().copied()).collect();
    assert_eq!(firsts, [0, 1, 2, 0, 1, 2]);
    assert_eq!(order(Policy::RoundRobin, &three, 1), [1, 2, 0]);
}

#[test]
fn ties_within_a_block_are_spread() {
    let candidates: [Candidate; 8] =
        std::array::from_fn(|i| Candidate { penalty: i as f64, ..Candidate::default() });
    let wins = wins(COST, &candidates);
    assert!(wins.iter().all(|w| (800..1200).contains(w)), "{wins:?}");
}

/// A list of fallbacks that was always the same would send all retries to one endpoint.
#[test]
fn equals_are_spread_on_every_place_of_the_list() {
    let candidates = [idle(3072), idle(0), idle(0), idle(0)];
    let mut random = lots(3);
    let mut seconds = [0u32; 4];
    for turn in 0..3000 {
        seconds[rank(COST, DEMAND, &candidates, turn, &mut random)[1].index] += 1;
    }
    assert!(seconds[0] == 0 && seconds[1..].iter().all(|n| (800..1200).contains(n)), "{seconds:?}");
}

#[test]
fn least_load_ignores_caches_and_longest_prefix_ignores_queues() {
    let mut warm_busy = idle(3072);
    warm_busy.active_sequences = 3;
    assert_eq!(order(Policy::LeastLoad, &[warm_busy.clone(), idle(0)], 0), [1, 0]);
    assert_eq!(order(Policy::LongestPrefix, &[idle(0), warm_busy], 0), [1, 0]);
}

#[test]
fn least_load_scores_queue_and_memory_alike() {
    let of = |waiting_sequences, kv_usage| Candidate { waiting_sequences, kv_usage, ..idle(0) };
    // Scores: 1 + 0.1, 0.5 + 0.5, 0 + 1.
    assert_eq!(order(Policy::LeastLoad, &[of(4, 0.0), of(2, 0.5), of(0, 0.9)], 0), [2, 0, 1]);
    assert_eq!(order(Policy::LeastLoad, &[of(0, 0.6), of(0, 0.5)], 0), [1, 0]);
}

#[test]
fn power_of_two_takes_the_better_of_two() {
    let busy = Candidate { active_sequences: 9, ..idle(0) };
    let wins = wins(Policy::PowerOfTwo, &[busy, idle(0), idle(0), idle(0)]);
    assert!(wins[0] == 0 && wins[1..].iter().all(|w| (2300..3100).contains(w)), "{wins:?}");
    assert_eq!(order(Policy::PowerOfTwo, &[idle(0)], 0), [0]);
}

#[test]
fn presets_weigh_the_prefix_against_queue_and_memory() {
    let preset = |name| Policy::by_name(name).unwrap();
    let warm = Candidate { waiting_sequences: 8, kv_usage: 0.9, ..idle(3072) };
    // The warm one scores 3 × 0.98 + 0 + 0.1 against 1 + 1; with double weights of load, 2.94 + 0.2 against 4.
    assert_eq!(order(preset("weighted_3_1_1"), &[idle(0), warm.clone()], 0), [1, 0]);
    assert_eq!(order(preset("weighted"), &[idle(0), warm], 0), [0, 1]);
}

#[test]
fn cold_requests_go_to_who_got_none_for_the_longest_time() {
    let preset = Policy::by_name("weighted_3_2_2_2").unwrap();
    let rested = |last_cold| Candidate { last_cold, ..idle(0) };
    assert_eq!(order(preset, &[rested(7), rested(0), rested(5)], 0), [1, 2, 0]);
    // Somebody holds a part of it: rest decides nothing.
    let holder = Candidate { cached_tokens: 16, ..rested(9) };
    assert_eq!(order(preset, &[rested(0), holder], 0), [1, 0]);
}

#[test]
fn sticky_keeps_to_holders_until_they_are_behind_by_the_gate() {
    let sticky = Policy::Sticky(Sticky { share: 0.8, gate_tokens: 10_000 });
    let warm = |queued_tokens| Candidate { queued_tokens, ..idle(3072) };
    assert_eq!(order(sticky, &[idle(0), warm(10_000)], 0), [1, 0]);
    assert_eq!(order(sticky, &[idle(0), warm(10_001)], 0), [0, 1]);
    assert_eq!(order(sticky, &[idle(0), warm(20_000), warm(9000)], 0), [2, 1, 0]);
    // Half of a prompt makes no holder.
    let half = Candidate { queued_tokens: 5000, ..idle(1568) };
    assert_eq!(order(sticky, &[idle(0), half], 0), [0, 1]);
}

#[test]
fn new_times_batch_multiplies() {
    let warm = Candidate { active_sequences: 60, ..idle(3072) };
    assert_eq!(order(Policy::NewTimesBatch, &[idle(0), warm.clone()], 0), [0, 1]);
    assert_eq!(
        order(Policy::NewTimesBatch, &[Candidate { active_sequences: 2, ..idle(0) }, warm], 0),
        [1, 0]
    );
}

/// The fleet is uneven, and two light endpoints are left, one of them with the prefix: load is no reason to forget it.
// D7 (sgl-project/sglang#32195)
#[test]
fn among_light_endpoints_the_warm_one_is_chosen_however_uneven_the_rest_is() {
    let heavy =
        Candidate { queued_tokens: 200_000, waiting_sequences: 100, active_sequences: 200, ..idle(3072) };
    let fleet = [heavy.clone(), idle(0), heavy.clone(), idle(3072), heavy];
    for name in ["cost", "sticky", "new_times_batch", "weighted", "weighted_3_1_1", "longest_prefix"] {
        assert_eq!(order(Policy::by_name(name).unwrap(), &fleet, 0)[0], 3, "{name}");
    }
}

#[test]
fn names_round_trip() {
    for name in Policy::NAMES {
        assert_eq!(Policy::by_name(name).map(|p| p.name()), Some(name));
    }
    assert_eq!(Policy::by_name("fastest"), None);
}

#[test]
fn no_candidates_give_no_ranking() {
    for name in Policy::NAMES {
        assert!(order(Policy::by_name(name).unwrap(), &[], 3).is_empty(), "{name}");
    }
}
