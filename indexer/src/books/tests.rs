use std::time::Duration;

use warmpath_core::rank::Candidate;

use super::*;
use crate::fleet::{EndpointSpec, Fleet, Observation};
use crate::ledger::Load;
use crate::reported::{Decided, Reported};

const LEASE: u64 = 1000;

/// Two indexers' view of the same two endpoints, under places of their own.
fn fleet() -> Snapshot {
    let mut fleet = Fleet::new(3);
    let endpoints =
        [1, 2].map(|host| EndpointSpec { ranks: 2, ..EndpointSpec::plain(([10, 0, 0, host], 80)) });
    fleet.apply(Observation::Listed { source: 0, endpoints: endpoints.into() });
    fleet.snapshot()
}

fn books(id: u32) -> Books {
    Books::new(IndexerId::new(id).unwrap(), 100)
}

fn placed(endpoint: &str, rank: u32) -> Placed {
    Placed {
        endpoint: endpoint.into(),
        rank,
        queued_tokens: 100,
        sequences: 1,
        lease_ms: LEASE,
        expected: None,
    }
}

fn forecast() -> Forecast {
    Forecast::of_nothing()
}

fn place(fleet: &Snapshot, endpoint: &str, rank: usize) -> StreamId {
    fleet.by_name(endpoint).unwrap().ranks[rank].place
}

/// Reserves a decision of `books` on the first endpoint.
fn decide(books: &mut Books, fleet: &Snapshot) -> DecisionId {
    let id = DecisionIds::new(books.own()).next();
    let at = place(fleet, "10.0.0.1:80", 1);
    books.reserve(id, at, placed("10.0.0.1:80", 1), forecast(), Millis(0)).unwrap();
    id
}

fn pending(books: &mut Books) -> Vec<Change> {
    match books.take_pending() {
        Pending::Changes(changes) => changes,
        Pending::Overflown => panic!("overflown"),
    }
}

/// Lets `to` hear all that `from` has to tell.
fn tell(from: &mut Books, to: &mut [&mut Books], fleet: &Snapshot) -> Vec<PeerChange> {
    let sender = from.own();
    let changes = pending(from);
    to.iter_mut()
        .flat_map(|books| {
            changes
                .iter()
                .map(|change| books.hear(sender, change.clone(), fleet, Millis(0)))
                .collect::<Vec<_>>()
        })
        .collect()
}

fn total(books: &Books, fleet: &Snapshot) -> (u64, u64) {
    let places = fleet.endpoints.iter().flat_map(|endpoint| &endpoint.ranks);
    places
        .map(|rank| books.ledger().load(rank.place))
        .fold((0, 0), |(q, a), Load { queued_tokens, sequences, .. }| (q + queued_tokens, a + sequences))
}

#[test]
fn ids_name_their_indexer() {
    let ids = DecisionIds::new(IndexerId::new(7).unwrap());
    let (first, second) = (ids.next(), ids.next());
    assert_ne!(first, second);
    assert_eq!(IndexerId::of(second), IndexerId::new(7));
    assert_eq!(IndexerId::of(DecisionId(5)), None);
}

#[test]
fn a_report_to_another_indexer_reaches_all_through_the_maker() {
    let fleet = fleet();
    let (mut a, mut b, mut c) = (books(1), books(2), books(3));
    let id = decide(&mut a, &fleet);
    tell(&mut a, &mut [&mut b, &mut c], &fleet);
    assert_eq!([total(&a, &fleet), total(&b, &fleet), total(&c, &fleet)], [(100, 1); 3]);

    let elsewhere = place(&fleet, "10.0.0.2:80", 1);
    b.report(id, Event::Moved(elsewhere), &fleet, Millis(0));
    b.report(id, Event::Started, &fleet, Millis(0));
    tell(&mut b, &mut [&mut a, &mut c], &fleet);
    for books in [&a, &b, &c] {
        assert_eq!(books.ledger().load(elsewhere), Load { sequences: 1, ..Load::default() });
    }
    c.report(id, Event::Released, &fleet, Millis(0));
    // B does not hear C, only the maker.
    tell(&mut c, &mut [&mut a], &fleet);
    assert_eq!(total(&b, &fleet), (0, 1));
    tell(&mut a, &mut [&mut b, &mut c], &fleet);
    assert_eq!([total(&a, &fleet), total(&b, &fleet), total(&c, &fleet)], [(0, 0); 3]);
    for books in [&mut a, &mut b, &mut c] {
        assert_eq!(pending(books), [], "nothing goes in circles");
        assert!(books.ledger().check());
    }
}

