//! Sockets of event streams, each of which belongs to one rank of one endpoint.

use std::collections::HashMap;

use serde_yaml_ng::Value;

use super::super::super::fields::Problems;
use super::super::super::{HostPort, StaticEndpoint, StreamAddress};
use super::ports_used;

/// Who said first that a socket is its own: the path of a key.
#[derive(Debug, Default)]
pub(super) struct Sockets(HashMap<HostPort, String>);

impl Sockets {
    /// Notes every socket of the endpoint at `path` that something else has: events of one engine, taken for those of two, would
    /// promise each the other's cache.
    pub(super) fn take(&mut self, path: &str, endpoint: &StaticEndpoint, p: &mut Problems) {
        let ranks = ports_used(endpoint.ranks, endpoint.rank_ports);
        for (key, address) in [("events", &endpoint.events), ("replay", &endpoint.replay)] {
            let Some(address) = address else { continue };
            let path = format!("{path}.{key}");
            let twice = (0..ranks).find_map(|rank| self.take_one(&path, &address.of_rank(rank)?));
            if let Some((socket, first)) = twice {
                let remedy =
                    format!("{socket} is a port of {first} too (rank r uses port + r); each has its own");
                p.note(&path, Some(&Value::String(address.to_string())), remedy);
            }
        }
    }

    /// The socket and who has it, where that is somebody else.
    fn take_one(&mut self, path: &str, address: &StreamAddress) -> Option<(HostPort, String)> {
        let socket = address.host_port().clone();
        let first = self.0.entry(socket.clone()).or_insert_with(|| path.to_owned());
        (first != path).then(|| (socket, first.clone()))
    }
}
