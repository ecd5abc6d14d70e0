//! A load: which requests come when, on what fleet, and what happens to the fleet meanwhile.

use std::time::Duration;

use crate::prompt::Prompt;
use crate::replica::ReplicaSpec;

pub mod catalogue;
pub mod fleets;
pub mod generated;
pub mod traces;

/// One load.
#[derive(Clone, Debug)]
pub struct Load {
    /// Its name in results and on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: String,
    /// What each replica is.
    pub replica: ReplicaSpec,
    /// Replicas at the start.
    pub replicas: usize,
    /// In order of their start, as far as that is known.
    pub requests: Vec<Request>,
    /// Requests in flight at most; further ones wait unsent, and their time does not count yet.
    pub concurrency: Option<usize>,
    /// What is sent before this moment is the first wave.
    pub first_wave: Duration,
    /// What happens to the fleet, in order of time.
    pub incidents: Vec<(Duration, Incident)>,
}

/// One request of a load.
#[derive(Clone, Debug)]
pub struct Request {
    /// When it is wanted.
    pub start: Start,
    /// What is asked.
    pub prompt: Prompt,
    /// Tokens of the answer.
    pub output: u32,
}

/// When a request is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this time after the beginning.
    At(Duration),
    /// This long after an earlier request was answered to its end.
    After {
        /// Its position in the load.
        request: usize,
        /// The time that a client takes to go on.
        pause: Duration,
    },
}

/// What happens to a fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Incident {
    /// One more replica, empty.
    Join,
    /// A replica gets nothing new.
    Drain(usize),
    /// Its steps take this many times as long.
    Slow(usize, f64),
    /// It answers every request with an error, at once; or again as it should.
    Failing(usize, bool),
}

// === impl Load ===

impl Load {
    /// The best share of prompt tokens from a cache that never forgets, in one replica: what no router can exceed.
    pub fn ideal_hit_rate(&self) -> f64 {
        let mut seen = std::collections::HashSet::new();
        let (mut hits, mut tokens) = (0u64, 0u64);
        for Request { prompt, .. } in &self.requests {
            let usable = (prompt.tokens.saturating_sub(1) / self.replica.block_tokens) as usize;
            let known = prompt.chain.iter().take(usable).take_while(|id| seen.contains(*id)).count();
            hits += known as u64 * u64::from(self.replica.block_tokens);
            tokens += u64::from(prompt.tokens);
            seen.extend(prompt.chain.iter().copied());
        }
        hits as f64 / tokens.max(1) as f64
    }
}
