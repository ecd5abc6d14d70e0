//! Plays a schedule on a site: begins and ends each fault at its time, and notes when engines were really out.
//!
//! What the schedule promises holds for what really happens too, however late the machine makes it: a fault whose victim
//! still suffers from another one, or that would take a second engine out, waits until that is over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;

use super::blame::Outage;
use super::fault::{Deed, Fault, Victim};
use super::schedule::Schedule;
use super::site::Site;
use crate::eventually::{eventually, seen_if};

/// Between two looks at what has to be over first.
const POLL_MS: u64 = 50;
/// Who has not ended after this long does not.
const END_PATIENCE_MS: u64 = 20_000;
/// An ordered restart begins within this time after its order was answered.
const RESTART_BEGINS_MS: u64 = 100;

/// What is to be done to a victim.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(Fault),
    /// To be done at this time; again where it cannot be.
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
    /// Whom something befalls now.
    busy: BTreeSet<Victim>,
    /// An engine is out.
    engine_is_out: bool,
    outages: Vec<Outage>,
}

// === impl Driver ===

impl<'a> Driver<'a> {
    pub(super) fn new(site: &'a mut Site, schedule: &Schedule, begun: Instant) -> Self {
        let mut driver = Self {
            site,
            begun,
            due: BTreeMap::new(),
            planned: 0,
            busy: BTreeSet::new(),
            engine_is_out: false,
            outages: Vec::new(),
        };
        for timed in &schedule.faults {
            driver.plan(timed.at_ms, Step::Begin(timed.fault));
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
                Step::Begin(fault) if !self.may_begin(fault) => {
                    self.plan(self.now_ms() + POLL_MS, Step::Begin(fault));
                }
                Step::Begin(fault) => {
                    self.begin(fault).await.with_context(|| format!("{fault:?}"))?;
                    if fault.lasts_ms > 0 {
                        self.busy.insert(fault.victim);
                        self.engine_is_out |= fault.engine_out().is_some();
                        let planned_ms = self.now_ms() + fault.lasts_ms;
                        self.plan(planned_ms, Step::End { fault, planned_ms });
                    }
                }
                Step::End { fault, planned_ms } => {
                    let is_over = self.end(fault).await.with_context(|| format!("end of {fault:?}"))?;
                    if is_over {
                        self.busy.remove(&fault.victim);
                        self.engine_is_out &= fault.engine_out().is_none();
                    } else {
                        let now_ms = self.now_ms();
                        ensure!(now_ms < planned_ms + END_PATIENCE_MS, "{fault:?}: it does not end");
                        self.plan(now_ms + POLL_MS, Step::End { fault, planned_ms });
                    }
                }
            }
        }
        Ok(self.outages)
    }

    fn may_begin(&self, fault: Fault) -> bool {
        let is_second = self.engine_is_out && fault.engine_out().is_some();
        !self.busy.contains(&fault.victim) && !is_second
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn begin(&mut self, fault: Fault) -> Result<()> {
        match (fault.victim, fault.deed) {
            (victim, Deed::SetClock { ahead_s }) => self.site.process(victim)?.set_clock(ahead_s)?,
            (victim, Deed::FillDisk) => self.site.process(victim)?.fill_disk(true)?,
            (Victim::Indexer(number), deed) => {
                let process = self.site.indexers[number].process();
                match deed {
                    Deed::Kill => process.kill()?,
                    Deed::Terminate => process.ask_to_end()?,
                    _ => process.freeze()?,
                }
            }
            (Victim::Engine(number), _) => self.begin_of_engine(number, fault).await?,
            (Victim::Redis, deed) => self.begin_of_redis(deed).await?,
            (Victim::Link(link), Deed::Toxic(toxic)) => self.site.set(link, Some(toxic)),
            (Victim::Envoy, Deed::Reload) => self.site.reload()?,
            (victim, deed) => bail!("{deed:?} befalls no {victim:?}"),
        }
        Ok(())
    }

    async fn begin_of_engine(&mut self, number: usize, fault: Fault) -> Result<()> {
        if fault.engine_out().is_some() {
            // One that was out may not be back yet.
            for engine in &mut self.site.engines {
                engine.wait_until_healthy().await?;
            }
        }
        let from_ms = self.now_ms();
        let engine = &mut self.site.engines[number];
        match fault.deed {
            Deed::Kill => engine.process().kill()?,
            Deed::Freeze => engine.process().freeze()?,
            Deed::RestartInside => {
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
            Deed::Kill | Deed::LoseDisk => redis.process().kill(),
            Deed::Freeze => redis.process().freeze(),
            Deed::Full => redis.command("CONFIG SET maxmemory 1").await.map(drop),
            // A replica of one that is not there: it answers questions, and takes nothing.
            Deed::ReadOnly => redis.command("REPLICAOF 127.0.0.1 1").await.map(drop),
            // One whose disk was full takes nothing before it has saved again, a few seconds after there is room.
            _ => {
                eventually("Redis is emptied", async || {
                    redis.command("FLUSHALL").await?;
                    seen_if(true, "")
                })
                .await
            }
        }
    }

    /// Whether it is over now.
    async fn end(&mut self, fault: Fault) -> Result<bool> {
        let now_ms = self.now_ms();
        if fault.deed == Deed::FillDisk {
            self.site.process(fault.victim)?.fill_disk(false)?;
            return Ok(true);
        }
        match fault.victim {
            Victim::Indexer(number) => {
                let indexer = &mut self.site.indexers[number];
                match fault.deed {
                    Deed::Freeze => indexer.process().thaw()?,
                    Deed::Terminate if indexer.process().is_running() => return Ok(false),
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
                    Deed::LoseDisk => redis.launch_again_on_empty_disk()?,
                    Deed::Freeze => redis.process().thaw()?,
                    Deed::Full => drop(redis.command("CONFIG SET maxmemory 0").await?),
                    Deed::ReadOnly => drop(redis.command("REPLICAOF NO ONE").await?),
                    _ => {}
                }
            }
            Victim::Link(link) => self.site.set(link, None),
            Victim::Envoy => {}
        }
        Ok(true)
    }
}
