//! Whose fault a failed request is.
//!
//! An engine that is killed takes its requests along, and nobody can bring them back: a generation must not run twice.
//! Everything else is ours: requests that failed while no engine was out, that another engine had, or that began after
//! the engine was gone and could have gone elsewhere.

use serde::Serialize;

use super::fault::Deed;

/// How long after an engine's death requests may still be on their way to it: the proxy learns of it from its sockets,
/// and everything runs on one machine.
pub const LEARNT_MS: u64 = 250;

/// When an engine did not serve, in milliseconds after the beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outage {
    /// Its address.
    pub engine: String,
    /// What befell it.
    pub deed: Deed,
    /// From here on.
    pub from_ms: u64,
    /// Until here: of a frozen engine, when it went on; of one that was killed or restarted, when its sockets were
    /// closed. Later requests find nobody there, and are sent elsewhere.
    pub to_ms: u64,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failed {
    /// When it was sent, in milliseconds after the beginning.
    pub sent_ms: u64,
    /// When it was known to have failed.
    pub ended_ms: u64,
    /// Who served it; empty where nobody says.
    pub endpoint: String,
    /// What went wrong.
    pub why: String,
}

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Blame {
    /// The engine that had it was killed or restarted.
    EngineGone,
    /// The engine that had it was frozen.
    EngineFrozen,
    /// Ours.
    Ours,
}

/// Whose fault the failure is: the engine's only where one was out while the request ran, and where it is known who had
/// the request, only that one.
pub fn blame(failed: &Failed, outages: &[Outage]) -> Blame {
    let fits = |outage: &&Outage| {
        let overlaps = failed.sent_ms <= outage.to_ms + LEARNT_MS && outage.from_ms <= failed.ended_ms;
        let had_it = failed.endpoint.is_empty() || failed.endpoint == outage.engine;
        overlaps && had_it
    };
    match outages.iter().find(fits).map(|outage| outage.deed) {
        Some(Deed::Freeze) => Blame::EngineFrozen,
        Some(_) => Blame::EngineGone,
        None => Blame::Ours,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outage(deed: Deed) -> Outage {
        Outage { engine: "a".to_owned(), deed, from_ms: 1000, to_ms: 1100 }
    }

    fn failed(sent_ms: u64, ended_ms: u64, endpoint: &str) -> Failed {
        Failed { sent_ms, ended_ms, endpoint: endpoint.to_owned(), why: "503".to_owned() }
    }

    #[test]
    fn a_request_of_an_engine_that_was_killed_meanwhile_is_the_engines() {
        let outages = [outage(Deed::Kill)];
        for (sent, ended) in [(900, 1000), (1050, 1060), (1100 + LEARNT_MS, 2000), (0, 5000)] {
            assert_eq!(blame(&failed(sent, ended, "a"), &outages), Blame::EngineGone, "{sent} {ended}");
            assert_eq!(blame(&failed(sent, ended, ""), &outages), Blame::EngineGone, "{sent} {ended}");
        }
        assert_eq!(blame(&failed(900, 1000, "a"), &[outage(Deed::Freeze)]), Blame::EngineFrozen);
    }

    #[test]
    fn everything_else_is_ours() {
        let outages = [outage(Deed::Kill)];
        assert_eq!(blame(&failed(900, 1050, "b"), &outages), Blame::Ours, "another engine had it");
        assert_eq!(blame(&failed(900, 999, "a"), &outages), Blame::Ours, "before");
        assert_eq!(blame(&failed(1101 + LEARNT_MS, 1400, ""), &outages), Blame::Ours, "it was known by then");
        assert_eq!(blame(&failed(900, 1050, ""), &[]), Blame::Ours, "no engine was out");
    }
}
