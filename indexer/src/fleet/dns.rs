//! Endpoints behind a DNS name: looks it up again and again and tells the fleet the whole set.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::metrics::{ByResult, FleetMetrics};
use super::{EndpointSpec, ModelIndex, Observation};
use crate::config::DnsEndpoints;

/// A resolver that does not answer must not hold back the next try for long.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// Addresses taken from one answer.
const ADDRESSES_MAX: usize = 4096;

/// One DNS name being followed.
pub struct DnsSource {
    /// The source's number in [`Observation::Listed`].
    pub source: usize,
    pub endpoints: DnsEndpoints,
    pub model: ModelIndex,
    pub metrics: FleetMetrics,
}

/// What an answer of the resolver comes to.
struct Answer {
    listed: Observation,
    /// Addresses beyond the limit.
    left_out: usize,
    /// Addresses of both families are used.
    is_mixed: bool,
}

// === impl DnsSource ===

impl DnsSource {
    /// Runs until `stop`. A lookup that fails leaves the set as it was: a resolver's trouble is not the engines'.
    pub async fn run(self, observations: mpsc::Sender<Observation>, stop: CancellationToken) {
        let mut ticks = interval(Duration::from_millis(self.endpoints.refresh_ms));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_mixed = false;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let name = &self.endpoints.name;
            let looked_up = timeout(LOOKUP_TIMEOUT, lookup_host((name.as_str(), self.endpoints.port))).await;
            let result = match looked_up {
                Ok(Ok(addresses)) => {
                    let Some(Answer { listed, left_out, is_mixed }) = self.listed(addresses) else {
                        tracing::warn!(
                            name,
                            "no address of the wanted family; keeping endpoints that are known"
                        );
                        self.count("failed");
                        continue;
                    };
                    if is_mixed && !std::mem::replace(&mut was_mixed, is_mixed) {
                        tracing::warn!(
                            name,
                            hint = "where a replica has one of each, choose endpoints.dns[].family as in the proxy's cluster",
                            "a name has addresses of both families; each is an endpoint"
                        );
                    }
                    if left_out > 0 {
                        tracing::warn!(
                            name,
                            left_out,
                            "a name has too many addresses; {ADDRESSES_MAX} are used"
                        );
                    }
                    if observations.send(listed).await.is_err() {
                        return;
                    }
                    if left_out > 0 { "cut" } else { "ok" }
                }
                Ok(Err(error)) => {
                    tracing::warn!(name, %error, "cannot look up endpoints; keeping those known");
                    "failed"
                }
                Err(_) => {
                    tracing::warn!(name, "no answer to the lookup of endpoints in time; keeping those known");
                    "failed"
                }
            };
            self.count(result);
        }
    }

    fn count(&self, result: &'static str) {
        self.metrics.lookups.get_or_create(&ByResult { result }).inc();
    }

    /// None: there is nothing in it, as where a resolver has answered for one family only.
    fn listed(&self, addresses: impl Iterator<Item = SocketAddr>) -> Option<Answer> {
        let mut wanted = addresses.filter(|address| self.endpoints.family.takes(address.ip()));
        let used: Vec<SocketAddr> = wanted.by_ref().take(ADDRESSES_MAX).collect();
        if used.is_empty() {
            return None;
        }
        let is_mixed = used.iter().any(SocketAddr::is_ipv4) && used.iter().any(SocketAddr::is_ipv6);
        let specs = used.into_iter().map(|used| EndpointSpec::of_dns(&self.endpoints, used, self.model));
        let listed = Observation::Listed { source: self.source, endpoints: specs.collect() };
        Some(Answer { listed, left_out: wanted.count(), is_mixed })
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::config::Config;

    /// The hosts that are taken, how many are left out, and whether both families are used.
    fn listed(family: &str, addresses: impl Iterator<Item = IpAddr>) -> Option<(Vec<IpAddr>, usize, bool)> {
        let yaml = format!(
            "models: [{{ name: m }}]\nendpoints: {{ dns: [{{ name: n, port: 1, family: {family} }}] }}"
        );
        let endpoints = Config::parse(&yaml).unwrap().endpoints.dns.remove(0);
        let source =
            DnsSource { source: 1, endpoints, model: ModelIndex(0), metrics: FleetMetrics::default() };
        let Answer { listed, left_out, is_mixed } =
            source.listed(addresses.map(|address| SocketAddr::new(address, 1)))?;
        let Observation::Listed { endpoints, .. } = listed else { panic!("{listed:?}") };
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
}