/// The end can be told sooner than the beginning: by another indexer, over another connection.
#[test]
fn an_end_that_overtakes_its_beginning_leaves_nothing() {
    let fleet = fleet();
    let (mut a, mut b) = (books(1), books(2));
    let id = decide(&mut a, &fleet);
    assert_eq!(b.report(id, Event::Released, &fleet, Millis(0)), None);
    tell(&mut b, &mut [&mut a], &fleet);
    tell(&mut a, &mut [&mut b], &fleet);
    assert_eq!((total(&a, &fleet), total(&b, &fleet)), ((0, 0), (0, 0)));
}

#[test]
fn what_is_over_does_not_come_back() {
    let fleet = fleet();
    let (mut a, mut b) = (books(1), books(2));
    let id = decide(&mut a, &fleet);
    tell(&mut a, &mut [&mut b], &fleet);
    b.report(id, Event::Moved(place(&fleet, "10.0.0.2:80", 0)), &fleet, Millis(0));
    a.report(id, Event::Released, &fleet, Millis(0));
    assert_eq!(tell(&mut b, &mut [&mut a], &fleet), [PeerChange::UnknownDecision]);
    assert_eq!(total(&a, &fleet), (0, 0));
}

#[test]
fn a_snapshot_brings_what_is_open_and_ends_what_is_not() {
    let fleet = fleet();
    let (mut a, mut b) = (books(1), books(2));
    let kept = decide(&mut a, &fleet);
    a.report(kept, Event::Started, &fleet, Millis(0));
    let stale = DecisionId(kept.0 + 1);
    b.hear(a.own(), Change { id: stale, what: What::Reserved(placed("10.0.0.1:80", 0)) }, &fleet, Millis(0));
    let own = decide(&mut b, &fleet);
    let snapshot: Vec<Change> = a.open().iter().flat_map(|open| open.changes(&fleet)).collect();
    b.keep_only(a.own(), &snapshot.iter().map(|change| change.id).collect(), Millis(0));
    for change in snapshot {
        let begins = matches!(change.what, What::Reserved(_)) && b.ledger().get(change.id).is_none();
        let expected = if begins { PeerChange::Begun } else { PeerChange::Applied };
        assert_eq!(b.hear(a.own(), change, &fleet, Millis(0)), expected);
    }
    let mut open: Vec<_> = b.ledger().entries().map(|(id, entry)| (id, entry.phase)).collect();
    open.sort_by_key(|(id, _)| *id);
    assert_eq!(open, [(kept, Phase::Running), (own, Phase::Queued)]);
}

#[test]
fn changes_of_endpoints_that_are_not_here_are_told_apart() {
    let fleet = fleet();
    let mut b = books(2);
    let id = DecisionId(1 << 32);
    let sender = IndexerId::new(1).unwrap();
    for (endpoint, rank) in [("10.0.0.9:80", 0), ("10.0.0.1:80", 2)] {
        let change = Change { id, what: What::Reserved(placed(endpoint, rank)) };
        assert_eq!(b.hear(sender, change, &fleet, Millis(0)), PeerChange::UnknownEndpoint);
    }
    assert!(b.ledger().is_empty());
}

#[test]
fn too_many_changes_restart_the_followers() {
    let fleet = fleet();
    let mut a = books(1);
    let id = decide(&mut a, &fleet);
    for _ in 0..PENDING_MAX {
        a.report(id, Event::Renewed, &fleet, Millis(0));
    }
    assert_eq!(a.take_pending(), Pending::Overflown);
    assert_eq!(pending(&mut a), []);
}

/// Who heard it from the gateway tells it; who heard it from a peer tells nobody but a new follower.
#[test]
fn where_a_response_was_made_is_told_once_and_to_late_followers() {
    let fleet = fleet();
    let (mut a, mut b, mut late) = (books(1), books(2), books(3));
    let key = ResponseKey::new(7).unwrap();
    a.answered(key, fleet.by_name("10.0.0.2:80").unwrap(), Millis(0));
    assert_eq!(tell(&mut a, &mut [&mut b], &fleet), [PeerChange::Applied]);
    let holder = Some(place(&fleet, "10.0.0.2:80", 0));
    assert_eq!((a.answers().place(key), b.answers().place(key)), (holder, holder));
    assert_eq!(pending(&mut b), [], "nothing goes in circles");
    let all = b.answers().slice(b.answers().all());
    for (key, place) in all.collect::<Vec<_>>() {
        let change = Change::answered(key, fleet.by_place(place).unwrap().0);
        assert_eq!(late.hear(b.own(), change, &fleet, Millis(0)), PeerChange::Applied);
    }
    assert_eq!(late.answers().place(key), holder);
    let elsewhere =
        Change { id: DecisionId(0), what: What::Answered { key, endpoint: "10.0.0.9:80".into() } };
    assert_eq!(late.hear(b.own(), elsewhere, &fleet, Millis(0)), PeerChange::UnknownEndpoint);
    assert_eq!(late.answers().place(key), holder, "what is known stays");
}

