//! What names a stream, and how far its part of the index may be believed.

use std::fmt;

/// The KV-event stream of one (endpoint, rank) in one incarnation. Allotted by the fleet and never reused, so a late
/// event of a removed endpoint can never reach its successor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// Monotonic time in milliseconds since some start that the caller fixes. Time is always an argument here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

/// How far the index of one stream may be believed, and so whether it is scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trust {
    /// Complete and current. Scored.
    Live,
    /// A gap or the whole history is being fetched. What is held was true a moment ago and a replay is bounded in
    /// time, so it is scored: withholding it would move all traffic away at each lost batch.
    Recovering,
    /// Built only from events after some loss: everything held is true, but blocks may be missing. Scored.
    Degraded(DegradedBy),
    /// The connection is gone, so the cache may be too. Not scored.
    Stale(StaleBy),
    /// Configured, but nothing has ever come. There is nothing to score.
    Silent,
}

/// Why a stream's index is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DegradedBy {
    /// The first batch seen was not the first one published, and no replay is configured.
    JoinedLate,
    /// Batches were lost and no replay is configured.
    LostWithoutReplay,
    /// The engine's replay buffer no longer held the first batch wanted.
    BufferTooShort,
    /// The replay was not answered, or not completely, as often as it was asked.
    ReplayFailed,
    /// A batch came that is no event batch, so what it said is lost.
    Undecodable,
    /// The engine computed blocks and told of none.
    Contradicted,
}

/// Why a stream is not scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StaleBy {
    /// The engine's socket closed.
    Disconnected,
    /// It is open again, but whether it is the same process is not known yet.
    Unproven,
}

// === impl StreamId ===

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// === impl Millis ===

impl Millis {
    /// Later by `ms`; saturates.
    #[must_use]
    pub fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to `self`; 0 where `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

// === impl Trust ===

impl Trust {
    /// Every value of [`Trust::name`], for metrics.
    pub const NAMES: [&'static str; 5] = ["live", "recovering", "degraded", "stale", "silent"];

    /// Whether hits of the stream count.
    #[must_use]
    pub fn is_scored(self) -> bool {
        match self {
            Self::Live | Self::Recovering | Self::Degraded(_) => true,
            Self::Stale(_) | Self::Silent => false,
        }
    }

    /// Its name in metrics, logs and the admin API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Recovering => "recovering",
            Self::Degraded(_) => "degraded",
            Self::Stale(_) => "stale",
            Self::Silent => "silent",
        }
    }

    /// Why, where there is more to say than the name; "" otherwise.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Live | Self::Recovering | Self::Silent => "",
            Self::Degraded(by) => match by {
                DegradedBy::JoinedLate => "joined_late",
                DegradedBy::LostWithoutReplay => "lost_without_replay",
                DegradedBy::BufferTooShort => "buffer_too_short",
                DegradedBy::ReplayFailed => "replay_failed",
                DegradedBy::Undecodable => "undecodable",
                DegradedBy::Contradicted => "contradicted",
            },
            Self::Stale(StaleBy::Disconnected) => "disconnected",
            Self::Stale(StaleBy::Unproven) => "unproven",
        }
    }
}
