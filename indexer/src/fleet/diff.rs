//! From one set of endpoints to the next. Pure.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::EndpointSpec;

/// What has to go and what has to come; an endpoint whose description changed does both.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) removed: Vec<SocketAddr>,
    pub(super) added: Vec<EndpointSpec>,
}

pub(super) fn between(
    have: &BTreeMap<SocketAddr, &EndpointSpec>,
    wanted: &BTreeMap<SocketAddr, EndpointSpec>,
) -> Difference {
    let removed = have.iter().filter(|(address, spec)| wanted.get(address) != Some(**spec));
    let added = wanted.iter().filter(|(address, spec)| have.get(address) != Some(spec));
    Difference {
        removed: removed.map(|(address, _)| *address).collect(),
        added: added.map(|(_, spec)| spec.clone()).collect(),
    }
}
