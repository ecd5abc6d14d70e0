//! What a configuration must fulfil, and the values that follow from it.

use std::fmt;
use std::ops::RangeInclusive;

use super::Raw;
use crate::limits::{
    BODY_BYTES_MAX, BODY_BYTES_MIN, LOAD_FACTOR_MAX, REPORT_INTERVAL_MS_MAX, REPORT_INTERVAL_MS_MIN,
    TICK_MS_MIN, TIMEOUT_MS_MAX,
};
use crate::rank::Policy;

/// Bytes that cluster and authority may have together. They travel as a protobuf message in a host call that takes
/// text: every length in it must stay below 128, or the message is no UTF-8.
const UPSTREAM_BYTES_MAX: usize = 127 - 2 * FIELD_BYTES;
/// Tag and length before a protobuf field.
const FIELD_BYTES: usize = 2;

/// A configuration that can be used as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The indexer, as the proxy's gRPC calls want it: an encoded `envoy.config.core.v3.GrpcService`.
    pub upstream: String,
    /// How long a request waits for the indexer, in microseconds.
    pub timeout_us: u64,
    /// Largest body that is looked at, in bytes.
    pub max_body_bytes: usize,
    /// Tell the client how its request was routed.
    pub response_header: bool,
    /// Name of the ranking policy; empty: the indexer's.
    pub policy: String,
    /// Pause between batches of reports, in microseconds.
    pub report_interval_us: u64,
    /// Period of the ticks that enforce all of these, in milliseconds.
    pub tick_ms: u64,
    /// No endpoint gets more than this many times the mean of the requests in flight from the fallback.
    pub load_factor: f64,
}

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where, for example `indexer.timeout_ms`.
    pub field: &'static str,
    /// What stands there.
    pub value: String,
    /// What should.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}: {}", self.field, self.value, self.remedy)
    }
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No JSON of this form.
    #[error("plugin configuration cannot be read: {0}; see filter/README.md for its members")]
    Unreadable(String),
    /// Values that cannot be.
    #[error("plugin configuration has {} wrong value(s): {}", .0.len(), list(.0))]
    Invalid(Vec<Problem>),
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Config {
    /// Reads a plugin configuration. An empty one is the default.
    pub fn read(json: &[u8]) -> Result<Self, ConfigError> {
        let raw = if json.iter().all(u8::is_ascii_whitespace) {
            Raw::default()
        } else {
            serde_json::from_slice(json).map_err(|e| ConfigError::Unreadable(e.to_string()))?
        };
        Self::check(&raw).map_err(ConfigError::Invalid)
    }

    /// Checks every value and collects what is wrong.
    fn check(raw: &Raw) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        check_upstream(raw, &mut problems);
        let mut within = |field, value: u64, range: RangeInclusive<u64>| {
            if !range.contains(&value) {
                let remedy = format!("give {} to {}", range.start(), range.end());
                problems.push(Problem { field, value: value.to_string(), remedy });
            }
        };
        within("indexer.timeout_ms", raw.indexer.timeout_ms, 1..=TIMEOUT_MS_MAX);
        within("max_body_bytes", raw.max_body_bytes, BODY_BYTES_MIN as u64..=BODY_BYTES_MAX as u64);
        within("report_interval_ms", raw.report_interval_ms, REPORT_INTERVAL_MS_MIN..=REPORT_INTERVAL_MS_MAX);
        if !raw.policy.is_empty() && Policy::by_name(&raw.policy).is_none() {
            problems.push(Problem {
                field: "policy",
                value: format!("{:?}", raw.policy),
                remedy: format!(
                    "give one of {}, or leave it empty for the indexer's",
                    Policy::NAMES.join(", ")
                ),
            });
        }
        if !(1.0..=LOAD_FACTOR_MAX).contains(&raw.fallback.load_factor) {
            problems.push(Problem {
                field: "fallback.load_factor",
                value: raw.fallback.load_factor.to_string(),
                remedy: format!("give 1 to {LOAD_FACTOR_MAX}"),
            });
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            upstream: grpc_service(&raw.indexer.cluster, &raw.indexer.authority),
            timeout_us: raw.indexer.timeout_ms * 1000,
            max_body_bytes: usize::try_from(raw.max_body_bytes).unwrap_or(BODY_BYTES_MAX),
            response_header: raw.response_header,
            policy: raw.policy.clone(),
            report_interval_us: raw.report_interval_ms * 1000,
            tick_ms: (raw.indexer.timeout_ms / 2).min(raw.report_interval_ms).max(TICK_MS_MIN),
            load_factor: raw.fallback.load_factor,
        })
    }
}

