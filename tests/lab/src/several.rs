//! Several deciders beside one, on the same loads with the same seeds.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;

use crate::deciders::Sharing;
use crate::plan::{Plan, Ran};
use crate::simulation::Settings;

/// One load: one decider, and several for each delay.
#[derive(Clone, Debug)]
pub struct Row {
    /// Of the load.
    pub name: &'static str,
    /// P99 of one decider, in ms, mean over the seeds.
    pub p99_ms: f64,
    /// Its hit rate.
    pub hit_rate: f64,
    /// In the order of the delays.
    pub against: Vec<Against>,
}

/// Several deciders ÷ one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Against {
    /// Of the means of the median.
    pub p50: f64,
    /// Of the means of P99.
    pub p99: f64,
    /// Of P99, the seed with the smallest ratio.
    pub least: f64,
    /// Of P99, the seed with the largest ratio.
    pub most: f64,
    /// Of the means of the hit rate; 1 where there are no hits.
    pub hits: f64,
}

/// P99 may be so many times one's.
const P99_MOST: f64 = 1.1;
/// Hits have to be at least so many times one's.
const HITS_LEAST: f64 = 0.99;

// === impl Against ===

impl Against {
    /// Of one load.
    pub fn of(several: &Ran, one: &Ran) -> Self {
        let of = |p99: fn(&Ran) -> f64| ratio(p99(several), p99(one));
        let pairs = several.each.iter().zip(&one.each);
        let ratios = pairs.map(|(several, one)| ratio(several.ttft_ms.p99, one.ttft_ms.p99));
        let (least, most) =
            ratios.fold((f64::INFINITY, 0.0f64), |(least, most), ratio| (least.min(ratio), most.max(ratio)));
        Self {
            p50: of(|ran| ran.figures.ttft_ms.p50),
            p99: of(|ran| ran.figures.ttft_ms.p99),
            least,
            most,
            hits: of(|ran| ran.figures.hit_rate),
        }
    }

    /// Within what several may be worse.
    pub fn holds(&self) -> bool {
        self.p99 <= P99_MOST && self.hits >= HITS_LEAST
    }
}

/// Runs the plan's first rule with one decider, and with `deciders` that hear of each other after each of `delays`.
pub fn rows(plan: &Plan, deciders: usize, delays: &[Duration]) -> Result<Vec<Row>> {
    let with = |sharing| Plan { settings: Settings { sharing, ..plan.settings }, ..plan.clone() }.run();
    let alone = with(Sharing { deciders: 1, ..plan.settings.sharing })?;
    let mut rows: Vec<Row> = alone
        .iter()
        .zip(&plan.loads)
        .map(|(one, name)| {
            let (p99_ms, hit_rate) = (one.figures.ttft_ms.p99, one.figures.hit_rate);
            Row { name, p99_ms, hit_rate, against: Vec::new() }
        })
        .collect();
    for delay in delays {
        let several = with(Sharing { deciders, delay: *delay, ..plan.settings.sharing })?;
        for ((row, several), one) in rows.iter_mut().zip(&several).zip(&alone) {
            row.against.push(Against::of(several, one));
        }
    }
    Ok(rows)
}

/// A table in Markdown: what does not hold is bold.
pub fn markdown(rows: &[Row], delays: &[Duration]) -> String {
    let mut out = "| load | one: P99, ms | hits, % |".to_owned();
    for delay in delays {
        let ms = delay.as_secs_f64() * 1000.0;
        let _ = write!(out, " {ms} ms: P99, times one's | seeds | hits |");
    }
    let _ = writeln!(out, "\n|---|---|---|{}", "---|---|---|".repeat(delays.len()));
    for row in rows {
        let _ = write!(out, "| {} | {:.0} | {:.1} |", row.name, row.p99_ms, row.hit_rate * 100.0);
        for against in &row.against {
            let Against { p99, least, most, hits, .. } = against;
            let bold = if against.holds() { "" } else { "**" };
            let _ = write!(out, " {bold}{p99:.2}{bold} | {least:.2} to {most:.2} | {hits:.3} |");
        }
        out.push('\n');
    }
    let within = |number: usize| {
        let holds = |row: &&Row| row.against.get(number).is_some_and(Against::holds);
        rows.iter().filter(holds).count()
    };
    for (number, delay) in delays.iter().enumerate() {
        let _ = writeln!(out, "{:?}: {} of {} hold", delay, within(number), rows.len());
    }
    out
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 1.0 }
}
