use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;

use parking_lot::Mutex;

use super::*;
use crate::config::Config;
use crate::fleet::Fleet;

/// What is configured of one name, with the settings `more`.
fn source(more: &str, resolver: Resolver) -> DnsSource {
    let yaml = format!(
        "models: [{{ name: m }}]\nendpoints: {{ dns: [{{ name: n, port: 1, refresh_ms: 10{more} }}] }}"
    );
    let endpoints = Config::parse(&yaml).unwrap().endpoints.dns.remove(0);
    DnsSource { source: 1, endpoints, model: ModelIndex(0), resolver, metrics: FleetMetrics::default() }
}

/// The hosts that are taken, how many are left out, and whether both families are used.
fn listed(family: &str, addresses: impl Iterator<Item = IpAddr>) -> Option<(Vec<IpAddr>, usize, bool)> {
    let source = source(&format!(", family: {family}"), Resolver::system());
    let Answer { listed, left_out, is_mixed } =
        source.listed(addresses.map(|address| SocketAddr::new(address, 1)))?;
    let Observation::Resolved { endpoints, .. } = listed else { panic!("{listed:?}") };
    Some((endpoints.iter().map(|spec| spec.address.ip()).collect(), left_out, is_mixed))
}

#[test]
fn addresses_beyond_the_limit_are_left_out_and_counted() {
    let hosts = |count: u32| (0..count).map(|host| IpAddr::from(host.to_be_bytes()));
    for (count, beyond) in [(ADDRESSES_MAX, 0), (ADDRESSES_MAX + 7, 7)] {
        let (taken, left_out, _) = listed("any", hosts(count as u32)).unwrap();
        assert_eq!((taken.len(), left_out), (ADDRESSES_MAX, beyond));
    }
}

#[test]
fn the_grace_is_counted_in_answers() {
    let source = source("", Resolver::system());
    for (grace_ms, refresh_ms, expected) in
        [(0, 5000, 1), (1, 5000, 2), (30_000, 5000, 7), (u64::MAX, 1, u32::MAX)]
    {
        let endpoints = DnsEndpoints { grace_ms, refresh_ms, ..source.endpoints.clone() };
        let source =
            DnsSource { endpoints, resolver: Resolver::system(), metrics: FleetMetrics::default(), ..source };
        assert_eq!(source.absences_max(), expected, "{grace_ms} {refresh_ms}");
    }
}

/// A replica of a dual-stack cluster has an address of each family, and is one endpoint to the proxy.
#[test]
fn of_two_families_the_one_that_the_proxy_takes_is_taken() {
    let (v4, v6): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap());
    let both = || [v4, v6].into_iter();
    assert_eq!(listed("any", both()), Some((vec![v4, v6], 0, true)));
    assert_eq!(listed("ipv4", both()), Some((vec![v4], 0, false)));
    assert_eq!(listed("ipv6", both()), Some((vec![v6], 0, false)));
    assert_eq!(listed("ipv6", [v4].into_iter()), None, "no reason to drop those known");
}

/// Neither a name that is said not to exist, nor a server's failure, nor an answer without addresses.
#[tokio::test]
async fn names_that_are_not_found_take_away_nothing() {
    let both = || Ok(vec!["10.0.0.1:1".parse().unwrap(), "10.0.0.2:1".parse().unwrap()]);
    let failed = || Err(io::Error::other("failed to lookup address information: Name or service not known"));
    let mut script = VecDeque::from([both()]);
    script.extend((0..50).map(|round| if round % 2 == 0 { failed() } else { Ok(Vec::new()) }));
    script.push_back(both());
    let script = Mutex::new(script);
    let resolver = Resolver::of(move |_, _| {
        let next = script.lock().pop_front();
        async move {
            match next {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
    });
    let source = source(", grace_ms: 0", resolver);
    let metrics = source.metrics.clone();
    let (sender, mut observations) = mpsc::channel(10);
    let stop = CancellationToken::new();
    let running = tokio::spawn(source.run(sender, stop.clone()));
    let mut fleet = Fleet::new(3);
    assert_eq!(fleet.apply(observations.recv().await.unwrap()).len(), 2);
    assert!(fleet.apply(observations.recv().await.unwrap()).is_empty(), "they were there all the time");
    assert_eq!(metrics.lookups.get_or_create(&ByResult { result: "failed" }).get(), 50);
    stop.cancel();
    drop(observations);
    running.abort();
}
