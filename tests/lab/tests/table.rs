//! What must hold of every run, and a small table that must hold of the policies.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::time::Duration;

use warmpath_core::rank::{CostWeights, Policy};
use warmpath_lab::deciders::Sharing;
use warmpath_lab::figures::Figures;
use warmpath_lab::load::{Incident, Load, catalogue};
use warmpath_lab::outcome::Outcome;
use warmpath_lab::plan::Plan;
use warmpath_lab::rule::Rule;
use warmpath_lab::simulation::{Settings, run};
use warmpath_lab::{calibration, plot, results, several, sweep, table};

fn rule(policy: &str) -> Rule {
    Rule::of(Policy::by_name(policy).unwrap())
}

fn figures(load: &Load, policy: &str) -> Figures {
    let run = run(load, &rule(policy), Settings::default());
    assert!(run.is_consistent, "{} under {policy}", load.name);
    Figures::of(&run)
}

/// The first `count` requests of a load.
fn short(name: &'static str, count: usize) -> Load {
    let mut load = catalogue::load(name, None, 1).unwrap();
    load.requests.truncate(count);
    load
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_does_not() {
    for name in catalogue::NAMES {
        let load = short(name, 200);
        let again = |seed| run(&load, &rule("cost"), Settings { seed, ..Settings::default() });
        assert_eq!(again(1), again(1), "{name}");
        assert_eq!(catalogue::load(name, None, 1).unwrap().requests[0].prompt, load.requests[0].prompt);
    }
    let of = |seed| catalogue::load("uniform", None, seed).unwrap().requests[0].prompt.clone();
    assert_ne!(of(1), of(2));
}

#[test]
fn every_request_ends_whatever_the_load_and_the_policy() {
    for name in catalogue::NAMES {
        let load = short(name, 300);
        for policy in ["round_robin", "least_load", "sticky", "new_times_batch", "cost"] {
            let run = run(&load, &rule(policy), Settings::default());
            assert!(run.is_consistent, "{name} under {policy}");
            for (outcome, request) in run.outcomes.iter().zip(&load.requests) {
                assert!(outcome.failed != outcome.last.is_some(), "{name} under {policy}: {outcome:?}");
                assert!(outcome.sent <= outcome.first || outcome.failed);
                assert!(outcome.first <= outcome.last || outcome.failed);
                assert!(outcome.cached < request.prompt.tokens);
                assert_eq!(outcome.cached % load.replica.block_tokens, 0);
            }
            let hits = run.counters.iter().map(|counters| counters.hits).sum::<u64>();
            let cached: u64 = run.outcomes.iter().map(|outcome| u64::from(outcome.cached)).sum();
            assert_eq!(hits, cached, "{name} under {policy}: engines and clients count the same");
        }
    }
}

#[test]
fn small_loads_end_too_and_have_words_of_the_right_length() {
    for name in catalogue::SMALL {
        let load = catalogue::small(name, 1).unwrap();
        assert_eq!(load.name, name);
        for request in &load.requests {
            let tokens: u32 = request.prompt.texts.iter().map(|(_, tokens)| tokens).sum();
            assert_eq!(tokens, request.prompt.tokens, "{name}");
        }
        let run = run(&load, &rule("cost"), Settings::default());
        assert!(run.is_consistent, "{name}");
    }
}

#[test]
fn copies_of_a_burst_come_in_time_only_at_a_price_for_who_waits() {
    let load = catalogue::load("burst", None, 1).unwrap();
    let p99 = |rule: &Rule| Figures::of(&run(&load, rule, Settings::default())).ttft_ms.p99;
    let Policy::Cost(weights) = Policy::COST else { panic!("not the cost rule") };
    let without = Rule::of(Policy::Cost(CostWeights { behind: 0.0, ..weights })).named("cost behind=0");
    let (with, without, robin) = (p99(&rule("cost")), p99(&without), p99(&rule("round_robin")));
    assert!(with < robin && robin < without, "{with} {robin} {without}");
}

/// The size of blocks is known from metrics, so prefixes stay together from the first request on.
#[test]
fn replicas_that_never_served_are_as_good_as_others() {
    let load = catalogue::load("uniform", None, 1).unwrap();
    let p99 = |have_served| {
        let settings = Settings { have_served, ..Settings::default() };
        Figures::of(&run(&load, &rule("cost"), settings)).ttft_ms.p99
    };
    assert!(p99(false) < 1.1 * p99(true), "{} {}", p99(false), p99(true));
}

/// With what the indexers need to hear of each other, three of them decide like one; without a word, they do not.
#[test]
fn several_deciders_that_hear_of_each_other_decide_like_one() {
    let load = catalogue::load("three_uses", None, 1).unwrap();
    let of = |deciders, delay, tells_blocks| {
        let sharing = Sharing { deciders, delay: Duration::from_millis(delay), tells_blocks };
        let run = run(&load, &rule("cost"), Settings { sharing, ..Settings::default() });
        assert!(run.is_consistent, "{sharing:?}");
        Figures::of(&run)
    };
    let (one, three) = (of(1, 0, true), of(3, 5, true));
    assert!(three.ttft_ms.p99 < 1.1 * one.ttft_ms.p99, "{} {}", three.ttft_ms.p99, one.ttft_ms.p99);
    assert!(three.hit_rate > 0.99 * one.hit_rate, "{} {}", three.hit_rate, one.hit_rate);
    let apart = of(3, 5, false);
    assert!(apart.hit_rate < 0.9 * one.hit_rate, "{} {}", apart.hit_rate, one.hit_rate);
}

/// Hundreds of requests in one instant, before any word between indexers: they agree where each prefix is computed.
#[test]
fn a_first_wave_of_many_prefixes_is_computed_once_whoever_decides() {
    let load = short("uniform", 1500);
    let Policy::Cost(weights) = Policy::COST else { panic!("not the cost rule") };
    let p99 = |agree, deciders| {
        let rule = Rule::of(Policy::Cost(CostWeights { agree, ..weights })).named("cost");
        let sharing = Sharing { deciders, delay: Duration::from_millis(5), tells_blocks: true };
        Figures::of(&run(&load, &rule, Settings { sharing, ..Settings::default() })).ttft_ms.p99
    };
    let (one, three, without) = (p99(weights.agree, 1), p99(weights.agree, 3), p99(0.0, 3));
    assert_eq!(one, p99(0.0, 1), "alone, there is nothing to agree on");
    assert!(three < 1.25 * one && without > 1.5 * one, "{one} {three} {without}");
}

/// Of requests with nothing in common that come between two words of indexers, not all take the one that looks idle.
#[test]
fn different_requests_of_one_moment_do_not_meet_at_one_endpoint() {
    let loads = [1, 2, 3, 4].map(|seed| catalogue::load("zero_reuse", None, seed).unwrap());
    let Policy::Cost(weights) = Policy::COST else { panic!("not the cost rule") };
    let delay = Duration::from_millis(5);
    let meetings = |agree, deciders| {
        let rule = Rule::of(Policy::Cost(CostWeights { agree, ..weights })).named("cost");
        let sharing = Sharing { deciders, delay, tells_blocks: true };
        let settings = Settings { sharing, ..Settings::default() };
        let meet = |pair: &&[Outcome]| {
            pair[1].sent < pair[0].sent.map(|at| at + delay) && pair[0].seat == pair[1].seat
        };
        let of = |load| run(load, &rule, settings).outcomes.windows(2).filter(meet).count();
        loads.iter().map(of).sum::<usize>()
    };
    let (one, three, without) = (meetings(weights.agree, 1), meetings(weights.agree, 3), meetings(0.0, 3));
    assert!(three < one + (without - one) * 3 / 4, "{one} {three} {without}");
}

#[test]
fn several_are_compared_with_one_seed_by_seed() {
    let plan = Plan {
        loads: vec!["three_uses"],
        rules: vec![rule("cost")],
        seeds: vec![1, 2, 3],
        traces: None,
        settings: Settings::default(),
        threads: 1,
    };
    let delays = [Duration::ZERO, Duration::from_millis(100)];
    let rows = several::rows(&plan, 3, &delays).unwrap();
    let [at_once, late] = rows[0].against[..] else { panic!("{rows:?}") };
    for against in [at_once, late] {
        assert!(against.least <= against.p99 && against.p99 <= against.most, "{against:?}");
    }
    assert!(at_once.hits > late.hits && late.p99 > at_once.p99, "{at_once:?} {late:?}");
    assert!(!late.holds(), "{late:?}");
    let text = several::markdown(&rows, &delays);
    assert!(text.contains("| three_uses |") && text.contains("100 ms: P99"), "{text}");
}

#[test]
fn concurrency_is_never_exceeded_and_no_more_is_hit_than_possible() {
    for name in ["three_uses", "hot_60"] {
        let load = short(name, 1500);
        let run = run(&load, &rule("cost"), Settings::default());
        let most = run.samples.iter().map(|sample| sample.in_flight.iter().sum::<usize>()).max().unwrap();
        assert!(most <= load.concurrency.unwrap(), "{name}: {most}");
        assert!(Figures::of(&run).hit_rate <= load.ideal_hit_rate(), "{name}");
    }
}

#[test]
fn what_is_predicted_from_events_is_what_replicas_find() {
    let load = short("open_20", 2000);
    let run = run(&load, &rule("cost"), Settings::default());
    let equal = run.outcomes.iter().filter(|outcome| outcome.predicted == outcome.cached).count();
    assert!(equal > 1960, "{equal} of 2000");
}

#[test]
fn constants_give_the_published_figures_within_a_tenth() {
    for row in calibration::rows().unwrap() {
        let fits = (0.9..=1.1).contains(&row.ratio());
        assert!(fits || !row.is_calibrated(), "{row:?}");
    }
}

#[test]
fn on_a_hot_prefix_cost_beats_round_robin_and_load_alone() {
    let load = catalogue::load("hot_60", None, 1).unwrap();
    let [cost, robin, least] = ["cost", "round_robin", "least_load"].map(|policy| figures(&load, policy));
    for other in [&robin, &least] {
        assert!(cost.ttft_ms.p99 <= other.ttft_ms.p99 * 1.02, "{cost:?} {other:?}");
        assert!(cost.hit_rate > other.hit_rate + 0.2);
        assert!(cost.requests_per_second > other.requests_per_second * 1.1);
    }
}

// D14 (higress-group/higress#3407)
#[test]
fn on_steady_traffic_cost_is_no_worse_than_round_robin() {
    let load = catalogue::load("open_20", None, 1).unwrap();
    let (cost, robin) = (figures(&load, "cost"), figures(&load, "round_robin"));
    assert!(
        cost.ttft_ms.p99 <= robin.ttft_ms.p99 && cost.ttft_ms.p50 <= robin.ttft_ms.p50,
        "{cost:?} {robin:?}"
    );
    assert_eq!((cost.failed, cost.requests), (0.0, 4800));
}

// D28 (ai-dynamo/dynamo#11029), D34 (vllm-project/aibrix#1178)
#[test]
fn the_matrix_shows_times_and_throughput_of_every_policy() {
    let load = short("open_20", 400);
    let policies: Vec<&str> = sweep::BASELINES.into_iter().chain(["cost"]).collect();
    assert!(policies.contains(&"new_times_batch") && policies.contains(&"round_robin"));
    let results: Vec<Figures> = policies.iter().map(|policy| figures(&load, policy)).collect();
    let table = table::markdown(&results);
    let cells =
        |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let mut lines = table.lines().filter(|line| line.starts_with('|'));
    let head = cells(lines.next().unwrap());
    let columns = ["TTFT p50", "p90", "p99", "out tok/s"]
        .map(|name| head.iter().position(|cell| cell == name).unwrap());
    assert_eq!([columns[0], columns[1], columns[2]], [2, 3, 4], "{head:?}");
    let rows: Vec<Vec<String>> = lines.skip(1).map(cells).collect();
    let names: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, policies);
    for (row, run) in rows.iter().zip(&results) {
        let shown = columns.map(|column| row[column].parse::<f64>().unwrap());
        let whole = &run.ttft_ms;
        let measured = [whole.p50, whole.p90, whole.p99, run.output_tokens_per_second];
        for (shown, measured) in shown.iter().zip(measured) {
            assert!(measured > 0.0 && (shown - measured).abs() <= 0.5, "{row:?} {run:?}");
        }
    }
}

