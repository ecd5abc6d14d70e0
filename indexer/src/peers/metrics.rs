//! Counters of the exchange between indexers.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::config::HostPort;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PeerLabels {
    pub peer: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct HeardLabels {
    pub result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReportLabels {
    pub result: &'static str,
}

/// Metrics of [`super`].
#[derive(Clone, Debug, Default)]
pub struct PeerMetrics {
    pub connected: Family<PeerLabels, Gauge>,
    pub followers: Gauge,
    pub sent: Counter,
    pub heard: Family<HeardLabels, Counter>,
    pub reports: Family<ReportLabels, Counter>,
    pub expected_blocks: Counter,
    pub other_keys: Gauge,
    pub secrets_taken: Counter,
}

impl PeerMetrics {
    /// Indexers that are followed under this name.
    pub(super) fn connected_to(&self, peer: &HostPort) -> Gauge {
        self.connected.get_or_create_owned(&PeerLabels { peer: peer.to_string() })
    }

    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "peer_connected",
            "Indexers under the name of a configured peer whose ledgers are followed",
            self.connected.clone(),
        );
        registry.register("peer_followers", "Indexers that follow this one", self.followers.clone());
        registry.register("peer_changes_sent", "Changes of the ledger told to followers", self.sent.clone());
        registry.register(
            "peer_changes_heard",
            "Changes that peers told (applied, unknown_endpoint, unknown_decision, refused, unreadable)",
            self.heard.clone(),
        );
        registry.register(
            "peer_reports",
            "Reports of gateways passed on to the maker of the decision (passed_on), and those that peers passed on to this indexer, of decisions known here (taken) or not any more (unknown)",
            self.reports.clone(),
        );
        registry.register(
            "peer_expected_blocks",
            "Blocks that peers told to expect in a cache, of all block sizes",
            self.expected_blocks.clone(),
        );
        registry.register(
            "peer_other_keys",
            "Indexers that are followed and make their block keys with another secret, so that the blocks which they tell of mean nothing here",
            self.other_keys.clone(),
        );
        registry.register(
            "peer_secrets_taken",
            "Older secrets of block keys that peers turned out to have after the start, and that were taken in place of our own",
            self.secrets_taken.clone(),
        );
    }
}
