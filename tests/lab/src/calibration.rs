//! The published runs of both reference loads beside the simulator.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use warmpath_core::rank::Policy;

use crate::figures::Figures;
use crate::load::catalogue;
use crate::rule::Rule;
use crate::simulation::{Settings, run};

/// A published figure and what the simulator gives for it.
#[derive(Clone, Debug)]
pub struct Row {
    /// Of which load.
    pub load: &'static str,
    /// Under what.
    pub policy: &'static str,
    /// Which figure.
    pub figure: &'static str,
    /// As published.
    pub published: f64,
    /// As simulated.
    pub simulated: f64,
}

type Column = fn(&Figures) -> f64;

/// Load, policy that stands for what was published, figure, published value, column.
const PUBLISHED: [(&str, &str, &str, f64, Column); 12] = [
    ("three_uses", "round_robin", "requests/s", 5.713, |f| f.requests_per_second),
    ("three_uses", "round_robin", "hit %", 32.65, |f| f.hit_rate * 100.0),
    ("three_uses", "round_robin", "p99 TTFT, ms", 3408.0, |f| f.ttft_ms.p99),
    ("closed_512", "round_robin", "seconds", 840.2, |f| f.seconds),
    ("closed_512", "round_robin", "output tokens/s", 2742.0, |f| f.output_tokens_per_second),
    ("closed_512", "round_robin", "mean TTFT, s", 19.0, |f| f.ttft_ms.mean / 1000.0),
    ("closed_512", "round_robin", "hit % (about)", 11.0, |f| f.hit_rate * 100.0),
    ("closed_512", "round_robin", "KV use, %", 99.0, |f| f.kv_usage * 100.0),
    ("closed_512", "round_robin", "waiting (about)", 180.0, |f| f.waiting),
    ("closed_512", "cost", "seconds, prefix-aware peer", 358.7, |f| f.seconds),
    ("closed_512", "cost", "output tokens/s, prefix-aware peer", 6423.0, |f| f.output_tokens_per_second),
    ("closed_512", "cost", "mean TTFT, s, prefix-aware peer", 0.86, |f| f.ttft_ms.mean / 1000.0),
];

impl Row {
    /// Simulated ÷ published.
    pub fn ratio(&self) -> f64 {
        self.simulated / self.published
    }

    /// Whether it is a figure of round robin: those the constants are chosen for.
    pub fn is_calibrated(&self) -> bool {
        self.policy == "round_robin"
    }
}

/// Every published figure.
pub fn rows() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut last: Option<(&str, &str, Figures)> = None;
    for (load, policy, figure, published, column) in PUBLISHED {
        let figures = match last.take() {
            Some((of_load, of_policy, figures)) if (of_load, of_policy) == (load, policy) => figures,
            _ => {
                let rule = Rule::of(Policy::by_name(policy).context("a policy that is not known")?);
                Figures::of(&run(&catalogue::load(load, None, 1)?, &rule, Settings::default()))
            }
        };
        rows.push(Row { load, policy, figure, published, simulated: column(&figures) });
        last = Some((load, policy, figures));
    }
    Ok(rows)
}

/// The same as a table.
pub fn table() -> Result<String> {
    let mut out = String::from(
        "| load | policy | figure | published | simulated | ratio |\n|---|---|---|---|---|---|\n",
    );
    for row in rows()? {
        let Row { load, policy, figure, published, simulated, .. } = row;
        writeln!(
            out,
            "| {load} | {policy} | {figure} | {published} | {simulated:.2} | {:.3} |",
            row.ratio()
        )?;
    }
    Ok(out)
}
