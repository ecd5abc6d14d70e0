//! What indexers tell each other, by the names that all of them share.

use std::sync::Arc;

use warmpath_kv::{PromptKeys, StreamId};

use crate::answers::ResponseKey;
use crate::fleet::{Endpoint, Snapshot};
use crate::ledger::{DecisionId, Reservation};
use crate::reported::Report;

/// What peers are told: of one decision, or of what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// 0 where it is about no decision.
    pub id: DecisionId,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Reserved, or moved to another endpoint.
    Reserved(Placed),
    Started,
    Released,
    Renewed,
    /// Not about a decision in flight: this endpoint made this response.
    Answered {
        key: ResponseKey,
        endpoint: Arc<str>,
    },
    /// For the maker of the decision alone: what a gateway reported of it to the one who tells.
    Reported(Arc<Report>),
    /// Not about a decision.
    Seen(Sighting),
}

/// A reservation by the names that all indexers share; places are ours alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub endpoint: Arc<str>,
    pub rank: u32,
    pub queued_tokens: u64,
    pub sequences: u32,
    pub lease_ms: u64,
    pub expected: Option<Expected>,
}

/// The blocks that a pick will bring into a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub keys: Arc<PromptKeys>,
    /// How long they count without an event, in milliseconds.
    pub for_ms: u64,
}

/// What was seen of an endpoint. Told by the one who saw it, and by nobody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub endpoint: Arc<str>,
    pub what: Seen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A first token came, so long after its pick, with so much to compute until then.
    FirstToken { rank: u32, work_tokens: u64, ttft_us: u64, age_ms: u64 },
    /// It answered a request, or failed one.
    Ended { has_failed: bool },
    /// It is not chosen for this long, for the time in a row that this is.
    Ejected { for_ms: u64, times: u32 },
    /// An operator gave it nothing more, or gave it back. The latest order holds.
    Draining { draining: bool, at_unix_ms: u64 },
}

// === impl Change ===

impl Change {
    /// Keys of expected blocks in it.
    pub fn expected_keys(&self) -> usize {
        match &self.what {
            What::Reserved(Placed { expected: Some(expected), .. }) => expected.keys.len(),
            _ => 0,
        }
    }

    pub fn answered(key: ResponseKey, endpoint: &Endpoint) -> Self {
        Self { id: DecisionId(0), what: What::Answered { key, endpoint: endpoint.name.clone() } }
    }

    pub fn seen(endpoint: &Endpoint, what: Seen) -> Self {
        let sighting = Sighting { endpoint: endpoint.name.clone(), what };
        Self { id: DecisionId(0), what: What::Seen(sighting) }
    }
}

// === impl Placed ===

impl Placed {
    pub(super) fn at(&self, place: StreamId) -> Reservation {
        Reservation {
            place,
            queued_tokens: self.queued_tokens,
            sequences: self.sequences,
            lease_ms: self.lease_ms,
        }
    }

    /// By the shared name of a reservation's place. None: the place is gone.
    pub(super) fn of(reservation: &Reservation, snapshot: &Snapshot) -> Option<Self> {
        let (endpoint, rank) = snapshot.by_place(reservation.place)?;
        Some(Self {
            endpoint: endpoint.name.clone(),
            rank,
            queued_tokens: reservation.queued_tokens,
            sequences: reservation.sequences,
            lease_ms: reservation.lease_ms,
            expected: None,
        })
    }

    /// None: it is no endpoint of ours.
    pub fn place(&self, snapshot: &Snapshot) -> Option<StreamId> {
        let endpoint = snapshot.by_name(&self.endpoint)?;
        endpoint.ranks.get(usize::try_from(self.rank).ok()?).map(|rank| rank.place)
    }
}
