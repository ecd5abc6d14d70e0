//! Which endpoints exist, and what their engines say of themselves.
//!
//! In: the configured endpoints, DNS answers, answers of engines to scrapes. Out: a [`Snapshot`] for readers, and for
//! the driver the [`Change`]s from one set to the next. [`Fleet`] is the one owner of the set; it is pure, and
//! [`FleetDriver`](crate::fleet_driver::FleetDriver) its thin edge.
//!
//! Every appearance of an endpoint is a new incarnation with new [`StreamId`]s, so nothing of an earlier one (events,
//! reservations) can be taken for it.
//!
//! A resolver may leave endpoints out of an answer by chance: they are kept for a while ([`listing`]).
//!
//! What an engine says of its load is a help, never a condition: old or missing figures leave our own counts. An
//! endpoint that refuses connections is avoided, but never all of them: if all seem dead, all are used.
//!
//! What decisions and reports tell of an endpoint is kept beside it, in its [`EndpointMeter`] and the [`RankMeter`]s: it
//! goes when the incarnation goes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::RwLock;
use warmpath_kv::StreamId;

mod diff;
pub mod dns;
mod exposition;
mod gauge;
mod health;
mod listing;
pub mod metrics;
mod rota;
pub mod scrape;
mod spec;
#[cfg(test)]
mod tests;

pub use exposition::{EngineFigures, parse as parse_exposition};
pub use gauge::{EngineGauge, Sample};
pub use health::{Contact, Health};
pub use rota::Rota;
pub use spec::{Capacity, EndpointSpec, ModelIndex, Ports, RankSource, model_index};
pub use warmpath_standing::{
    EndpointMeter, FirstToken, Heard, RankMeter, RecentErrors, Standing, slownesses,
};

use listing::Listing;

/// Every endpoint, as readers see them; sorted by address.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Digest of the usable set: equal sets have equal versions on every indexer. Never 0.
    pub version: u64,
    pub endpoints: Vec<Endpoint>,
    /// Sources of endpoints that have named theirs so far.
    pub listed: usize,
    /// Each place's endpoint, as its position, and rank.
    places: HashMap<StreamId, (usize, u32)>,
}

/// One endpoint in one incarnation.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub spec: Arc<EndpointSpec>,
    /// `ip:port`, as the proxy's cluster writes it.
    pub name: Arc<str>,
    /// At least one, by rank.
    pub ranks: Vec<Rank>,
    pub health: Health,
    pub errors: Arc<RecentErrors>,
    pub meter: Arc<EndpointMeter>,
}

/// One data-parallel rank of an endpoint.
#[derive(Clone, Debug)]
pub struct Rank {
    pub place: StreamId,
    pub gauge: Arc<EngineGauge>,
    pub meter: Arc<RankMeter>,
}

/// What happened outside.
#[derive(Debug)]
pub enum Observation {
    /// A source of endpoints names its whole set.
    Listed { source: usize, endpoints: Vec<EndpointSpec> },
    /// A resolver's answer, which may be a part of the set: an endpoint is gone after `absences_max` answers in a row
    /// without it, or sooner where its engine refuses connections.
    Resolved { source: usize, endpoints: Vec<EndpointSpec>, absences_max: u32 },
    /// An engine says where its ranks publish; empty: nowhere.
    Told { address: SocketAddr, sources: Vec<RankSource> },
    /// An engine was asked for its metrics.
    Contacted { address: SocketAddr, contact: Contact },
}

/// What that changes.
#[derive(Debug)]
pub enum Change {
    Added(Endpoint),
    Removed(Endpoint),
    /// It is avoided now, or not any more.
    HealthChanged {
        endpoint: Endpoint,
    },
}

/// The set of endpoints and its history.
#[derive(Debug)]
pub struct Fleet {
    /// What each source says; an earlier source wins where two name the same address.
    sources: BTreeMap<usize, Listing>,
    /// Where the engines of endpoints say that their ranks publish.
    told: HashMap<SocketAddr, Arc<[RankSource]>>,
    endpoints: BTreeMap<SocketAddr, Endpoint>,
    next_place: u32,
    failures_to_avoid: u32,
}

/// The current snapshot, shared with readers.
#[derive(Debug, Default)]
pub struct View(RwLock<Arc<Snapshot>>);

// === impl Fleet ===

impl Fleet {
    /// An empty fleet that avoids an endpoint after this many refused connections in a row.
    pub fn new(failures_to_avoid: u32) -> Self {
        Self {
            sources: BTreeMap::new(),
            told: HashMap::new(),
            endpoints: BTreeMap::new(),
            next_place: 1,
            failures_to_avoid,
        }
    }

    /// Takes in what happened and says what it changes, removals first.
    pub fn apply(&mut self, observation: Observation) -> Vec<Change> {
        match observation {
            Observation::Listed { source, endpoints } => self.list(source, endpoints, 1),
            Observation::Resolved { source, endpoints, absences_max } => {
                self.list(source, endpoints, absences_max)
            }
            Observation::Told { address, sources } => {
                if !self.endpoints.contains_key(&address) {
                    return Vec::new();
                }
                if sources.is_empty() {
                    self.told.remove(&address);
                } else {
                    self.told.insert(address, sources.into());
                }
                self.reconcile()
            }
            Observation::Contacted { address, contact } => {
                let mut is_gone = false;
                for listing in self.sources.values_mut() {
                    is_gone |= listing.contacted(address, contact);
                }
                let mut changes = if is_gone { self.reconcile() } else { Vec::new() };
                changes.extend(self.note_contact(address, contact));
                changes
            }
        }
    }

