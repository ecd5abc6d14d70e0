//! Endpoints behind a DNS name: looks it up again and again and tells the fleet what the answers name.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::listing::ADDRESSES_MAX;
use super::metrics::{ByResult, FleetMetrics};
use super::{EndpointSpec, ModelIndex, Observation};
use crate::config::DnsEndpoints;
use crate::logs::News;
use crate::resolve::Resolver;

/// A resolver that does not answer must not hold back the next try for long.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// One DNS name being followed.
pub struct DnsSource {
    /// The source's number in [`Observation::Resolved`].
    pub source: usize,
    pub endpoints: DnsEndpoints,
    pub model: ModelIndex,
    pub resolver: Resolver,
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
        let (mut was_mixed, mut told) = (false, News::default());
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let DnsEndpoints { name, port, .. } = &self.endpoints;
            let addresses = match self.resolver.addresses(name, *port, LOOKUP_TIMEOUT).await {
                Ok(addresses) => addresses,
                Err(error) => {
                    if told.is_news("failed", Instant::now()) {
                        tracing::warn!(name, %error, "cannot look up endpoints; keeping those known");
                    }
                    self.count("failed");
                    continue;
                }
            };
            let Some(Answer { listed, left_out, is_mixed }) = self.listed(addresses) else {
                if told.is_news("none", Instant::now()) {
                    tracing::warn!(name, "no address of the wanted family; keeping endpoints that are known");
                }
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
            if left_out > 0 && told.is_news("cut", Instant::now()) {
                tracing::warn!(name, left_out, "a name has too many addresses; {ADDRESSES_MAX} are used");
            }
            if observations.send(listed).await.is_err() {
                return;
            }
            self.count(if left_out > 0 { "cut" } else { "ok" });
        }
    }

    fn count(&self, result: &'static str) {
        self.metrics.lookups.get_or_create(&ByResult { result }).inc();
    }

    /// Answers in a row without an endpoint after which it is gone: so many that the grace has passed.
    fn absences_max(&self) -> u32 {
        let DnsEndpoints { grace_ms, refresh_ms, .. } = self.endpoints;
        u32::try_from(grace_ms.div_ceil(refresh_ms.max(1))).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// None: there is nothing in it, as where a resolver has answered for one family only.
    fn listed(&self, addresses: impl IntoIterator<Item = SocketAddr>) -> Option<Answer> {
        let mut wanted = addresses.into_iter().filter(|address| self.endpoints.family.takes(address.ip()));
        let used: Vec<SocketAddr> = wanted.by_ref().take(ADDRESSES_MAX).collect();
        if used.is_empty() {
            return None;
        }
        let is_mixed = used.iter().any(SocketAddr::is_ipv4) && used.iter().any(SocketAddr::is_ipv6);
        let specs = used.into_iter().map(|used| EndpointSpec::of_dns(&self.endpoints, used, self.model));
        let listed = Observation::Resolved {
            source: self.source,
            endpoints: specs.collect(),
            absences_max: self.absences_max(),
        };
        Some(Answer { listed, left_out: wanted.count(), is_mixed })
    }
}

#[cfg(test)]
mod tests;