fn check_upstream(raw: &Raw, problems: &mut Vec<Problem>) {
    let (cluster, authority) = (&raw.indexer.cluster, &raw.indexer.authority);
    let mut wrong = |field, value: &str, remedy: String| {
        problems.push(Problem { field, value: format!("{value:?}"), remedy });
    };
    if cluster.is_empty() {
        wrong("indexer.cluster", cluster, "give the name of the proxy's cluster of indexers".to_owned());
    }
    let fits = |b: u8| b.is_ascii_alphanumeric() || b".-_:[]".contains(&b);
    if authority.is_empty() || !authority.bytes().all(fits) {
        let remedy = "give a host name, with a port if need be: gRPC servers refuse anything else".to_owned();
        wrong("indexer.authority", authority, remedy);
    }
    let together = cluster.len() + authority.len();
    if together > UPSTREAM_BYTES_MAX {
        let remedy = format!(
            "shorten it or indexer.authority: they have {together} bytes together and {UPSTREAM_BYTES_MAX} can be told to the proxy"
        );
        wrong("indexer.cluster", cluster, remedy);
    }
}

/// `GrpcService{envoy_grpc{cluster_name, authority}}`, encoded. A plain cluster name would do for most names only: the
/// proxy first tries to decode it, aborts on the unlucky ones, and sends it as an authority that servers may refuse.
fn grpc_service(cluster: &str, authority: &str) -> String {
    let inner = field(1, cluster) + &field(2, authority);
    field(1, &inner)
}

/// A length-delimited protobuf field of at most 127 bytes.
fn field(number: u8, value: &str) -> String {
    let length = u8::try_from(value.len()).unwrap_or(u8::MAX);
    let mut out = String::with_capacity(FIELD_BYTES + value.len());
    out.push(char::from(number << 3 | 2));
    out.push(char::from(length));
    out.push_str(value);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(json: &str) -> Vec<&'static str> {
        match Config::read(json.as_bytes()) {
            Err(ConfigError::Invalid(problems)) => problems.iter().map(|p| p.field).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_configured_is_the_documented_default() {
        let config = Config::read(b" \n").expect("default");
        assert_eq!(config, Config::read(b"{}").expect("default"));
        assert_eq!((config.timeout_us, config.max_body_bytes), (50_000, 16 << 20));
        assert_eq!((config.report_interval_us, config.tick_ms, config.load_factor), (50_000, 25, 1.25));
        assert!(!config.response_header && config.policy.is_empty());
    }

    #[test]
    fn the_documented_example_is_read() {
        let readme = include_str!("../../../README.md");
        let example =
            readme.split("```json").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
        let config = Config::read(example.as_bytes()).expect("valid");
        assert_eq!(config.upstream, "\n\u{12}\n\u{7}indexer\u{12}\u{7}indexer");
    }

    #[test]
    fn every_wrong_value_is_named_at_once() {
        let json = r#"{"indexer":{"cluster":"","authority":"outbound|1||x","timeout_ms":0},"max_body_bytes":3,
            "policy":"fastest","report_interval_ms":1,"fallback":{"load_factor":0.5}}"#;
        let expected = [
            "indexer.cluster",
            "indexer.authority",
            "indexer.timeout_ms",
            "max_body_bytes",
            "report_interval_ms",
            "policy",
            "fallback.load_factor",
        ];
        assert_eq!(problems(json), expected);
        let error = Config::read(json.as_bytes()).expect_err("invalid").to_string();
        assert!(error.contains("policy is \"fastest\": give one of round_robin, "), "{error}");
        assert!(error.contains("indexer.timeout_ms is 0: give 1 to 10000"), "{error}");
    }

    #[test]
    fn unknown_members_and_wrong_types_are_refused_by_name() {
        for (json, named) in [
            (r#"{"indexer":{"clutser":"x"}}"#, "clutser"),
            (r#"{"max_body_byte":1}"#, "max_body_byte"),
            (r#"{"response_header":"yes"}"#, "yes"),
            ("[", "EOF"),
        ] {
            let error = Config::read(json.as_bytes()).expect_err("unreadable").to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn names_are_accepted_as_far_as_they_can_be_encoded() {
        let with = |cluster: usize| {
            let cluster = "c".repeat(cluster);
            format!(r#"{{"indexer":{{"cluster":"{cluster}","authority":"indexer"}}}}"#)
        };
        let config = Config::read(with(116).as_bytes()).expect("fits");
        assert_eq!(config.upstream.as_bytes().get(..2), Some([0x0a, 127].as_slice()));
        assert_eq!(config.upstream.len(), 129);
        assert_eq!(problems(&with(117)), ["indexer.cluster"]);
        // Names that a proxy would take for an encoded message are encoded too.
        let config = Config::read(br#"{"indexer":{"cluster":"indexer-a"}}"#).expect("valid");
        assert_eq!(config.upstream, "\n\u{14}\n\u{9}indexer-a\u{12}\u{7}indexer");
    }

    #[test]
    fn ticks_are_fine_enough_for_the_deadline() {
        let tick = |json: &str| Config::read(json.as_bytes()).expect("valid").tick_ms;
        assert_eq!(tick(r#"{"indexer":{"timeout_ms":1}}"#), TICK_MS_MIN);
        assert_eq!(tick(r#"{"indexer":{"timeout_ms":10000},"report_interval_ms":500}"#), 500);
    }
}
