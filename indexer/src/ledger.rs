//! The load that decisions have put on endpoints: reservations and their leases. Pure: no I/O, time is an argument.
//!
//! In: reservations at the pick, and what reports and peers tell of them later. Out: per place (one rank of one
//! endpoint in one incarnation) the queued tokens Q and active sequences A of the cost rule.
//!
//! ```text
//!             Started            Released | Expired | PlaceGone
//!  Queued ─────────────▶ Running ──────────────────────────────▶ Over
//!    │  ▲ Moved, Renewed   │  ▲ Moved, Renewed, Started            ▲
//!    └──┘                  └──┘                                    │
//!    └───────────── Released | Expired | PlaceGone ────────────────┘
//! ```
//!
//! A `Queued` reservation counts its tokens and sequences, a `Running` one its sequences; one that is `Over` is not in
//! the ledger. [`transition`] is the only place that says so.
//!
//! A reservation is taken before its decision is sent, and nobody says if that never arrives: a client that goes away
//! meanwhile, or a gateway that waited too long, leaves it behind. So the first lease is short, and the full one begins with
//! the first event.
//!
//! What a reservation adds to its place is what the same reservation takes away, and a place that is gone takes its
//! reservations with it. So no count can go below zero or stay behind; [`Ledger::check`] recounts.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use thiserror::Error;
use warmpath_core::limits::UNCONFIRMED_LEASE_MS;
use warmpath_kv::{Millis, StreamId};

use crate::models::LoadedModel;

#[cfg(test)]
mod tests;

/// Where load is put: one rank of one endpoint in one incarnation.
pub type Place = StreamId;

/// Names a decision in a fleet of indexers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionId(pub u64);

/// What a decision reserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub place: Place,
    /// Q: tokens the place has to compute for it.
    pub queued_tokens: u64,
    /// A: sequences it makes there.
    pub sequences: u32,
    /// How long it counts without a sign of life, from the first one on.
    pub lease_ms: u64,
}

/// What was predicted for a decision made here, to be held against what its engine tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// What rendered the prompt; None: its model is not a configured one.
    pub model: Option<LoadedModel>,
    pub policy: &'static str,
    /// Tokens predicted to be in the prefix cache of each candidate; empty where nothing was predicted.
    pub cached_tokens: Vec<(Place, u32)>,
    /// Tokens of its only prompt, where they were made here of a text.
    pub prompt_tokens: Option<u32>,
    /// Tokens that its place had to compute before its first one: those that waited there, and its own. None: its
    /// size, or what the place's cache holds of it, was not known.
    pub work_tokens: Option<u64>,
    /// Tokens of its prompt; 0: not known.
    pub size_tokens: u32,
    /// Tokens of it that the best holder had.
    pub reachable_tokens: u32,
}

#[cfg(test)]
impl Forecast {
    /// A prompt of which nothing is known.
    pub(crate) fn of_nothing() -> Self {
        Self {
            model: None,
            policy: "cost",
            cached_tokens: Vec::new(),
            prompt_tokens: None,
            work_tokens: None,
            size_tokens: 0,
            reachable_tokens: 0,
        }
    }
}

/// What can happen to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first byte of the answer has come.
    Started,
    /// Another place than the reserved one serves it.
    Moved(Place),
    /// It is still alive.
    Renewed,
    /// Its request is over, however it ended.
    Released,
    /// No sign of life for its whole lease.
    Expired,
    /// Its place is not there any more.
    PlaceGone,
}

/// How far a reservation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Queued,
    Running,
    Over,
}

/// Load of one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub queued_tokens: u64,
    pub sequences: u64,
    /// Those of them that wait for their first token.
    pub waiting: u64,
}

/// One live reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub reservation: Reservation,
    pub phase: Phase,
    /// Kept by the indexer that decided.
    pub forecast: Option<Forecast>,
    /// Something has been told of it, so its decision has arrived.
    pub is_confirmed: bool,
    expires_at: Millis,
}

/// Why a reservation was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReserveError {
    #[error(
        "the ledger is full: {0} reservations; raise limits.reservations or shorten leases.reservation_ms"
    )]
    Full(usize),
}

/// All live reservations and their sums.
#[derive(Debug)]
pub struct Ledger {
    entries: HashMap<DecisionId, Entry>,
    loads: HashMap<Place, Load>,
    /// When leases end, as known when they were queued; renewals are looked up when their turn comes.
    deadlines: BinaryHeap<Reverse<(Millis, DecisionId)>>,
    capacity: usize,
}

/// The heap of deadlines is rebuilt when it holds this many times more than there are entries…
const DEADLINES_FACTOR: usize = 4;
/// …and more than this, below which rebuilding is not worth it.
const DEADLINES_SPARE: usize = 4096;

/// The only place that says what an event does to a phase.
pub fn transition(phase: Phase, event: Event) -> Phase {
    match (phase, event) {
        (Phase::Over, _) | (_, Event::Released | Event::Expired | Event::PlaceGone) => Phase::Over,
        (Phase::Running, _) | (Phase::Queued, Event::Started) => Phase::Running,
        (Phase::Queued, Event::Moved(_) | Event::Renewed) => Phase::Queued,
    }
}

// === impl Entry ===

impl Entry {
    /// What it counts now.
    fn load(&self) -> Load {
        let Reservation { queued_tokens, sequences, .. } = self.reservation;
        match self.phase {
            Phase::Queued => Load { queued_tokens, sequences: sequences.into(), waiting: sequences.into() },
            Phase::Running => Load { sequences: sequences.into(), ..Load::default() },
            Phase::Over => Load::default(),
        }
    }
}

