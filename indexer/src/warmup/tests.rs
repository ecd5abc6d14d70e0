use super::*;
use crate::config::StreamAddress;
use crate::fleet::{EndpointSpec, Fleet, Observation};
use crate::logs::Lines;

fn listed(source: usize, hosts: &[u8]) -> Observation {
    let endpoints = hosts.iter().map(|host| EndpointSpec {
        events: Some(StreamAddress::new(format!("10.0.0.{host}"), 1)),
        ..EndpointSpec::plain(([10, 0, 0, *host], 80))
    });
    Observation::Listed { source, endpoints: endpoints.collect() }
}

fn live(fleet: &Snapshot) -> Vec<StreamStatus> {
    let ranks = fleet.endpoints.iter().flat_map(|endpoint| &endpoint.ranks);
    let status = |place| StreamStatus { trust: Trust::Live, ..StreamStatus::new(place, String::new(), 0) };
    ranks.map(|rank| status(rank.place)).collect()
}

/// An indexer whose endpoints have names only is not ready before the names have been looked up and what they stand for has
/// been read.
#[test]
fn endpoints_that_are_found_by_name_are_waited_for() {
    let (readiness, mut fleet) = (Readiness::new(), Fleet::new(3));
    let mut awaited = Awaited::new(readiness.clone(), readiness.wait_for("fleet"), 2);
    fleet.apply(listed(0, &[]));
    awaited.look(&fleet.snapshot(), &[]);
    assert_eq!(readiness.pending(), ["fleet"]);
    fleet.apply(listed(1, &[1, 2]));
    awaited.look(&fleet.snapshot(), &[]);
    assert_eq!(readiness.pending(), ["stream 10.0.0.1:80/0", "stream 10.0.0.2:80/0"]);
    awaited.look(&fleet.snapshot(), &live(&fleet.snapshot())[..1]);
    assert_eq!(readiness.pending(), ["stream 10.0.0.2:80/0"]);
    awaited.look(&fleet.snapshot(), &live(&fleet.snapshot()));
    assert!(awaited.is_empty() && readiness.pending().is_empty());
}

/// An engine that says where it publishes makes another incarnation of its endpoint, whose streams count then.
#[test]
fn an_endpoint_that_goes_is_not_waited_for_and_its_successor_is() {
    let (readiness, mut fleet) = (Readiness::new(), Fleet::new(3));
    let mut awaited = Awaited::new(readiness.clone(), readiness.wait_for("fleet"), 1);
    fleet.apply(listed(0, &[1]));
    awaited.look(&fleet.snapshot(), &[]);
    let before = live(&fleet.snapshot());
    fleet.apply(listed(0, &[]));
    fleet.apply(listed(0, &[1]));
    awaited.look(&fleet.snapshot(), &before);
    assert_eq!(readiness.pending(), ["stream 10.0.0.1:80/0"]);
    awaited.look(&fleet.snapshot(), &live(&fleet.snapshot()));
    assert!(readiness.pending().is_empty());
    fleet.apply(listed(0, &[]));
    awaited.look(&fleet.snapshot(), &[]);
    assert!(awaited.is_empty());
}

/// Each of them, and not that it is done.
#[test]
fn the_log_says_how_each_wait_ended() {
    let lines = Lines::default();
    let _logging = lines.begin();
    let (readiness, mut fleet) = (Readiness::new(), Fleet::new(3));
    let mut awaited = Awaited::new(readiness.clone(), readiness.wait_for("fleet"), 2);
    let models = readiness.wait_for("models");
    fleet.apply(listed(0, &[1, 2, 3, 4]));
    awaited.look(&fleet.snapshot(), &[]);
    let mut statuses = live(&fleet.snapshot());
    statuses[1].trust = Trust::Silent;
    awaited.look(&fleet.snapshot(), &statuses[..2]);
    fleet.apply(listed(0, &[1, 2, 4]));
    awaited.look(&fleet.snapshot(), &[]);
    awaited.give_up();
    drop(models);
    let text = lines.text();
    let result = |name: &str| {
        let line = text.lines().find(|line| line.contains(&format!("waited_for=\"{name}\""))).unwrap();
        line.split("result=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_owned()
    };
    let results = [1, 2, 3, 4].map(|host| result(&format!("stream 10.0.0.{host}:80/0")));
    assert_eq!(results, ["read up", "silent", "gone", "late"], "{text}");
    assert_eq!((result("fleet").as_str(), result("models").as_str()), ("late", "given up"));
    assert!(text.lines().last().is_some_and(|line| line.contains(" ready ")), "{text}");
}
