//! Everything held at the moment a follower comes, told a batch at a time.
//!
//! The books are behind the mutex that every decision needs, and may hold some hundred thousand responses. So only plain
//! figures are copied under it: the open decisions at once, the responses a batch at a time, when the batch before has been
//! taken. Names and messages are made without it.
//!
//! A response that is noted meanwhile by a report is told as a change too; hearing it twice changes nothing. What is
//! forgotten meanwhile is not told.

use std::ops::Range;
use std::sync::Arc;

use futures::stream::{self, Stream, StreamExt};
use parking_lot::Mutex;
use warmpath_kv::Millis;
use warmpath_proto::v1::LedgerChanges;

use super::{BATCH_CHANGES_MAX, Name, in_batches, nothing_of};
use crate::books::{Books, Change, Open, Seen};
use crate::clock::Clock;
use crate::fleet::{Endpoint, FirstToken, Standing, View};

/// What is to be told.
pub(super) struct Snapshot {
    name: Name,
    open: Vec<Open>,
    /// Numbers of the responses that are remembered.
    answers: Range<u64>,
}

// === impl Snapshot ===

impl Snapshot {
    pub(super) fn of(books: &Books, name: Name) -> Self {
        Self { name, open: books.open(), answers: books.answers().all() }
    }

    /// Open decisions first, as what the first batch does not name is over for the follower. One batch at least, even
    /// of nothing. What was seen of endpoints comes next.
    pub(super) fn batches(
        self,
        books: Arc<Mutex<Books>>,
        view: Arc<View>,
        clock: Clock,
    ) -> impl Stream<Item = LedgerChanges> + Send + 'static {
        let Self { name, open, answers } = self;
        let fleet = view.current();
        let open: Vec<Change> = open.iter().flat_map(|open| open.changes(&fleet)).collect();
        let mut first = in_batches(name, &open);
        match first.first_mut() {
            Some(first) => first.snapshot = true,
            None => first.push(LedgerChanges { snapshot: true, ..nothing_of(name) }),
        }
        let now = clock.now();
        let seen: Vec<Change> = fleet.endpoints.iter().flat_map(|endpoint| seen_of(endpoint, now)).collect();
        first.extend(in_batches(name, &seen));
        let step = BATCH_CHANGES_MAX as u64;
        let slices = answers.clone().step_by(BATCH_CHANGES_MAX);
        let slices = slices.map(move |from| from..answers.end.min(from + step));
        let answers = stream::iter(slices).flat_map(move |numbers| {
            let slice: Vec<_> = books.lock().answers().slice(numbers).collect();
            let fleet = view.current();
            let answered = slice.into_iter().filter_map(|(key, place)| {
                let (endpoint, _) = fleet.by_place(place)?;
                Some(Change::answered(key, endpoint))
            });
            let answered: Vec<Change> = answered.collect();
            stream::iter(in_batches(name, &answered))
        });
        stream::iter(first).chain(answers)
    }
}

/// What is to be told of an endpoint: an operator's order, that it is ejected, and the first tokens seen here.
fn seen_of(endpoint: &Endpoint, now: Millis) -> Vec<Change> {
    let order = endpoint.meter.draining_order();
    let order = order.map(|(draining, at_unix_ms)| Seen::Draining { draining, at_unix_ms });
    let ejection = match endpoint.meter.standing() {
        Standing::Trusted { .. } => None,
        Standing::Ejected { until, times } => Some(Seen::Ejected { for_ms: until.since(now), times }),
        Standing::Probed { times, .. } => Some(Seen::Ejected { for_ms: 0, times }),
    };
    let tokens = (0..).zip(&endpoint.ranks).flat_map(|(rank, of_rank)| {
        let seen = move |(at, FirstToken { work_tokens, ttft_us, .. })| Seen::FirstToken {
            rank,
            work_tokens,
            ttft_us,
            age_ms: now.since(at),
        };
        of_rank.meter.first_tokens().into_iter().map(seen)
    });
    order.into_iter().chain(ejection).chain(tokens).map(|seen| Change::seen(endpoint, seen)).collect()
}
