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

impl DnsSource {
    /// Runs until `stop`. A lookup that fails leaves the set as it was: a resolver's trouble is not the engines'.
    pub async fn run(self, observations: mpsc::Sender<Observation>, stop: CancellationToken) {
        let mut ticks = interval(Duration::from_millis(self.endpoints.refresh_ms));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let name = &self.endpoints.name;
            let looked_up = timeout(LOOKUP_TIMEOUT, lookup_host((name.as_str(), self.endpoints.port))).await;
            let result = match looked_up {
                Ok(Ok(addresses)) => {
                    let (listed, is_cut) = self.listed(addresses);
                    if observations.send(listed).await.is_err() {
                        return;
                    }
                    if is_cut { "cut" } else { "ok" }
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
            self.metrics.lookups.get_or_create(&ByResult { result }).inc();
        }
    }

    /// Which endpoints there are, and whether there were more.
    fn listed(&self, addresses: impl Iterator<Item = SocketAddr>) -> (Observation, bool) {
        let mut addresses = addresses.fuse();
        let endpoints = addresses
            .by_ref()
            .take(ADDRESSES_MAX)
            .map(|resolved| EndpointSpec::of_dns(&self.endpoints, resolved, self.model))
            .collect();
        let left_out = addresses.count();
        if left_out > 0 {
            tracing::warn!(
                name = self.endpoints.name,
                left_out,
                "a name has too many addresses; {ADDRESSES_MAX} are used"
            );
        }
        (Observation::Listed { source: self.source, endpoints }, left_out > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn addresses_beyond_the_limit_are_left_out_and_counted() {
        let yaml = "models: [{ name: m }]\nendpoints: { dns: [{ name: n, port: 1 }] }";
        let endpoints = Config::parse(yaml).unwrap().endpoints.dns.remove(0);
        let source =
            DnsSource { source: 1, endpoints, model: ModelIndex(0), metrics: FleetMetrics::default() };
        let addresses = |count: u32| (0..count).map(|host| SocketAddr::from((host.to_be_bytes(), 1)));
        let listed = |count| match source.listed(addresses(count)) {
            (Observation::Listed { endpoints, .. }, is_cut) => (endpoints.len(), is_cut),
            (other, _) => panic!("{other:?}"),
        };
        assert_eq!(listed(ADDRESSES_MAX as u32), (ADDRESSES_MAX, false));
        assert_eq!(listed(ADDRESSES_MAX as u32 + 7), (ADDRESSES_MAX, true));
    }
}
