use std::collections::HashMap;

use warmpath_kv::{Index, IndexLimits, KeyHasher, Millis};
use warmpath_proto::v1::ledger_change::What;

use super::*;
use crate::answers::ResponseKey;
use crate::books::{DecisionIds, Placed};
use crate::fleet::{EndpointSpec, Fleet, Observation};
use crate::ledger::{Event, Forecast};

/// Everything that one indexer has, and its view of two endpoints.
struct Indexer {
    books: Arc<Mutex<Books>>,
    view: Arc<View>,
    publisher: Publisher,
    ids: DecisionIds,
}

// === impl Indexer ===

impl Indexer {
    fn new() -> Self {
        let mut fleet = Fleet::new(3);
        let endpoints = [1, 2].map(|host| EndpointSpec::plain(([10, 0, 0, host], 80)));
        fleet.apply(Observation::Listed { source: 0, endpoints: endpoints.into() });
        let view = Arc::new(View::default());
        view.publish(fleet.snapshot());
        let own = IndexerId::new(1).unwrap();
        let books = Arc::new(Mutex::new(Books::new(own, 1 << 20)));
        let index = Index::new(KeyHasher::new([1; 16]), IndexLimits::default());
        let cached = index.reader();
        let publisher = Publisher::new(books.clone(), cached, PeerMetrics::default());
        Self { books, view, publisher, ids: DecisionIds::new(own) }
    }

    fn answer(&self, number: u64, host: u8) {
        let fleet = self.view.current();
        let endpoint = fleet.by_name(&format!("10.0.0.{host}:80")).unwrap();
        self.books.lock().answered(ResponseKey::new(number).unwrap(), endpoint, Millis(number));
    }

    fn reserve(&self) -> u64 {
        let fleet = self.view.current();
        let endpoint = &fleet.endpoints[0];
        let (id, place) = (self.ids.next(), endpoint.ranks[0].place);
        let placed = Placed {
            endpoint: endpoint.name.clone(),
            rank: 0,
            queued_tokens: 1,
            sequences: 1,
            lease_ms: 1000,
            expected: None,
        };
        let forecast = Forecast::of_nothing();
        self.books.lock().reserve(id, place, placed, forecast, Millis(0)).unwrap();
        id.0
    }

    fn release(&self, id: u64) {
        let fleet = self.view.current();
        let id = crate::ledger::DecisionId(id);
        self.books.lock().report(id, Event::Released, &fleet, Millis(0)).unwrap();
    }
}

/// What a follower knows of what it was told.
#[derive(Debug, Default, PartialEq, Eq)]
struct Follower {
    open: std::collections::BTreeSet<u64>,
    answers: HashMap<u64, String>,
    /// Answers told.
    told: usize,
}

// === impl Follower ===

impl Follower {
    fn hear(&mut self, batch: LedgerChanges) {
        assert!(batch.changes.len() <= BATCH_CHANGES_MAX);
        for change in batch.changes {
            match change.what.unwrap() {
                What::Reserved(_) => assert!(self.open.insert(change.decision_id), "told twice"),
                What::Released(_) => assert!(self.open.remove(&change.decision_id), "over before it began"),
                What::Answered(answered) => {
                    self.told += 1;
                    self.answers.insert(answered.response_key, answered.endpoint);
                }
                What::Started(_) | What::Renewed(_) | What::Reported(_) | What::Sighting(_) => {}
            }
        }
    }
}

fn audience(follower_id: u64) -> Audience {
    Audience::of(&FollowRequest { follower_id, protocol: audience::PROTOCOL }).unwrap()
}

/// Two batches and a bit.
const ANSWERS: u64 = 2 * BATCH_CHANGES_MAX as u64 + 10;

/// Whatever happens between any two batches of a snapshot, a follower ends with what the books hold.
#[tokio::test]
async fn nothing_is_lost_that_happens_while_a_follower_is_told_everything() {
    let indexer = Indexer::new();
    for number in 1..=ANSWERS {
        indexer.answer(number, 1);
    }
    let (kept, over) = (indexer.reserve(), indexer.reserve());
    indexer.publisher.flush();
    let service = indexer.publisher.service(indexer.view.clone(), Clock::start());
    let mut stream = Box::pin(service.changes(audience(2)).unwrap());
    let mut follower = Follower::default();
    let first = stream.next().await.unwrap().unwrap();
    assert!(first.snapshot && first.changes.len() == 2, "the open decisions come first");
    follower.hear(first);

    // A response that is told already, one that is to come, a new one; an end, and a beginning.
    indexer.answer(ANSWERS, 2);
    let second = stream.next().await.unwrap().unwrap();
    assert!(!second.snapshot);
    follower.hear(second);
    indexer.answer(1, 2);
    indexer.answer(ANSWERS + 1, 2);
    indexer.release(over);
    let late = indexer.reserve();
    indexer.publisher.flush();
    while follower.told < ANSWERS as usize + 3 {
        follower.hear(stream.next().await.unwrap().unwrap());
    }
    assert_eq!(follower.open, [kept, late].into());
    let books = indexer.books.lock();
    let fleet = indexer.view.current();
    let held: HashMap<u64, String> = books
        .answers()
        .slice(books.answers().all())
        .map(|(key, place)| (key.get(), fleet.by_place(place).unwrap().0.name.to_string()))
        .collect();
    assert_eq!(held.len(), ANSWERS as usize + 1);
    assert_eq!(follower.answers, held);
}

/// The mutex that decisions need is free while batches are made, and for each of them it is held for one slice only.
#[tokio::test]
async fn a_snapshot_of_nothing_is_one_batch_and_takes_the_lock_for_a_slice_at_a_time() {
    let indexer = Indexer::new();
    let empty = Snapshot::of(&indexer.books.lock(), indexer.publisher.namer.name());
    let batches: Vec<_> =
        empty.batches(indexer.books.clone(), indexer.view.clone(), Clock::start()).collect().await;
    assert_eq!(batches.iter().map(|batch| batch.snapshot).collect::<Vec<_>>(), [true]);
    for number in 1..=ANSWERS {
        indexer.answer(number, 1);
    }
    let held = Snapshot::of(&indexer.books.lock(), indexer.publisher.namer.name());
    let mut batches = Box::pin(held.batches(indexer.books.clone(), indexer.view.clone(), Clock::start()));
    let mut lengths = Vec::new();
    while let Some(batch) = batches.next().await {
        assert!(indexer.books.try_lock().is_some());
        lengths.push(batch.changes.len());
    }
    assert_eq!(lengths, [0, BATCH_CHANGES_MAX, BATCH_CHANGES_MAX, 10]);
}
