//! Which peers are followed: each by one follower, whatever its names, as what it saw of an endpoint would count twice.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;

use crate::books::IndexerId;

/// With the check of its secret that each told last. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Followed(Arc<Mutex<HashMap<IndexerId, u64>>>);

/// One of them, for as long as this lives.
#[derive(Debug)]
pub(super) struct Claim {
    followed: Followed,
    peer: IndexerId,
    /// Counts those under its configured name.
    count: Gauge,
}

// === impl Followed ===

impl Followed {
    /// None: another follower has it.
    pub(super) fn claim(&self, peer: IndexerId, count: Gauge) -> Option<Claim> {
        match self.0.lock().entry(peer) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(free) => free.insert(0),
        };
        count.inc();
        Some(Claim { followed: self.clone(), peer, count })
    }

    /// How many make block keys with another secret than the one of this check. Releases that tell no check tell no keys.
    pub fn with_other_keys(&self, secret_check: u64) -> usize {
        self.0.lock().values().filter(|told| **told != 0 && **told != secret_check).count()
    }
}

// === impl Claim ===

impl Claim {
    pub(super) fn peer(&self) -> IndexerId {
        self.peer
    }

    /// It has told this check.
    pub(super) fn note(&self, secret_check: u64) {
        self.followed.0.lock().insert(self.peer, secret_check);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.count.dec();
        self.followed.0.lock().remove(&self.peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_with_other_keys_are_counted_for_as_long_as_they_are_followed() {
        let (followed, count) = (Followed::default(), Gauge::default());
        let [one, other] = [1, 2].map(|id| IndexerId::new(id).unwrap());
        let claim = followed.claim(one, count.clone()).unwrap();
        assert!(followed.claim(one, count.clone()).is_none());
        assert_eq!(followed.with_other_keys(5), 0, "it has told nothing");
        claim.note(0);
        assert_eq!(followed.with_other_keys(5), 0, "it tells no keys");
        claim.note(5);
        let second = followed.claim(other, count.clone()).unwrap();
        second.note(6);
        assert_eq!([5, 6, 7].map(|own| followed.with_other_keys(own)), [1, 1, 2]);
        drop(second);
        assert_eq!((followed.with_other_keys(5), count.get()), (0, 1));
    }
}
