//! What an exposition says: samples by family and labels, and the difference of two. Pure.

use std::collections::BTreeMap;
use std::ops::Add;

use serde::{Deserialize, Serialize};

/// The values of one program's families at one moment, by the whole name of each sample with its labels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples(BTreeMap<String, f64>);

/// Families that a report is made of, by how their names begin. The rest of an exposition is not kept.
const KEPT: [&str; 12] = [
    "warmpath_decisions_total",
    "warmpath_evidence_tokens_total",
    "warmpath_endpoint_requests_total",
    "warmpath_predictions_total",
    "warmpath_kv_",
    "warmpath_index_",
    "vllm:prefix_cache_",
    "vllm:gpu_prefix_cache_",
    "vllm:prompt_tokens_total",
    "sglang:cached_tokens_total",
    "sglang:prompt_tokens_total",
    START_TIME,
];
/// When a program started, in seconds since 1970.
const START_TIME: &str = "process_start_time_seconds";
/// Start times that differ by less are the same, in seconds: nothing starts twice within a second.
const START_TIME_ROUNDING: f64 = 1.0;

// === impl Samples ===

impl Samples {
    /// Reads an exposition; lines that are none are skipped.
    pub fn parse(text: &str) -> Self {
        let kept = |line: &&str| KEPT.iter().any(|name| line.starts_with(name));
        Self(text.lines().filter(kept).filter_map(read_line).collect())
    }

    /// What was counted between `earlier` and this. All of it where the program has started since then, by its start
    /// time; where it tells none, all of what is less now.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let is_another = self.has_started_after(earlier);
        let difference = |(name, value): (&String, &f64)| {
            let before = earlier.0.get(name).copied().unwrap_or(0.0);
            let is_gauge = !name.contains("_total");
            let counted = if is_gauge || is_another || before > *value { *value } else { *value - before };
            (name.clone(), counted)
        };
        Self(self.0.iter().map(difference).collect())
    }

    fn has_started_after(&self, earlier: &Self) -> bool {
        let start = |samples: &Self| samples.0.get(START_TIME).copied();
        match (start(self), start(earlier)) {
            (Some(now), Some(before)) => (now - before).abs() >= START_TIME_ROUNDING,
            _ => false,
        }
    }

    /// The sum of a family's samples that have all of these labels.
    pub fn sum(&self, family: &str, labels: &[(&str, &str)]) -> f64 {
        let samples = self.of(family).filter(|(given, _)| {
            labels.iter().all(|(name, value)| label(given, name).as_deref() == Some(value))
        });
        // From 0 on: the sum of no floats is -0, and is shown as such.
        samples.map(|(_, value)| value).fold(0.0, Add::add)
    }

    /// The values that a label has in a family.
    pub fn values(&self, family: &str, name: &str) -> Vec<String> {
        let mut values: Vec<String> = self.of(family).filter_map(|(labels, _)| label(labels, name)).collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The labels and values of a family's samples.
    fn of(&self, family: &str) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().filter_map(move |(name, value)| {
            let labels = name.strip_prefix(family)?;
            let is_it = labels.is_empty() || labels.starts_with('{');
            is_it.then_some((labels, *value))
        })
    }
}

/// `name{labels} value`, or without labels; what follows the value is not ours.
fn read_line(line: &str) -> Option<(String, f64)> {
    let end = line.rfind('}').map_or_else(|| line.find(' '), |brace| Some(brace + 1))?;
    let (name, rest) = line.split_at_checked(end)?;
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    value.is_finite().then(|| (name.to_owned(), value))
}

/// The value of a label in `{a="b",c="d"}`; values of ours hold neither quotes nor backslashes.
fn label(labels: &str, name: &str) -> Option<String> {
    let inside = labels.strip_prefix('{')?.strip_suffix('}')?;
    let mut rest = inside;
    while !rest.is_empty() {
        let (key, after) = rest.split_once("=\"")?;
        let (value, next) = after.split_once('"')?;
        if key.trim_start_matches(',').trim() == name {
            return Some(value.to_owned());
        }
        rest = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE warmpath_decisions counter\n\
        warmpath_decisions_total{policy=\"cost\",outcome=\"scored\",reason=\"\"} 7\n\
        warmpath_decisions_total{policy=\"cost\",outcome=\"load_only\",reason=\"busy\"} 2\n\
        warmpath_decisions_total{policy=\"least_load\",outcome=\"scored\",reason=\"\"} 1 1700000000\n\
        vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"a, b\"} 64.0\n\
        vllm:num_requests_running{engine=\"0\"} 3\nwarmpath_kv_gaps_total 5\nwarmpath_kv_broken{ 1\n";

    #[test]
    fn samples_are_summed_by_their_labels() {
        let samples = Samples::parse(TEXT);
        let decisions = |labels: &[(&str, &str)]| samples.sum("warmpath_decisions_total", labels);
        assert_eq!((decisions(&[]), decisions(&[("policy", "cost")])), (10.0, 9.0));
        assert_eq!(decisions(&[("policy", "cost"), ("outcome", "scored")]), 7.0);
        assert_eq!(samples.sum("vllm:prefix_cache_hits_total", &[("model_name", "a, b")]), 64.0);
        assert_eq!(samples.sum("warmpath_kv_gaps_total", &[]), 5.0);
        assert_eq!(samples.values("warmpath_decisions_total", "policy"), ["cost", "least_load"]);
        let nothing = samples.sum("vllm:num_requests_running", &[]);
        assert_eq!(nothing.to_string(), "0", "not kept, and not -0");
    }

    #[test]
    fn a_difference_is_what_was_counted_between() {
        let earlier =
            Samples::parse("warmpath_kv_gaps_total 5\nwarmpath_decisions_total 100\nwarmpath_kv_trust 1");
        let later =
            Samples::parse("warmpath_kv_gaps_total 9\nwarmpath_decisions_total 30\nwarmpath_kv_trust 1");
        let between = later.since(&earlier);
        assert_eq!(between.sum("warmpath_kv_gaps_total", &[]), 4.0);
        assert_eq!(between.sum("warmpath_decisions_total", &[]), 30.0, "it has started anew");
        assert_eq!(between.sum("warmpath_kv_trust", &[]), 1.0, "what is no counter stays");
    }

    /// A new process that counted more than the old one did: nothing of the old one is taken away.
    #[test]
    fn what_another_process_counted_is_all_its_own() {
        let at = |start: f64, hits: u64| {
            Samples::parse(&format!(
                "process_start_time_seconds {start}\nvllm:prefix_cache_hits_total{{engine=\"0\"}} {hits}\n"
            ))
        };
        let hits = |samples: Samples| samples.sum("vllm:prefix_cache_hits_total", &[]);
        assert_eq!(hits(at(1.7e9, 500).since(&at(1.7e9, 100))), 400.0);
        assert_eq!(hits(at(1.7e9 + 60.0, 500).since(&at(1.7e9, 100))), 500.0);
    }

    #[test]
    fn what_is_saved_reads_back() {
        let samples = Samples::parse(TEXT);
        let text = serde_json::to_string(&samples).unwrap();
        assert_eq!(serde_json::from_str::<Samples>(&text).unwrap(), samples);
    }
}
