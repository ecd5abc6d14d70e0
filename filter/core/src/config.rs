//! The plugin configuration: JSON as written ([`Raw`]) → [`Config`] as used, or every error in it at once.

mod checked;

pub use checked::{Config, ConfigError, Problem};

use serde::Deserialize;

use crate::limits::{
    BODY_BYTES_DEFAULT, LOAD_FACTOR_DEFAULT, REPORT_INTERVAL_MS_DEFAULT, TIMEOUT_MS_DEFAULT,
};

/// The configuration as written. Unknown members are refused: a misspelt one would silently keep its default.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Raw {
    /// Where the indexer is.
    pub indexer: RawIndexer,
    /// Largest body that is looked at, in bytes.
    pub max_body_bytes: u64,
    /// Tell the client how its request was routed, in `x-warmpath-*` response headers.
    pub response_header: bool,
    /// Name of the ranking policy; empty: the indexer's.
    pub policy: String,
    /// Pause between batches of reports, in milliseconds.
    pub report_interval_ms: u64,
    /// What happens while no indexer answers.
    pub fallback: RawFallback,
}

/// Where the indexer is.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawIndexer {
    /// Name of the proxy's cluster of indexers; it must speak HTTP/2.
    pub cluster: String,
    /// `:authority` of the calls.
    pub authority: String,
    /// How long a request waits for the answer, in milliseconds.
    pub timeout_ms: u64,
}

/// What happens while no indexer answers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawFallback {
    /// No endpoint gets more than this many times the mean of the requests in flight.
    pub load_factor: f64,
}

impl Default for Raw {
    fn default() -> Self {
        Self {
            indexer: RawIndexer::default(),
            max_body_bytes: BODY_BYTES_DEFAULT as u64,
            response_header: false,
            policy: String::new(),
            report_interval_ms: REPORT_INTERVAL_MS_DEFAULT,
            fallback: RawFallback::default(),
        }
    }
}

impl Default for RawIndexer {
    fn default() -> Self {
        Self {
            cluster: "indexer".to_owned(),
            authority: "indexer".to_owned(),
            timeout_ms: TIMEOUT_MS_DEFAULT,
        }
    }
}

impl Default for RawFallback {
    fn default() -> Self {
        Self { load_factor: LOAD_FACTOR_DEFAULT }
    }
}
