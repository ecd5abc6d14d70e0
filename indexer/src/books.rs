//! The ledger as the program shares it: one owner of the reservations, of where responses were made, and of the list of
//! changes that peers are told.
//!
//! In: decisions and reports of our own, and changes that peers tell. Out: loads for ranking, and [`Change`]s for peers
//! in the order in which they happened. It lives behind one mutex, which makes a pick and its reservation one step;
//! the mutex is never held across an await.
//!
//! Who tells whom: an indexer tells what happens to decisions it made, and what is reported to it of decisions others
//! made. The maker of a decision repeats what it learns from others, so that its own stream is complete and in order;
//! nobody else repeats anything, so nothing goes in circles. Where a response was made is told by the one to whom it was
//! reported, and repeated by nobody. So is what was seen of endpoints.
//!
//! What is learnt of a decision's end needs what its maker knew: so what is reported to another is passed on to the maker,
//! where that one follows ([`Books::pass_on`]).

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::Notify;
use warmpath_core::rank::{Deciders, Home, Landmark, Other, Unheard};
use warmpath_kv::{Millis, StreamId};

use crate::answers::{ANSWERS_MAX, Answers, ResponseKey};
use crate::fleet::{Endpoint, Snapshot};
use crate::ledger::{DecisionId, Entry, Event, Forecast, Ledger, Phase, Reservation, ReserveError};
use crate::reported::Report;

mod change;
#[cfg(test)]
mod tests;

pub use change::{Change, Expected, Placed, Seen, Sighting, What};

/// Changes that wait for the next batch to peers; when more come, followers start again from a snapshot.
const PENDING_MAX: usize = 1 << 16;

/// Names an indexer in the fleet: random, never 0. It is the upper half of the ids of its decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IndexerId(NonZeroU32);

/// Makes decision ids.
#[derive(Debug)]
pub struct DecisionIds {
    owner: IndexerId,
    next: AtomicU32,
}

/// A live decision made here, as a new follower has to hear of it.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    id: DecisionId,
    reservation: Reservation,
    phase: Phase,
    is_confirmed: bool,
}

/// Reservations and what peers have still to be told of them.
#[derive(Debug)]
pub struct Books {
    own: IndexerId,
    ledger: Ledger,
    answers: Answers,
    pending: Pending,
    /// Told of whenever something is pending.
    news: Arc<Notify>,
    /// Who hears what is told.
    followers: HashMap<IndexerId, Follower>,
    /// Picks made here that followers do not know of yet.
    unheard: Unheard,
}

/// Another indexer that hears what is told.
#[derive(Clone, Copy, Debug, Default)]
struct Follower {
    /// Through so many streams: two for a moment when it comes back.
    streams: u32,
    /// When its last pick was heard of.
    picked_at: Option<Millis>,
}

/// What the next batch to peers holds.
#[derive(Debug, PartialEq, Eq)]
pub enum Pending {
    Changes(Vec<Change>),
    /// More than [`PENDING_MAX`]: followers have to start again.
    Overflown,
}

/// What became of a change that a peer told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerChange {
    Applied,
    /// A decision that was not known before.
    Begun,
    /// Its endpoint is not one of ours (yet).
    UnknownEndpoint,
    /// Its decision is over, or was never told.
    UnknownDecision,
    /// The ledger is full.
    Refused,
}

// === impl IndexerId ===

impl IndexerId {
    /// None: 0, which names nobody.
    pub fn new(id: u32) -> Option<Self> {
        NonZeroU32::new(id).map(Self)
    }

    pub fn random() -> Self {
        Self(rand::random())
    }

    /// Who made this decision.
    pub fn of(decision: DecisionId) -> Option<Self> {
        Self::new(u32::try_from(decision.0 >> 32).unwrap_or_default())
    }

    pub fn get(self) -> u32 {
        self.0.get()
    }

    /// For who knows nothing of indexers.
    pub fn name(self) -> NonZeroU32 {
        self.0
    }
}

// === impl DecisionIds ===

impl DecisionIds {
    pub fn new(owner: IndexerId) -> Self {
        Self { owner, next: AtomicU32::new(0) }
    }

    /// A fresh id. The lower half wraps around after 2^32 decisions, long after their leases.
    pub fn next(&self) -> DecisionId {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        DecisionId(u64::from(self.owner.get()) << 32 | u64::from(number))
    }
}

