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
use warmpath_proto::v1::LedgerChanges;

use super::{BATCH_CHANGES_MAX, in_batches};
use crate::books::{Books, Change, IndexerId, Open};
use crate::fleet::View;

/// What is to be told.
pub(super) struct Snapshot {
    own: IndexerId,
    open: Vec<Open>,
    /// Numbers of the responses that are remembered.
    answers: Range<u64>,
}

// === impl Snapshot ===

impl Snapshot {
    pub(super) fn of(books: &Books) -> Self {
        Self { own: books.own(), open: books.open(), answers: books.answers().all() }
    }

    /// Open decisions first, as what the first batch does not name is over for the follower. One batch at least, even
    /// of nothing.
    pub(super) fn batches(
        self,
        books: Arc<Mutex<Books>>,
        view: Arc<View>,
    ) -> impl Stream<Item = LedgerChanges> + Send + 'static {
        let Self { own, open, answers } = self;
        let fleet = view.current();
        let open: Vec<Change> = open.iter().flat_map(|open| open.changes(&fleet)).collect();
        let mut first = in_batches(own, &open).collect::<Vec<_>>();
        match first.first_mut() {
            Some(first) => first.snapshot = true,
            None => first.push(LedgerChanges {
                indexer_id: own.get().into(),
                snapshot: true,
                changes: Vec::new(),
            }),
        }
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
            stream::iter(in_batches(own, &answered).collect::<Vec<_>>())
        });
        stream::iter(first).chain(answers)
    }
}
