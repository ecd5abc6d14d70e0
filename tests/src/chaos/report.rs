//! What a schedule showed: one line for people, JSON for later.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::blame::{Blame, Failed, Outage, blame};
use super::proc::Holdings;
use super::schedule::Schedule;
use super::traffic::Sent;
use crate::audit::COMPARED;

/// Of one schedule.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was played.
    pub schedule: Schedule,
    /// When engines were out.
    pub outages: Vec<Outage>,
    /// Requests.
    pub requests: usize,
    /// Those that failed, each with whose fault it is.
    pub failed: Vec<(Blame, Failed)>,
    /// How the others were decided.
    pub outcomes: BTreeMap<String, usize>,
    /// Share of those that nobody decided who knows loads and caches.
    pub blind: f64,
    /// Share of the prompt tokens that engines found in their caches.
    pub hit_rate: f64,
    /// Until the first byte, in milliseconds: of half of the answered requests, of 99 in 100, of all.
    pub first_byte_ms: [f64; 3],
    /// What the audit compared.
    pub audited: Vec<String>,
    /// What each indexer held when it was ready, and at the end.
    pub holdings: Vec<(Holdings, Holdings)>,
    /// Lines of each indexer's log.
    pub log_lines: Vec<u64>,
    /// What is wrong, but for failed requests.
    pub complaints: Vec<String>,
}

// === impl Report ===

impl Report {
    /// Of the requests; the rest is to be filled in.
    pub(super) fn of(schedule: Schedule, outages: Vec<Outage>, sent: &[Sent]) -> Self {
        let failed = sent.iter().filter_map(Sent::failed);
        let failed = failed.map(|failed| (blame(&failed, &outages), failed)).collect();
        let answered: Vec<&Sent> = sent.iter().filter(|sent| sent.failure.is_none()).collect();
        let mut outcomes = BTreeMap::new();
        for sent in &answered {
            let name = if sent.outcome == "scored" {
                sent.outcome.clone()
            } else {
                format!("{} {}", sent.outcome, sent.reason)
            };
            *outcomes.entry(name).or_insert(0) += 1;
        }
        let blind = answered.iter().filter(|sent| sent.is_blind()).count();
        let (cached, prompt) = answered.iter().fold((0, 0), |(cached, prompt), sent| {
            (cached + sent.cached_tokens, prompt + sent.prompt_tokens)
        });
        let mut times: Vec<u64> = answered.iter().map(|sent| sent.first_byte_us).collect();
        times.sort_unstable();
        let at = |share: f64| {
            let position = (share * times.len() as f64).ceil() as usize;
            times.get(position.saturating_sub(1)).map_or(0.0, |us| *us as f64 / 1000.0)
        };
        Self {
            schedule,
            outages,
            requests: sent.len(),
            failed,
            outcomes,
            blind: share(blind as u64, answered.len() as u64),
            hit_rate: share(cached, prompt),
            first_byte_ms: [at(0.5), at(0.99), at(1.0)],
            audited: Vec::new(),
            holdings: Vec::new(),
            log_lines: Vec::new(),
            complaints: Vec::new(),
        }
    }

    /// Requests that failed by this fault.
    pub fn failed_by(&self, whose: Blame) -> usize {
        self.failed.iter().filter(|(blame, _)| *blame == whose).count()
    }

    /// No request failed by us, and nothing else is wrong.
    pub fn is_clean(&self) -> bool {
        self.failed_by(Blame::Ours) == 0 && self.complaints.is_empty()
    }

    /// Streams of which the audit compared something.
    pub fn streams_compared(&self) -> usize {
        self.audited.iter().filter(|line| line.contains(COMPARED)).count()
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_clean() { "clean" } else { "BROKEN" };
        let Schedule { seed, indexers, engines, faults, .. } = &self.schedule;
        write!(
            f,
            "seed {seed:>4} {verdict}: {} faults, {indexers} indexers, {engines} engines, {} requests, ",
            faults.len(),
            self.requests,
        )?;
        write!(
            f,
            "{} failed by us, {} with their engine, {} blind in 100, {} of {} streams compared",
            self.failed_by(Blame::Ours),
            self.failed_by(Blame::EngineGone) + self.failed_by(Blame::EngineFrozen),
            format_args!("{:.1}", 100.0 * self.blind),
            self.streams_compared(),
            self.audited.len(),
        )?;
        for complaint in &self.complaints {
            write!(f, "; {complaint}")?;
        }
        let ours = self.failed.iter().filter(|(blame, _)| *blame == Blame::Ours);
        for (_, failed) in ours.take(3) {
            write!(f, "; {failed:?}")?;
        }
        Ok(())
    }
}
