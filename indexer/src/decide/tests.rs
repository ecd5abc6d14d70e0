use std::net::SocketAddr;

use warmpath_core::rank::{Deciders, Landmark, Other, Unheard};
use warmpath_kv::Millis;

use super::candidates::{Circumstances, gather};
use super::ranking::Ranking;
use super::*;
use crate::engines::{Census, ListedAdapter};
use crate::fleet::{EndpointSpec, Fleet, Heard, ModelIndex, Observation, Sample};
use crate::ledger::{Ledger, Reservation};

/// Two endpoints of model 0, the second with two ranks, and one of model 1.
fn fleet() -> Snapshot {
    let mut fleet = Fleet::new(1);
    let endpoints = [(1, 0, 1), (2, 0, 2), (3, 1, 1)].map(|(host, model, ranks)| EndpointSpec {
        model: ModelIndex(model),
        ranks,
        ..EndpointSpec::plain(([10, 0, 0, host], 80))
    });
    fleet.apply(Observation::Listed { source: 0, endpoints: endpoints.into() });
    fleet.snapshot()
}

fn at(ledger: &Ledger, now: u64) -> Circumstances<'_> {
    Circumstances {
        ledger,
        now: Millis(now),
        beat_ms: 100,
        slow_start_ms: 0,
        zone: Some("a"),
        other_zone_tokens: 64.0,
        home: None,
    }
}

fn base(model: usize) -> Target {
    Target { model: ModelIndex(model), adapter: None }
}

fn names(endpoints: &[&Endpoint]) -> Vec<String> {
    endpoints.iter().map(|endpoint| endpoint.name.to_string()).collect()
}

#[test]
fn only_endpoints_of_the_model_are_candidates() {
    let (fleet, nothing) = (fleet(), Directory::default());
    assert_eq!(names(&serving(&fleet, &base(0), &nothing)), ["10.0.0.1:80", "10.0.0.2:80"]);
    assert_eq!(names(&serving(&fleet, &base(1), &nothing)), ["10.0.0.3:80"]);
    assert_eq!(names(&serving(&fleet, &base(2), &nothing)), Vec::<String>::new());
}

#[test]
fn an_adapter_s_requests_go_to_those_that_have_it_or_to_all_of_its_base_where_nobody_says_so() {
    let fleet = fleet();
    let target = Target { model: ModelIndex(0), adapter: Some("sql".into()) };
    let directory = |host: u8| {
        let mut census = Census::new(1000);
        census.note(
            SocketAddr::from(([10, 0, 0, host], 80)),
            Some(vec![ListedAdapter { name: "sql".into(), path: None }]),
            None,
            Millis(0),
        );
        census.directory(&fleet, Millis(0))
    };
    assert_eq!(names(&serving(&fleet, &target, &directory(2))), ["10.0.0.2:80"]);
    assert_eq!(names(&serving(&fleet, &base(0), &directory(2))), ["10.0.0.1:80", "10.0.0.2:80"]);
    // Nobody says to have it; an engine of another base does.
    for host in [9, 3] {
        assert_eq!(names(&serving(&fleet, &target, &directory(host))), ["10.0.0.1:80", "10.0.0.2:80"]);
    }
}

#[test]
fn a_candidate_per_rank_with_our_count_and_what_the_engine_says() {
    let fleet = fleet();
    let endpoints = serving(&fleet, &base(0), &Directory::default());
    let ranks: Vec<_> = endpoints.iter().flat_map(|endpoint| &endpoint.ranks).collect();
    let mut ledger = Ledger::new(10);
    let reservation = Reservation { place: ranks[1].place, queued_tokens: 70, sequences: 2, lease_ms: 1000 };
    ledger.reserve(DecisionId(1), reservation, None, Millis(0)).unwrap();
    let sample = Sample {
        at: Millis(100),
        running: 5,
        waiting: 1,
        kv_usage: 0.5,
        pressure: 0.75,
        foreign_sequences: 4,
        foreign_waiting: 1,
        room_tokens: Some(900),
    };
    ranks[1].gauge.set(sample);
    let holder = ranks[2].place;
    let cached = |place| if place == holder { 48 } else { 0 };

    let (seats, fresh) = gather(&endpoints, cached, at(&ledger, 200));
    let seen: Vec<_> = seats.iter().map(|seat| (&*seat.endpoint, seat.rank)).collect();
    assert_eq!(seen, [("10.0.0.1:80", None), ("10.0.0.2:80", Some(0)), ("10.0.0.2:80", Some(1))]);
    assert_eq!(fresh.iter().map(|c| c.cached_tokens).collect::<Vec<_>>(), [0, 0, 48]);
    assert_eq!((fresh[1].queued_tokens, fresh[1].active_sequences, fresh[1].pressure), (70, 6, 0.75));
    assert_eq!((fresh[1].waiting_sequences, fresh[1].kv_usage, fresh[1].room_tokens), (3, 0.5, Some(900)));

    // Old figures are left out; our own count stays.
    let (_, stale) = gather(&endpoints, cached, at(&ledger, 10_000));
    assert_eq!((stale[1].queued_tokens, stale[1].active_sequences, stale[1].pressure), (70, 2, 0.0));
    assert_eq!((stale[1].waiting_sequences, stale[1].kv_usage, stale[1].room_tokens), (2, 0.0, None));
}