#[test]
fn without_reuse_cost_is_no_worse_than_load_alone() {
    let load = catalogue::load("zero_reuse", None, 1).unwrap();
    let (cost, least) = (figures(&load, "cost"), figures(&load, "least_load"));
    assert_eq!(cost.hit_rate, 0.0);
    assert!(cost.ttft_ms.p99 <= least.ttft_ms.p99 * 1.02, "{cost:?} {least:?}");
}

#[test]
fn a_replica_that_fails_fast_attracts_no_traffic() {
    let load = catalogue::load("one_failing", None, 1).unwrap();
    let (cost, robin) = (figures(&load, "cost"), figures(&load, "round_robin"));
    assert!(cost.retried < robin.retried / 5.0, "{cost:?} {robin:?}");
    assert!(cost.failed <= 0.001 * cost.requests as f64, "{cost:?}");
}

#[test]
fn a_new_replica_has_its_share_within_half_a_minute() {
    let mut load = short("scale_up", 3200);
    load.incidents = vec![(Duration::from_secs(120), Incident::Join)];
    let run = run(&load, &rule("cost"), Settings::default());
    let window = Duration::from_secs(150)..Duration::from_secs(180);
    let sent = run.outcomes.iter().filter(|outcome| window.contains(&outcome.sent.unwrap()));
    let (new, all) = sent.fold((0, 0), |(new, all), outcome| (new + usize::from(outcome.seat == 4), all + 1));
    assert!(new * 5 * 2 > all, "{new} of {all} requests on the fifth replica");
}

