use super::*;
use crate::config::StreamAddress;

fn spec(host: u8) -> EndpointSpec {
    EndpointSpec { ranks: 2, ..EndpointSpec::plain(([10, 0, 0, host], 8000)) }
}

fn listed(source: usize, hosts: &[u8]) -> Observation {
    Observation::Listed { source, endpoints: hosts.iter().map(|host| spec(*host)).collect() }
}

fn refused(host: u8) -> Observation {
    Observation::Contacted { address: spec(host).address, contact: Contact::Refused }
}

fn answered(host: u8) -> Observation {
    Observation::Contacted { address: spec(host).address, contact: Contact::Answered }
}

/// `+host`, `-host` and `!host` (health), in order.
fn summary(changes: &[Change]) -> Vec<String> {
    let host =
        |name: &str| name.rsplit(['.']).next().and_then(|rest| rest.split(':').next().map(str::to_owned));
    changes
        .iter()
        .map(|change| match change {
            Change::Added(endpoint) => format!("+{}", host(&endpoint.name).unwrap()),
            Change::Removed(endpoint) => format!("-{}", host(&endpoint.name).unwrap()),
            Change::HealthChanged { endpoint } => {
                format!("!{}{}", host(&endpoint.name).unwrap(), endpoint.health.name())
            }
        })
        .collect()
}

fn names(fleet: &Fleet) -> Vec<String> {
    fleet.snapshot().usable().map(|endpoint| endpoint.name.to_string()).collect()
}

