//! What became of requests, waiting to be told to the indexer in batches.
//!
//! Bounded: when no indexer takes reports the oldest events go first, and the indexer's leases stand in for them. A
//! batch that failed is put back once its call is over; one call runs at a time, so events keep their order.

use std::collections::VecDeque;

use crate::limits::{REPORT_EVENTS_MAX, REPORT_QUEUE_MAX};
use crate::outcome::Reason;
use crate::response::ResponseKey;
use crate::usage::Usage;

/// One thing that happened to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The decision; 0: no indexer decided.
    pub decision_id: u64,
    /// Since the decision, or since the request's start without one.
    pub elapsed_us: u64,
    /// What happened.
    pub what: What,
}

/// What can happen to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The first byte of the answer's body came.
    FirstByte {
        /// The endpoint that answers.
        endpoint: String,
        /// Of the answer.
        http_status: u32,
    },
    /// It still runs.
    Alive,
    /// It is over.
    End(End),
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The endpoint that served it; empty: none was reached.
    pub endpoint: String,
    /// Of the answer; 0: none came.
    pub http_status: u32,
    /// Who ended it.
    pub cause: EndCause,
    /// What the answer says of its tokens.
    pub usage: Usage,
    /// Upstream attempts made by the proxy; 0: not known.
    pub attempts: u32,
    /// Why no indexer decided.
    pub fallback_reason: Option<Reason>,
    /// What the answer calls itself, where the endpoint keeps it.
    pub response: Option<ResponseKey>,
}

/// Who ended a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// The answer was sent to its end.
    Complete,
    /// The endpoint, or the way to it, broke.
    UpstreamReset,
    /// The client went away.
    ClientReset,
}

/// The events of one worker.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    waiting: VecDeque<Event>,
    /// The batch of the running call.
    sent: Vec<Event>,
    dropped: u64,
}

impl Reports {
    /// Adds an event.
    pub fn push(&mut self, event: Event) {
        self.waiting.push_back(event);
        self.shrink();
    }

    /// Events that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next batch, oldest first, to be [`Self::confirm`]ed or [`Self::give_back`]. May be empty.
    pub fn take(&mut self) -> &[Event] {
        let count = self.waiting.len().min(REPORT_EVENTS_MAX);
        self.sent = self.waiting.drain(..count).collect();
        &self.sent
    }

    /// The batch arrived, or never will: the number of its events.
    pub fn confirm(&mut self) -> usize {
        std::mem::take(&mut self.sent).len()
    }

    /// The batch did not arrive: it goes first next time.
    pub fn give_back(&mut self) {
        for event in std::mem::take(&mut self.sent).into_iter().rev() {
            self.waiting.push_front(event);
        }
        self.shrink();
    }

    /// Events dropped since this was last asked.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    fn shrink(&mut self) {
        while self.waiting.len() > REPORT_QUEUE_MAX {
            self.waiting.pop_front();
            self.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(decision_id: u64) -> Event {
        Event { decision_id, elapsed_us: 0, what: What::Alive }
    }

    fn ids(events: &[Event]) -> Vec<u64> {
        events.iter().map(|e| e.decision_id).collect()
    }

    #[test]
    fn batches_keep_the_order_and_the_contracts_size() {
        let mut reports = Reports::default();
        let count = REPORT_EVENTS_MAX as u64 + 2;
        (0..count).for_each(|id| reports.push(event(id)));
        assert_eq!(ids(reports.take()), (0..count - 2).collect::<Vec<_>>());
        assert_eq!(reports.confirm(), REPORT_EVENTS_MAX);
        assert_eq!(ids(reports.take()), [count - 2, count - 1]);
        reports.confirm();
        assert!(reports.take().is_empty() && reports.is_empty());
    }

    #[test]
    fn a_failed_batch_goes_first_the_next_time() {
        let mut reports = Reports::default();
        (0..3).for_each(|id| reports.push(event(id)));
        reports.take();
        reports.push(event(3));
        reports.give_back();
        assert_eq!(ids(reports.take()), [0, 1, 2, 3]);
    }

    #[test]
    fn when_nobody_takes_them_the_oldest_are_dropped_and_counted() {
        let mut reports = Reports::default();
        (0..REPORT_EVENTS_MAX as u64).for_each(|id| reports.push(event(id)));
        reports.take();
        (0..REPORT_QUEUE_MAX as u64).for_each(|id| reports.push(event(1_000_000 + id)));
        reports.give_back();
        assert_eq!(reports.len(), REPORT_QUEUE_MAX);
        assert_eq!(reports.take_dropped(), REPORT_EVENTS_MAX as u64);
        assert_eq!(reports.take_dropped(), 0);
        assert_eq!(reports.take().first().map(|e| e.decision_id), Some(1_000_000));
    }
}
