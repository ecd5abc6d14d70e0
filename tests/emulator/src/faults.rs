//! Scripted misbehaviour.
//!
//! A test orders it as a [`FaultOrder`] (the body of `POST /emulator/faults`, every field optional); [`Faults`] holds
//! what is still to happen and is asked by the edges: the HTTP server before each request, a publisher before each
//! batch. Counted faults run out by themselves, the others last until ordered otherwise or cleared.

mod order;

use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

pub use order::{DelayOrder, ErrorOrder, EventOrder, FaultError, FaultOrder, HttpOrder, RestartOrder};

/// What to do with one HTTP request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpFate {
    /// Serve it.
    Serve,
    /// Never answer.
    Hang,
    /// Answer with this status.
    Fail(u16),
    /// Reset the connection.
    Reset,
}

/// What to do with one batch of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchFate {
    /// Send it.
    Send,
    /// Number and keep it, but do not send it.
    Drop,
    /// Number it, and neither keep nor send it.
    Lose,
    /// Send it twice.
    Duplicate,
    /// Send it after the next one.
    HoldBack,
    /// Send it, and what follows, that much later.
    Delay(Duration),
    /// As if it had never been: no number either.
    Ignore,
}

/// What is still to happen.
#[derive(Debug, Clone, Serialize)]
pub struct Faults {
    ranks: u32,
    events: Vec<EventFaults>,
    http: HttpFaults,
    slow: f64,
}

#[derive(Debug, Default, Clone, Serialize)]
struct EventFaults {
    drop: u32,
    lose: u32,
    duplicate: u32,
    reorder: u32,
    delay: u32,
    delay_ms: u64,
    silent: bool,
    unanswered: u32,
}

#[derive(Debug, Default, Clone, Serialize)]
struct HttpFaults {
    hang: bool,
    error_status: u16,
    error_next: u32,
    error_share: f64,
    /// Sum of shares not yet turned into an error; below 1.
    error_debt: f64,
    reset: u32,
}

/// The faults of a server, shared by its edges.
#[derive(Debug)]
pub(crate) struct SharedFaults(Mutex<Faults>);

// === impl SharedFaults ===

impl SharedFaults {
    /// No faults.
    pub(crate) fn new(ranks: u32) -> Self {
        Self(Mutex::new(Faults::new(ranks)))
    }

    /// Takes an order, all of it or nothing.
    pub(crate) fn apply(&self, order: &FaultOrder) -> Result<(), FaultError> {
        self.0.lock().apply(order)
    }

    /// Fate of an HTTP request that just came.
    pub(crate) fn http_fate(&self) -> HttpFate {
        self.0.lock().http_fate()
    }

    /// Fate of the next batch of a rank.
    pub(crate) fn batch_fate(&self, rank: u32) -> BatchFate {
        self.0.lock().batch_fate(rank)
    }

    /// Whether the replay question that just came to a rank gets no answer.
    pub(crate) fn leaves_unanswered(&self, rank: u32) -> bool {
        self.0.lock().leaves_unanswered(rank)
    }

    /// Factor on step times.
    pub(crate) fn slow(&self) -> f64 {
        self.0.lock().slow
    }

    /// A copy, to show.
    pub(crate) fn get(&self) -> Faults {
        self.0.lock().clone()
    }
}

// === impl Faults ===

impl Faults {
    /// Whether requests are never answered.
    pub(crate) fn hangs(&self) -> bool {
        self.http.hang
    }

    fn new(ranks: u32) -> Self {
        let events = (0..ranks).map(|_| EventFaults::default()).collect();
        Self { ranks, events, http: HttpFaults::default(), slow: 1.0 }
    }

