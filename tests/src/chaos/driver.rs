//! Plays a schedule on a site: begins and ends each fault at its time, and notes when engines were really out.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::blame::Outage;
use super::fault::{Deed, Fault, Victim};
use super::schedule::Schedule;
use super::site::Site;

/// Between two looks at a process that was asked to end.
const END_POLL_MS: u64 = 50;
/// Who has not ended after this long does not.
const END_PATIENCE_MS: u64 = 20_000;
/// An ordered restart begins within this time after its order was answered.
const RESTART_BEGINS_MS: u64 = 100;

/// What is to be done to a victim.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(Fault),
    /// To have been done at this time; again where it could not be.
    End {
        fault: Fault,
        planned_ms: u64,
    },
}

/// Plays schedules.
#[derive(Debug)]
pub(super) struct Driver<'a> {
    site: &'a mut Site,
    begun: Instant,
    /// By time in milliseconds, and in the order of planning.
    due: BTreeMap<(u64, usize), Step>,
    planned: usize,
    outages: Vec<Outage>,
}

// === impl Driver ===

impl<'a> Driver<'a> {
    pub(super) fn new(site: &'a mut Site, schedule: &Schedule, begun: Instant) -> Self {
        let mut driver = Self { site, begun, due: BTreeMap::new(), planned: 0, outages: Vec::new() };
        for timed in &schedule.faults {
            driver.plan(timed.at_ms, Step::Begin(timed.fault));
            if timed.fault.lasts_ms > 0 {
                let planned_ms = timed.at_ms + timed.fault.lasts_ms;
                driver.plan(planned_ms, Step::End { fault: timed.fault, planned_ms });
            }
        }
        driver
    }

    fn plan(&mut self, at_ms: u64, step: Step) {
        self.due.insert((at_ms, self.planned), step);
        self.planned += 1;
    }

    /// Until everything was done and undone. When engines were out.
    pub(super) async fn play(mut self) -> Result<Vec<Outage>> {
        while let Some(((at_ms, _), step)) = self.due.pop_first() {
            let wait_ms = at_ms.saturating_sub(self.now_ms());
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            match step {
                Step::Begin(fault) => self.begin(fault).await.with_context(|| format!("{fault:?}"))?,
                Step::End { fault, planned_ms } => {
                    self.end(fault, planned_ms).await.with_context(|| format!("end of {fault:?}"))?;
                }
            }
        }
        Ok(self.outages)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn begin(&mut self, fault: Fault) -> Result<()> {
        let from_ms = self.now_ms();
        match fault.victim {
            Victim::Indexer(number) => {
                let process = self.site.indexers[number].process();
                match fault.deed {
                    Deed::Kill => process.kill()?,
                    Deed::Terminate => process.ask_to_end()?,
                    _ => process.freeze()?,
                }
            }
            Victim::Engine(number) => self.begin_of_engine(number, fault, from_ms).await?,
            Victim::Redis => self.begin_of_redis(fault.deed).await?,
            Victim::Link(link) => {
                if let Deed::Toxic(toxic) = fault.deed {
                    self.site.set(link, Some(toxic));
                }
            }
            Victim::Envoy => self.site.reload()?,
        }
        Ok(())
    }

    async fn begin_of_engine(&mut self, number: usize, fault: Fault, from_ms: u64) -> Result<()> {
        let engine = &mut self.site.engines[number];
        match fault.deed {
            Deed::Kill => engine.process().kill()?,
            Deed::Freeze => engine.process().freeze()?,
            Deed::RestartInside => {
                engine.wait_until_healthy().await?;
                engine.faults(&json!({ "restart": { "down_ms": fault.lasts_ms } })).await?;
            }
            Deed::LoseEvents { batches } => {
                engine.wait_until_healthy().await?;
                return engine.faults(&json!({ "events": { "drop": batches } })).await;
            }
            _ => {
                engine.wait_until_healthy().await?;
                return engine.reset_prefix_cache().await;
            }
        }
        let engine = engine.address();
        // Of a frozen one the end is not known yet.
        let to_ms = match fault.deed {
            Deed::Freeze => u64::MAX / 2,
            Deed::RestartInside => self.now_ms() + RESTART_BEGINS_MS,
            _ => self.now_ms(),
        };
        self.outages.push(Outage { engine, deed: fault.deed, from_ms, to_ms });
        Ok(())
    }

    async fn begin_of_redis(&mut self, deed: Deed) -> Result<()> {
        let redis = &mut self.site.redis;
        // It may have been started a moment ago.
        redis.wait_until_it_listens().await?;
        match deed {
            Deed::Kill => redis.process().kill(),
            Deed::Freeze => redis.process().freeze(),
            Deed::Full => redis.command("CONFIG SET maxmemory 1").await.map(drop),
            // A replica of one that is not there: it answers questions, and takes nothing.
            Deed::ReadOnly => redis.command("REPLICAOF 127.0.0.1 1").await.map(drop),
            _ => redis.command("FLUSHALL").await.map(drop),
        }
    }

    async fn end(&mut self, fault: Fault, planned_ms: u64) -> Result<()> {
        let now_ms = self.now_ms();
        match fault.victim {
            Victim::Indexer(number) => {
                let indexer = &mut self.site.indexers[number];
                match fault.deed {
                    Deed::Freeze => indexer.process().thaw()?,
                    Deed::Terminate if indexer.process().is_running() => {
                        ensure!(now_ms < planned_ms + END_PATIENCE_MS, "it does not end after SIGTERM");
                        self.plan(now_ms + END_POLL_MS, Step::End { fault, planned_ms });
                    }
                    _ => indexer.launch_again()?,
                }
            }
            Victim::Engine(number) => {
                let engine = &mut self.site.engines[number];
                match fault.deed {
                    Deed::Kill => engine.launch_again()?,
                    Deed::Freeze => {
                        engine.process().thaw()?;
                        if let Some(outage) = self.outages.last_mut() {
                            outage.to_ms = now_ms;
                        }
                    }
                    _ => {}
                }
            }
            Victim::Redis => {
                let redis = &mut self.site.redis;
                match fault.deed {
                    Deed::Kill => redis.launch_again()?,
                    Deed::Freeze => redis.process().thaw()?,
                    Deed::Full => drop(redis.command("CONFIG SET maxmemory 0").await?),
                    Deed::ReadOnly => drop(redis.command("REPLICAOF NO ONE").await?),
                    _ => {}
                }
            }
            Victim::Link(link) => self.site.set(link, None),
            Victim::Envoy => {}
        }
        Ok(())
    }
}
