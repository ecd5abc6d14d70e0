//! The log of requests received, so that tests can prove what reached the engine.

use std::collections::VecDeque;
use std::fmt::Write as _;

use axum::http::HeaderMap;
use parking_lot::Mutex;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// One request as it came in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequestRecord {
    /// Its number since the start of the server, from 0; restarts do not reset it.
    pub number: u64,
    /// HTTP method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Headers in the order received; values that are not UTF-8 are replaced as far as needed.
    pub headers: Vec<(String, String)>,
    /// Bytes of the body.
    pub body_len: usize,
    /// SHA-256 of the body, in hex.
    pub body_sha256: String,
}

/// The last requests.
#[derive(Debug)]
pub(crate) struct RequestLog {
    kept_max: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    received: u64,
    kept: VecDeque<RequestRecord>,
}

impl RequestLog {
    pub(crate) fn new(kept_max: usize) -> Self {
        Self { kept_max, inner: Mutex::default() }
    }

    pub(crate) fn record(&self, method: &str, target: &str, headers: &HeaderMap, body: &[u8]) {
        let text = |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        let body_sha256 = hex(&Sha256::digest(body));
        let mut inner = self.inner.lock();
        let number = inner.received;
        inner.received += 1;
        if inner.kept.len() >= self.kept_max {
            inner.kept.pop_front();
        }
        inner.kept.push_back(RequestRecord {
            number,
            method: method.to_owned(),
            target: target.to_owned(),
            headers,
            body_len: body.len(),
            body_sha256,
        });
    }

    pub(crate) fn all(&self) -> Vec<RequestRecord> {
        self.inner.lock().kept.iter().cloned().collect()
    }

    pub(crate) fn clear(&self) {
        self.inner.lock().kept.clear();
    }
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        if write!(out, "{byte:02x}").is_err() {
            tracing::error!("formatting failed");
        }
    }
    out
}
