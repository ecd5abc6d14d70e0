//! What the requests of one worker share. Owned by [`crate::gateway::Gateway`], lent to one session at a time.

use crate::circuit::Circuit;
use crate::config::Config;
use crate::followed::Followed;
use crate::report::Reports;
use crate::ring::Ring;

/// Shared state of a worker. Times are microseconds on a clock that never runs backwards.
#[derive(Clone, Debug)]
pub struct Worker {
    /// The plugin configuration.
    pub config: Config,
    /// Whether to ask.
    pub circuit: Circuit,
    /// Endpoints last told, and the requests in flight on them.
    pub ring: Ring,
    /// Whether requests go where they are sent.
    pub followed: Followed,
    /// What waits to be told to the indexer.
    pub reports: Reports,
}

impl Worker {
    /// A worker that has seen nothing yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            circuit: Circuit::default(),
            ring: Ring::default(),
            followed: Followed::default(),
            reports: Reports::default(),
        }
    }
}
