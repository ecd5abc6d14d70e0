//! Section by section: YAML value → checked configuration.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::thread::available_parallelism;

use serde_yaml_ng::Value;

use super::fields::{Fields, Problems};
use super::*;

/// Values of `models[].block_hash.algorithm`.
const BLOCK_HASHES: [&str; 5] = ["sha256", "sha256_cbor", "xxhash", "xxhash_cbor", "none"];
/// Bounds of every duration, in milliseconds: a tick of the housekeeping to a day.
pub(super) const DURATION_MS: (u64, u64) = (10, 86_400_000);
/// Data-parallel ranks behind one address: more than any engine runs.
const RANKS: (u64, u64) = (1, 1024);
/// Capacity weights: a hundredth to a hundred times a reference endpoint.
const CAPACITY: (f64, f64) = (0.01, 100.0);
/// Context lengths, in tokens: up to what a prompt of token ids may have.
const MODEL_LEN: (u64, u64) = (1, 1 << 22);
/// Endpoints in a set, as the filter takes them.
const ENDPOINTS_MAX: usize = 4096;

/// Checks the whole file.
pub(super) fn config(value: Value) -> Result<Config, ConfigError> {
    let mut problems = Problems::default();
    let p = &mut problems;
    let mut root = Fields::of("", value, p);
    let models = models(root.list("models", p), p);
    let config = Config {
        listen: listen(root.mapping("listen", p), p),
        policy: policy::checked(root.mapping("policy", p), p),
        endpoints: endpoints(root.mapping("endpoints", p), &models, p),
        models,
        scrape: scrape(root.mapping("scrape", p), p),
        outliers: outliers(root.mapping("outliers", p), p),
        receipts: receipts(root.mapping("receipts", p), p),
        leases: leases(root.mapping("leases", p), p),
        peers: peers(root.list("peers", p), p),
        mirror: mirror::section(root.mapping("mirror", p), p),
        limits: limits(root.mapping("limits", p), p),
        lifecycle: lifecycle(root.mapping("lifecycle", p), p),
        log: log(root.mapping("log", p), p),
    };
    root.finish(p);
    problems.into_result(config).map_err(|problems| ConfigError::Invalid { problems })
}

fn listen(mut fields: Fields, p: &mut Problems) -> Listen {
    let mut address = |key, default: &str| {
        fields
            .parsed(key, "expected ip:port, such as \"127.0.0.1:50051\" or \"[::]:50051\"", p)
            .or_else(|| default.parse().ok())
            .unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)))
    };
    let listen = Listen { grpc: address("grpc", defaults::GRPC), admin: address("admin", defaults::ADMIN) };
    if listen.grpc == listen.admin && listen.grpc.port() != 0 {
        let path = fields.path_of("admin");
        p.note(
            &path,
            Some(&Value::String(listen.admin.to_string())),
            "the same as grpc; choose another port",
        );
    }
    fields.finish(p);
    listen
}

fn models(items: Vec<(String, Value)>, p: &mut Problems) -> Vec<ModelConfig> {
    let mut names = HashSet::new();
    items
        .into_iter()
        .map(|(path, item)| {
            let mut fields = Fields::of(path, item, p);
            let name =
                fields.required_text("name", "write the base model's name, as the engines serve it", p);
            let aliases = fields.texts("aliases", p);
            let adapters = fields.texts("adapters", p);
            for taken in std::iter::once(&name).chain(&aliases).chain(&adapters).filter(|n| !n.is_empty()) {
                if !names.insert(taken.clone()) {
                    let remedy = "a name, alias or adapter used before; every name means one model";
                    p.note(&fields.path_of("name"), Some(&Value::String(taken.clone())), remedy);
                }
            }
            let model = ModelConfig {
                name,
                aliases,
                adapters,
                tokenizer_dir: fields.text("tokenizer_dir", p).map(PathBuf::from),
                chat_template: fields.text("chat_template", p).map(PathBuf::from),
                engine_version: fields.text("engine_version", p),
                content_format: content_format(&mut fields, p),
                max_model_len: usize::try_from(fields.number("max_model_len", MODEL_LEN, 0, p))
                    .ok()
                    .filter(|tokens| *tokens > 0),
                trust_request_chat_template: fields.flag("trust_request_chat_template", p),
                default_chat_template_kwargs: fields.json("default_chat_template_kwargs", p),
                exclude_tools_when_tool_choice_none: fields.flag("exclude_tools_when_tool_choice_none", p),
                rendering: fields.json("rendering", p),
                block_hash: block_hash(fields.mapping("block_hash", p), p),
            };
            fields.finish(p);
            model
        })
        .collect()
}

