//! What a policy must reach on every load, held against the others of the same table.

use crate::figures::Figures;

/// Fractions by which a figure may be off a bar: what five seeds differ by.
const NOISE: f64 = 0.02;
/// Median above the best one.
const P50_ABOVE_BEST: f64 = 1.10;
/// Hit rate below the best one.
const HIT_OF_BEST: f64 = 0.98;
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
        // Who lets requests fail must not be the faster for it.
        if run.failed > other.failed.max(run.requests as f64 * 0.001) {
            miss("failed", run.failed / other.failed);
        }
    }
    let complete = others.iter().filter(|other| other.failed <= run.failed + run.requests as f64 * 0.001);
    // Who lets a part of the requests wait without end has it easy with the others.
    let plain =
        ["round_robin", "least_load"].map(|name| by_name(name).map_or(f64::INFINITY, |run| run.ttft_ms.p99));
    let bearable = plain[0].min(plain[1]) * (1.0 + NOISE);
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
