//! Which addresses are followed. Pure.
//!
//! ```text
//!              named                      in no answer any more
//!   unknown ─────────▶ followed, listed ─────────────────────────▶ followed, not listed
//!      ▲                    ▲  ▲ │ cannot be followed: tried again      │ │
//!      │                    │  └─┘                                      │ │
//!      │                    └──────────────── named ────────────────────┘ │
//!      └───────────────────── cannot be followed ─────────────────────────┘
//! ```
//!
//! An answer may leave out an indexer that is there, so one that is connected is followed on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Addresses of one name: more than any fleet has indexers.
const ADDRESSES_MAX: usize = 64;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Roster {
    /// The last answer for each name, by its number.
    answers: BTreeMap<usize, BTreeSet<SocketAddr>>,
    followed: BTreeMap<SocketAddr, Listed>,
}

/// Whether a name stands for an address at the moment; read by its follower.
#[derive(Clone, Debug)]
pub(super) struct Listed(Arc<AtomicBool>);

// === impl Roster ===

impl Roster {
    /// Takes in an answer for a name. Who is to be followed from now on. An answer without addresses says nothing.
    pub(super) fn hear(&mut self, name: usize, answer: Vec<SocketAddr>) -> Vec<(SocketAddr, Listed)> {
        if answer.is_empty() {
            return Vec::new();
        }
        self.answers.insert(name, answer.into_iter().take(ADDRESSES_MAX).collect());
        for (address, listed) in &self.followed {
            listed.set(self.answers.values().any(|answer| answer.contains(address)));
        }
        let mut new = Vec::new();
        for address in self.answers.get(&name).into_iter().flatten() {
            if !self.followed.contains_key(address) {
                let listed = Listed::yes();
                self.followed.insert(*address, listed.clone());
                new.push((*address, listed));
            }
        }
        new
    }

    /// A follower has ended; it is to be followed anew where a name stands for it again.
    pub(super) fn ended(&mut self, address: SocketAddr) -> Option<Listed> {
        let listed = self.followed.get(&address)?.clone();
        if listed.is_so() {
            return Some(listed);
        }
        self.followed.remove(&address);
        None
    }
}

// === impl Listed ===

impl Listed {
    pub(super) fn yes() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    pub(super) fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, is_so: bool) {
        self.0.store(is_so, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(hosts: &[u8]) -> Vec<SocketAddr> {
        hosts.iter().map(|host| SocketAddr::from(([10, 0, 0, *host], 50051))).collect()
    }

    fn new(roster: &mut Roster, name: usize, hosts: &[u8]) -> Vec<SocketAddr> {
        roster.hear(name, addresses(hosts)).into_iter().map(|(address, _)| address).collect()
    }

    fn listed(roster: &Roster) -> Vec<SocketAddr> {
        let listed = roster.followed.iter().filter(|(_, listed)| listed.is_so());
        listed.map(|(address, _)| *address).collect()
    }

    #[test]
    fn every_address_of_every_name_is_followed_once() {
        let mut roster = Roster::default();
        assert_eq!(new(&mut roster, 0, &[1, 2]), addresses(&[1, 2]));
        assert_eq!(new(&mut roster, 1, &[2, 3]), addresses(&[3]));
        assert_eq!(new(&mut roster, 0, &[1, 2]), addresses(&[]));
        assert_eq!(new(&mut roster, 0, &[1]), addresses(&[]));
        assert_eq!(listed(&roster), addresses(&[1, 2, 3]), "the other name still stands for it");
        let many: Vec<u8> = (10..=255).collect();
        assert_eq!(new(&mut roster, 0, &many).len(), ADDRESSES_MAX);
    }

    #[test]
    fn one_that_is_left_out_is_followed_until_it_cannot_be() {
        let mut roster = Roster::default();
        new(&mut roster, 0, &[1, 2]);
        new(&mut roster, 0, &[]);
        assert_eq!(listed(&roster), addresses(&[1, 2]), "no answer");
        new(&mut roster, 0, &[2]);
        assert_eq!(listed(&roster), addresses(&[2]));
        assert_eq!(new(&mut roster, 0, &[1, 2]), addresses(&[]), "it is followed all the time");
        assert_eq!(listed(&roster), addresses(&[1, 2]));
        new(&mut roster, 0, &[2]);
        assert!(roster.ended(addresses(&[1])[0]).is_none());
        assert_eq!(new(&mut roster, 0, &[1, 2]), addresses(&[1]), "it is back");
        assert!(roster.ended(addresses(&[1])[0]).is_some(), "named again before its end was heard of");
        assert!(roster.ended(addresses(&[9])[0]).is_none());
    }
}
