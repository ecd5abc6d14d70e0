//! A seed → what goes wrong when. Nothing but the seed and the length decides.
//!
//! What holds for every schedule: it begins and ends in quiet, two faults of one victim do not overlap, and at most one
//! engine is out at a time, so that there always is one to answer. All indexers, and Redis, may be out at once.

use std::collections::BTreeMap;

use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use super::fault::{Deed, Fault, Link, Victim};
use super::toxic::Toxic;
use crate::redis::Keeps;

/// Before the first fault, and after the last, in milliseconds.
const QUIET_MS: u64 = 500;
/// Longest pause between the beginnings of two faults.
const GAP_MS_MAX: u64 = 1500;
/// A fault lasts so long.
const LASTS_MS: std::ops::RangeInclusive<u64> = 50..=4000;
/// An engine that is killed and started is out for a moment longer than its fault lasts.
const ENGINE_REST_MS: u64 = 1000;
/// How often another fault is drawn where one overlaps with what goes on.
const DRAWS: usize = 8;

/// A fault at its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Timed {
    /// After the beginning, in milliseconds.
    pub at_ms: u64,
    /// What.
    pub fault: Fault,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Schedule {
    /// What it was made of.
    pub seed: u64,
    /// How long it takes, in milliseconds.
    pub length_ms: u64,
    /// Indexers.
    pub indexers: usize,
    /// Engines.
    pub engines: usize,
    /// What Redis keeps on disk.
    pub redis_keeps: Keeps,
    /// By time.
    pub faults: Vec<Timed>,
}

// === impl Schedule ===

impl Schedule {
    /// Of this seed and length.
    pub fn of(seed: u64, length_ms: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let (indexers, engines) = (random.random_range(2..=3), random.random_range(3..=4));
        let redis_keeps = [Keeps::Nothing, Keeps::Snapshots, Keeps::Log]
            .choose(&mut random)
            .copied()
            .unwrap_or(Keeps::Nothing);
        let mut schedule = Self { seed, length_ms, indexers, engines, redis_keeps, faults: Vec::new() };
        let end_ms = length_ms.saturating_sub(QUIET_MS);
        let mut taken = Taken::default();
        let mut at_ms = QUIET_MS;
        loop {
            at_ms += random.random_range(1..=GAP_MS_MAX);
            if at_ms >= end_ms {
                return schedule;
            }
            let found = (0..DRAWS).find_map(|_| {
                let fault = schedule.draw(&mut random, end_ms - at_ms);
                taken.take(at_ms, fault).then_some(fault)
            });
            schedule.faults.extend(found.map(|fault| Timed { at_ms, fault }));
        }
    }

    fn draw(&self, random: &mut Pcg64Mcg, longest_ms: u64) -> Fault {
        let indexer = random.random_range(0..self.indexers);
        let engine = random.random_range(0..self.engines);
        let (victim, deed) = match random.random_range(0..46) {
            0..4 => (Victim::Indexer(indexer), Deed::Kill),
            4..7 => (Victim::Indexer(indexer), Deed::Terminate),
            7..10 => (Victim::Indexer(indexer), Deed::Freeze),
            10 | 11 => (Victim::Engine(engine), Deed::Kill),
            12 | 13 => (Victim::Engine(engine), Deed::Freeze),
            14 => (Victim::Engine(engine), Deed::RestartInside),
            15 => (Victim::Engine(engine), Deed::EmptyCache),
            16 | 17 => (Victim::Engine(engine), Deed::LoseEvents { batches: random.random_range(1..=40) }),
            18 => (Victim::Redis, Deed::Kill),
            19 => (Victim::Redis, Deed::Freeze),
            20 => (Victim::Redis, Deed::Wipe),
            21 => (Victim::Redis, Deed::Full),
            22 => (Victim::Redis, Deed::ReadOnly),
            23 | 24 => (Victim::Envoy, Deed::Reload),
            25 | 26 => (Victim::Indexer(indexer), set_clock(random)),
            27 => (Victim::Engine(engine), set_clock(random)),
            28 | 29 => (Victim::Redis, set_clock(random)),
            30 => (Victim::Envoy, set_clock(random)),
            31 => (Victim::Indexer(indexer), Deed::FillDisk),
            32 | 33 => (Victim::Redis, Deed::FillDisk),
            34 => (Victim::Envoy, Deed::FillDisk),
            35 => (Victim::Redis, Deed::LoseDisk),
            _ => (Victim::Link(self.link(random, indexer, engine)), Deed::Toxic(toxic(random))),
        };
        let at_once = matches!(
            deed,
            Deed::EmptyCache | Deed::LoseEvents { .. } | Deed::SetClock { .. } | Deed::Wipe | Deed::Reload
        );
        let lasts_ms = if at_once { 0 } else { random.random_range(LASTS_MS).min(longest_ms) };
        Fault { victim, deed, lasts_ms }
    }

