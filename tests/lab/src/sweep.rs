//! Variants of the cost rule, to be held against the same bars.

use warmpath_core::rank::{CostWeights, Policy};

use crate::figures::Figures;
use crate::rule::{Rule, Trial};

/// What the variants are compared with.
pub const BASELINES: [&str; 7] =
    ["round_robin", "power_of_two", "least_load", "longest_prefix", "weighted", "sticky", "new_times_batch"];

/// All variants, or those of one group. A name says what differs from the default.
pub fn variants(group: Option<&str>) -> Vec<Rule> {
    let mut all = vec![("default", Rule::of(Policy::COST))];
    for lambda in [0.0, 0.5, 1.0, 2.0, 8.0] {
        all.push(("lambda", weights(format!("cost lambda={lambda}"), |w| w.lambda = lambda)));
    }
    for mu in [0.0, 25.0, 100.0, 200.0] {
        all.push(("mu", weights(format!("cost mu={mu}"), |w| w.mu = mu)));
    }
    for memory in [0.0, 0.5, 4.0] {
        all.push(("memory", weights(format!("cost memory={memory}"), |w| w.memory = memory)));
    }
    for behind in [0.0, 0.25, 0.5, 1.0] {
        for lambda in [2.0, 3.0, 4.0] {
            all.push(("grid", trial(lambda, behind, 0.0)));
        }
    }
    for behind in [0.25, 0.5] {
        for lambda in [1.0, 2.0] {
            for regret in [4.0, 16.0] {
                all.push(("regret", trial(lambda, behind, regret)));
            }
        }
    }
    for (lambda, behind, regret) in
        [(4.0, 0.0, 0.0), (4.0, 0.25, 0.0), (4.0, 1.0, 0.0), (3.0, 1.0, 0.0), (2.0, 0.5, 16.0)]
    {
        all.push(("choice", trial(lambda, behind, regret)));
    }
    for agree in [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0] {
        all.push(("agree", weights(format!("cost agree={agree}"), |w| w.agree = agree)));
    }
    let usual = Trial { behind: 0.5, ..Trial::default() };
    for evict in [0.5, 1.0, 2.0, 4.0] {
        all.push(("evict", Rule::trial(format!("cost evict={evict}"), Trial { evict, ..usual })));
    }
    for (lambda, crowd) in [(4.0, 0.5), (4.0, 1.0), (2.0, 0.5), (2.0, 1.0), (1.0, 1.0), (1.0, 2.0)] {
        let weights = CostWeights { lambda, ..CostWeights::DEFAULT };
        let name = format!("cost lambda={lambda} crowd={crowd}");
        all.push(("crowd", Rule::trial(name, Trial { weights, crowd, ..usual })));
    }
    for pressure_min in [0.25, 0.5, 0.75, 1.0] {
        let name = format!("cost pressure_min={pressure_min}");
        all.push(("floor", Rule::trial(name, Trial { pressure_min, ..usual })));
    }
    for lambda in [5.0, 6.0, 8.0] {
        for behind in [0.5, 1.0, 2.0] {
            all.push(("grid", trial(lambda, behind, 0.0)));
        }
    }
    for lambda in [2.0, 4.0] {
        for convoy in [64.0, 32.0, 16.0, 8.0] {
            let weights = CostWeights { lambda, ..CostWeights::DEFAULT };
            let name = format!("cost lambda={lambda} convoy=1/{convoy}k");
            all.push((
                "convoy",
                Rule::trial(name, Trial { weights, convoy: 1.0 / (1000.0 * convoy), ..usual }),
            ));
        }
    }
    all.into_iter()
        .filter(|(of, _)| group.is_none_or(|group| group == *of || *of == "default"))
        .map(|(_, rule)| rule)
        .collect()
}

fn trial(lambda: f64, behind: f64, regret: f64) -> Rule {
    let weights = CostWeights { lambda, ..CostWeights::DEFAULT };
    let name = format!("cost lambda={lambda} behind={behind} regret={regret}");
    Rule::trial(name, Trial { weights, behind, regret, ..Trial::default() })
}

fn weights(name: String, change: impl FnOnce(&mut CostWeights)) -> Rule {
    let mut weights = CostWeights::DEFAULT;
    change(&mut weights);
    Rule::of(Policy::Cost(weights)).named(name)
}

/// A variant's figures on each load: median and tail in ms, hits in %.
pub fn details(results: &[Figures], policy: &str) -> String {
    let of = |run: &Figures| {
        let (whole, later) = (&run.ttft_ms, &run.ttft_after_first_wave_ms);
        let hits = run.hit_rate * 100.0;
        format!(
            "    {:<16} p50 {:>7.0} p90 {:>7.0} p99 {:>7.0} later p99 {:>7.0} hits {hits:>5.1}\n",
            run.load, whole.p50, whole.p90, whole.p99, later.p99
        )
    };
    results.iter().filter(|run| run.policy == policy).map(of).collect()
}

/// How a variant does against the best of the others, as geometric means over the loads: median, tail, hits.
pub fn summary(results: &[Figures], policy: &str) -> String {
    let against = |column: fn(&Figures) -> f64, better: fn(f64, f64) -> f64, start: f64| {
        let runs: Vec<&Figures> = results.iter().filter(|run| run.policy == policy).collect();
        let ratios = runs.iter().map(|run| {
            let others = results.iter().filter(|other| other.load == run.load && is_baseline(&other.policy));
            let best = others.map(column).fold(start, better);
            (column(run).max(1e-9) / best.max(1e-9)).ln()
        });
        (ratios.sum::<f64>() / runs.len().max(1) as f64).exp()
    };
    format!(
        "p50 {:.3}  p90 {:.3}  p99 {:.3}  p99 later {:.3}  hits {:.3}",
        against(|run| run.ttft_ms.p50, f64::min, f64::INFINITY),
        against(|run| run.ttft_ms.p90, f64::min, f64::INFINITY),
        against(|run| run.ttft_ms.p99, f64::min, f64::INFINITY),
        against(|run| run.ttft_after_first_wave_ms.p99, f64::min, f64::INFINITY),
        against(|run| run.hit_rate + 1e-3, f64::max, 0.0),
    )
}

fn is_baseline(policy: &str) -> bool {
    BASELINES.contains(&policy)
}
