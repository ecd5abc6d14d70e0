//! Counters of one sequencer. Numbers of batches are taken from what a publisher says, so they stop at the largest value
//! rather than overflow.

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequencerStats {
    /// Batches applied as published.
    pub applied: u64,
    /// Batches applied from a replay.
    pub replayed: u64,
    /// Batches that had been applied already, or belong to a closed connection.
    pub duplicates: u64,
    /// Gaps found in the numbers.
    pub gaps: u64,
    /// Batches missing in those gaps; most come back by replay.
    pub missing_batches: u64,
    /// Batches that did not come back.
    pub lost_batches: u64,
    /// Batches that only a probe brought: published, but never received.
    pub tail_batches: u64,
    /// Restarts seen in the numbers.
    pub restarts: u64,
    /// Connections after the first.
    pub reconnects: u64,
    /// Times that what was held before a connection was shown to be of the same process, and kept.
    pub resumed: u64,
    /// Replays asked for.
    pub replays: u64,
    /// Replays without answer or without progress.
    pub replays_failed: u64,
    /// Probes of an idle stream.
    pub probes: u64,
    /// Probes without answer.
    pub probes_failed: u64,
    /// Batches that found no room to wait for a replay.
    pub waiting_dropped: u64,
}

/// Batches that wait for what comes before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    pub batches: usize,
    pub bytes: usize,
}
