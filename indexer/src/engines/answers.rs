//! Reads the answers of engines. Pure.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use warmpath_core::limits::MODEL_BYTES_MAX;
use warmpath_prompt::EngineVersion;

use super::ListedAdapter;

/// Adapters taken from one engine: far above what any holds; the rest of an absurd answer is left out.
const ADAPTERS_MAX: usize = 4096;

/// `/v1/models`, as far as it matters here.
#[derive(Deserialize)]
struct ModelList {
    data: Vec<Card>,
}

/// One name that an engine serves.
#[derive(Deserialize)]
struct Card {
    id: String,
    /// Set for adapters only: what they adapt.
    parent: Option<IgnoredAny>,
    /// Where it was loaded from, of any type.
    #[serde(default)]
    root: Option<serde_json::Value>,
}

/// `/version`.
#[derive(Deserialize)]
struct Release {
    version: String,
}

/// Longest path of an adapter kept, in bytes: that of the system.
const PATH_BYTES_MAX: usize = 4096;

/// The adapters in an answer to `/v1/models`: the entries that have a parent. None: no such answer.
pub(super) fn adapters(body: &[u8]) -> Option<Vec<ListedAdapter>> {
    let list: ModelList = serde_json::from_slice(body).ok()?;
    let adapters = list.data.into_iter().filter(|card| card.parent.is_some() && !card.id.is_empty());
    // Longer names cannot be asked for.
    let adapters = adapters.filter(|card| card.id.len() <= MODEL_BYTES_MAX).take(ADAPTERS_MAX);
    let listed = adapters.map(|card| {
        let path = card.root.as_ref().and_then(|root| root.as_str());
        ListedAdapter {
            name: card.id.into(),
            path: path.filter(|path| path.len() <= PATH_BYTES_MAX).map(Arc::from),
        }
    });
    Some(listed.collect())
}

/// The release in an answer to `/version`. None: no such answer, or a text that names no release (a build from source).
pub fn version(body: &[u8]) -> Option<EngineVersion> {
    let release: Release = serde_json::from_slice(body).ok()?;
    release.version.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_with_a_parent_are_adapters() {
        let body = br#"{"object":"list","data":[
            {"id":"base","object":"model","root":"/models/base","parent":null,"max_model_len":4096},
            {"id":"other-name","root":"/models/base"},
            {"id":"sql","root":"/loras/sql","parent":"base"},
            {"id":"","parent":"base"}]}"#;
        let listed = |path: Option<&str>| ListedAdapter { name: "sql".into(), path: path.map(Arc::from) };
        assert_eq!(adapters(body), Some(vec![listed(Some("/loras/sql"))]));
        let without = br#"{"data":[{"id":"sql","parent":"base"}]}"#;
        assert_eq!(adapters(without), Some(vec![listed(None)]));
        let odd = br#"{"data":[{"id":"sql","root":7,"parent":"base"}]}"#;
        assert_eq!(adapters(odd), Some(vec![listed(None)]));
        assert_eq!(adapters(br#"{"data":[]}"#), Some(Vec::new()));
        for strange in ["", "[]", "{}", r#"{"data":{}}"#, r#"{"data":[{"parent":"base"}]}"#, "<html>"] {
            assert_eq!(adapters(strange.as_bytes()), None, "{strange}");
        }
        let long = format!(r#"{{"data":[{{"id":"{}","parent":"base"}}]}}"#, "x".repeat(MODEL_BYTES_MAX + 1));
        assert_eq!(adapters(long.as_bytes()), Some(Vec::new()));
    }

    #[test]
    fn a_release_is_read_and_what_is_none_is_not() {
        assert_eq!(version(br#"{"version":"0.23.1rc2+cpu"}"#), Some(EngineVersion::new(0, 23)));
        for strange in ["", "{}", r#"{"version":"dev"}"#, r#"{"version":7}"#] {
            assert_eq!(version(strange.as_bytes()), None, "{strange}");
        }
    }
}
