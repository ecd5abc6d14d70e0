//! What engines say they are: their release, the LoRA adapters that they serve, and where their ranks publish.
//!
//! In: answers to `/version`, `/v1/models` and, of engines that are to be asked, `/kv_event_sources`, on a slow beat of their own
//! ([`poll`]). Out: a [`Directory`], made anew when all have answered and at each look; what they say of their ranks goes to
//! the fleet at once. [`Census`] is the one owner of what was heard; it is pure.
//!
//! It is a help, never a condition: an engine that does not answer is asked again at the next beat, what it said of its
//! adapters is forgotten when it grows old, and a request for an adapter that nobody says to have may go to every
//! endpoint of the base model.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use warmpath_kv::Millis;
use warmpath_prompt::EngineVersion;

mod answers;
mod metrics;
pub mod poll;
mod sockets;
#[cfg(test)]
mod tests;

pub use answers::version as read_version;
pub use metrics::EngineMetrics;
pub use poll::Poller;

use crate::fleet::{ModelIndex, Snapshot};

/// Beats after which what an engine said of its adapters is not believed any more: it has missed that many questions.
const ADAPTERS_BEATS: u64 = 6;

/// What is known of all engines at one moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Directory {
    engines: HashMap<SocketAddr, Engine>,
    adapters: HashMap<Arc<str>, Adapter>,
}

/// What one engine said of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Engine {
    /// None: it has not said, or not lately. Sorted by name.
    pub adapters: Option<Vec<ListedAdapter>>,
    /// None: it has not said.
    pub version: Option<EngineVersion>,
}

/// An adapter as one engine lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedAdapter {
    pub name: Arc<str>,
    /// Where it was loaded from there.
    pub path: Option<Arc<str>>,
}

/// An adapter that engines say to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// Of its base.
    pub model: ModelIndex,
    /// Endpoints that have it; at least one.
    pub holders: HashSet<SocketAddr>,
}

/// What was heard of each engine, and when.
#[derive(Debug)]
pub struct Census {
    heard: HashMap<SocketAddr, Heard>,
    beat_ms: u64,
}

#[derive(Debug, Default)]
struct Heard {
    asked_at: Option<Millis>,
    adapters: Option<(Vec<ListedAdapter>, Millis)>,
    version: Option<EngineVersion>,
}

// === impl Directory ===

impl Directory {
    pub fn engine(&self, address: SocketAddr) -> Option<&Engine> {
        self.engines.get(&address)
    }

    /// The adapter of this name, if an engine says to have it.
    pub fn adapter(&self, name: &str) -> Option<&Adapter> {
        self.adapters.get(name)
    }

    /// Where the engine loaded the adapter from, if it says so.
    pub fn adapter_path(&self, address: SocketAddr, name: &str) -> Option<Arc<str>> {
        let listed = self.engine(address)?.adapters.as_ref()?;
        listed.iter().find(|adapter| &*adapter.name == name)?.path.clone()
    }

    /// The releases of the engines that serve a model, each with how many say so; newest first.
    pub fn versions(&self, model: ModelIndex, fleet: &Snapshot) -> Vec<(EngineVersion, usize)> {
        let mut counts: Vec<(EngineVersion, usize)> = Vec::new();
        for endpoint in fleet.endpoints.iter().filter(|endpoint| endpoint.spec.model == model) {
            let Some(version) = self.engine(endpoint.spec.address).and_then(|engine| engine.version) else {
                continue;
            };
            match counts.iter_mut().find(|(known, _)| *known == version) {
                Some((_, count)) => *count += 1,
                None => counts.push((version, 1)),
            }
        }
        counts.sort_unstable_by_key(|(version, _)| Reverse(*version));
        counts
    }
}

// === impl Census ===

impl Census {
    /// Nothing heard yet; every engine is to be asked once in `beat_ms`.
    pub fn new(beat_ms: u64) -> Self {
        Self { heard: HashMap::new(), beat_ms }
    }

    /// Whether an engine's turn has come.
    pub fn is_due(&self, address: SocketAddr, now: Millis) -> bool {
        let asked_at = self.heard.get(&address).and_then(|heard| heard.asked_at);
        asked_at.is_none_or(|at| now.since(at) >= self.beat_ms)
    }

    /// Takes in the answers of one engine; what it did not answer stays as it was.
    pub fn note(
        &mut self,
        address: SocketAddr,
        adapters: Option<Vec<ListedAdapter>>,
        version: Option<EngineVersion>,
        now: Millis,
    ) {
        let heard = self.heard.entry(address).or_default();
        heard.asked_at = Some(now);
        heard.version = version.or(heard.version);
        if let Some(mut adapters) = adapters {
            adapters.sort_unstable();
            heard.adapters = Some((adapters, now));
        }
    }

    /// What can be said now. Engines that are no endpoint any more are forgotten.
    pub fn directory(&mut self, fleet: &Snapshot, now: Millis) -> Directory {
        let mut directory = Directory::default();
        let mut left = std::mem::take(&mut self.heard);
        for endpoint in &fleet.endpoints {
            let address = endpoint.spec.address;
            let Some(heard) = left.remove(&address) else { continue };
            let fresh =
                heard.adapters.as_ref().filter(|(_, at)| now.since(*at) <= ADAPTERS_BEATS * self.beat_ms);
            let adapters = fresh.map(|(adapters, _)| adapters.clone());
            for listed in adapters.iter().flatten() {
                let model = endpoint.spec.model;
                let new = || Adapter { model, holders: HashSet::new() };
                let adapter = directory.adapters.entry(listed.name.clone()).or_insert_with(new);
                // An adapter belongs to one base; the same name on another model's engines is another adapter, which a
                // request cannot name.
                if adapter.model == model {
                    adapter.holders.insert(address);
                }
            }
            directory.engines.insert(address, Engine { adapters, version: heard.version });
            self.heard.insert(address, heard);
        }
        directory
    }
}