fn block_hash(mut fields: Fields, p: &mut Problems) -> BlockHash {
    let algorithm = fields.text("algorithm", p).unwrap_or_else(|| defaults::BLOCK_HASH.to_owned());
    let known = BLOCK_HASHES.into_iter().find(|known| *known == algorithm);
    if known.is_none() {
        let remedy = format!("expected one of {}", BLOCK_HASHES.join(", "));
        p.note(&fields.path_of("algorithm"), Some(&Value::String(algorithm)), remedy);
    }
    let block_hash =
        BlockHash { algorithm: known.unwrap_or(defaults::BLOCK_HASH), seed: fields.text("seed", p) };
    fields.finish(p);
    block_hash
}

fn content_format(fields: &mut Fields, p: &mut Problems) -> ContentFormat {
    match fields.text("content_format", p).as_deref() {
        None | Some("auto") => ContentFormat::Auto,
        Some("string") => ContentFormat::String,
        Some("openai") => ContentFormat::OpenAi,
        Some(other) => {
            let path = fields.path_of("content_format");
            p.note(&path, Some(&Value::String(other.to_owned())), "expected auto, string or openai");
            ContentFormat::Auto
        }
    }
}

fn endpoints(mut fields: Fields, models: &[ModelConfig], p: &mut Problems) -> Endpoints {
    let mut addresses = HashSet::new();
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
    if let (None, Some(replay)) = (&events, &replay) {
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
    let port = fields.port("port", p);
    if port.is_none() {
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
    let model = model_name(&mut fields, models, p);
    let (capacity, zone) = (capacity(&mut fields, p), fields.text("zone", p));
    let refresh_ms = fields.number("refresh_ms", DURATION_MS, defaults::DNS_REFRESH_MS, p);
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
        refresh_ms,
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
    let address: StreamAddress = fields.parsed(key, "expected \"tcp://host:port\"", p)?;
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
        (None, _) => {
            p.note(
                &fields.path_of("model"),
                None,
                format!("write one of the configured models: {}", names()),
            );
            String::new()
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

fn scrape(mut fields: Fields, p: &mut Problems) -> Scrape {
    let failures =
        fields.number("failures_to_avoid", (1, 1000), defaults::SCRAPE_FAILURES_TO_AVOID.into(), p);
    let scrape = Scrape {
        interval_ms: fields.number("interval_ms", DURATION_MS, defaults::SCRAPE_INTERVAL_MS, p),
        timeout_ms: fields.number("timeout_ms", DURATION_MS, defaults::SCRAPE_TIMEOUT_MS, p),
        identity_interval_ms: fields.number(
            "identity_interval_ms",
            DURATION_MS,
            defaults::IDENTITY_INTERVAL_MS,
            p,
        ),
        failures_to_avoid: u32::try_from(failures).unwrap_or(defaults::SCRAPE_FAILURES_TO_AVOID),
    };
    fields.finish(p);
    scrape
}

fn outliers(mut fields: Fields, p: &mut Problems) -> Outliers {
    let failures = fields.number("failures", (0, 1000), defaults::OUTLIER_FAILURES.into(), p);
    let outliers = Outliers {
        failures: u32::try_from(failures).unwrap_or(defaults::OUTLIER_FAILURES),
        eject_ms: fields.number("eject_ms", DURATION_MS, defaults::EJECT_MS, p),
    };
    fields.finish(p);
    outliers
}

fn receipts(mut fields: Fields, p: &mut Problems) -> Receipts {
    let receipts = Receipts {
        keep: size(&mut fields, "keep", (0, 1 << 16), defaults::RECEIPTS, p),
        log_percent: fields.within("log_percent", (0.0, 100.0), 0.0, p),
    };
    fields.finish(p);
    receipts
}

fn leases(mut fields: Fields, p: &mut Problems) -> Leases {
    let leases = Leases {
        reservation_ms: fields.number("reservation_ms", DURATION_MS, defaults::RESERVATION_MS, p),
        speculative_ms: fields.number("speculative_ms", DURATION_MS, defaults::SPECULATIVE_MS, p),
    };
    fields.finish(p);
    leases
}

fn peers(items: Vec<(String, Value)>, p: &mut Problems) -> Vec<HostPort> {
    items
        .into_iter()
        .filter_map(|(path, item)| {
            let peer = item.as_str().and_then(|text| text.parse().ok());
            if peer.is_none() {
                p.note(&path, Some(&item), "expected host:port of another indexer's gRPC listener");
            }
            peer
        })
        .collect()
}

fn limits(mut fields: Fields, p: &mut Problems) -> Limits {
    let cores = available_parallelism().map_or(1, usize::from);
    let threads = size(&mut fields, "tokenizer_threads", (1, 1024), cores, p);
    let queue = threads * defaults::TOKENIZER_QUEUE_PER_THREAD;
    let limits = Limits {
        max_message_bytes: size(
            &mut fields,
            "max_message_bytes",
            (1 << 16, 1 << 30),
            defaults::MAX_MESSAGE_BYTES,
            p,
        ),
        tokenizer_threads: threads,
        tokenizer_queue: size(&mut fields, "tokenizer_queue", (1, 1 << 16), queue, p),
        prompt_memo_bytes: size(
            &mut fields,
            "prompt_memo_bytes",
            (0, 1 << 36),
            defaults::PROMPT_MEMO_BYTES,
            p,
        ),
        reservations: size(&mut fields, "reservations", (1, 1 << 24), defaults::RESERVATIONS, p),
        index_blocks: size(&mut fields, "index_blocks", (1024, 1 << 32), defaults::INDEX_BLOCKS, p),
    };
    fields.finish(p);
    limits
}

fn size(
    fields: &mut Fields,
    key: &'static str,
    bounds: (u64, u64),
    default: usize,
    p: &mut Problems,
) -> usize {
    let number = fields.number(key, bounds, default as u64, p);
    usize::try_from(number).unwrap_or(default)
}

fn lifecycle(mut fields: Fields, p: &mut Problems) -> Lifecycle {
    let lifecycle = Lifecycle {
        warmup_ms: fields.number("warmup_ms", (0, DURATION_MS.1), defaults::WARMUP_MS, p),
        drain_ms: fields.number("drain_ms", (0, DURATION_MS.1), defaults::DRAIN_MS, p),
    };
    fields.finish(p);
    lifecycle
}

fn log(mut fields: Fields, p: &mut Problems) -> Log {
    let format = match fields.text("format", p).as_deref() {
        None | Some("json") => LogFormat::Json,
        Some("text") => LogFormat::Text,
        Some(other) => {
            let path = fields.path_of("format");
            p.note(&path, Some(&Value::String(other.to_owned())), "expected json or text");
            LogFormat::Json
        }
    };
    let level = fields.text("level", p).unwrap_or_else(|| defaults::LOG_LEVEL.to_owned());
    if level.parse::<tracing_subscriber::EnvFilter>().is_err() {
        let remedy = "expected a filter such as \"info\" or \"info,warmpath_indexer::peers=debug\"";
        p.note(&fields.path_of("level"), Some(&Value::String(level.clone())), remedy);
    }
    fields.finish(p);
    Log { format, level }
}
