//! `results.json`: an array with one object per load, policy and source.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::figures::{Figures, Percentiles};

/// Reads results.
pub fn read(file: &Path) -> Result<Vec<Figures>> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} holds no results", file.display()))
}

/// Writes results; those in the file of other loads, policies or sources stay.
pub fn merge_into(file: &Path, new: &[Figures]) -> Result<Vec<Figures>> {
    let mut all = if file.exists() { read(file)? } else { Vec::new() };
    let key = |figures: &Figures| (figures.load.clone(), figures.policy.clone(), figures.source.clone());
    all.retain(|old| new.iter().all(|new| key(new) != key(old)));
    all.extend_from_slice(new);
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(file, serde_json::to_vec_pretty(&all)?)?;
    Ok(all)
}

/// The mean of runs of one load and policy that differ in their seeds only.
pub fn mean(runs: &[Figures]) -> Result<Figures> {
    let first = runs.first().context("no runs")?;
    ensure!(runs.iter().all(|run| run.load == first.load && run.policy == first.policy), "different runs");
    let count = runs.len() as f64;
    let of = |column: fn(&Figures) -> f64| runs.iter().map(column).sum::<f64>() / count;
    let times = |column: fn(&Figures) -> &Percentiles| {
        let of =
            |part: fn(&Percentiles) -> f64| runs.iter().map(|run| part(column(run))).sum::<f64>() / count;
        Percentiles { mean: of(|p| p.mean), p50: of(|p| p.p50), p90: of(|p| p.p90), p99: of(|p| p.p99) }
    };
    Ok(Figures {
        seeds: runs.len(),
        ttft_ms: times(|run| &run.ttft_ms),
        ttft_after_first_wave_ms: times(|run| &run.ttft_after_first_wave_ms),
        tpot_ms: times(|run| &run.tpot_ms),
        requests_per_second: of(|run| run.requests_per_second),
        output_tokens_per_second: of(|run| run.output_tokens_per_second),
        seconds: of(|run| run.seconds),
        hit_rate: of(|run| run.hit_rate),
        in_flight_max_to_mean: of(|run| run.in_flight_max_to_mean),
        kv_usage: of(|run| run.kv_usage),
        waiting: of(|run| run.waiting),
        failed: of(|run| run.failed),
        retried: of(|run| run.retried),
        preemptions: of(|run| run.preemptions),
        ..first.clone()
    })
}
