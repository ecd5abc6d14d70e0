//! What is wanted of an endpoint, from configuration or DNS.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::config::{DnsEndpoints, ModelConfig, RankPorts, StaticEndpoint, StreamAddress};

/// Position of a model in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelIndex(pub usize);

/// An endpoint as a source lists it. Two that differ in anything are different incarnations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSpec {
    pub address: SocketAddr,
    pub model: ModelIndex,
    /// At least 1.
    pub ranks: u32,
    /// Of rank 0.
    pub events: Option<StreamAddress>,
    /// Of rank 0.
    pub replay: Option<StreamAddress>,
    /// Where those of the other ranks are.
    pub ports: Ports,
    pub capacity: Capacity,
    /// Where it is; None: not told.
    pub zone: Option<String>,
}

/// Where the ranks of an endpoint publish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ports {
    /// Each a port above the one before.
    #[default]
    Offset,
    /// All of them where rank 0 does.
    Shared,
    /// Where the engine says, by rank; None: it has not said, so as for `Offset`.
    Engine(Option<Arc<[RankSource]>>),
}

/// The sockets of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankSource {
    pub events: StreamAddress,
    pub replay: Option<StreamAddress>,
}

/// How many sequences an endpoint takes where a reference endpoint takes one, in hundredths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity(u32);

// === impl Capacity ===

impl Capacity {
    /// From 0.01 on.
    pub fn of(weight: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
        let hundredths = (weight * 100.0).round().clamp(1.0, 1e6) as u32;
        Self(hundredths)
    }

    /// w of the cost rule.
    pub fn weight(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    /// c, as long as nothing better is known.
    pub fn slowness(self) -> f64 {
        1.0 / self.weight()
    }
}

impl Default for Capacity {
    fn default() -> Self {
        Self(100)
    }
}

// === impl EndpointSpec ===

impl EndpointSpec {
    /// One rank of the first model, of which nothing else is known.
    #[cfg(test)]
    pub(crate) fn plain(address: impl Into<SocketAddr>) -> Self {
        Self {
            address: address.into(),
            model: ModelIndex(0),
            ranks: 1,
            events: None,
            replay: None,
            ports: Ports::default(),
            capacity: Capacity::default(),
            zone: None,
        }
    }

    /// None: its model is not configured, which a checked configuration rules out.
    pub fn of_static(endpoint: &StaticEndpoint, models: &[ModelConfig]) -> Option<Self> {
        Some(Self {
            address: endpoint.address,
            model: model_index(&endpoint.model, models)?,
            ranks: endpoint.ranks,
            events: endpoint.events.clone(),
            replay: endpoint.replay.clone(),
            ports: Ports::of(endpoint.rank_ports),
            capacity: Capacity::of(endpoint.capacity),
            zone: endpoint.zone.clone(),
        })
    }

    /// The endpoint at one address of a DNS name.
    pub fn of_dns(endpoints: &DnsEndpoints, resolved: SocketAddr, model: ModelIndex) -> Self {
        let stream = |port: Option<u16>| port.map(|port| StreamAddress::at(resolved.ip(), port));
        Self {
            address: resolved,
            model,
            ranks: endpoints.ranks,
            events: stream(endpoints.events_port),
            replay: stream(endpoints.replay_port),
            ports: Ports::of(endpoints.rank_ports),
            capacity: Capacity::of(endpoints.capacity),
            zone: endpoints.zone.clone(),
        }
    }

    /// The sockets of one rank; None: there are none.
    pub fn source(&self, rank: u32) -> Option<RankSource> {
        if let Ports::Engine(Some(told)) = &self.ports {
            return told.get(usize::try_from(rank).ok()?).cloned();
        }
        let offset = if self.ports == Ports::Shared { 0 } else { rank };
        let of_rank = |address: &StreamAddress| address.of_rank(offset);
        let replay = self.replay.as_ref().and_then(of_rank);
        Some(RankSource { events: self.events.as_ref().and_then(of_rank)?, replay })
    }

    /// It has sockets, as far as is known.
    pub fn has_events(&self) -> bool {
        self.source(0).is_some()
    }

    /// Its engine is to be asked where its ranks publish.
    pub fn asks_engine(&self) -> bool {
        matches!(self.ports, Ports::Engine(_))
    }

    /// The same with what its engine said, if it is to be asked.
    pub(super) fn told(mut self, sources: Option<&Arc<[RankSource]>>) -> Self {
        if let (Ports::Engine(told), Some(sources)) = (&mut self.ports, sources) {
            self.ranks = u32::try_from(sources.len()).unwrap_or(u32::MAX);
            *told = Some(sources.clone());
        }
        self
    }
}

// === impl Ports ===

impl Ports {
    fn of(configured: RankPorts) -> Self {
        match configured {
            RankPorts::Offset => Self::Offset,
            RankPorts::Shared => Self::Shared,
            RankPorts::Engine => Self::Engine(None),
        }
    }
}

/// The position of the model of this name.
pub fn model_index(name: &str, models: &[ModelConfig]) -> Option<ModelIndex> {
    models.iter().position(|model| model.name == name).map(ModelIndex)
}
