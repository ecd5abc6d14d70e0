//! The configuration file: YAML text → [`Config`], whose fields cannot be wrong.
//!
//! In: the bytes of the file. Out: a checked [`Config`], or *every* mistake in it at once, each with the path of its
//! key, the value found and the remedy. Nothing else in the program reads a file name, an environment variable or a
//! default.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

mod address;
mod check;
pub mod defaults;
mod fields;
mod hidden;
mod mirror;
mod policy;
#[cfg(test)]
mod tests;

pub use address::{HostPort, StreamAddress};
pub use fields::Problem;
pub use hidden::Hidden;
pub use mirror::{MirrorConfig, RedisServers};
pub use policy::{PolicyConfig, SplitBy, SplitShare, StickyConfig, WeightsConfig, parameters};
pub use warmpath_standing::Outliers;

/// The whole configuration, checked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    pub listen: Listen,
    pub policy: PolicyConfig,
    pub models: Vec<ModelConfig>,
    pub endpoints: Endpoints,
    pub scrape: Scrape,
    pub outliers: Outliers,
    pub receipts: Receipts,
    pub leases: Leases,
    /// Other indexers, `host:port` of their gRPC listeners.
    pub peers: Vec<HostPort>,
    /// None: nothing is saved.
    pub mirror: Option<MirrorConfig>,
    pub limits: Limits,
    pub lifecycle: Lifecycle,
    pub log: Log,
}

/// Where the program listens. Port 0 asks the system for a free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Listen {
    /// `Scorer` (for the filter) and `Peer` (for other indexers).
    pub grpc: SocketAddr,
    /// Metrics, health and state. Apart, so that a slow scrape never stands in the way of a request.
    pub admin: SocketAddr,
}

/// How an engine hashes its blocks. Needed only to find what it held before it was heard of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockHash {
    /// The engine's `--prefix-caching-hash-algo`; another one than these, or `none`: nothing is hashed.
    pub algorithm: &'static str,
    /// The engine's `PYTHONHASHSEED`. None: the release's own, where that is fixed.
    pub seed: Option<String>,
}

/// One base model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelConfig {
    /// The base model's name, as the engines serve it; part of every block key.
    pub name: String,
    /// Further names in requests that mean this model.
    pub aliases: Vec<String>,
    /// Names of LoRA adapters of this model; those that engines list themselves need not be written.
    pub adapters: Vec<String>,
    /// Folder with `tokenizer.json`, `tokenizer_config.json` and the chat template. None: only prompts given as token
    /// ids are scored.
    pub tokenizer_dir: Option<PathBuf>,
    /// A chat template in place of the model's own.
    pub chat_template: Option<PathBuf>,
    /// The engine's version, for details of rendering that changed over time.
    pub engine_version: Option<String>,
    /// The engine's `--chat-template-content-format`.
    pub content_format: ContentFormat,
    /// The engine's `--max-model-len`, for requests that ask to be truncated to it.
    pub max_model_len: Option<usize>,
    /// The engine's `--trust-request-chat-template`.
    pub trust_request_chat_template: bool,
    /// The engine's `--default-chat-template-kwargs`.
    pub default_chat_template_kwargs: serde_json::Map<String, serde_json::Value>,
    /// The engine's `--exclude-tools-when-tool-choice-none`.
    pub exclude_tools_when_tool_choice_none: bool,
    /// Rules of rendering, by their names, that differ from those of the engine's release: for engines that are patched.
    pub rendering: serde_json::Map<String, serde_json::Value>,
    pub block_hash: BlockHash,
}

/// In which form a chat template gets the content of messages, by the engine's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentFormat {
    /// What the template asks for.
    Auto,
    /// One text.
    String,
    /// A list of parts.
    OpenAi,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Endpoints {
    #[serde(rename = "static")]
    pub fixed: Vec<StaticEndpoint>,
    pub dns: Vec<DnsEndpoints>,
}

/// An endpoint that is always there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StaticEndpoint {
    pub address: SocketAddr,
    /// KV events of rank 0; rank r is r ports higher. None: ranked by load only.
    pub events: Option<StreamAddress>,
    /// Replay of rank 0; rank r is r ports higher.
    pub replay: Option<StreamAddress>,
    /// Data-parallel ranks behind the address, at least 1.
    pub ranks: u32,
    pub rank_ports: RankPorts,
    /// Name of one of the models.
    pub model: String,
    /// How many sequences it takes where a reference endpoint takes one.
    pub capacity: f64,
    /// Where it is.
    pub zone: Option<String>,
}

/// Where the ranks of an engine publish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RankPorts {
    /// Rank r is r ports above rank 0.
    #[default]
    Offset,
    /// All of them on the sockets of rank 0.
    Shared,
    /// Where the engine says; as for `Offset` until it has.
    Engine,
}

