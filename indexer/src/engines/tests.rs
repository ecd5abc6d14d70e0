use super::*;
use crate::fleet::{EndpointSpec, Fleet, Observation};

const BEAT: u64 = 1000;

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 80))
}

/// Endpoints by their last octet, each with its model.
fn fleet(endpoints: &[(u8, usize)]) -> Snapshot {
    let specs = endpoints.iter().map(|(host, model)| EndpointSpec {
        model: ModelIndex(*model),
        ..EndpointSpec::plain(address(*host))
    });
    let mut fleet = Fleet::new(1);
    fleet.apply(Observation::Listed { source: 0, endpoints: specs.collect() });
    fleet.snapshot()
}

/// Each loaded from a folder of its name.
fn names(names: &[&str]) -> Option<Vec<ListedAdapter>> {
    let listed =
        |name: &&str| ListedAdapter { name: Arc::from(*name), path: Some(format!("/loras/{name}").into()) };
    Some(names.iter().map(listed).collect())
}

fn holders(directory: &Directory, name: &str) -> Vec<SocketAddr> {
    let mut holders: Vec<_> =
        directory.adapter(name).into_iter().flat_map(|adapter| &adapter.holders).copied().collect();
    holders.sort_unstable();
    holders
}

#[test]
fn adapters_are_known_by_who_has_them_until_that_is_old() {
    let fleet = fleet(&[(1, 0), (2, 0), (3, 0)]);
    let mut census = Census::new(BEAT);
    census.note(address(1), names(&["sql", "chat"]), None, Millis(0));
    census.note(address(2), names(&["sql"]), None, Millis(5 * BEAT));
    census.note(address(3), None, None, Millis(5 * BEAT));
    let now = Millis(ADAPTERS_BEATS * BEAT);
    let directory = census.directory(&fleet, now);
    assert_eq!(holders(&directory, "sql"), [address(1), address(2)]);
    assert_eq!(holders(&directory, "chat"), [address(1)]);
    assert_eq!(directory.engine(address(1)).unwrap().adapters, names(&["chat", "sql"]));
    assert_eq!(directory.engine(address(3)).unwrap().adapters, None);
    assert_eq!(directory.adapter_path(address(1), "sql").as_deref(), Some("/loras/sql"));
    let unknown = [(address(3), "sql"), (address(1), "other"), (address(9), "sql")];
    assert!(unknown.iter().all(|(address, name)| directory.adapter_path(*address, name).is_none()));
    // The first one has missed too many questions; a failed question changes nothing by itself.
    census.note(address(1), None, None, now.plus(1));
    let directory = census.directory(&fleet, now.plus(1));
    assert_eq!(holders(&directory, "sql"), [address(2)]);
    assert_eq!(directory.adapter("chat"), None);
}

#[test]
fn an_adapter_s_name_on_engines_of_two_models_means_the_first() {
    let fleet = fleet(&[(1, 0), (2, 1)]);
    let mut census = Census::new(BEAT);
    census.note(address(1), names(&["sql"]), None, Millis(0));
    census.note(address(2), names(&["sql"]), None, Millis(0));
    let directory = census.directory(&fleet, Millis(0));
    assert_eq!(directory.adapter("sql").unwrap().model, ModelIndex(0));
    assert_eq!(holders(&directory, "sql"), [address(1)]);
}

#[test]
fn releases_are_counted_per_model_and_outlive_a_failed_question() {
    let fleet = fleet(&[(1, 0), (2, 0), (3, 0), (4, 1)]);
    let mut census = Census::new(BEAT);
    let (old, new) = (EngineVersion::new(0, 9), EngineVersion::new(0, 32));
    census.note(address(1), None, Some(old), Millis(0));
    census.note(address(2), None, Some(new), Millis(0));
    census.note(address(3), None, Some(old), Millis(0));
    census.note(address(4), None, Some(new), Millis(0));
    census.note(address(1), None, None, Millis(100 * BEAT));
    let directory = census.directory(&fleet, Millis(100 * BEAT));
    assert_eq!(directory.versions(ModelIndex(0), &fleet), [(new, 1), (old, 2)]);
    assert_eq!(directory.versions(ModelIndex(1), &fleet), [(new, 1)]);
}

#[test]
fn an_engine_is_asked_at_once_and_then_on_the_beat_and_forgotten_with_its_endpoint() {
    let mut census = Census::new(BEAT);
    assert!(census.is_due(address(1), Millis(0)));
    census.note(address(1), None, Some(EngineVersion::new(0, 32)), Millis(10));
    assert!(!census.is_due(address(1), Millis(9 + BEAT)));
    assert!(census.is_due(address(1), Millis(10 + BEAT)));
    assert_eq!(census.directory(&fleet(&[(2, 0)]), Millis(20)), Directory::default());
    assert!(census.is_due(address(1), Millis(20)), "its successor is asked at once");
}