    fn link(&self, random: &mut Pcg64Mcg, indexer: usize, engine: usize) -> Link {
        match random.random_range(0..9) {
            0..3 => Link::Asking { indexer },
            3 | 4 => Link::Mirror { indexer },
            5..8 => Link::Events { indexer, engine },
            _ => Link::Peer { from: indexer, to: (indexer + 1) % self.indexers },
        }
    }
}

/// Seconds, minutes, hours or a day from the right time, either way; or right again.
fn set_clock(random: &mut Pcg64Mcg) -> Deed {
    let span = [0, 1, 60, 3600, 86_400].choose(random).copied().unwrap_or_default();
    let ahead_s: i64 = span * random.random_range(1..=if span < 86_400 { 20 } else { 1 });
    Deed::SetClock { ahead_s: if random.random_bool(0.5) { ahead_s } else { -ahead_s } }
}

fn toxic(random: &mut Pcg64Mcg) -> Toxic {
    match random.random_range(0..3) {
        0 => Toxic::Pause,
        1 => Toxic::Latency { ms: random.random_range(1..=200) },
        _ => Toxic::Cut,
    }
}

/// Until when whom something befalls.
#[derive(Debug, Default)]
struct Taken {
    victims: BTreeMap<Victim, u64>,
    engines: u64,
}

impl Taken {
    /// Whether the fault may begin now; then it is noted.
    fn take(&mut self, at_ms: u64, fault: Fault) -> bool {
        let until_ms = at_ms + fault.lasts_ms;
        let is_free = self.victims.get(&fault.victim).is_none_or(|until| *until < at_ms);
        let is_out = fault.engine_out().is_some();
        if !is_free || is_out && self.engines >= at_ms {
            return false;
        }
        self.victims.insert(fault.victim, until_ms);
        if is_out {
            self.engines = until_ms + ENGINE_REST_MS;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const LENGTH_MS: u64 = 30_000;

    fn end(timed: &Timed) -> u64 {
        timed.at_ms + timed.fault.lasts_ms
    }

    #[test]
    fn a_seed_is_a_schedule_and_another_one_another() {
        assert_eq!(Schedule::of(7, LENGTH_MS), Schedule::of(7, LENGTH_MS));
        assert_ne!(Schedule::of(7, LENGTH_MS).faults, Schedule::of(8, LENGTH_MS).faults);
        assert_eq!(Schedule::of(7, 100).faults, [], "too short for any");
    }

    #[test]
    fn it_begins_and_ends_in_quiet_and_victims_suffer_one_thing_at_a_time() {
        for seed in 0..200 {
            let schedule = Schedule::of(seed, LENGTH_MS);
            assert!(schedule.faults.len() > 15, "seed {seed}: {} faults", schedule.faults.len());
            for (number, timed) in schedule.faults.iter().enumerate() {
                assert!(
                    timed.at_ms > QUIET_MS && end(timed) <= LENGTH_MS - QUIET_MS,
                    "seed {seed}: {timed:?}"
                );
                for later in &schedule.faults[number + 1..] {
                    assert!(timed.at_ms < later.at_ms);
                    let overlap = later.at_ms <= end(timed);
                    let (one, other) = (timed.fault, later.fault);
                    assert!(!(overlap && one.victim == other.victim), "seed {seed}: {timed:?}, {later:?}");
                    let both_out = one.engine_out().is_some() && other.engine_out().is_some();
                    assert!(!(overlap && both_out), "seed {seed}: {timed:?}, {later:?}");
                }
            }
        }
    }

    #[test]
    fn every_kind_of_fault_comes_up() {
        let kinds: BTreeSet<String> = (0..200)
            .flat_map(|seed| Schedule::of(seed, LENGTH_MS).faults)
            .map(|timed| timed.fault.kind())
            .collect();
        // Three things befall four kinds of ways, six an engine, five an indexer, eight Redis, three Envoy.
        let count = 3 * 4 + 6 + 5 + 8 + 3;
        assert_eq!(kinds.len(), count, "{kinds:?}");
    }
}
