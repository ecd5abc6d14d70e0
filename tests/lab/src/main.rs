//! `lab`: loads × policies in the simulator, what it is calibrated against, and sweeps. See README.md.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};
use warmpath_core::rank::Policy;
use warmpath_lab::bars::{self, Miss};
use warmpath_lab::deciders::Sharing;
use warmpath_lab::load::catalogue;
use warmpath_lab::plan::{Plan, Ran};
use warmpath_lab::rule::Rule;
use warmpath_lab::simulation::Settings;
use warmpath_lab::{calibration, plot, results, several, sweep, table};

#[derive(Parser)]
#[command(about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Every load under every policy: results.json, table.md and plots
    Simulate {
        #[command(flatten)]
        what: What,
        /// Policies of the product; all where none is named
        #[arg(long, value_delimiter = ',')]
        policies: Vec<String>,
        /// Where results go
        #[arg(long, default_value = "target/lab")]
        out: PathBuf,
        /// No plots
        #[arg(long)]
        no_plots: bool,
    },
    /// The published runs beside the simulated ones
    Calibrate,
    /// Several that decide beside one, by `cost`: how many times its tail and its hits they have
    Several {
        #[command(flatten)]
        what: What,
        /// Milliseconds until the others know what one of them did
        #[arg(long, value_delimiter = ',', default_value = "1,2,5")]
        delays: Vec<f64>,
    },
    /// Variants of the cost rule over all loads: which bars each misses
    Sweep {
        #[command(flatten)]
        what: What,
        /// Only this group of variants
        #[arg(long)]
        group: Option<String>,
        /// Also the figures of each load
        #[arg(long)]
        details: bool,
        /// Without the policies that variants are held against: figures only, no bars
        #[arg(long)]
        alone: bool,
    },
}

#[derive(Args)]
struct What {
    /// Loads; all where none is named
    #[arg(long, value_delimiter = ',')]
    loads: Vec<String>,
    /// Folder of public traces (docs/benchmarks.md); without it, small made-up loads stand in for them
    #[arg(long)]
    traces: Option<PathBuf>,
    /// How many seeds; columns are their mean
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Runs at the same time
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Replicas have served nothing before: the router knows the size of their blocks from their metrics alone
    #[arg(long)]
    cold: bool,
    /// Speeds are learnt, young replicas spared and failing ones left out, as by the indexer
    #[arg(long)]
    learns: bool,
    /// How many decide, each request one of them, drawn by lot
    #[arg(long, default_value_t = 1)]
    deciders: usize,
    /// Milliseconds until the others know what one of them did
    #[arg(long, default_value_t = 15)]
    sync_delay: u64,
    /// Microseconds between the first requests of a closed loop: what a proxy takes for one
    #[arg(long, default_value_t = 0)]
    apart_us: u64,
    /// They do not tell each other the blocks that their picks will bring: each has a secret of its own
    #[arg(long)]
    secrets_apart: bool,
    /// Pressure is what leaves caches only, not also how full they are
    #[arg(long)]
    turnover_only: bool,
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Simulate { what, policies, out, no_plots } => simulate(&what, &policies, &out, no_plots),
        Command::Calibrate => say(&calibration::table()?),
        Command::Several { what, delays } => several(&what, &delays),
        Command::Sweep { what, group, details, alone } => run_sweep(&what, group.as_deref(), details, alone),
    }
}

fn simulate(what: &What, policies: &[String], out: &Path, no_plots: bool) -> Result<()> {
    let names: Vec<&str> = match policies {
        [] => Policy::NAMES.to_vec(),
        named => named.iter().map(String::as_str).collect(),
    };
    let rules = names
        .into_iter()
        .map(|name| Policy::by_name(name).map(Rule::of).with_context(|| format!("no policy `{name}`")));
    let ran = what.plan(rules.collect::<Result<_>>()?)?.run()?;
    let figures: Vec<_> = ran.iter().map(|ran| ran.figures.clone()).collect();
    results::merge_into(&out.join("results.json"), &figures)?;
    let text = table::markdown(&figures);
    std::fs::write(out.join("table.md"), &text)?;
    if !no_plots {
        draw(&ran, &out.join("plots"))?;
    }
    say(&text)?;
    say(&list(&bars::misses(&figures, "cost")))
}

fn several(what: &What, delays_ms: &[f64]) -> Result<()> {
    let delays: Vec<Duration> = delays_ms.iter().map(|ms| Duration::from_secs_f64(ms / 1000.0)).collect();
    let plan = what.plan(vec![Rule::of(Policy::COST)])?;
    let rows = several::rows(&plan, what.deciders.max(2), &delays)?;
    say(&several::markdown(&rows, &delays))
}

fn draw(ran: &[Ran], folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for group in ran.chunk_by(|a, b| a.figures.load == b.figures.load) {
        let runs: Vec<_> = group.iter().map(|ran| &ran.first).collect();
        let Some(load) = runs.first().map(|run| run.load.as_str()) else { continue };
        std::fs::write(folder.join(format!("{load}-ttft.svg")), plot::ttft(&runs))?;
        std::fs::write(folder.join(format!("{load}-hit-rate.svg")), plot::hit_rate(&runs))?;
        for run in &runs {
            std::fs::write(
                folder.join(format!("{load}-in-flight-{}.svg", run.policy)),
                plot::in_flight(run),
            )?;
        }
    }
    Ok(())
}

fn run_sweep(what: &What, group: Option<&str>, details: bool, alone: bool) -> Result<()> {
    let variants = sweep::variants(group);
    let baselines: &[&str] = if alone { &[] } else { &sweep::BASELINES };
    let rules = baselines.iter().filter_map(|name| Policy::by_name(name)).map(Rule::of);
    let rules: Vec<Rule> = rules.chain(variants.iter().cloned()).collect();
    let figures: Vec<_> = what.plan(rules)?.run()?.into_iter().map(|ran| ran.figures).collect();
    for rule in &variants {
        if alone {
            say(&format!("{}\n", rule.name))?;
        } else {
            let summary = sweep::summary(&figures, &rule.name);
            let misses = bars::misses(&figures, &rule.name);
            say(&format!("{:<34} {summary}  misses {}\n{}", rule.name, misses.len(), list(&misses)))?;
        }
        if details || alone {
            say(&sweep::details(&figures, &rule.name))?;
        }
    }
    Ok(())
}

fn list(misses: &[Miss]) -> String {
    misses
        .iter()
        .map(|miss| format!("    misses {} on {}: {:.3}\n", miss.bar, miss.load, miss.ratio))
        .collect()
}

/// To standard output; a reader that went away is no mistake.
fn say(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

// === impl What ===

impl What {
    fn plan(&self, rules: Vec<Rule>) -> Result<Plan> {
        let known = |name: &String| {
            catalogue::NAMES
                .into_iter()
                .find(|known| known == name)
                .with_context(|| format!("no load `{name}`"))
        };
        let loads = match self.loads.as_slice() {
            [] => catalogue::NAMES.to_vec(),
            named => named.iter().map(known).collect::<Result<_>>()?,
        };
        Ok(Plan {
            loads,
            rules,
            seeds: (1..=self.seeds).collect(),
            traces: self.traces.clone(),
            settings: Settings {
                have_served: !self.cold,
                fill_counts: !self.turnover_only,
                learns: self.learns,
                apart: Duration::from_micros(self.apart_us),
                sharing: Sharing {
                    deciders: self.deciders,
                    delay: Duration::from_millis(self.sync_delay),
                    tells_blocks: !self.secrets_apart,
                },
                ..Settings::default()
            },
            threads: self.threads,
        })
    }
}
