//! The plugin configuration: JSON as written ([`raw::Raw`]) → [`Config`] as used, or every error in it at once.

mod checked;
mod raw;

use std::fmt;

pub use checked::Config;

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where, for example `indexer.timeout_ms`.
    pub field: String,
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
    /// No JSON.
    #[error("plugin configuration is no JSON: {0}; see filter/README.md")]
    NotJson(String),
    /// Values that cannot be.
    #[error("plugin configuration has {} mistake(s): {}; see filter/README.md", .0.len(), list(.0))]
    Invalid(Vec<Problem>),
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Config {
    /// Reads a plugin configuration. An empty one is the default.
    pub fn read(json: &[u8]) -> Result<Self, ConfigError> {
        let json = if json.iter().all(u8::is_ascii_whitespace) { b"{}" } else { json };
        let value = serde_json::from_slice(json).map_err(|e| ConfigError::NotJson(e.to_string()))?;
        let mut problems = Vec::new();
        let raw = raw::read(value, &mut problems);
        let config = Self::check(&raw, &mut problems);
        if problems.is_empty() { Ok(config) } else { Err(ConfigError::Invalid(problems)) }
    }
}

#[cfg(test)]
mod tests;