#[test]
fn zone_capacity_and_youth_are_terms() {
    let mut fleet = fleet();
    for (endpoint, (zone, capacity)) in fleet.endpoints.iter_mut().zip([("a", 1.0), ("b", 2.0)]) {
        let capacity = crate::fleet::Capacity::of(capacity);
        endpoint.spec =
            Arc::new(EndpointSpec { zone: Some(zone.to_owned()), capacity, ..(*endpoint.spec).clone() });
        endpoint.meter.begin(Millis(1000));
    }
    let endpoints = serving(&fleet, &base(0), &Directory::default());
    let ledger = Ledger::new(1);
    let gathered = |now| {
        let circumstances = Circumstances { slow_start_ms: 10_000, ..at(&ledger, now) };
        gather(&endpoints, |_| 0, circumstances).1
    };
    let candidates = gathered(1000);
    let terms: Vec<_> = candidates.iter().map(|c| (c.penalty, c.capacity, c.ramp)).collect();
    // All are equally young, so none is spared for another.
    assert_eq!(terms, [(0.0, 1.0, 1.0), (64.0, 2.0, 1.0), (64.0, 2.0, 1.0)]);
    endpoints[0].meter.begin(Millis(21_000));
    let ramps: Vec<_> = gathered(21_000).iter().map(|c| c.ramp).collect();
    assert_eq!(ramps, [0.1, 1.0, 1.0]);
}

#[test]
fn a_home_is_one_rank_of_one_endpoint_whatever_others_the_fleet_has() {
    let fleet = fleet();
    let ledger = Ledger::new(1);
    let away = |endpoints: &[&Endpoint], home| {
        let circumstances = Circumstances { home, ..at(&ledger, 0) };
        let (_, candidates) = gather(endpoints, |_| 0, circumstances);
        candidates.iter().map(|c| c.away_tokens).collect::<Vec<_>>()
    };
    let all = serving(&fleet, &base(0), &Directory::default());
    assert_eq!(away(&all, None), [0.0; 3]);
    let mut unheard = Unheard::default();
    (0..32).for_each(|_| unheard.note(0, None));
    let another = Other { id: 2, picked_at_ms: None };
    let deciders = Deciders::of(1, [another].into_iter(), 0);
    let homes: Vec<usize> = (0..64)
        .map(|key| {
            let home = unheard.home(deciders, 0, Landmark { behind: 0, key }, |_| false).unwrap();
            let far = away(&all, Some((home, 1000)));
            let at_home = far.iter().position(|tokens| *tokens == 0.0).unwrap();
            assert_eq!(far.iter().filter(|tokens| **tokens >= 1000.0).count(), 2, "{far:?}");
            at_home
        })
        .collect();
    assert!((0..3).all(|place| homes.contains(&place)), "{homes:?}");
}

#[test]
fn who_drains_or_keeps_failing_gets_nothing_new_unless_nobody_else_is_left() {
    let fleet = fleet();
    let all: Vec<_> = fleet.usable().collect();
    let outliers = Outliers { failures: 1, eject_ms: 1000 };
    let left = |now| names(&choosable(&all, None, Millis(now)));
    all[0].meter.order_draining(true, 1);
    assert_eq!(left(0), ["10.0.0.2:80", "10.0.0.3:80"]);
    all[1].meter.hear(Heard::Failed, outliers, Millis(0));
    assert_eq!(left(0), ["10.0.0.3:80"]);
    all[2].meter.hear(Heard::Failed, outliers, Millis(0));
    assert_eq!(left(0), ["10.0.0.2:80", "10.0.0.3:80"], "all others fail");
    for endpoint in &all[1..] {
        endpoint.meter.order_draining(true, 1);
    }
    assert_eq!(left(0).len(), 3, "all drain");
    all[1].meter.order_draining(false, 2);
    assert_eq!(left(1000), ["10.0.0.2:80"], "its time is over");
}

/// Two requests are measured at the same time, and both see that the endpoint may be tried: the first one to pick is its
/// only probe.
#[test]
fn who_comes_late_for_the_probe_goes_elsewhere() {
    let fleet = fleet();
    let all: Vec<_> = fleet.usable().collect();
    let outliers = Outliers { failures: 1, eject_ms: 1000 };
    all[0].meter.hear(Heard::Failed, outliers, Millis(0));
    let seen = choosable(&all, None, Millis(1000));
    assert_eq!(seen.len(), 3, "its time is over");
    all[0].meter.hear(Heard::Picked, outliers, Millis(1000));
    assert_eq!(names(&choosable(&seen, None, Millis(1000))), ["10.0.0.2:80", "10.0.0.3:80"]);
    // Whoever has nobody else goes there all the same, and so does what only it can answer.
    assert_eq!(names(&choosable(&seen[..1], None, Millis(1000))), ["10.0.0.1:80"]);
    assert_eq!(choosable(&seen, Some("10.0.0.1:80"), Millis(1000)).len(), 3);
}

