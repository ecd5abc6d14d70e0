//! Which secret the block keys are made with, where several indexers are to have one.
//!
//! The oldest counts. Each secret is made with its time, which stays with it whoever takes it over; of two of one time the
//! smaller counts. So all who see each other choose the same, whoever asks whom in which order, and who has another one can
//! still come to it later.
//!
//! At the start nothing is known yet under one's own secret, and much may be under that of an indexer that is past its start:
//! so those count before all that are starting. That is no second rule for the end of it, as who is past its start yields to
//! an older one as well ([`Agreement`](crate::agreement::Agreement)).

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// Of the block keys.
pub type Secret = [u8; 16];

/// A secret with its age. The less it is, the more it counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatedSecret {
    /// When it was made, in microseconds since 1970. 0: not known, or kept by a mirror, so it counts before all others.
    pub made_us: u64,
    pub secret: Secret,
}

/// What an indexer has to say of its secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub dated: DatedSecret,
    /// It is past its start. If not, it begins with this secret unless it hears of one that counts more.
    pub has_begun: bool,
}

/// The secret of this indexer, as others are told of it. Clones share it.
#[derive(Clone, Debug)]
pub struct Keyring(Arc<Mutex<DatedSecret>>);

/// The secret to go on with.
pub(super) fn choose(own: Claim, others: impl IntoIterator<Item = Claim>) -> DatedSecret {
    let best = others.into_iter().chain([own]).min_by_key(|claim| (!claim.has_begun, claim.dated));
    best.unwrap_or(own).dated
}

// === impl DatedSecret ===

impl DatedSecret {
    /// A new one. Made behind open ports: who was there before cannot have missed one that is older.
    pub fn draw() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let made_us = u64::try_from(since.as_micros()).unwrap_or(u64::MAX).max(1);
        Self { made_us, secret: rand::random() }
    }

    /// One that a mirror keeps: all who use the mirror have it, and none of them can take another.
    pub fn of_mirror(secret: Secret) -> Self {
        Self { made_us: 0, secret }
    }
}

impl fmt::Debug for DatedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatedSecret").field("made_us", &self.made_us).finish_non_exhaustive()
    }
}

// === impl Keyring ===

impl Keyring {
    pub fn new(dated: DatedSecret) -> Self {
        Self(Arc::new(Mutex::new(dated)))
    }

    pub fn get(&self) -> DatedSecret {
        *self.0.lock()
    }

    pub fn set(&self, dated: DatedSecret) {
        *self.0.lock() = dated;
    }
}

#[cfg(test)]
mod tests;
