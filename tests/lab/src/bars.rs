//! What a policy must reach on every load, held against the others of the same table.

use crate::figures::Figures;

/// Fractions by which a figure may be off a bar: what five seeds differ by.
const NOISE: f64 = 0.02;
/// Median above the best one.
const P50_ABOVE_BEST: f64 = 1.10;
/// Hit rate below the best one.
const HIT_OF_BEST: f64 = 0.98;
/// Share of the requests that may fail without a reason.
const FAILED_FEW: f64 = 0.001;
/// Milliseconds that nobody feels: two medians this close are equal.
const SAME_MS: f64 = 10.0;

/// A bar that was missed.
#[derive(Clone, Debug, PartialEq)]
pub struct Miss {
    /// On which load.
    pub load: String,
    /// Which bar.
    pub bar: &'static str,
    /// What was reached ÷ what was wanted: above 1 for times, below 1 for shares.
    pub ratio: f64,
}

/// Bars that `policy` misses, over the loads of `results` (of one source).
pub fn misses(results: &[Figures], policy: &str) -> Vec<Miss> {
    results.iter().filter(|run| run.policy == policy).flat_map(|run| of_load(results, run)).collect()
}

fn of_load(results: &[Figures], run: &Figures) -> Vec<Miss> {
    // Variants of the rule itself are no competition.
    let others: Vec<&Figures> = results
        .iter()
        .filter(|other| other.load == run.load && other.source == run.source)
        .filter(|other| !other.policy.starts_with("cost"))
        .collect();
    let by_name = |name: &str| others.iter().find(|other| other.policy == name).copied();
    let mut misses = Vec::new();
    let mut miss = |bar: &'static str, ratio: f64| misses.push(Miss { load: run.load.clone(), bar, ratio });
    for (bar, name) in [("p99_round_robin", "round_robin"), ("p99_least_load", "least_load")] {
        let Some(other) = by_name(name) else { continue };
        let ratio = run.ttft_ms.p99 / other.ttft_ms.p99;
        if ratio > 1.0 + NOISE {
            miss(bar, ratio);
        }
    }
    // Who lets requests fail must not be the faster for it.
    let few = run.requests as f64 * FAILED_FEW;
    let unavoidable = by_name("round_robin").map_or(0.0, |robin| robin.failed).max(few);
    if run.failed > unavoidable {
        miss("failed", run.failed / unavoidable);
    }
    let complete = others.iter().filter(|other| other.failed <= run.failed + few);
    // Who lets a part of the requests wait without end has it easy with the others.
    let [robin, least] =
        ["round_robin", "least_load"].map(|name| by_name(name).map_or(f64::INFINITY, |run| run.ttft_ms.p99));
    let bearable = robin.min(least) * (1.0 + NOISE);
    let (sound, broken): (Vec<&Figures>, Vec<&Figures>) =
        complete.copied().partition(|other| other.ttft_ms.p99 <= bearable);
    let groups = [("p50_best", "hit_best", sound), ("p50_of_broken_tail", "hit_of_broken_tail", broken)];
    for (p50_bar, hit_bar, group) in groups {
        let best = group.iter().map(|other| other.ttft_ms.p50).fold(f64::INFINITY, f64::min);
        if run.ttft_ms.p50 > P50_ABOVE_BEST * best && run.ttft_ms.p50 > best + SAME_MS {
            miss(p50_bar, run.ttft_ms.p50 / best);
        }
        let most = group.iter().map(|other| other.hit_rate).fold(0.0, f64::max);
        if run.hit_rate < HIT_OF_BEST * most {
            miss(hit_bar, run.hit_rate / most);
        }
    }
    if let (Some(robin), "hot_60") = (by_name("round_robin"), run.load.as_str()) {
        let ratio = run.ttft_after_first_wave_ms.p99 / (robin.ttft_after_first_wave_ms.p99 / 10.0);
        if ratio > 1.0 {
            miss("hot_tenth", ratio);
        }
    }
    misses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Percentiles;

    fn run(policy: &str, p50: f64, p99: f64, hit_rate: f64) -> Figures {
        let times = Percentiles { mean: p50, p50, p90: p50, p99 };
        Figures {
            load: "hot_60".to_owned(),
            policy: policy.to_owned(),
            source: "simulator".to_owned(),
            requests: 1000,
            seeds: 1,
            failed: 0.0,
            retried: 0.0,
            ttft_ms: times,
            ttft_after_first_wave_ms: times,
            tpot_ms: times,
            requests_per_second: 1.0,
            output_tokens_per_second: 1.0,
            seconds: 1.0,
            hit_rate,
            in_flight_max_to_mean: 1.0,
            kv_usage: 0.5,
            waiting: 0.0,
            preemptions: 0.0,
            sent: Vec::new(),
        }
    }

    fn bars(results: &[Figures]) -> Vec<&'static str> {
        misses(results, "cost").into_iter().map(|miss| miss.bar).collect()
    }

    #[test]
    fn who_reaches_all_bars_misses_none() {
        let others = [run("round_robin", 900.0, 9000.0, 0.3), run("least_load", 800.0, 8000.0, 0.3)];
        let all = [others.as_slice(), &[run("cost", 100.0, 800.0, 0.9)]].concat();
        assert!(bars(&all).is_empty(), "{:?}", misses(&all, "cost"));
    }

    #[test]
    fn each_bar_can_be_missed() {
        let results = [
            run("round_robin", 900.0, 4000.0, 0.3),
            run("least_load", 800.0, 5000.0, 0.3),
            run("sticky", 100.0, 3000.0, 0.95),
            run("longest_prefix", 50.0, 60_000.0, 0.99),
            run("cost", 150.0, 4500.0, 0.9),
        ];
        let wanted = [
            "p99_round_robin",
            "p50_best",
            "hit_best",
            "p50_of_broken_tail",
            "hit_of_broken_tail",
            "hot_tenth",
        ];
        assert_eq!(bars(&results), wanted);
    }

    #[test]
    fn requests_that_fail_are_no_way_to_be_fast() {
        let mut cost = run("cost", 100.0, 800.0, 0.9);
        cost.failed = 5.0;
        assert_eq!(bars(&[run("round_robin", 900.0, 9000.0, 0.3), cost]), ["failed"]);
    }
}