    fn apply(&mut self, order: &FaultOrder) -> Result<(), FaultError> {
        self.check(order)?;
        if order.clear {
            *self = Self::new(self.ranks);
        }
        if let Some(slow) = order.slow {
            self.slow = slow;
        }
        if let Some(events) = &order.events {
            let chosen = |rank: u32| events.rank.is_none_or(|only| only == rank);
            for (_, stream) in (0..).zip(&mut self.events).filter(|(rank, _)| chosen(*rank)) {
                stream.apply(events);
            }
        }
        if let Some(http) = &order.http {
            self.http.apply(http);
        }
        Ok(())
    }

    fn check(&self, order: &FaultOrder) -> Result<(), FaultError> {
        if let Some(slow) = order.slow.filter(|slow| !(slow.is_finite() && *slow > 0.0)) {
            return Err(FaultError::Slow(slow));
        }
        if let Some(error) = order.http.as_ref().and_then(|http| http.error) {
            if !(0.0..=1.0).contains(&error.share) {
                return Err(FaultError::Share(error.share));
            }
            if !(400..600).contains(&error.status) {
                return Err(FaultError::Status(error.status));
            }
        }
        if let Some(rank) = order.events.as_ref().and_then(|events| events.rank)
            && rank >= self.ranks
        {
            return Err(FaultError::Rank { rank, ranks: self.ranks });
        }
        Ok(())
    }

    fn http_fate(&mut self) -> HttpFate {
        let http = &mut self.http;
        if http.hang {
            return HttpFate::Hang;
        }
        if http.reset > 0 {
            http.reset -= 1;
            return HttpFate::Reset;
        }
        if http.error_next > 0 {
            http.error_next -= 1;
            return HttpFate::Fail(http.error_status);
        }
        http.error_debt += http.error_share;
        if http.error_debt >= 1.0 {
            http.error_debt -= 1.0;
            return HttpFate::Fail(http.error_status);
        }
        HttpFate::Serve
    }

    fn of_rank(&mut self, rank: u32) -> Option<&mut EventFaults> {
        (0..).zip(&mut self.events).find(|(number, _)| *number == rank).map(|(_, faults)| faults)
    }

    fn leaves_unanswered(&mut self, rank: u32) -> bool {
        let Some(stream) = self.of_rank(rank).filter(|stream| stream.unanswered > 0) else { return false };
        stream.unanswered -= 1;
        true
    }

    fn batch_fate(&mut self, rank: u32) -> BatchFate {
        let Some(stream) = self.of_rank(rank) else { return BatchFate::Send };
        if stream.silent {
            return BatchFate::Ignore;
        }
        let delay = BatchFate::Delay(Duration::from_millis(stream.delay_ms));
        let counted = [
            (&mut stream.drop, BatchFate::Drop),
            (&mut stream.lose, BatchFate::Lose),
            (&mut stream.duplicate, BatchFate::Duplicate),
            (&mut stream.reorder, BatchFate::HoldBack),
            (&mut stream.delay, delay),
        ];
        for (left, fate) in counted {
            if *left > 0 {
                *left -= 1;
                return fate;
            }
        }
        BatchFate::Send
    }
}

impl EventFaults {
    fn apply(&mut self, order: &EventOrder) {
        self.drop = self.drop.saturating_add(order.drop);
        self.lose = self.lose.saturating_add(order.lose);
        self.duplicate = self.duplicate.saturating_add(order.duplicate);
        self.reorder = self.reorder.saturating_add(order.reorder);
        self.unanswered = self.unanswered.saturating_add(order.unanswered);
        if let Some(delay) = order.delay {
            self.delay = self.delay.saturating_add(delay.batches);
            self.delay_ms = delay.ms;
        }
        if let Some(silent) = order.silent {
            self.silent = silent;
        }
    }
}

impl HttpFaults {
    fn apply(&mut self, order: &HttpOrder) {
        if let Some(hang) = order.hang {
            self.hang = hang;
        }
        if let Some(error) = order.error {
            self.error_status = error.status;
            self.error_next = error.next;
            self.error_share = error.share;
            self.error_debt = 0.0;
        }
        if let Some(reset) = order.reset {
            self.reset = reset;
        }
    }
}

#[cfg(test)]
mod tests;