// === impl Books ===

impl Books {
    pub fn new(own: IndexerId, capacity: usize) -> Self {
        let (ledger, answers) = (Ledger::new(capacity), Answers::new(ANSWERS_MAX));
        let (followers, unheard) = (HashMap::new(), Unheard::default());
        let (pending, news) = (Pending::Changes(Vec::new()), Arc::default());
        Self { own, ledger, answers, pending, news, followers, unheard }
    }

    pub fn own(&self) -> IndexerId {
        self.own
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    /// Remembers that `endpoint` made a response, as was reported here.
    pub fn answered(&mut self, key: ResponseKey, endpoint: &Endpoint, now: Millis) {
        let Some(rank) = endpoint.ranks.first() else { return };
        self.answers.note(key, rank.place, now);
        self.tell(Change::answered(key, endpoint));
    }

    /// From here on `follower` hears all that is told.
    pub fn begin_following(&mut self, follower: IndexerId) {
        self.followers.entry(follower).or_default().streams += 1;
    }

    pub fn end_following(&mut self, follower: IndexerId) {
        if let Some(known) = self.followers.get_mut(&follower) {
            known.streams = known.streams.saturating_sub(1);
            if known.streams == 0 {
                self.followers.remove(&follower);
            }
        }
    }

    /// Whether anybody hears what is told.
    pub fn has_followers(&self) -> bool {
        !self.followers.is_empty()
    }

    /// Where what is new of a prompt is at home, whose first block that nobody holds is `unknown`; `has`: whether a block is one
    /// of the prompt's. None: nobody decides beside us.
    pub fn home(&self, unknown: Landmark, has: impl Fn(Landmark) -> bool, now: Millis) -> Option<Home> {
        let others = self
            .followers
            .iter()
            .map(|(id, follower)| Other { id: id.get(), picked_at_ms: follower.picked_at.map(|at| at.0) });
        self.unheard.home(Deciders::of(self.own.get(), others, now.0), now.0, unknown, has)
    }

    /// A pick was made here that the others have not heard of; `unknown`: the first block of its prompt that nobody held.
    pub fn note_pick(&mut self, unknown: Option<Landmark>, now: Millis) {
        self.unheard.note(now.0, unknown);
    }

    /// Passes a report on to the maker of its decision. False: it was made here, or its maker does not hear us.
    pub fn pass_on(&mut self, id: DecisionId, report: &Report) -> bool {
        let maker = IndexerId::of(id).filter(|maker| *maker != self.own);
        let hears = maker.is_some_and(|maker| self.followers.contains_key(&maker));
        if hears {
            self.tell(Change { id, what: What::Reported(Arc::new(report.clone())) });
        }
        hears
    }

    /// Tells what was seen here of an endpoint.
    pub fn saw(&mut self, endpoint: &Endpoint, what: Seen) {
        if self.has_followers() {
            self.tell(Change::seen(endpoint, what));
        }
    }

    /// Takes the reservation of a decision made here.
    pub fn reserve(
        &mut self,
        id: DecisionId,
        place: StreamId,
        placed: Placed,
        forecast: Forecast,
        now: Millis,
    ) -> Result<(), ReserveError> {
        self.ledger.reserve(id, placed.at(place), Some(forecast), now)?;
        self.tell(Change { id, what: What::Reserved(placed) });
        Ok(())
    }

    /// Applies what was reported here. The entry as it is afterwards; None: no such reservation.
    pub fn report(
        &mut self,
        id: DecisionId,
        event: Event,
        snapshot: &Snapshot,
        now: Millis,
    ) -> Option<Entry> {
        let before = self.ledger.get(id).map(|entry| entry.phase);
        let after = self.ledger.apply(id, event, now);
        let what = match (event, &after) {
            (Event::Started, Some(_)) if before == Some(Phase::Running) => None,
            (Event::Started, Some(_)) => Some(What::Started),
            (Event::Renewed, Some(_)) => Some(What::Renewed),
            (Event::Moved(_), Some(entry)) => Placed::of(&entry.reservation, snapshot).map(What::Reserved),
            // The end of a decision that is not known here may still be known to its maker.
            (Event::Released, None) => (IndexerId::of(id) != Some(self.own)).then_some(What::Released),
            (Event::Released, Some(_)) => Some(What::Released),
            (Event::Expired | Event::PlaceGone, _) | (_, None) => None,
        };
        if let Some(what) = what {
            self.tell(Change { id, what });
        }
        after
    }

    /// Applies what the peer `sender` told of a decision, or of who made a response.
    pub fn hear(
        &mut self,
        sender: IndexerId,
        change: Change,
        snapshot: &Snapshot,
        now: Millis,
    ) -> PeerChange {
        let known = self.ledger.get(change.id).is_some();
        let maker = IndexerId::of(change.id);
        // Only its maker brings a decision into being: what is over here must not come back.
        let begins = maker == Some(sender) && matches!(change.what, What::Reserved(_));
        let is_about_one = !matches!(change.what, What::Answered { .. } | What::Seen(_));
        if is_about_one && !known && !begins {
            return PeerChange::UnknownDecision;
        }
        let heard = match &change.what {
            What::Reserved(placed) => {
                if begins && let Some(follower) = self.followers.get_mut(&sender) {
                    follower.picked_at = Some(now);
                }
                let Some(place) = placed.place(snapshot) else { return PeerChange::UnknownEndpoint };
                self.ledger.reserve(change.id, placed.at(place), None, now).is_ok()
            }
            What::Started => self.ledger.apply(change.id, Event::Started, now).is_some(),
            What::Renewed => self.ledger.apply(change.id, Event::Renewed, now).is_some(),
            What::Released => self.ledger.apply(change.id, Event::Released, now).is_some(),
            What::Answered { key, endpoint } => {
                let rank = snapshot.by_name(endpoint).and_then(|endpoint| endpoint.ranks.first());
                let Some(rank) = rank else { return PeerChange::UnknownEndpoint };
                self.answers.note(*key, rank.place, now);
                true
            }
            // Of these the books keep nothing.
            What::Reported(_) | What::Seen(_) => return PeerChange::Refused,
        };
        if !heard {
            return PeerChange::Refused;
        }
        if maker == Some(self.own) {
            self.tell(change);
        }
        if begins && !known { PeerChange::Begun } else { PeerChange::Applied }
    }

    /// Ends every reservation of `sender` that its snapshot does not name.
    pub fn keep_only(&mut self, sender: IndexerId, named: &HashSet<DecisionId>, now: Millis) {
        self.ledger.retain(|id| IndexerId::of(id) != Some(sender) || named.contains(&id), now);
    }

    /// Ends reservations whose lease is over, and says how many.
    pub fn expire(&mut self, now: Millis) -> usize {
        self.ledger.expire(now)
    }

    /// Ends reservations on a place that is gone. Peers see for themselves that it is gone.
    pub fn remove_place(&mut self, place: StreamId, now: Millis) -> usize {
        self.ledger.remove_place(place, now)
    }

    /// Every live decision made here, copied as it is, so that what is made of it is made without the lock.
    pub fn open(&self) -> Vec<Open> {
        let own = self.ledger.entries().filter(|(id, _)| IndexerId::of(*id) == Some(self.own));
        own.map(|(id, Entry { reservation, phase, is_confirmed, .. })| Open {
            id,
            reservation: *reservation,
            phase: *phase,
            is_confirmed: *is_confirmed,
        })
        .collect()
    }

    /// Is notified whenever there is something that peers have to be told.
    pub fn news(&self) -> Arc<Notify> {
        self.news.clone()
    }

    /// What peers have to be told since the last call.
    pub fn take_pending(&mut self) -> Pending {
        std::mem::replace(&mut self.pending, Pending::Changes(Vec::new()))
    }

    fn tell(&mut self, change: Change) {
        match &mut self.pending {
            Pending::Changes(changes) if changes.len() < PENDING_MAX => changes.push(change),
            Pending::Changes(_) => self.pending = Pending::Overflown,
            Pending::Overflown => {}
        }
        self.news.notify_one();
    }
}

// === impl Open ===

impl Open {
    /// The changes that build it anew; none where its place is gone.
    pub fn changes(&self, fleet: &Snapshot) -> impl Iterator<Item = Change> + use<> {
        let id = self.id;
        let reserved = Placed::of(&self.reservation, fleet).map(What::Reserved);
        let further = match self.phase {
            Phase::Running => Some(What::Started),
            _ => self.is_confirmed.then_some(What::Renewed),
        };
        let further = further.filter(|_| reserved.is_some());
        reserved.into_iter().chain(further).map(move |what| Change { id, what })
    }
}
