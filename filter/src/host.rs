//! Every host call of the filter. Nothing here fails loudly: what the proxy does not give is absent.
//!
//! The SDK panics on a status it does not expect, and its text getters panic on bytes that are no UTF-8. So only the
//! `_bytes` getters are used, and maps and buffers are asked for only in the phase that has them.

use std::time::{Duration, UNIX_EPOCH};

use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, LogLevel, MapType, MetricType};
use warmpath_core::headers::Header;

const SERVICE: &str = "warmpath.v1.Scorer";

/// A method of the indexer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Method {
    Score,
    Report,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::Score => "Score",
            Self::Report => "Report",
        }
    }
}

/// The wall clock, in microseconds.
pub(crate) fn wall_us() -> u64 {
    let now = hostcalls::get_current_time().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    now.and_then(|since| u64::try_from(since.as_micros()).ok()).unwrap_or(0)
}

pub(crate) fn set_tick_period(period_ms: u64) {
    _ = hostcalls::set_tick_period(Duration::from_millis(period_ms));
}

/// Log as much as the proxy does.
pub(crate) fn follow_log_level() {
    proxy_wasm::set_log_level(hostcalls::get_log_level().unwrap_or(LogLevel::Info));
}

pub(crate) fn log_panic(text: &str) {
    _ = hostcalls::log(LogLevel::Critical, &format!("warmpath: {text}"));
}

pub(crate) fn plugin_configuration(bytes: usize) -> Vec<u8> {
    buffer(BufferType::PluginConfiguration, 0, bytes)
}

// === the request ===

/// All headers, pseudo-headers among them.
pub(crate) fn request_headers() -> Vec<Header> {
    hostcalls::get_map_bytes(MapType::HttpRequestHeaders).unwrap_or_default()
}

pub(crate) fn remove_request_header(name: &str) {
    _ = hostcalls::remove_map_value(MapType::HttpRequestHeaders, name);
}

pub(crate) fn set_request_header(name: &str, value: &str) {
    _ = hostcalls::set_map_value(MapType::HttpRequestHeaders, name, Some(value));
}

/// The first `bytes` of the body that is held.
pub(crate) fn request_body(bytes: usize) -> Vec<u8> {
    buffer(BufferType::HttpRequestBody, 0, bytes)
}

pub(crate) fn resume_request() {
    _ = hostcalls::resume_http_request();
}

// === the answer ===

pub(crate) fn response_status() -> u32 {
    let status = hostcalls::get_map_value_bytes(MapType::HttpResponseHeaders, ":status").ok().flatten();
    status.and_then(|bytes| std::str::from_utf8(&bytes).ok()?.parse().ok()).unwrap_or(0)
}

pub(crate) fn set_response_header(name: &str, value: &str) {
    _ = hostcalls::set_map_value(MapType::HttpResponseHeaders, name, Some(value));
}

/// The first bytes, `max` at most, of a chunk of `bytes`.
pub(crate) fn response_chunk_start(bytes: usize, max: usize) -> Vec<u8> {
    let length = bytes.min(max);
    if length == 0 { vec![] } else { buffer(BufferType::HttpResponseBody, 0, length) }
}

/// The last bytes, `max` at most, of a chunk of `bytes`.
pub(crate) fn response_chunk_end(bytes: usize, max: usize) -> Vec<u8> {
    let length = bytes.min(max);
    if length == 0 { vec![] } else { buffer(BufferType::HttpResponseBody, bytes - length, length) }
}

/// The `ip:port` that the request was sent to; empty: none.
pub(crate) fn upstream_address() -> String {
    property(&["upstream", "address"]).and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

/// `policy` in the route's metadata under `warmpath`.
pub(crate) fn route_policy() -> Option<Vec<u8>> {
    property(&["xds", "route_metadata", "filter_metadata", "warmpath", "policy"])
        .filter(|name| !name.is_empty())
}

pub(crate) fn response_flags() -> u64 {
    number(&["response", "flags"]).unwrap_or(0)
}

pub(crate) fn upstream_attempts() -> u32 {
    number(&["upstream", "request_attempt_count"]).and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
}

// === calls ===

/// Sends a unary call; none where it could not be sent.
pub(crate) fn call(upstream: &str, method: Method, message: &[u8], timeout: Duration) -> Option<u32> {
    hostcalls::dispatch_grpc_call(upstream, SERVICE, method.name(), vec![], Some(message), timeout).ok()
}

pub(crate) fn call_answer(bytes: usize) -> Vec<u8> {
    buffer(BufferType::GrpcReceiveBuffer, 0, bytes)
}

pub(crate) fn cancel_call(call: u32) {
    _ = hostcalls::cancel_grpc_call(call);
}

/// The following host calls are about this context. False: it is gone.
pub(crate) fn enter(context: u32) -> bool {
    hostcalls::set_effective_context(context).is_ok()
}

// === metrics ===

pub(crate) fn define_metric(kind: MetricType, name: &str) -> Option<u32> {
    hostcalls::define_metric(kind, name).ok()
}

pub(crate) fn add_to_metric(metric: Option<u32>, offset: i64) {
    if let Some(metric) = metric {
        _ = hostcalls::increment_metric(metric, offset);
    }
}

pub(crate) fn record_metric(metric: Option<u32>, value: u64) {
    if let Some(metric) = metric {
        _ = hostcalls::record_metric(metric, value);
    }
}

// === plumbing ===

fn buffer(kind: BufferType, start: usize, bytes: usize) -> Vec<u8> {
    hostcalls::get_buffer(kind, start, bytes).ok().flatten().unwrap_or_default()
}

fn property(path: &[&str]) -> Option<Vec<u8>> {
    hostcalls::get_property(path.to_vec()).ok().flatten()
}

/// Numbers come as eight bytes, little-endian.
fn number(path: &[&str]) -> Option<u64> {
    property(path)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}
