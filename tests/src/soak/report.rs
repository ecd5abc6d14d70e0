//! What a run showed.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::fault::Fault;

/// How the index became exact again after a fault.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// What had happened.
    pub fault: Fault,
    /// From the end of the fault until the index was equal to the engine's cache.
    pub took: Duration,
    /// The index was incomplete, and said so, until the cache was emptied.
    pub was_degraded: bool,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Events read by the indexer; those read again from a replay count again.
    pub events: f64,
    /// Their batches.
    pub batches: f64,
    /// What the indexer counted.
    pub counters: BTreeMap<String, f64>,
    /// From the first request to the last exact index.
    pub wall: Duration,
    /// One for each fault.
    pub recoveries: Vec<Recovery>,
    /// The last comparison, a line for each stream.
    pub audited: Vec<String>,
}

// === impl Report ===

impl Report {
    /// As JSON.
    pub fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows()
            .into_iter()
            .map(|row| {
                json!({
                    "fault": row.name,
                    "count": row.times.len(),
                    "degraded": row.degraded,
                    "p50_ms": row.at(0.5),
                    "p99_ms": row.at(0.99),
                    "max_ms": row.at(1.0),
                })
            })
            .collect();
        json!({
            "events": self.events,
            "batches": self.batches,
            "wall_s": self.wall.as_secs_f64(),
            "counters": self.counters,
            "faults": rows,
            "audit": self.audited,
        })
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = BTreeMap::<&'static str, Row>::new();
        for recovery in &self.recoveries {
            let name = recovery.fault.name();
            let row = rows.entry(name).or_insert_with(|| Row { name, times: Vec::new(), degraded: 0 });
            row.times.push(recovery.took);
            row.degraded += usize::from(recovery.was_degraded);
        }
        let mut rows: Vec<Row> = rows.into_values().collect();
        rows.iter_mut().for_each(|row| row.times.sort_unstable());
        rows
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} events in {} batches, {} faults, {:.1} s",
            self.events,
            self.batches,
            self.recoveries.len(),
            self.wall.as_secs_f64(),
        )?;
        for (name, count) in &self.counters {
            writeln!(f, "  {name}: {count}")?;
        }
        writeln!(f, "fault | times | exact again after, ms: p50 | p99 | most | degraded until emptied")?;
        for row in self.rows() {
            let (times, degraded) = (row.times.len(), row.degraded);
            writeln!(
                f,
                "{} | {times} | {:.0} | {:.0} | {:.0} | {degraded}",
                row.name,
                row.at(0.5),
                row.at(0.99),
                row.at(1.0),
            )?;
        }
        writeln!(f, "at the end:")?;
        self.audited.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// All faults of one kind.
struct Row {
    name: &'static str,
    /// Sorted.
    times: Vec<Duration>,
    degraded: usize,
}

// === impl Row ===

impl Row {
    /// The time that this share of the faults took at most, in milliseconds.
    fn at(&self, share: f64) -> f64 {
        let last = self.times.len().saturating_sub(1);
        let place = (share * last as f64).round() as usize;
        self.times.get(place.min(last)).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }
}
