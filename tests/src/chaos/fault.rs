//! What goes wrong: a part, or the way between two, and what befalls it for how long.

use serde::Serialize;

use super::toxic::Toxic;

/// A way between two parts that leads through a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// From the filters to an indexer.
    Asking {
        /// Its number.
        indexer: usize,
    },
    /// From an indexer to Redis.
    Mirror {
        /// Its number.
        indexer: usize,
    },
    /// From an indexer to the events and replays of an engine.
    Events {
        /// Who listens.
        indexer: usize,
        /// Who tells.
        engine: usize,
    },
    /// From an indexer to another one.
    Peer {
        /// Who follows.
        from: usize,
        /// Who is followed.
        to: usize,
    },
}

/// Whom something befalls. Only one thing at a time does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Victim {
    /// An indexer.
    Indexer(usize),
    /// An engine.
    Engine(usize),
    /// Redis.
    Redis,
    /// A way between two parts.
    Link(Link),
    /// Envoy.
    Envoy,
}

/// What befalls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// The process is killed, and started again when the time is over.
    Kill,
    /// The process is asked to end, and started again when it has and the time is over.
    Terminate,
    /// The process is held.
    Freeze,
    /// The engine restarts inside its process: its sockets are closed for the time.
    RestartInside,
    /// The engine's cache is emptied.
    EmptyCache,
    /// So many batches of events are lost on the way.
    LoseEvents {
        /// How many.
        batches: u32,
    },
    /// The clock of its machine is set so many seconds ahead of the right time, or behind it.
    SetClock {
        /// How many.
        ahead_s: i64,
    },
    /// Nothing can be written to a file: logs, and what Redis keeps.
    FillDisk,
    /// Redis is killed, and starts again without what it had on disk.
    LoseDisk,
    /// Redis loses everything.
    Wipe,
    /// Redis refuses to store anything, for want of memory.
    Full,
    /// Redis refuses to store anything, as a replica does.
    ReadOnly,
    /// Something is done to what passes.
    Toxic(Toxic),
    /// The listener is replaced by one whose filter is configured otherwise.
    Reload,
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Whom.
    pub victim: Victim,
    /// What.
    pub deed: Deed,
    /// For how long, in milliseconds; 0 where it is done at once.
    pub lasts_ms: u64,
}

// === impl Fault ===

impl Fault {
    /// The engine that serves nothing, or not in time, while this lasts.
    pub fn engine_out(&self) -> Option<usize> {
        match (self.victim, self.deed) {
            (Victim::Engine(engine), Deed::Kill | Deed::Freeze | Deed::RestartInside) => Some(engine),
            _ => None,
        }
    }

    /// Its kind, for counting.
    pub fn kind(&self) -> String {
        let victim = match self.victim {
            Victim::Indexer(_) => "indexer",
            Victim::Engine(_) => "engine",
            Victim::Redis => "redis",
            Victim::Link(Link::Asking { .. }) => "filter to indexer",
            Victim::Link(Link::Mirror { .. }) => "indexer to redis",
            Victim::Link(Link::Events { .. }) => "indexer to engine",
            Victim::Link(Link::Peer { .. }) => "indexer to indexer",
            Victim::Envoy => "envoy",
        };
        let deed = match self.deed {
            Deed::Kill => "killed",
            Deed::Terminate => "ended",
            Deed::Freeze => "frozen",
            Deed::RestartInside => "restarted inside",
            Deed::EmptyCache => "cache emptied",
            Deed::LoseEvents { .. } => "events lost",
            Deed::SetClock { .. } => "clock set",
            Deed::FillDisk => "disk full",
            Deed::LoseDisk => "disk lost",
            Deed::Wipe => "wiped",
            Deed::Full => "full",
            Deed::ReadOnly => "read-only",
            Deed::Toxic(Toxic::Pause) => "paused",
            Deed::Toxic(Toxic::Latency { .. }) => "slow",
            Deed::Toxic(Toxic::Cut) => "cut",
            Deed::Reload => "reloaded",
        };
        format!("{victim} {deed}")
    }
}
