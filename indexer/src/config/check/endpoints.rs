//! The section `endpoints`.

use std::collections::HashSet;
use std::net::SocketAddr;

use serde_yaml_ng::Value;

use super::super::address::is_host_name;
use super::super::fields::{Fields, Problems};
use super::super::{
    AddressFamily, DnsEndpoints, Endpoints, ModelConfig, RankPorts, StaticEndpoint, StreamAddress, defaults,
};
use super::DURATION_MS;

/// Data-parallel ranks behind one address: more than any engine runs.
const RANKS: (u64, u64) = (1, 1024);
/// Capacity weights: a hundredth to a hundred times a reference endpoint.
const CAPACITY: (f64, f64) = (0.01, 100.0);
/// Grace of an endpoint that answers leave out, from none to an hour.
const GRACE_MS: (u64, u64) = (0, 3_600_000);
/// Endpoints in a set, as the filter takes them.
const ENDPOINTS_MAX: usize = 4096;

mod sockets;

use sockets::Sockets;

pub(super) fn checked(mut fields: Fields, models: &[ModelConfig], p: &mut Problems) -> Endpoints {
    let (mut addresses, mut sockets) = (HashSet::new(), Sockets::default());
    let fixed_items = fields.list("static", p);
    if fixed_items.len() > ENDPOINTS_MAX {
        let path = fields.path_of("static");
        let found = Value::from(fixed_items.len());
        p.note(&path, Some(&found), format!("at most {ENDPOINTS_MAX} endpoints are supported"));
    }
    let fixed = fixed_items
        .into_iter()
        .filter_map(|(path, item)| {
            let endpoint = static_endpoint(Fields::of(path.clone(), item, p), models, p)?;
            if !addresses.insert(endpoint.address) {
                let found = Value::String(endpoint.address.to_string());
                p.note(&format!("{path}.address"), Some(&found), "listed before; every endpoint once");
            }
            sockets.take(&path, &endpoint, p);
            Some(endpoint)
        })
        .collect();
    let dns = fields
        .list("dns", p)
        .into_iter()
        .filter_map(|(path, item)| dns_endpoints(Fields::of(path, item, p), models, p))
        .collect();
    fields.finish(p);
    Endpoints { fixed, dns }
}

fn static_endpoint(mut fields: Fields, models: &[ModelConfig], p: &mut Problems) -> Option<StaticEndpoint> {
    let address_text =
        fields.required_text("address", "write the engine's ip:port, as in the proxy's cluster", p);
    let address: Option<SocketAddr> = address_text.parse().ok();
    if address.is_none() && !address_text.is_empty() {
        let remedy = "expected ip:port, as in the proxy's cluster; for a host name use endpoints.dns";
        p.note(&fields.path_of("address"), Some(&Value::String(address_text)), remedy);
    }
    let (ranks, rank_ports) = (ranks(&mut fields, p), rank_ports(&mut fields, p));
    let ports = ports_used(ranks, rank_ports);
    let events = rank_address(&mut fields, "events", ports, p);
    let replay = rank_address(&mut fields, "replay", ports, p);
    if let (None, Some(replay)) = (&events, &replay)
        && !p.names(&fields.path_of("events"))
    {
        let found = Value::String(replay.to_string());
        p.note(&fields.path_of("replay"), Some(&found), "useless without events; write events too");
    }
    let model = model_name(&mut fields, models, p);
    let (capacity, zone) = (capacity(&mut fields, p), fields.text("zone", p));
    fields.finish(p);
    Some(StaticEndpoint { address: address?, events, replay, ranks, rank_ports, model, capacity, zone })
}