// === impl Ledger ===

impl Ledger {
    /// An empty ledger that takes at most `capacity` reservations.
    pub fn new(capacity: usize) -> Self {
        Self { entries: HashMap::new(), loads: HashMap::new(), deadlines: BinaryHeap::new(), capacity }
    }

    /// Adds a reservation. Under an id that is known it moves that reservation, whose phase stays.
    pub fn reserve(
        &mut self,
        id: DecisionId,
        reservation: Reservation,
        forecast: Option<Forecast>,
        now: Millis,
    ) -> Result<(), ReserveError> {
        if let Some(entry) = self.entries.get_mut(&id) {
            subtract(&mut self.loads, entry);
            entry.reservation = reservation;
            entry.expires_at = now.plus(reservation.lease_ms);
            add(&mut self.loads, entry);
            return Ok(());
        }
        if self.entries.len() >= self.capacity {
            return Err(ReserveError::Full(self.capacity));
        }
        let expires_at = now.plus(reservation.lease_ms.min(UNCONFIRMED_LEASE_MS));
        let entry = Entry { reservation, phase: Phase::Queued, forecast, is_confirmed: false, expires_at };
        add(&mut self.loads, &entry);
        self.entries.insert(id, entry);
        self.deadlines.push(Reverse((expires_at, id)));
        self.compact();
        Ok(())
    }

    /// Applies an event. None: no such reservation (over, expired, or of an indexer that is not known).
    /// Otherwise the entry as it is afterwards; in phase `Over` it is no longer in the ledger.
    pub fn apply(&mut self, id: DecisionId, event: Event, now: Millis) -> Option<Entry> {
        let entry = self.entries.get_mut(&id)?;
        subtract(&mut self.loads, entry);
        if let Event::Moved(place) = event {
            entry.reservation.place = place;
        }
        entry.phase = transition(entry.phase, event);
        entry.is_confirmed = true;
        if entry.phase == Phase::Over {
            return self.entries.remove(&id);
        }
        entry.expires_at = now.plus(entry.reservation.lease_ms);
        add(&mut self.loads, entry);
        Some(entry.clone())
    }

    /// Ends every reservation whose lease is over, and says how many those were.
    pub fn expire(&mut self, now: Millis) -> usize {
        let mut expired = 0;
        while let Some(Reverse((at, id))) = self.deadlines.peek().copied() {
            if at > now {
                break;
            }
            self.deadlines.pop();
            match self.entries.get(&id).map(|entry| entry.expires_at) {
                Some(later) if later > now => self.deadlines.push(Reverse((later, id))),
                Some(_) => {
                    self.apply(id, Event::Expired, now);
                    expired += 1;
                }
                None => {}
            }
        }
        expired
    }

    /// Ends every reservation on a place that is gone, and says how many those were.
    pub fn remove_place(&mut self, place: Place, now: Millis) -> usize {
        let ids: Vec<DecisionId> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.reservation.place == place)
            .map(|(id, _)| *id)
            .collect();
        for id in &ids {
            self.apply(*id, Event::PlaceGone, now);
        }
        ids.len()
    }

    /// Ends every reservation that `stays` does not want.
    pub fn retain(&mut self, stays: impl Fn(DecisionId) -> bool, now: Millis) {
        let ids: Vec<DecisionId> = self.entries.keys().copied().filter(|id| !stays(*id)).collect();
        for id in ids {
            self.apply(id, Event::Released, now);
        }
    }

    pub fn load(&self, place: Place) -> Load {
        self.loads.get(&place).copied().unwrap_or_default()
    }

    pub fn get(&self, id: DecisionId) -> Option<&Entry> {
        self.entries.get(&id)
    }

    pub fn entries(&self) -> impl Iterator<Item = (DecisionId, &Entry)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The invariant: every sum is what a recount of the entries gives, and no entry is over.
    pub fn check(&self) -> bool {
        let mut recount: HashMap<Place, Load> = HashMap::new();
        for entry in self.entries.values() {
            add(&mut recount, entry);
        }
        recount == self.loads && self.entries.values().all(|entry| entry.phase != Phase::Over)
    }

    /// Forgets the deadlines of reservations that are over, once they outnumber the live ones by far.
    fn compact(&mut self) {
        if self.deadlines.len() > DEADLINES_SPARE + DEADLINES_FACTOR * self.entries.len() {
            self.deadlines =
                self.entries.iter().map(|(id, entry)| Reverse((entry.expires_at, *id))).collect();
        }
    }
}

fn add(loads: &mut HashMap<Place, Load>, entry: &Entry) {
    let load = entry.load();
    let sum = loads.entry(entry.reservation.place).or_default();
    sum.queued_tokens += load.queued_tokens;
    sum.sequences += load.sequences;
    sum.waiting += load.waiting;
    drop_if_idle(loads, entry.reservation.place);
}

fn subtract(loads: &mut HashMap<Place, Load>, entry: &Entry) {
    let load = entry.load();
    if let Some(sum) = loads.get_mut(&entry.reservation.place) {
        sum.queued_tokens -= load.queued_tokens;
        sum.sequences -= load.sequences;
        sum.waiting -= load.waiting;
    }
    drop_if_idle(loads, entry.reservation.place);
}

/// Places without load have no entry, so that places of the past leave nothing behind.
fn drop_if_idle(loads: &mut HashMap<Place, Load>, place: Place) {
    if loads.get(&place).is_some_and(|load| *load == Load::default()) {
        loads.remove(&place);
    }
}