    fn list(&mut self, source: usize, endpoints: Vec<EndpointSpec>, absences_max: u32) -> Vec<Change> {
        self.sources.entry(source).or_insert_with(Listing::new).answer(endpoints, absences_max);
        self.reconcile()
    }

    fn note_contact(&mut self, address: SocketAddr, contact: Contact) -> Option<Change> {
        let endpoint = self.endpoints.get_mut(&address)?;
        let before = endpoint.health;
        endpoint.health = before.after(contact, self.failures_to_avoid);
        let is_other = before.is_usable() != endpoint.health.is_usable();
        is_other.then(|| Change::HealthChanged { endpoint: endpoint.clone() })
    }

    /// Addresses that their source's last answer left out, and that no other source names.
    pub fn absent(&self) -> BTreeSet<SocketAddr> {
        let mut absent: BTreeSet<SocketAddr> =
            self.sources.values().flat_map(Listing::absent).map(|spec| spec.address).collect();
        for spec in self.sources.values().flat_map(Listing::named) {
            absent.remove(&spec.address);
        }
        absent
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(self.endpoints.values().cloned().collect(), self.listed())
    }

    /// Sources that have named their endpoints so far.
    pub fn listed(&self) -> usize {
        self.sources.len()
    }

    /// The set the sources want, against the set there is.
    fn reconcile(&mut self) -> Vec<Change> {
        let mut wanted = BTreeMap::new();
        // What is named goes before what is kept: its address may be another engine's by now.
        let named = self.sources.values().flat_map(Listing::named);
        for spec in named.chain(self.sources.values().flat_map(Listing::absent)) {
            let told = self.told.get(&spec.address);
            wanted.entry(spec.address).or_insert_with(|| spec.clone().told(told));
        }
        self.told.retain(|address, _| wanted.contains_key(address));
        let have = self.endpoints.iter().map(|(address, endpoint)| (*address, &*endpoint.spec)).collect();
        let difference = diff::between(&have, &wanted);
        let mut changes = Vec::new();
        for address in difference.removed {
            changes.extend(self.endpoints.remove(&address).map(Change::Removed));
        }
        for spec in difference.added {
            let endpoint = self.incarnate(spec);
            self.endpoints.insert(endpoint.spec.address, endpoint.clone());
            changes.push(Change::Added(endpoint));
        }
        changes
    }

    fn incarnate(&mut self, spec: EndpointSpec) -> Endpoint {
        let ranks = (0..spec.ranks)
            .map(|_| {
                let place = StreamId(self.next_place);
                self.next_place += 1;
                Rank { place, gauge: Arc::default(), meter: Arc::default() }
            })
            .collect();
        Endpoint {
            name: spec.address.to_string().into(),
            spec: Arc::new(spec),
            ranks,
            health: Health::Good,
            errors: Arc::default(),
            meter: Arc::default(),
        }
    }
}

// === impl Snapshot ===

impl Snapshot {
    fn of(mut endpoints: Vec<Endpoint>, listed: usize) -> Self {
        endpoints.sort_by_key(|endpoint| endpoint.spec.address);
        let places = endpoints.iter().enumerate().flat_map(|(position, endpoint)| {
            (0..).zip(&endpoint.ranks).map(move |(number, rank)| (rank.place, (position, number)))
        });
        let mut snapshot = Self { version: 0, listed, places: places.collect(), endpoints };
        snapshot.version = snapshot.digest();
        snapshot
    }

    /// Endpoints that may be chosen: those not avoided, or all where every one would be.
    pub fn usable(&self) -> impl Iterator<Item = &Endpoint> {
        let any = self.endpoints.iter().any(|endpoint| endpoint.health.is_usable());
        self.endpoints.iter().filter(move |endpoint| !any || endpoint.health.is_usable())
    }

    pub fn by_name(&self, name: &str) -> Option<&Endpoint> {
        let address: SocketAddr = name.parse().ok()?;
        let position = self.endpoints.binary_search_by_key(&address, |e| e.spec.address).ok()?;
        self.endpoints.get(position)
    }

    /// The endpoint that a place belongs to, and its rank there.
    pub fn by_place(&self, place: StreamId) -> Option<(&Endpoint, u32)> {
        let (position, rank) = *self.places.get(&place)?;
        Some((self.endpoints.get(position)?, rank))
    }

    /// FNV-1a over addresses and ranks: the same on every indexer and in every version.
    fn digest(&self) -> u64 {
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0100_0000_01b3;
        let hash = self.usable().fold(OFFSET, |hash, endpoint| {
            let ranks = endpoint.spec.ranks.to_le_bytes();
            endpoint
                .name
                .bytes()
                .chain([0])
                .chain(ranks)
                .fold(hash, |h, byte| (h ^ u64::from(byte)).wrapping_mul(PRIME))
        });
        hash.max(1)
    }
}

// === impl View ===

impl View {
    pub fn current(&self) -> Arc<Snapshot> {
        self.0.read().clone()
    }

    pub fn publish(&self, snapshot: Snapshot) {
        *self.0.write() = Arc::new(snapshot);
    }
}