/// Endpoints behind a DNS name, one per address it resolves to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DnsEndpoints {
    pub name: String,
    pub port: u16,
    pub events_port: Option<u16>,
    pub replay_port: Option<u16>,
    pub ranks: u32,
    pub rank_ports: RankPorts,
    pub model: String,
    pub capacity: f64,
    pub zone: Option<String>,
    pub family: AddressFamily,
    pub refresh_ms: u64,
    /// How long an endpoint is kept that answers leave out while its engine takes connections.
    pub grace_ms: u64,
}

/// Which of a name's addresses are endpoints. The proxy's cluster has to take the same (`dns_lookup_family`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressFamily {
    /// All of them: right where a replica has one address.
    #[default]
    Any,
    Ipv4,
    Ipv6,
}

/// Reading the engines' own metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Scrape {
    pub interval_ms: u64,
    pub timeout_ms: u64,
    /// How often an engine is asked for its release and its adapters.
    pub identity_interval_ms: u64,
    /// Refused connections in a row after which an endpoint is not chosen until it answers again.
    pub failures_to_avoid: u32,
}

/// What is kept of decisions, to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Receipts {
    /// Of the last decisions; 0: none.
    pub keep: usize,
    /// Share of decisions that is written to the log when they are over, in percent.
    pub log_percent: f64,
}

/// How long things count without a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Leases {
    pub reservation_ms: u64,
    pub speculative_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Largest gRPC message, in bytes; above the filter's `max_body_bytes`.
    pub max_message_bytes: usize,
    /// Prompts tokenized at the same time.
    pub tokenizer_threads: usize,
    /// Prompts that may wait for that.
    pub tokenizer_queue: usize,
    /// Memory for beginnings of prompts that were tokenized before, in bytes; 0: none.
    pub prompt_memo_bytes: usize,
    /// Reservations held at the same time.
    pub reservations: usize,
    /// Blocks in the index.
    pub index_blocks: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Lifecycle {
    /// After this long the program is ready even if some event stream has not been read up.
    pub warmup_ms: u64,
    /// How long requests in flight may take to finish after SIGTERM.
    pub drain_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Log {
    pub format: LogFormat,
    /// A `tracing` filter, such as `info` or `info,warmpath_indexer::peers=debug`.
    pub level: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Json,
    Text,
}

/// Why there is no configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{place}: not YAML: {source}")]
    Syntax { place: Place, source: serde_yaml_ng::Error },
    #[error("{} in {}:\n{}", count(problems.len()), shown(file.as_deref()), lines(problems))]
    Invalid { file: Option<PathBuf>, problems: Vec<Problem> },
}

/// Where in a file something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// None: a text that is in no file.
    pub file: Option<PathBuf>,
    /// Line and column, both from 1 on.
    pub at: Option<(usize, usize)>,
}

// === impl AddressFamily ===

impl AddressFamily {
    pub fn takes(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Ipv4 => address.is_ipv4(),
            Self::Ipv6 => address.is_ipv6(),
        }
    }
}

// === impl Config ===

impl Config {
    /// Reads and checks the file at `path`.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|error| error.in_file(Some(path)))
    }

    /// Checks the text of a configuration file.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        // Some editors put a mark before the first line, which is no part of it.
        let text = text.trim_start_matches('\u{feff}');
        check::config(serde_yaml_ng::from_str(text).map_err(ConfigError::of_yaml)?)
    }

    /// The effective configuration, defaults filled in, as YAML.
    pub fn to_yaml(&self) -> Result<String, ConfigError> {
        serde_yaml_ng::to_string(self).map_err(ConfigError::of_yaml)
    }
}

// === impl ConfigError ===

impl ConfigError {
    /// The same error, said of the file it is in.
    pub fn in_file(self, path: Option<&Path>) -> Self {
        let of = |file: Option<PathBuf>| file.or_else(|| path.map(Path::to_owned));
        match self {
            Self::Syntax { place: Place { file, at }, source } => {
                Self::Syntax { place: Place { file: of(file), at }, source }
            }
            Self::Invalid { file, problems } => Self::Invalid { file: of(file), problems },
            other @ Self::Read { .. } => other,
        }
    }

    fn of_yaml(source: serde_yaml_ng::Error) -> Self {
        let at = source.location().map(|location| (location.line(), location.column()));
        Self::Syntax { place: Place { file: None, at }, source }
    }
}

// === impl Place ===

/// As editors take it: `FILE:LINE:COLUMN`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(self.file.as_deref()))?;
        match self.at {
            Some((line, column)) => write!(f, ":{line}:{column}"),
            None => Ok(()),
        }
    }
}

fn shown(file: Option<&Path>) -> Cow<'_, str> {
    file.map_or("the configuration".into(), Path::to_string_lossy)
}

fn count(problems: usize) -> String {
    if problems == 1 { "1 mistake".to_owned() } else { format!("{problems} mistakes") }
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("  {problem}")).collect::<Vec<_>>().join("\n")
}
