//! Orders of faults, as tests write them.

use serde::{Deserialize, Serialize};

/// What a test wants to go wrong. Fields left out stay as they are.
#[derive(Debug, Default, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultOrder {
    /// Drop everything ordered before, then apply the rest.
    pub clear: bool,
    /// Faults of event streams.
    pub events: Option<EventOrder>,
    /// Faults of HTTP answers.
    pub http: Option<HttpOrder>,
    /// Factor on all step times; 1 is normal.
    pub slow: Option<f64>,
    /// Restart now.
    pub restart: Option<RestartOrder>,
}

/// Faults of event streams; each count is of the next batches, of each chosen rank by itself.
#[derive(Debug, Default, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventOrder {
    /// Only this rank; all without it.
    pub rank: Option<u32>,
    /// Batches that get their number and can be replayed, but are not sent.
    pub drop: u32,
    /// Batches that get their number and are lost for replay too.
    pub lose: u32,
    /// Batches sent twice.
    pub duplicate: u32,
    /// Batches sent after their successor.
    pub reorder: u32,
    /// Batches sent late; those behind them wait.
    pub delay: Option<DelayOrder>,
    /// Replay questions that get no answer.
    pub unanswered: u32,
    /// Publish nothing at all: batches get no number. Stays until set to false.
    pub silent: Option<bool>,
}

/// Late batches.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DelayOrder {
    /// How many.
    pub batches: u32,
    /// How late, in real milliseconds.
    pub ms: u64,
}

/// Faults of HTTP answers; the paths under `/emulator` are exempt.
#[derive(Debug, Default, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpOrder {
    /// Accept requests and never answer. Stays until set to false.
    pub hang: Option<bool>,
    /// Answer with an error status instead of serving.
    pub error: Option<ErrorOrder>,
    /// Close the connection with a reset instead of answering, for the next requests.
    pub reset: Option<u32>,
}

/// Errors instead of answers.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorOrder {
    /// Status code.
    pub status: u16,
    /// For that many requests.
    #[serde(default)]
    pub next: u32,
    /// And for that share of all others, evenly spread, 0 to 1.
    #[serde(default)]
    pub share: f64,
}

/// A restart: caches, counters and sequence numbers begin anew on the same ports.
#[derive(Debug, Default, Clone, Copy, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RestartOrder {
    /// How long all sockets stay closed, in real milliseconds.
    pub down_ms: u64,
}

/// An order that makes no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FaultError {
    /// `slow` is not a usable factor.
    #[error("slow is {0}: give a finite factor above 0")]
    Slow(f64),
    /// `http.error.share` is not a share.
    #[error("http.error.share is {0}: give a number from 0 to 1")]
    Share(f64),
    /// `http.error.status` is no HTTP status.
    #[error("http.error.status is {0}: give a status from 400 to 599")]
    Status(u16),
    /// `events.rank` does not exist.
    #[error("events.rank is {rank}: this server has {ranks} ranks, from 0")]
    Rank {
        /// What was asked for.
        rank: u32,
        /// What there is.
        ranks: u32,
    },
}