#[test]
fn a_retry_goes_to_another_endpoint_not_to_another_rank() {
    let fleet = fleet();
    let endpoints: Vec<_> = fleet.usable().collect();
    let (seats, candidates) = gather(&endpoints, |_| 0, at(&Ledger::new(1), 0));
    let entry =
        |index| Ranked { index, cost: 0.0, uncached_tokens: 0, duplicated_tokens: 0, missing_tokens: 0 };
    // Both ranks of the second endpoint first.
    let ranking =
        Ranking { seats, candidates, ranked: vec![entry(2), entry(1), entry(0), entry(3)], unknown: None };
    let best: Vec<_> = ranking.best().into_iter().map(|(seat, _, _)| (&*seat.endpoint, seat.rank)).collect();
    assert_eq!(best, [("10.0.0.2:80", Some(1)), ("10.0.0.1:80", None), ("10.0.0.3:80", None)]);
}

#[test]
fn reasons_have_distinct_names_that_the_filter_knows() {
    let error = warmpath_prompt::PromptError::Media;
    let reasons = [
        Reason::Filter(warmpath_core::outcome::Reason::PromptEmbeds),
        Reason::PreviousResponse,
        Reason::PreviousResponseUnknown,
        Reason::UnknownModel,
        Reason::NoTokenizer,
        Reason::from(&error),
        Reason::BelowBlock,
        Reason::NoEvents,
        Reason::Busy,
        Reason::Late,
        Reason::Failed,
    ];
    for name in reasons.iter().map(|reason| reason.name()).chain(warmpath_prompt::PromptError::REASONS) {
        let known = warmpath_core::outcome::Reason::by_name(name);
        assert_ne!(known, warmpath_core::outcome::Reason::Other, "the filter does not know {name}");
    }
    let names: std::collections::HashSet<_> = reasons.iter().map(|reason| reason.name()).collect();
    assert_eq!(names.len(), reasons.len());
    assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')));
}

fn question(prompt: Prompt) -> Question {
    Question {
        model: String::new(),
        prompt,
        cache_salt: None,
        task: warmpath_prompt::Task::Generate,
        add_special_tokens: None,
        truncate: warmpath_prompt::Truncate::default(),
        previous_response: None,
        body_bytes: 10_000_000,
        sequences_per_prompt: 1,
        policy: None,
        group_key: 0,
        answer_by: None,
    }
}

#[test]
fn a_request_is_estimated_by_its_prompt_and_by_its_body_only_without_one() {
    let picture = Chat { messages: vec![b' '; 400], has_media: true, ..Chat::default() };
    assert_eq!(question(Prompt::Chat(Box::new(picture))).estimated_bytes(), 400);
    assert_eq!(question(Prompt::Tokens(vec![vec![1; 10], vec![2; 5]])).estimated_bytes(), 60);
    let given = Chat { messages: vec![b' '; 7], prompt_token_ids: Some(vec![1; 100]), ..Chat::default() };
    assert_eq!(question(Prompt::Chat(Box::new(given))).estimated_bytes(), 407);
    assert_eq!(question(Prompt::Absent(Reason::UnknownModel)).estimated_bytes(), 10_000_000);
}

/// Counting tokens, or asking for a response that is kept, takes no place in any queue.
#[test]
fn a_request_for_which_nothing_is_computed_has_no_size() {
    let no_prefill = Reason::Filter(warmpath_core::outcome::Reason::NoPrefill);
    let nothing = question(Prompt::Absent(no_prefill));
    assert_eq!((nothing.sequences(), nothing.estimated_bytes()), (0, 0));
    let something = question(Prompt::Absent(Reason::UnknownModel));
    assert_eq!(something.sequences(), 1);
}

#[test]
fn who_keeps_a_response_comes_first_and_the_others_stay_in_order() {
    let fleet = fleet();
    let endpoints: Vec<_> = fleet.usable().collect();
    let (seats, candidates) = gather(&endpoints, |_| 0, at(&Ledger::new(1), 0));
    let entry =
        |index| Ranked { index, cost: 0.0, uncached_tokens: 0, duplicated_tokens: 0, missing_tokens: 0 };
    let ranked = vec![entry(3), entry(2), entry(0), entry(1)];
    let mut ranking = Ranking { seats, candidates, ranked, unknown: None };
    for keeper in ["10.0.0.2:80", "10.0.0.9:80"] {
        ranking.put_first(keeper);
        let order: Vec<_> = ranking.ranked.iter().map(|ranked| ranked.index).collect();
        assert_eq!(order, [2, 1, 3, 0], "after {keeper}");
    }
}
