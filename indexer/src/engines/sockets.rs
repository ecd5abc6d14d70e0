//! Reads where an engine says that its ranks publish. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;

use crate::config::{HostPort, StreamAddress};
use crate::fleet::RankSource;

/// Ranks of one engine: more than any runs.
const RANKS_MAX: usize = 1024;

/// `/kv_event_sources`: by rank (vLLM 0.31), or a list of sources that name their rank.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    ByRank(BTreeMap<String, Source>),
    List(Vec<Source>),
}

#[derive(Deserialize)]
struct Source {
    data_parallel_rank: Option<u32>,
    publisher: Option<String>,
    endpoint: String,
    replay_endpoint: Option<String>,
}

/// The sockets of the engine at `host`, by rank. Empty: it publishes nowhere. None: no such answer, or one that leaves ranks out or
/// names sockets that cannot be reached.
pub(super) fn read(body: &[u8], host: IpAddr) -> Option<Vec<RankSource>> {
    let ranked: Vec<(u32, Source)> = match serde_json::from_slice(body).ok()? {
        Answer::ByRank(by_rank) => {
            let ranked = by_rank.into_iter().map(|(rank, source)| Some((rank.parse().ok()?, source)));
            ranked.collect::<Option<_>>()?
        }
        Answer::List(list) => {
            let ranked = (0..).zip(list);
            ranked.map(|(at, source)| (source.data_parallel_rank.unwrap_or(at), source)).collect()
        }
    };
    let count = ranked.len();
    let by_rank: BTreeMap<u32, Source> = ranked.into_iter().collect();
    // One alone may be any of those that a balancer knows; of several, requests name them from 0 on.
    let is_whole = count <= 1 || (0..).zip(by_rank.keys()).all(|(at, rank): (u32, _)| at == *rank);
    if !is_whole || by_rank.len() != count || count > RANKS_MAX {
        return None;
    }
    let publishing = by_rank.into_values().filter(Source::publishes);
    publishing
        .map(|source| {
            let replay = source.replay_endpoint.as_deref().and_then(|text| reachable(text, host));
            Some(RankSource { events: reachable(&source.endpoint, host)?, replay })
        })
        .collect()
}

/// A socket that an engine bound, as seen from here.
fn reachable(bound: &str, host: IpAddr) -> Option<StreamAddress> {
    let (name, port) = bound.strip_prefix("tcp://")?.rsplit_once(':')?;
    match name {
        "*" | "0.0.0.0" | "::" | "[::]" => {
            port.parse().ok().filter(|port| *port > 0).map(|port| StreamAddress::at(host, port))
        }
        _ => format!("{name}:{port}").parse::<HostPort>().ok().map(StreamAddress::from),
    }
}

// === impl Source ===

impl Source {
    fn publishes(&self) -> bool {
        self.publisher.as_deref().is_none_or(|name| name == "zmq")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7));

    /// Events and replay of each rank.
    fn sources(body: &str) -> Option<Vec<(String, Option<String>)>> {
        let texts =
            |source: RankSource| (source.events.to_string(), source.replay.map(|replay| replay.to_string()));
        Some(read(body.as_bytes(), HOST)?.into_iter().map(texts).collect())
    }

    #[test]
    fn sockets_are_read_by_rank_and_reached_at_the_engine_s_address() {
        let more = r#""enable_kv_cache_events":true,"publisher":"zmq","buffer_steps":10000,"hwm":100000,"topic":"t""#;
        let two = format!(
            r#"{{"1":{{"endpoint":"tcp://*:5558",{more}}},"0":{{"endpoint":"tcp://10.0.0.9:40001","replay_endpoint":"tcp://*:5600",{more}}}}}"#
        );
        let expected = vec![
            ("tcp://10.0.0.9:40001".to_owned(), Some("tcp://10.0.0.7:5600".to_owned())),
            ("tcp://10.0.0.7:5558".to_owned(), None),
        ];
        assert_eq!(sources(&two), Some(expected));
        let list =
            r#"[{"data_parallel_rank":0,"endpoint":"tcp://[::]:1","replay_endpoint":null,"topic":""}]"#;
        assert_eq!(sources(list), Some(vec![("tcp://10.0.0.7:1".to_owned(), None)]));
        let only = r#"{"3":{"endpoint":"tcp://*:7"}}"#;
        assert_eq!(
            sources(only),
            Some(vec![("tcp://10.0.0.7:7".to_owned(), None)]),
            "one of several servers"
        );
        for none in ["{}", "[]", r#"{"0":{"endpoint":"tcp://*:1","publisher":"null"}}"#] {
            assert_eq!(sources(none), Some(vec![]), "{none}");
        }
    }

    #[test]
    fn sockets_that_cannot_be_reached_or_are_not_all_there_are_no_answer() {
        let of = |endpoint: &str| format!(r#"{{"0":{{"endpoint":"{endpoint}"}}}}"#);
        for endpoint in
            ["ipc:///tmp/events", "inproc://e", "tcp://*:0", "tcp://*", "tcp://a b:1", "tcp://h:x"]
        {
            assert_eq!(sources(&of(endpoint)), None, "{endpoint}");
        }
        let of_ranks = |ranks: &[u32]| {
            let of = |rank: &u32| format!(r#""{rank}":{{"endpoint":"tcp://*:{}"}}"#, 5000 + rank);
            format!("{{{}}}", ranks.iter().map(of).collect::<Vec<_>>().join(","))
        };
        let twelve: Vec<u32> = (0..12).collect();
        let last = sources(&of_ranks(&twelve)).and_then(|sources| sources.last().cloned());
        assert_eq!(last, Some(("tcp://10.0.0.7:5011".to_owned(), None)), "in the order of numbers");
        assert_eq!(sources(&of_ranks(&[4, 5])), None, "requests could not name them");
        let twice = r#"[{"data_parallel_rank":0,"endpoint":"tcp://*:1"},{"data_parallel_rank":0,"endpoint":"tcp://*:2"}]"#;
        assert_eq!(sources(twice), None);
        for strange in ["", "7", "<html>", r#"{"detail":"Not Found"}"#, r#"{"a":{"endpoint":"tcp://*:1"}}"#] {
            assert_eq!(sources(strange), None, "{strange}");
        }
    }
}