fn dns_endpoints(mut fields: Fields, models: &[ModelConfig], p: &mut Problems) -> Option<DnsEndpoints> {
    let name = fields.required_text("name", "write the DNS name that resolves to every replica", p);
    if !name.is_empty() && !is_host_name(&name) {
        let remedy = "expected a host name alone; its port is written in `port`";
        p.note(&fields.path_of("name"), Some(&Value::String(name.clone())), remedy);
    }
    let port = fields.port("port", p);
    if port.is_none() && !p.names(&fields.path_of("port")) {
        p.note(&fields.path_of("port"), None, "write the port of the engines' HTTP listener");
    }
    let (ranks, rank_ports) = (ranks(&mut fields, p), rank_ports(&mut fields, p));
    let events_port = fields.port("events_port", p);
    let replay_port = fields.port("replay_port", p);
    for (key, port) in [("events_port", events_port), ("replay_port", replay_port)] {
        let ports = ports_used(ranks, rank_ports);
        if let Some(port) = port.filter(|port| u32::from(*port) + ports - 1 > u32::from(u16::MAX)) {
            p.note(
                &fields.path_of(key),
                Some(&Value::from(port)),
                "rank r uses port + r; choose a lower port",
            );
        }
    }
    if let (None, Some(port)) = (events_port, replay_port)
        && !p.names(&fields.path_of("events_port"))
    {
        let remedy = "useless without events_port; write events_port too";
        p.note(&fields.path_of("replay_port"), Some(&Value::from(port)), remedy);
    }
    let model = model_name(&mut fields, models, p);
    let (capacity, zone) = (capacity(&mut fields, p), fields.text("zone", p));
    let family = family(&mut fields, p);
    let refresh_ms = fields.number("refresh_ms", DURATION_MS, defaults::DNS_REFRESH_MS, p);
    let grace_ms = fields.number("grace_ms", GRACE_MS, defaults::DNS_GRACE_MS, p);
    fields.finish(p);
    Some(DnsEndpoints {
        name,
        port: port?,
        events_port,
        replay_port,
        ranks,
        rank_ports,
        model,
        capacity,
        zone,
        family,
        refresh_ms,
        grace_ms,
    })
}

fn capacity(fields: &mut Fields, p: &mut Problems) -> f64 {
    fields.within("capacity", CAPACITY, defaults::CAPACITY, p)
}

fn ranks(fields: &mut Fields, p: &mut Problems) -> u32 {
    u32::try_from(fields.number("ranks", RANKS, 1, p)).unwrap_or(1)
}

fn rank_ports(fields: &mut Fields, p: &mut Problems) -> RankPorts {
    match fields.text("rank_ports", p).as_deref() {
        None | Some("offset") => RankPorts::Offset,
        Some("shared") => RankPorts::Shared,
        Some("engine") => RankPorts::Engine,
        Some(other) => {
            let path = fields.path_of("rank_ports");
            p.note(&path, Some(&Value::String(other.to_owned())), "expected offset, shared or engine");
            RankPorts::Offset
        }
    }
}

fn family(fields: &mut Fields, p: &mut Problems) -> AddressFamily {
    match fields.text("family", p).as_deref() {
        None | Some("any") => AddressFamily::Any,
        Some("ipv4") => AddressFamily::Ipv4,
        Some("ipv6") => AddressFamily::Ipv6,
        Some(other) => {
            let path = fields.path_of("family");
            p.note(&path, Some(&Value::String(other.to_owned())), "expected any, ipv4 or ipv6");
            AddressFamily::Any
        }
    }
}

/// Ports from the first one on that ranks may use.
fn ports_used(ranks: u32, rank_ports: RankPorts) -> u32 {
    if rank_ports == RankPorts::Shared { 1 } else { ranks }
}

fn rank_address(
    fields: &mut Fields,
    key: &'static str,
    ports: u32,
    p: &mut Problems,
) -> Option<StreamAddress> {
    let remedy = "expected \"tcp://host:port\", the engine's host as it is reached from here";
    let address: StreamAddress = fields.parsed(key, remedy, p)?;
    if address.of_rank(ports - 1).is_none() {
        let found = Value::String(address.to_string());
        p.note(&fields.path_of(key), Some(&found), "rank r uses port + r; choose a lower port");
    }
    Some(address)
}

/// The model an endpoint serves: one that is configured; the only one where none is named.
fn model_name(fields: &mut Fields, models: &[ModelConfig], p: &mut Problems) -> String {
    let names = || models.iter().map(|model| model.name.as_str()).collect::<Vec<_>>().join(", ");
    match (fields.text("model", p), models) {
        (None, [only]) => only.name.clone(),
        (None, []) => {
            p.note(&fields.path_of("model"), None, "configure the model that it serves in `models`");
            String::new()
        }
        (None, _) => {
            p.note(
                &fields.path_of("model"),
                None,
                format!("write one of the configured models: {}", names()),
            );
            String::new()
        }
        (Some(name), []) => {
            let remedy = "no model is configured; configure this one in `models`";
            p.note(&fields.path_of("model"), Some(&Value::String(name.clone())), remedy);
            name
        }
        (Some(name), _) => {
            if !models.iter().any(|model| model.name == name) {
                let remedy = format!("expected the name (no alias) of a configured model: {}", names());
                p.note(&fields.path_of("model"), Some(&Value::String(name.clone())), remedy);
            }
            name
        }
    }
}
