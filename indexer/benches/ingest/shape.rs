//! What is published, and how fast.

use std::fmt;
use std::time::Duration;

/// Publishers, each a stream.
pub(crate) const PUBLISHERS: usize = 4;

/// Tokens of a block.
pub(crate) const BLOCK: usize = 16;

/// For how long events are offered at a fixed rate.
pub(crate) const OFFERED_FOR: Duration = Duration::from_secs(3);

/// One event a batch, with this many blocks.
pub(crate) struct Shape {
    pub(crate) blocks: usize,
    /// In all, where they go as fast as they can.
    pub(crate) events: usize,
}

pub(crate) const SHAPES: [Shape; 3] = [
    Shape { blocks: 1, events: 400_000 },
    // As many as in the published figures of a peer.
    Shape { blocks: 16, events: 62_496 },
    Shape { blocks: 192, events: 8_000 },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As fast as they are read: publishers wait for nothing, and drop nothing.
    Drained,
    /// So many events a second, whatever is read.
    Open { rate: u64 },
}

// === impl Pace ===

impl Pace {
    pub(crate) fn parse(text: &str) -> Self {
        text.parse().map_or(Self::Drained, |rate| Self::Open { rate })
    }

    /// Events of one publisher.
    pub(crate) fn events(self, shape: &Shape) -> usize {
        let all = match self {
            Self::Drained => shape.events,
            Self::Open { rate } => usize::try_from(rate * OFFERED_FOR.as_secs()).unwrap(),
        };
        all / PUBLISHERS
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drained => write!(f, "drained"),
            Self::Open { rate } => rate.fmt(f),
        }
    }
}
