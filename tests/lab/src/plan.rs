//! Loads × rules × seeds → results, on as many threads as wanted. Every run is independent, so threads change nothing.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};

use crate::figures::Figures;
use crate::load::catalogue;
use crate::outcome::Run;
use crate::results;
use crate::rule::Rule;
use crate::simulation::{Settings, run};

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Names of the catalogue.
    pub loads: Vec<&'static str>,
    /// Rules.
    pub rules: Vec<Rule>,
    /// Seeds of loads and routers.
    pub seeds: Vec<u64>,
    /// Folder of traces.
    pub traces: Option<PathBuf>,
    /// The rest.
    pub settings: Settings,
    /// Runs at the same time.
    pub threads: usize,
}

/// The figures of one load and rule, and its run with the first seed.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Mean over the seeds.
    pub figures: Figures,
    /// Of each seed, in their order.
    pub each: Vec<Figures>,
    /// With the first seed.
    pub first: Run,
}

// === impl Plan ===

impl Plan {
    /// Runs everything; in the order of loads, then rules.
    pub fn run(&self) -> Result<Vec<Ran>> {
        let next = AtomicUsize::new(0);
        let done: Mutex<Vec<(usize, Result<Vec<Ran>>)>> = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| {
                    while let number = next.fetch_add(1, Ordering::Relaxed)
                        && let Some(load) = self.loads.get(number)
                    {
                        let ran = self.run_load(load);
                        if let Ok(mut done) = done.lock() {
                            done.push((number, ran));
                        }
                    }
                });
            }
        });
        let mut done = done.into_inner().ok().context("a run panicked")?;
        done.sort_by_key(|(number, _)| *number);
        let mut all = Vec::new();
        for (_, ran) in done {
            all.extend(ran?);
        }
        Ok(all)
    }

    fn run_load(&self, name: &'static str) -> Result<Vec<Ran>> {
        let loads = self.seeds.iter().map(|seed| catalogue::load(name, self.traces.as_deref(), *seed));
        let loads = loads.collect::<Result<Vec<_>>>()?;
        let mut all = Vec::new();
        for rule in &self.rules {
            let mut first = None;
            let mut figures = Vec::new();
            for (seed, load) in self.seeds.iter().zip(&loads) {
                let ran = run(load, rule, Settings { seed: *seed, ..self.settings });
                ensure!(ran.is_consistent, "{name} under {} did not end as it should", rule.name);
                figures.push(Figures::of(&ran));
                first.get_or_insert(ran);
            }
            let mean = results::mean(&figures)?;
            all.push(Ran { figures: mean, each: figures, first: first.context("no seed")? });
        }
        Ok(all)
    }
}