#[test]
fn sources_add_up_and_each_replaces_its_own_set() {
    let mut fleet = Fleet::new(3);
    assert_eq!(summary(&fleet.apply(listed(0, &[2, 1]))), ["+1", "+2"]);
    assert_eq!(summary(&fleet.apply(listed(1, &[2, 3]))), ["+3"]);
    assert_eq!(summary(&fleet.apply(listed(1, &[4]))), ["-3", "+4"]);
    assert_eq!(summary(&fleet.apply(listed(1, &[4]))), [""; 0]);
    assert_eq!(names(&fleet), ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.4:8000"]);
}

/// An endpoint that goes and comes, or changes, is another incarnation: nothing late can be taken for it.
#[test]
fn every_incarnation_has_new_places() {
    let mut fleet = Fleet::new(3);
    let mut seen = std::collections::HashSet::new();
    let mut all_new = |fleet: &Fleet| {
        let snapshot = fleet.snapshot();
        snapshot.endpoints.iter().flat_map(|endpoint| &endpoint.ranks).all(|rank| seen.insert(rank.place))
    };
    fleet.apply(listed(0, &[1]));
    assert!(all_new(&fleet));
    fleet.apply(listed(0, &[]));
    fleet.apply(listed(0, &[1]));
    assert!(all_new(&fleet));
    let more_ranks = EndpointSpec { ranks: 3, ..spec(1) };
    let changes = fleet.apply(Observation::Listed { source: 0, endpoints: vec![more_ranks] });
    assert_eq!(summary(&changes), ["-1", "+1"]);
    assert!(all_new(&fleet));
}

/// What an engine says counts as long as its endpoint is there, and makes another incarnation of it.
#[test]
fn an_engine_that_is_asked_says_how_many_ranks_it_has_and_where() {
    let mut fleet = Fleet::new(3);
    let configured = Some(StreamAddress::new("10.0.0.1", 5557));
    let asked = EndpointSpec { ports: Ports::Engine(None), ranks: 1, events: configured, ..spec(1) };
    let listed = || Observation::Listed { source: 0, endpoints: vec![asked.clone(), spec(2)] };
    let source = |port: u16| RankSource { events: StreamAddress::new("10.0.0.1", port), replay: None };
    let told = |host, sources: &[RankSource]| Observation::Told {
        address: spec(host).address,
        sources: sources.to_vec(),
    };
    let events = |fleet: &Fleet| -> Vec<String> {
        let endpoint = fleet.snapshot().by_name("10.0.0.1:8000").cloned().unwrap();
        let sources = (0..).zip(&endpoint.ranks).filter_map(|(rank, _)| endpoint.spec.source(rank));
        sources.map(|source| source.events.to_string()).collect()
    };
    fleet.apply(listed());
    assert_eq!(events(&fleet), ["tcp://10.0.0.1:5557"], "until it has answered");
    let both = [source(40_001), source(40_007)];
    assert_eq!(summary(&fleet.apply(told(1, &both))), ["-1", "+1"]);
    assert_eq!(events(&fleet), ["tcp://10.0.0.1:40001", "tcp://10.0.0.1:40007"]);
    assert_eq!(summary(&fleet.apply(told(1, &both))), [""; 0], "the same again");
    assert_eq!(summary(&fleet.apply(listed())), [""; 0]);
    assert_eq!(summary(&fleet.apply(told(2, &both))), [""; 0], "it is not asked");
    assert_eq!(summary(&fleet.apply(told(9, &both))), [""; 0], "nobody we know");
    assert_eq!(summary(&fleet.apply(told(1, &[]))), ["-1", "+1"]);
    assert_eq!(events(&fleet), ["tcp://10.0.0.1:5557"], "it says that there is nothing");
    fleet.apply(told(1, &both));
    fleet.apply(Observation::Listed { source: 0, endpoints: Vec::new() });
    fleet.apply(listed());
    assert_eq!(events(&fleet), ["tcp://10.0.0.1:5557"], "another process may have come");
}

#[test]
fn refusals_in_a_row_avoid_an_endpoint_and_the_first_answer_brings_it_back() {
    let mut fleet = Fleet::new(2);
    fleet.apply(listed(0, &[1, 2]));
    assert_eq!(summary(&fleet.apply(refused(1))), [""; 0]);
    assert_eq!(names(&fleet).len(), 2);
    assert_eq!(summary(&fleet.apply(refused(1))), ["!1avoided"]);
    assert_eq!(names(&fleet), ["10.0.0.2:8000"]);
    assert_eq!(summary(&fleet.apply(answered(1))), ["!1good"]);
    assert_eq!(names(&fleet).len(), 2);
    assert_eq!(summary(&fleet.apply(refused(9))), [""; 0], "nobody we know");
}

/// Traffic never stops because all seem dead.
#[test]
fn when_all_are_avoided_all_are_used() {
    let mut fleet = Fleet::new(1);
    fleet.apply(listed(0, &[1, 2]));
    fleet.apply(refused(1));
    fleet.apply(refused(2));
    assert_eq!(names(&fleet).len(), 2);
}

#[test]
fn the_version_is_that_of_the_usable_set_and_the_same_everywhere() {
    let mut fleet = Fleet::new(1);
    let empty = fleet.snapshot().version;
    fleet.apply(listed(0, &[1, 2]));
    let both = fleet.snapshot().version;
    fleet.apply(refused(1));
    let one = fleet.snapshot().version;
    fleet.apply(answered(1));
    assert_eq!(fleet.snapshot().version, both);
    assert!(empty != 0 && empty != both && both != one);
    let mut other = Fleet::new(1);
    other.apply(listed(3, &[2]));
    assert_eq!(other.snapshot().version, one, "history and source do not matter");
}

#[test]
fn endpoints_are_found_by_name_and_by_place() {
    let mut fleet = Fleet::new(1);
    fleet.apply(listed(0, &[3, 1, 2]));
    let snapshot = fleet.snapshot();
    let found = snapshot.by_name("10.0.0.2:8000").unwrap();
    assert_eq!(&*found.name, "10.0.0.2:8000");
    let (same, rank) = snapshot.by_place(found.ranks[1].place).unwrap();
    assert_eq!((same.name.clone(), rank), (found.name.clone(), 1));
    assert!(snapshot.by_name("10.0.0.9:8000").is_none() && snapshot.by_name("nonsense").is_none());
    assert!(snapshot.by_place(StreamId(999)).is_none());
}

/// An answer of a resolver for source 5, whose endpoints are gone after three answers without them.
fn resolved(hosts: &[u8]) -> Observation {
    let endpoints = hosts.iter().map(|host| spec(*host)).collect();
    Observation::Resolved { source: 5, endpoints, absences_max: 3 }
}

/// What is known of its cache would take minutes to learn again.
#[test]
fn an_endpoint_that_one_answer_leaves_out_stays_the_same() {
    let mut fleet = Fleet::new(3);
    fleet.apply(resolved(&[1, 2]));
    let place = |fleet: &Fleet| fleet.snapshot().by_name("10.0.0.1:8000").map(|it| it.ranks[0].place);
    let before = place(&fleet);
    for _ in 0..10 {
        assert_eq!(summary(&fleet.apply(resolved(&[2]))), [""; 0]);
        assert_eq!(fleet.absent().len(), 1);
        assert_eq!(summary(&fleet.apply(resolved(&[2]))), [""; 0], "twice, and its engine answers");
        assert_eq!(summary(&fleet.apply(answered(1))), [""; 0]);
        assert_eq!(summary(&fleet.apply(resolved(&[1]))), [""; 0], "now the other one");
        assert_eq!(summary(&fleet.apply(resolved(&[1, 2]))), [""; 0]);
        assert!(fleet.absent().is_empty());
    }
    assert_eq!(place(&fleet), before);
}

#[test]
fn an_endpoint_goes_when_answers_leave_it_out_for_long_or_its_engine_says_so() {
    let mut fleet = Fleet::new(3);
    fleet.apply(resolved(&[1, 2, 3]));
    assert_eq!(summary(&fleet.apply(resolved(&[3]))), [""; 0]);
    assert_eq!(summary(&fleet.apply(refused(1))), [""; 0], "one answer proves nothing");
    assert_eq!(summary(&fleet.apply(resolved(&[3]))), ["-1"], "two, and it refuses connections");
    assert_eq!(summary(&fleet.apply(resolved(&[3]))), ["-2"], "three");
    assert_eq!(summary(&fleet.apply(resolved(&[]))), [""; 0]);
    assert_eq!(summary(&fleet.apply(resolved(&[]))), [""; 0]);
    assert_eq!(summary(&fleet.apply(refused(3))), ["-3"], "at once, not with the next answer");
}

/// Addresses are given away again: another model's engine may have it by now.
#[test]
fn what_another_source_names_goes_before_what_is_kept() {
    let mut fleet = Fleet::new(3);
    fleet.apply(resolved(&[1]));
    fleet.apply(resolved(&[]));
    let other = EndpointSpec { model: ModelIndex(1), ..spec(1) };
    let named = || Observation::Resolved { source: 7, endpoints: vec![other.clone()], absences_max: 3 };
    assert_eq!(summary(&fleet.apply(named())), ["-1", "+1"]);
    assert!(fleet.absent().is_empty());
    fleet.apply(resolved(&[]));
    assert_eq!(summary(&fleet.apply(named())), [""; 0]);
    assert_eq!(fleet.snapshot().endpoints[0].spec.model, ModelIndex(1));
}
