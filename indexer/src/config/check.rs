//! Section by section: YAML value → checked configuration.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::thread::available_parallelism;

use serde_yaml_ng::Value;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::fields::{Fields, Problems};
use super::*;

mod endpoints;
mod models;

/// Bounds of every duration, in milliseconds: a tick of the housekeeping to a day.
pub(super) const DURATION_MS: (u64, u64) = (10, 86_400_000);

/// Checks the whole file.
pub(super) fn config(value: Value) -> Result<Config, ConfigError> {
    let mut problems = Problems::default();
    let p = &mut problems;
    let mut root = Fields::of("", value, p);
    let models = models::checked(root.list("models", p), p);
    let config = Config {
        listen: listen(root.mapping("listen", p), p),
        policy: policy::checked(root.mapping("policy", p), p),
        endpoints: endpoints::checked(root.mapping("endpoints", p), &models, p),
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
    problems.into_result(config).map_err(|problems| ConfigError::Invalid { file: None, problems })
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
    let mut known: HashSet<HostPort> = HashSet::new();
    items
        .into_iter()
        .filter_map(|(path, item)| {
            let peer: Option<HostPort> = item.as_str().and_then(|text| text.parse().ok());
            match &peer {
                None => p.note(&path, Some(&item), "expected host:port of another indexer's gRPC listener"),
                Some(peer) if !known.insert(peer.clone()) => {
                    p.note(&path, Some(&item), "listed before; every peer once");
                }
                Some(_) => {}
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
    if !is_filter(&level) {
        let remedy = "expected off, error, warn, info, debug or trace, or a filter such as \"info,warmpath_indexer::peers=debug\"";
        p.note(&fields.path_of("level"), Some(&Value::String(level.clone())), remedy);
    }
    fields.finish(p);
    Log { format, level }
}

/// A word alone would be the name of a module, and silence everything else: a misspelt level is never meant so.
fn is_filter(text: &str) -> bool {
    let words_are_levels = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.contains(['=', ':', '[']))
        .all(|word| word.is_empty() || word.parse::<LevelFilter>().is_ok());
    words_are_levels && text.parse::<EnvFilter>().is_ok()
}
