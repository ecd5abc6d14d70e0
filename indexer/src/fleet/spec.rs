//! What is wanted of an endpoint, from configuration or DNS.

use std::net::SocketAddr;

use crate::config::{DnsEndpoints, ModelConfig, StaticEndpoint, StreamAddress};

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
    pub capacity: Capacity,
    /// Where it is; None: not told.
    pub zone: Option<String>,
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
    /// None: its model is not configured, which a checked configuration rules out.
    pub fn of_static(endpoint: &StaticEndpoint, models: &[ModelConfig]) -> Option<Self> {
        Some(Self {
            address: endpoint.address,
            model: model_index(&endpoint.model, models)?,
            ranks: endpoint.ranks,
            events: endpoint.events.clone(),
            replay: endpoint.replay.clone(),
            capacity: Capacity::of(endpoint.capacity),
            zone: endpoint.zone.clone(),
        })
    }

    /// The endpoint at one address of a DNS name.
    pub fn of_dns(endpoints: &DnsEndpoints, resolved: SocketAddr, model: ModelIndex) -> Self {
        let host = match resolved {
            SocketAddr::V4(v4) => v4.ip().to_string(),
            SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
        };
        let stream = |port: Option<u16>| port.map(|port| StreamAddress::new(host.clone(), port));
        Self {
            address: resolved,
            model,
            ranks: endpoints.ranks,
            events: stream(endpoints.events_port),
            replay: stream(endpoints.replay_port),
            capacity: Capacity::of(endpoints.capacity),
            zone: endpoints.zone.clone(),
        }
    }
}

/// The position of the model of this name.
pub fn model_index(name: &str, models: &[ModelConfig]) -> Option<ModelIndex> {
    models.iter().position(|model| model.name == name).map(ModelIndex)
}
