//! Who follows, and what of a batch is for them.

use std::sync::Arc;

use parking_lot::Mutex;
use warmpath_proto::v1::{FollowRequest, LedgerChange, LedgerChanges, ledger_change::What};

use crate::books::{Books, IndexerId};
use crate::ledger::DecisionId;

/// What this version understands, as in the contract.
pub(super) const PROTOCOL: u32 = 1;

/// One follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Audience {
    follower: IndexerId,
    protocol: u32,
}

/// While it lives, the follower is counted on to hear what is told.
#[derive(Debug)]
pub(super) struct Following {
    books: Arc<Mutex<Books>>,
    /// None: one that does not understand what is passed on.
    follower: Option<IndexerId>,
}

// === impl Audience ===

impl Audience {
    /// None: nobody's name.
    pub(super) fn of(request: &FollowRequest) -> Option<Self> {
        let follower = u32::try_from(request.follower_id).ok().and_then(IndexerId::new)?;
        Some(Self { follower, protocol: request.protocol })
    }

    fn understands_all(self) -> bool {
        self.protocol >= PROTOCOL
    }

    /// What of a batch is for this follower. None: nothing.
    pub(super) fn part_of(self, mut batch: LedgerChanges) -> Option<LedgerChanges> {
        // One without changes tells of its sender, so it is for all.
        let is_for_all = batch.snapshot || batch.changes.is_empty();
        batch.changes.retain_mut(|change| self.is_for(change));
        (is_for_all || !batch.changes.is_empty()).then_some(batch)
    }

    fn is_for(self, change: &mut LedgerChange) -> bool {
        let maker = IndexerId::of(DecisionId(change.decision_id));
        match &mut change.what {
            Some(What::Reported(_)) => self.understands_all() && maker == Some(self.follower),
            Some(What::Sighting(_)) => self.understands_all(),
            Some(What::Reserved(reserved)) if !self.understands_all() => {
                reserved.expected = Vec::new();
                true
            }
            _ => true,
        }
    }
}

// === impl Following ===

impl Following {
    /// `books`: locked, of `shared`.
    pub(super) fn begin(books: &mut Books, shared: &Arc<Mutex<Books>>, audience: Audience) -> Self {
        let follower = audience.understands_all().then_some(audience.follower);
        if let Some(follower) = follower {
            books.begin_following(follower);
        }
        Self { books: shared.clone(), follower }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(follower) = self.follower {
            self.books.lock().end_following(follower);
        }
    }
}

#[cfg(test)]
mod tests {
    use warmpath_proto::v1::{Event, ExpectedBlocks, Released, Reserved, Sighting};

    use super::*;

    fn batch(changes: Vec<(u64, What)>) -> LedgerChanges {
        let changes =
            changes.into_iter().map(|(decision_id, what)| LedgerChange { decision_id, what: Some(what) });
        LedgerChanges { indexer_id: 1, snapshot: false, changes: changes.collect(), secret_check: 0 }
    }

    fn heard(follower_id: u64, protocol: u32, batch: &LedgerChanges) -> Option<Vec<u64>> {
        let audience = Audience::of(&FollowRequest { follower_id, protocol })?;
        let part = audience.part_of(batch.clone())?;
        Some(part.changes.iter().map(|change| change.decision_id).collect())
    }

    #[test]
    fn each_follower_is_told_what_it_can_use() {
        let expected = vec![ExpectedBlocks { block_size: 16, ahead: 0, keys: vec![1] }];
        let all = batch(vec![
            (1 << 32 | 1, What::Reserved(Reserved { expected, ..Reserved::default() })),
            (2 << 32 | 2, What::Reported(Event::default())),
            (0, What::Sighting(Sighting::default())),
            (3 << 32 | 3, What::Released(Released {})),
        ]);
        let (reserved, reported, released) = (1 << 32 | 1, 2 << 32 | 2, 3 << 32 | 3);
        assert_eq!(heard(2, 1, &all), Some(vec![reserved, reported, 0, released]), "the maker");
        assert_eq!(heard(3, 1, &all), Some(vec![reserved, 0, released]));
        assert_eq!(heard(2, 9, &all), heard(2, 1, &all), "of a later release");
        assert_eq!(heard(2, 0, &all), Some(vec![reserved, released]), "of an earlier release");
        assert_eq!(heard(0, 1, &all), None, "nobody");
        let earlier = Audience::of(&FollowRequest { follower_id: 2, protocol: 0 }).unwrap();
        let part = earlier.part_of(all).unwrap();
        assert!(
            matches!(&part.changes[0].what, Some(What::Reserved(reserved)) if reserved.expected.is_empty())
        );
    }

    #[test]
    fn a_batch_of_nothing_is_told_only_where_it_ends_what_was() {
        let none = batch(vec![(0, What::Sighting(Sighting::default()))]);
        assert_eq!(heard(2, 0, &none), None);
        let empty = LedgerChanges { changes: Vec::new(), ..none.clone() };
        assert_eq!(heard(2, 0, &empty), Some(Vec::new()), "it was made to tell who its sender is");
        assert_eq!(heard(2, 0, &LedgerChanges { snapshot: true, ..none }), Some(Vec::new()));
    }
}