#[test]
fn results_are_one_object_for_each_load_and_policy() {
    let plan = Plan {
        loads: vec!["three_uses"],
        rules: vec![rule("round_robin"), rule("cost")],
        seeds: vec![1, 2],
        traces: None,
        settings: Settings::default(),
        threads: 2,
    };
    let ran = plan.run().unwrap();
    let figures: Vec<Figures> = ran.iter().map(|ran| ran.figures.clone()).collect();
    let folder = std::env::temp_dir().join(format!("lab-results-{}", std::process::id()));
    let file = folder.join("results.json");
    results::merge_into(&file, &figures[..1]).unwrap();
    let all = results::merge_into(&file, &figures).unwrap();
    assert_eq!(all.len(), 2, "an old object gave way to the new one");
    let read = results::read(&file).unwrap();
    assert_eq!(results::merge_into(&file, &read).unwrap(), results::read(&file).unwrap());
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let row = &json[1];
    assert_eq!(
        (&row["load"], &row["policy"], &row["seeds"]),
        (&"three_uses".into(), &"cost".into(), &2.into())
    );
    for column in ["ttft_ms", "ttft_after_first_wave_ms", "tpot_ms"] {
        for part in ["mean", "p50", "p90", "p99"] {
            assert!(row[column][part].as_f64().unwrap() > 0.0, "{column}.{part}");
        }
    }
    for column in ["requests_per_second", "output_tokens_per_second", "hit_rate", "in_flight_max_to_mean"] {
        assert!(row[column].as_f64().unwrap() > 0.0, "{column}");
    }
    let runs: Vec<_> = ran.iter().map(|ran| &ran.first).collect();
    for svg in [plot::ttft(&runs), plot::hit_rate(&runs), plot::in_flight(runs[0])] {
        assert!(svg.starts_with("<svg") && svg.contains("round_robin") && !svg.contains("NaN"), "{svg}");
    }
}
