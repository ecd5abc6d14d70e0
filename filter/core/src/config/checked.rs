//! What a configuration must fulfil, and the values that follow from it.

use std::ops::RangeInclusive;

use super::Problem;
use super::raw::Raw;
use crate::limits::{
    BODY_BYTES_MAX, BODY_BYTES_MIN, LOAD_FACTOR_MAX, REPORT_INTERVAL_MS_MAX, REPORT_INTERVAL_MS_MIN,
    TICK_MS_MIN, TIMEOUT_MS_MAX,
};
use crate::rank::Policy;

/// Bytes that cluster and authority may have together. They travel as a protobuf message in a host call that takes
/// text: every length in it must stay below 128, or the message is no UTF-8.
const UPSTREAM_BYTES_MAX: usize = 127 - 2 * FIELD_BYTES;
/// How often a call is made again, as an encoded number: of three indexers two may be gone.
const RETRIES: &str = "\u{8}\u{2}";
/// Any end of a stream before an answer: the connection was not made, the stream was not taken, or it broke.
const RETRY_ON: &str = "reset";
/// Type of the rule that a call is not made again to an indexer that it failed at. Nothing stands before the slash, where
/// a host usually does and nobody looks, because the whole policy must stay below 128 bytes.
const PREVIOUS_HOSTS: &str = "/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate";
/// How often the proxy chooses anew while that rule refuses its choice, as the field of an encoded number: of three of which
/// it may choose one, by lot, it finds that one. Where all were asked it then asks one again.
const CHOICES: &str = "\u{30}d";
/// Longest name of a header.
const GROUP_HEADER_BYTES_MAX: usize = 256;
/// Tag and length before a protobuf field.
const FIELD_BYTES: usize = 2;

/// A configuration that can be used as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The indexer, as the proxy's gRPC calls want it: an encoded `envoy.config.core.v3.GrpcService`.
    pub upstream: String,
    /// Name of the proxy's cluster of indexers.
    pub cluster: String,
    /// How long a request waits for the indexer, in microseconds.
    pub timeout_us: u64,
    /// Largest body that is looked at, in bytes.
    pub max_body_bytes: usize,
    /// Tell the client how its request was routed.
    pub response_header: bool,
    /// Name of the ranking policy; empty: the indexer's.
    pub policy: String,
    /// Name of the header by which requests stay together in a split of policies; empty: by their beginnings.
    pub group_header: String,
    /// Pause between batches of reports, in microseconds.
    pub report_interval_us: u64,
    /// Period of the ticks that enforce all of these, in milliseconds.
    pub tick_ms: u64,
    /// No endpoint gets more than this many times the mean of the requests in flight from the fallback.
    pub load_factor: f64,
}

impl Config {
    /// Checks every value and notes what is wrong. Only without any problem may the result be used.
    pub(super) fn check(raw: &Raw, problems: &mut Vec<Problem>) -> Self {
        check_upstream(raw, problems);
        let mut within = |field: &str, value: u64, range: RangeInclusive<u64>| {
            if !range.contains(&value) {
                let remedy = format!("give {} to {}", range.start(), range.end());
                problems.push(Problem { field: field.to_owned(), value: value.to_string(), remedy });
            }
        };
        within("indexer.timeout_ms", raw.timeout_ms, 1..=TIMEOUT_MS_MAX);
        within("max_body_bytes", raw.max_body_bytes, BODY_BYTES_MIN as u64..=BODY_BYTES_MAX as u64);
        within("report_interval_ms", raw.report_interval_ms, REPORT_INTERVAL_MS_MIN..=REPORT_INTERVAL_MS_MAX);
        if !raw.policy.is_empty() && Policy::by_name(&raw.policy).is_none() {
            problems.push(Problem {
                field: "policy".to_owned(),
                value: format!("{:?}", raw.policy),
                remedy: format!(
                    "give one of {}, or leave it empty for the indexer's",
                    Policy::NAMES.join(", ")
                ),
            });
        }
        let is_header = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if raw.group_header.len() > GROUP_HEADER_BYTES_MAX || !raw.group_header.bytes().all(is_header) {
            let remedy = "give the name of a header, such as x-session-id, or leave it empty".to_owned();
            let value = format!("{:?}", raw.group_header);
            problems.push(Problem { field: "group_header".to_owned(), value, remedy });
        }
        if !(1.0..=LOAD_FACTOR_MAX).contains(&raw.load_factor) {
            problems.push(Problem {
                field: "fallback.load_factor".to_owned(),
                value: raw.load_factor.to_string(),
                remedy: format!("give 1 to {LOAD_FACTOR_MAX}"),
            });
        }
        Self {
            upstream: grpc_service(&raw.cluster, &raw.authority),
            cluster: raw.cluster.clone(),
            timeout_us: raw.timeout_ms.saturating_mul(1000),
            max_body_bytes: usize::try_from(raw.max_body_bytes).unwrap_or(BODY_BYTES_MAX),
            response_header: raw.response_header,
            policy: raw.policy.clone(),
            group_header: raw.group_header.clone(),
            report_interval_us: raw.report_interval_ms.saturating_mul(1000),
            tick_ms: (raw.timeout_ms / 2).min(raw.report_interval_ms).max(TICK_MS_MIN),
            load_factor: raw.load_factor,
        }
    }
}

fn check_upstream(raw: &Raw, problems: &mut Vec<Problem>) {
    let (cluster, authority) = (&raw.cluster, &raw.authority);
    let mut wrong = |field: &str, value: &str, remedy: String| {
        problems.push(Problem { field: field.to_owned(), value: format!("{value:?}"), remedy });
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

/// `GrpcService{envoy_grpc{cluster_name, authority}, retry_policy}`, encoded. A plain cluster name would do for most names
/// only: the proxy first tries to decode it, aborts on the unlucky ones, and sends it as an authority that servers may
/// refuse.
fn grpc_service(cluster: &str, authority: &str) -> String {
    let inner = field(1, cluster) + &field(2, authority);
    field(1, &inner) + &field(6, &retry_policy())
}

/// `RetryPolicy{retry_back_off{base_interval, max_interval}, num_retries, retry_on, retry_host_predicate{name,
/// typed_config{type_url}}, host_selection_retry_max_attempts}`, encoded: a call to an indexer that has just gone is made
/// again to another one, within the same deadline. An indexer that is slow is not asked twice. The proxy does it, because a call made from within the callback of another one's failure is more than the SDK allows.
fn retry_policy() -> String {
    // 1.00013 ms in nanoseconds: the proxy takes no less than 1 ms, and the bytes of this number are UTF-8.
    let base_interval = "\u{10}\u{85}=";
    // 16 s: the proxy also takes it as the time that one attempt may take, so it must be above any deadline.
    let max_interval = "\u{8}\u{10}";
    let back_off = field(1, base_interval) + &field(2, max_interval);
    let another = field(1, "previous_hosts") + &field(2, &field(1, PREVIOUS_HOSTS));
    field(1, &back_off) + &field(2, RETRIES) + &field(3, RETRY_ON) + &field(5, &another) + CHOICES
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
