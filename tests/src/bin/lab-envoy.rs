//! `make lab-envoy`: small loads of the lab through real Envoy, each beside its simulation.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use warmpath_core::rank::Policy;
use warmpath_lab::figures::Figures;
use warmpath_lab::load::{Load, catalogue};
use warmpath_lab::rule::Rule;
use warmpath_lab::simulation::{self, Settings};
use warmpath_lab::{results, table};
use warmpath_tests::case::print_logs;
use warmpath_tests::demo::tell;
use warmpath_tests::{lab, paths};

/// Plays loads through Envoy, filter, indexer and emulated engines, and through the simulator.
#[derive(Debug, Parser)]
struct Args {
    /// Small loads; all where none is named.
    #[arg(long, value_delimiter = ',')]
    loads: Vec<String>,
    /// Policies.
    #[arg(long, value_delimiter = ',', default_value = "round_robin,least_load,cost")]
    policies: Vec<String>,
    /// How many times faster than real engines the emulated ones run.
    #[arg(long, default_value_t = 3.0)]
    speedup: f64,
    /// Where results go; those of other loads, policies and sources in it stay.
    #[arg(long)]
    out: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let file = args.out.unwrap_or_else(|| paths::target().join("lab")).join("results.json");
    let dir = paths::target().join("lab/envoy");
    let mut figures = Vec::new();
    for name in catalogue::SMALL {
        if !args.loads.is_empty() && args.loads.iter().all(|wanted| wanted != name) {
            continue;
        }
        let load = catalogue::small(name, 1)?;
        for policy in &args.policies {
            figures.push(simulated(&load, policy)?);
            let run = lab::run(&load, policy, args.speedup, &dir).await;
            if run.is_err() {
                print_logs(&dir.join(name).join(policy));
            }
            let run = run.with_context(|| format!("{name} under {policy}"))?;
            let of = Figures { source: "envoy".to_owned(), ..Figures::of(&run) };
            tell(&format!("{name} {policy}: p50 {:.0} ms, p99 {:.0} ms\n", of.ttft_ms.p50, of.ttft_ms.p99));
            ensure!(run.is_consistent, "{name} under {policy}: a request has no end");
            figures.push(of);
            results::merge_into(&file, &figures)?;
        }
    }
    write!(std::io::stdout(), "{}", table::markdown(&figures))?;
    Ok(())
}

fn simulated(load: &Load, policy: &str) -> Result<Figures> {
    let policy = Policy::by_name(policy).with_context(|| format!("no policy `{policy}`"))?;
    Ok(Figures::of(&simulation::run(load, &Rule::of(policy), Settings::default())))
}
