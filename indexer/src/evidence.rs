//! `warmpath report`: how requests were spread (A), what the engines' own caches say (B), and what index and events did
//! (C), over one window, in one place. One of them alone misleads; the report says what each proves and what it does not.
//!
//! ```text
//! indexers' /metrics ─┐
//!                     ├─▶ Reading ─▶ (another one) ─▶ Samples between ─▶ Report
//!  engines' /metrics ─┘
//! ```
//!
//! In: two [`Reading`]s of everything, each taken now, later, or saved earlier. Out: a [`Report`], for people or as JSON.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use futures::future::join_all;
use serde::{Deserialize, Serialize};
use thiserror::Error;

mod reading;
mod table;

pub use reading::Samples;
pub use table::Report;

use crate::check::{CheckError, endpoints_of};
use crate::config::{Config, HostPort};
use crate::http::EngineClient;
use crate::receipts::unix_ms;

/// A reading is asked for by a person, and engines may be busy.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest exposition read, in bytes.
const EXPOSITION_MAX: usize = 16 << 20;

/// What is read.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Admin listeners of all indexers, `host:port`.
    pub indexers: Vec<String>,
    /// `host:port`.
    pub engines: Vec<String>,
}

/// One end of the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Nothing was counted yet: since each program started.
    Start,
    /// So much later than the command began.
    After(Duration),
    /// What was saved then.
    Saved(PathBuf),
}

/// All sources at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// In milliseconds since 1970; 0: nothing was counted yet.
    pub at_unix_ms: u64,
    pub indexers: Vec<Source>,
    pub engines: Vec<Source>,
}

/// One program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    pub name: String,
    /// Why there is nothing.
    pub problem: Option<String>,
    pub samples: Samples,
}

/// Why there is no report.
#[derive(Debug, Error)]
pub enum ReportError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error(
        "{path}: expected start, now, +30s, +5m or a file written with --save; it cannot be read: {source}"
    )]
    Moment { path: PathBuf, source: std::io::Error },
    #[error("{path} is no reading that was saved with --save: {source}")]
    Saved { path: PathBuf, source: serde_json::Error },
    #[error("no indexer answers at {0}; give its admin listener with --indexer HOST:PORT")]
    NoIndexer(String),
    #[error("--from is not before --to")]
    Backwards,
    #[error(transparent)]
    Endpoints(#[from] CheckError),
}

// === impl Sources ===

impl Sources {
    /// The indexers that are named, or the configured one, and every configured engine.
    pub async fn of(config: &Config, indexers: &[HostPort]) -> Result<Self, ReportError> {
        let mut engines = Vec::new();
        for model in &config.models {
            engines.extend(endpoints_of(config, &model.name).await?);
        }
        engines.sort_unstable();
        engines.dedup();
        let indexers = match indexers {
            [] => vec![config.listen.admin.to_string()],
            named => named.iter().map(HostPort::to_string).collect(),
        };
        Ok(Self { indexers, engines })
    }

    /// Reads all of them, side by side.
    pub async fn read(&self) -> Result<Reading, ReportError> {
        let client = EngineClient::new(ASK_TIMEOUT);
        let all =
            |names: &[String]| join_all(names.iter().map(|name| read_one(client.clone(), name.clone())));
        let (indexers, engines) = futures::join!(all(&self.indexers), all(&self.engines));
        if indexers.iter().all(|source| source.problem.is_some()) {
            return Err(ReportError::NoIndexer(self.indexers.join(", ")));
        }
        Ok(Reading { at_unix_ms: unix_ms(), indexers, engines })
    }
}

async fn read_one(client: EngineClient, name: String) -> Source {
    let answer = client.get(&name, "/metrics", EXPOSITION_MAX).await;
    let (samples, problem) = match answer {
        Ok(answer) if answer.status.is_success() => {
            (Samples::parse(&String::from_utf8_lossy(&answer.body)), None)
        }
        Ok(answer) => (Samples::default(), Some(format!("status {}", answer.status))),
        Err(error) => (Samples::default(), Some(error.to_string())),
    };
    Source { name, problem, samples }
}

/// Takes a reading at each end of the window and reports on what lies between. `save`: where the later reading is kept, to
/// begin another window.
pub async fn report(
    sources: &Sources,
    (from, to): (&Moment, &Moment),
    save: Option<&Path>,
) -> Result<Report, ReportError> {
    if let (Moment::After(from), Moment::After(to)) = (from, to)
        && from >= to
    {
        return Err(ReportError::Backwards);
    }
    let mut passed = Duration::ZERO;
    let earlier = reading_at(from, sources, &mut passed).await?;
    let later = reading_at(to, sources, &mut passed).await?;
    if earlier.at_unix_ms >= later.at_unix_ms {
        return Err(ReportError::Backwards);
    }
    if let Some(path) = save {
        let text = serde_json::to_string(&later).unwrap_or_default();
        fs::write(path, text).map_err(|source| ReportError::File { path: path.to_owned(), source })?;
    }
    Ok(Report::between(&earlier, &later))
}

/// Waits for the moment, if it is one to wait for.
async fn reading_at(
    moment: &Moment,
    sources: &Sources,
    passed: &mut Duration,
) -> Result<Reading, ReportError> {
    match moment {
        Moment::Start => Ok(Reading::default()),
        Moment::After(later) => {
            tokio::time::sleep(later.saturating_sub(*passed)).await;
            *passed = (*later).max(*passed);
            sources.read().await
        }
        Moment::Saved(path) => {
            let text = fs::read_to_string(path)
                .map_err(|source| ReportError::Moment { path: path.clone(), source })?;
            serde_json::from_str(&text).map_err(|source| ReportError::Saved { path: path.clone(), source })
        }
    }
}

// === impl Moment ===

impl FromStr for Moment {
    type Err = String;

    /// `start`, `now`, `+30s`, `+5m`, or a file.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "start" {
            return Ok(Self::Start);
        }
        if text == "now" {
            return Ok(Self::After(Duration::ZERO));
        }
        let Some(later) = text.strip_prefix('+') else { return Ok(Self::Saved(PathBuf::from(text))) };
        let wrong = || format!("{text:?} is no time from now: expected such as +30s or +5m");
        let (number, unit) = later.split_at_checked(later.len().saturating_sub(1)).ok_or_else(wrong)?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        match unit {
            "s" => Ok(Self::After(Duration::from_secs(number))),
            "m" => Ok(Self::After(Duration::from_secs(number.saturating_mul(60)))),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_people_write_them() {
        let seconds = |n| Ok(Moment::After(Duration::from_secs(n)));
        assert_eq!("start".parse(), Ok(Moment::Start));
        assert_eq!(["now", "+30s", "+2m"].map(str::parse::<Moment>), [seconds(0), seconds(30), seconds(120)]);
        assert_eq!("a.json".parse(), Ok(Moment::Saved("a.json".into())));
        for wrong in ["+", "+5", "+xs", "+5h"] {
            assert!(wrong.parse::<Moment>().unwrap_err().contains("expected"), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_moment_that_is_no_file_is_told_what_moments_there_are() {
        let sources = Sources { indexers: vec![], engines: vec![] };
        let mut waited = Duration::ZERO;
        let error = reading_at(&"5m".parse().unwrap(), &sources, &mut waited).await.unwrap_err();
        assert!(error.to_string().starts_with("5m: expected start, now, +30s"), "{error}");
    }
}