/// What is reported to another is passed on to the maker where that one listens, and nobody else's is.
#[test]
fn reports_are_passed_on_to_a_maker_that_listens() {
    let fleet = fleet();
    let (mut a, mut b) = (books(1), books(2));
    let id = decide(&mut a, &fleet);
    let report = Report { decision: Decided::Indexer(id), elapsed: Duration::ZERO, what: Reported::Alive };
    assert!(!b.pass_on(id, &report), "nobody listens");
    b.begin_following(IndexerId::new(3).unwrap());
    assert!(!b.pass_on(id, &report), "somebody else listens");
    b.begin_following(a.own());
    b.begin_following(a.own());
    b.end_following(a.own());
    assert!(b.pass_on(id, &report), "it came back before its first stream had ended");
    assert_eq!(pending(&mut b), [Change { id, what: What::Reported(Arc::new(report.clone())) }]);
    b.end_following(a.own());
    assert!(!b.pass_on(id, &report));
    a.begin_following(b.own());
    assert!(!a.pass_on(id, &report), "its own");
}

/// Nothing is made of what is seen where nobody listens.
#[test]
fn sightings_are_told_to_listeners_alone() {
    let fleet = fleet();
    let mut a = books(1);
    let endpoint = fleet.by_name("10.0.0.1:80").unwrap();
    a.saw(endpoint, Seen::Ended { has_failed: true });
    assert_eq!(pending(&mut a), []);
    a.begin_following(IndexerId::new(2).unwrap());
    a.saw(endpoint, Seen::Ended { has_failed: true });
    let told = pending(&mut a);
    assert_eq!(told, [Change::seen(endpoint, Seen::Ended { has_failed: true })]);
    let mut b = books(2);
    assert_eq!(
        b.hear(a.own(), told[0].clone(), &fleet, Millis(0)),
        PeerChange::Refused,
        "no entry of a ledger"
    );
}

#[test]
fn a_prompt_has_a_home_where_somebody_decides_beside_us() {
    let mut a = books(1);
    let unknown = Landmark { behind: 32, key: 7 };
    let first = Landmark { behind: 0, key: 3 };
    (0..8).for_each(|_| a.note_pick(Some(first), Millis(5)));
    let home = |a: &Books, now| a.home(unknown, |block| block == first, Millis(now));
    assert_eq!(home(&a, 5), None, "alone");
    let other = IndexerId::new(2).unwrap();
    a.begin_following(other);
    let at_once = home(&a, 5).unwrap();
    assert_ne!(home(&a, 1000).unwrap(), at_once, "all have heard of it");
    a.end_following(other);
    assert_eq!(home(&a, 5), None, "alone again");
}

/// What comes one at a time goes where it is at home, as long as nobody else picks; else to endpoints of our own.
#[test]
fn endpoints_are_left_to_those_alone_who_were_heard_to_pick() {
    let fleet = fleet();
    let (mut a, mut b) = (books(1), books(2));
    a.begin_following(b.own());
    let firsts = |a: &Books| {
        let first_of = |key| {
            let home = a.home(Landmark { behind: 0, key }, |_| false, Millis(10)).unwrap();
            let mut candidates = [Candidate::default(), Candidate::default()];
            let places = fleet.endpoints.iter().map(|endpoint| (&*endpoint.name, 0));
            home.settle(1000, places, &mut candidates);
            candidates.iter().position(|candidate| candidate.away_tokens == 0.0).unwrap()
        };
        (0..32).map(first_of).collect::<HashSet<usize>>().len()
    };
    a.note_pick(None, Millis(0));
    assert_eq!(firsts(&a), 2, "nobody else picks");
    decide(&mut b, &fleet);
    tell(&mut b, &mut [&mut a], &fleet);
    assert_eq!(firsts(&a), 1, "one is ours, one is the other's");
}

#[tokio::test]
async fn who_tells_peers_is_woken_when_there_is_something_to_tell() {
    let (mut a, fleet) = (books(1), fleet());
    let news = a.news();
    let waits = tokio::time::timeout(Duration::from_millis(1), news.notified());
    assert!(waits.await.is_err(), "nothing happened");
    decide(&mut a, &fleet);
    news.notified().await;
    assert_eq!(pending(&mut a).len(), 1);
}
