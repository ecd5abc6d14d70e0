//! The configuration as written: every member has its type, or its default; what does not fit is noted.

use serde_json::{Map, Value};

use super::Problem;
use crate::limits::{
    BODY_BYTES_DEFAULT, LOAD_FACTOR_DEFAULT, REPORT_INTERVAL_MS_DEFAULT, TIMEOUT_MS_DEFAULT,
};

/// The members of the configuration, described in `filter/README.md`. Times are milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Raw {
    pub(super) cluster: String,
    pub(super) authority: String,
    pub(super) timeout_ms: u64,
    pub(super) max_body_bytes: u64,
    pub(super) response_header: bool,
    pub(super) policy: String,
    pub(super) group_header: String,
    pub(super) report_interval_ms: u64,
    pub(super) load_factor: f64,
}

/// Reads the members. Unknown ones are refused: a misspelt one would silently keep its default.
pub(super) fn read(value: Value, problems: &mut Vec<Problem>) -> Raw {
    let mut top = Members::of(String::new(), value, problems);
    let mut indexer = top.object("indexer", problems);
    let mut fallback = top.object("fallback", problems);
    let raw = Raw {
        cluster: indexer.text("cluster", "indexer", problems),
        authority: indexer.text("authority", "indexer", problems),
        timeout_ms: indexer.whole("timeout_ms", TIMEOUT_MS_DEFAULT, problems),
        max_body_bytes: top.whole("max_body_bytes", BODY_BYTES_DEFAULT as u64, problems),
        response_header: top.member("response_header", "true or false", false, Value::as_bool, problems),
        policy: top.text("policy", "", problems),
        group_header: top.text("group_header", "", problems),
        report_interval_ms: top.whole("report_interval_ms", REPORT_INTERVAL_MS_DEFAULT, problems),
        load_factor: fallback.member("load_factor", "a number", LOAD_FACTOR_DEFAULT, Value::as_f64, problems),
    };
    for members in [indexer, fallback, top] {
        members.refuse_rest(problems);
    }
    raw
}

/// The members of an object that were not read yet.
struct Members {
    /// Name of the object with a dot, or nothing.
    path: String,
    map: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Members {
    fn of(path: String, value: Value, problems: &mut Vec<Problem>) -> Self {
        let map = match value {
            Value::Object(map) => map,
            other => {
                let field = path.strip_suffix('.').unwrap_or("the configuration").to_owned();
                let value = other.to_string();
                problems.push(Problem { field, value, remedy: "give an object".to_owned() });
                Map::new()
            }
        };
        Self { path, map, known: Vec::new() }
    }

    fn object(&mut self, name: &'static str, problems: &mut Vec<Problem>) -> Self {
        self.known.push(name);
        let path = format!("{}{name}.", self.path);
        Self::of(path, self.map.remove(name).unwrap_or_else(|| Value::Object(Map::new())), problems)
    }

    fn text(&mut self, name: &'static str, default: &str, problems: &mut Vec<Problem>) -> String {
        let read = |value: &Value| value.as_str().map(str::to_owned);
        self.member(name, "a text", default.to_owned(), read, problems)
    }

    fn whole(&mut self, name: &'static str, default: u64, problems: &mut Vec<Problem>) -> u64 {
        self.member(name, "a whole number", default, Value::as_u64, problems)
    }

    /// The member, or its default where it is absent or of another kind.
    fn member<T>(
        &mut self,
        name: &'static str,
        kind: &str,
        default: T,
        read: impl Fn(&Value) -> Option<T>,
        problems: &mut Vec<Problem>,
    ) -> T {
        self.known.push(name);
        let Some(value) = self.map.remove(name) else { return default };
        read(&value).unwrap_or_else(|| {
            let field = format!("{}{name}", self.path);
            problems.push(Problem { field, value: value.to_string(), remedy: format!("give {kind}") });
            default
        })
    }

    fn refuse_rest(self, problems: &mut Vec<Problem>) {
        for (name, value) in self.map {
            let field = format!("{}{name}", self.path);
            let remedy = format!("no such member; there are {}", self.known.join(", "));
            problems.push(Problem { field, value: value.to_string(), remedy });
        }
    }
}
