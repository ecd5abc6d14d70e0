//! The fallback: a consistent hash with bounded load over the endpoints last told, for when no indexer answers.
//!
//! Every key has its own order of the endpoints (rendezvous hashing), so each endpoint that leaves moves only the keys
//! that were on it. From that order the first endpoint is taken whose requests in flight stay within
//! `ceil(load_factor · (all in flight + 1) / endpoints)`; there always is one, since the bound times the endpoints is
//! more than all requests. Those above the bound come last, for retries: where endpoints are dead, nothing is in flight on
//! them, and they must not be all that is named. Locality degrades to "same beginning, same endpoint", and no endpoint drowns.
//!
//! The requests in flight are this worker's own: no other count is there when it is needed.

use std::collections::BTreeMap;

use crate::headers::is_endpoint;
use crate::limits::{CANDIDATES_MAX, ENDPOINTS_MAX};
use crate::rendezvous::{hash, mix};

/// The endpoints that an indexer knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointSet {
    /// Changes whenever the set does; never 0.
    pub version: u64,
    /// `ip:port` and the number of ranks.
    pub endpoints: Vec<(String, u32)>,
}

/// An endpoint to go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// `ip:port`.
    pub endpoint: String,
    /// The rank inside it, where it has more than one.
    pub rank: Option<u32>,
}

#[derive(Clone, Debug)]
struct Slot {
    hash: u64,
    ranks: u32,
    in_flight: u32,
    /// It is in the current set. Others are kept until their last request ends.
    listed: bool,
}

/// The endpoints last told, with the requests that this worker has in flight on each.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    version: u64,
    slots: BTreeMap<String, Slot>,
}

impl Ring {
    /// Version of the set; 0: none was told yet.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Takes over a set. Requests in flight keep being counted.
    pub fn replace(&mut self, set: EndpointSet) {
        self.version = set.version;
        for slot in self.slots.values_mut() {
            slot.listed = false;
        }
        for (endpoint, ranks) in set.endpoints.into_iter().take(ENDPOINTS_MAX) {
            if is_endpoint(&endpoint) {
                let slot = self.slot(endpoint);
                slot.listed = true;
                slot.ranks = ranks.max(1);
            }
        }
        self.slots.retain(|_, slot| slot.listed || slot.in_flight > 0);
    }

    /// A request goes to this endpoint, listed or not.
    pub fn acquire(&mut self, endpoint: &str) {
        let slot = match self.slots.get_mut(endpoint) {
            Some(slot) => slot,
            None => self.slot(endpoint.to_owned()),
        };
        slot.in_flight = slot.in_flight.saturating_add(1);
    }

    /// A request that was acquired there ended, or went elsewhere.
    pub fn release(&mut self, endpoint: &str) {
        if let Some(slot) = self.slots.get_mut(endpoint) {
            slot.in_flight = slot.in_flight.saturating_sub(1);
            if slot.in_flight == 0 && !slot.listed {
                self.slots.remove(endpoint);
            }
        }
    }

    /// Requests in flight on every endpoint, listed or not.
    pub fn in_flight(&self) -> u64 {
        self.slots.values().map(|slot| u64::from(slot.in_flight)).sum()
    }

    /// Has the endpoint this rank? Not known: no.
    pub fn has_rank(&self, endpoint: &str, rank: u32) -> bool {
        self.slots.get(endpoint).is_some_and(|slot| slot.listed && rank < slot.ranks)
    }

    /// Where a request with this key goes: up to three places, the first two after it for retries. Empty: no endpoint
    /// is known. Only the first has a rank, since a retry keeps the header that names it.
    pub fn pick(&self, key: u64, load_factor: f64) -> Vec<Place> {
        let listed = || self.slots.iter().filter(|(_, slot)| slot.listed);
        let (count, in_flight) =
            listed().fold((0u32, 0u32), |(n, sum), (_, slot)| (n + 1, sum.saturating_add(slot.in_flight)));
        let bound = (load_factor * (f64::from(in_flight) + 1.0) / f64::from(count.max(1))).ceil();
        let mut best: Vec<((bool, u64), &str, &Slot)> = Vec::with_capacity(CANDIDATES_MAX + 1);
        for (name, slot) in listed() {
            let order = (f64::from(slot.in_flight) < bound, mix(slot.hash ^ key));
            let place = best.iter().position(|(other, ..)| order > *other).unwrap_or(best.len());
            best.insert(place, (order, name, slot));
            best.truncate(CANDIDATES_MAX);
        }
        let rank = best
            .first()
            .filter(|(_, _, slot)| slot.ranks > 1)
            .and_then(|((_, weight), _, slot)| u32::try_from(mix(*weight) % u64::from(slot.ranks)).ok());
        let retries_fit = |slot: &Slot| rank.is_none_or(|rank| rank < slot.ranks);
        best.iter()
            .filter(|(_, _, slot)| retries_fit(slot))
            .enumerate()
            .map(|(at, (_, name, _))| Place { endpoint: (*name).to_owned(), rank: rank.filter(|_| at == 0) })
            .collect()
    }

    fn slot(&mut self, endpoint: String) -> &mut Slot {
        let hash = hash(&endpoint);
        self.slots.entry(endpoint).or_insert(Slot { hash, ranks: 1, in_flight: 0, listed: false })
    }
}

#[cfg(test)]
mod tests;
