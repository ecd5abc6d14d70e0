//! The joined table of A, B and C over one window. Pure: two readings in, a report out.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{Reading, Samples, Source};

/// Everything that a window shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// In milliseconds since 1970; 0: since each program started.
    pub from_unix_ms: u64,
    pub to_unix_ms: u64,
    pub a_spread: Vec<Served>,
    /// The busiest endpoint's requests ÷ the mean; none without requests.
    pub a_max_to_mean: Option<f64>,
    pub b_engines: Vec<EngineHits>,
    /// All engines together.
    pub b_hit_rate: Option<f64>,
    pub c_indexers: Vec<IndexerDid>,
    pub c_policies: Vec<PolicyEvidence>,
    /// What could not be read.
    pub problems: Vec<String>,
}

/// A: what one endpoint served.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Served {
    pub endpoint: String,
    pub requests: f64,
    /// Of all.
    pub share: f64,
}

/// B: one engine's own counters, in tokens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineHits {
    pub engine: String,
    pub queried_tokens: f64,
    pub hit_tokens: f64,
    pub hit_rate: Option<f64>,
}

/// C: what one indexer's index and event streams did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IndexerDid {
    pub indexer: String,
    pub scored: f64,
    pub load_only: f64,
    pub batches: f64,
    pub batches_lost: f64,
    pub gaps: f64,
    pub blocks_admitted: f64,
    pub blocks_removed: f64,
    pub live_streams: f64,
    pub streams: f64,
    /// Requests whose cached tokens were predicted exactly, of those that could be compared.
    pub predicted_exactly: Option<f64>,
}

/// The evidence of one policy: shares of the prompt tokens of the same requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyEvidence {
    pub policy: String,
    pub decisions: f64,
    pub prompt_tokens: f64,
    pub reachable: Option<f64>,
    pub captured: Option<f64>,
    pub delivered: Option<f64>,
}

/// What is counted where, and what follows from it.
const CORNERS: [&str; 3] = [
    "A proves how requests were really spread, as gateways report it. It says nothing about locality: an even spread\n   may hit nothing, an uneven one everything.",
    "B proves which tokens the engines found in their caches, whatever brought them there. It says nothing about why:\n   traffic of others counts too, and chance alone hits where replicas are few.",
    "C proves what the router knew, chose and got, of its own requests: reachable on the best endpoint, captured by the\n   choice, delivered by the engine. It proves no speed: hold times to first tokens against it.",
];

/// Names of the engines' counters of looked-up and found tokens: vLLM, vLLM before 0.11, SGLang.
const HIT_FAMILIES: [(&str, &str); 3] = [
    ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"),
    ("vllm:gpu_prefix_cache_queries_total", "vllm:gpu_prefix_cache_hits_total"),
    ("sglang:prompt_tokens_total", "sglang:cached_tokens_total"),
];

// === impl Report ===

impl Report {
    /// What was counted between two readings. A program that only the later one has counts from its start; one that
    /// could not be read at either is left out, and named.
    pub fn between(earlier: &Reading, later: &Reading) -> Self {
        let indexers = differences(&earlier.indexers, &later.indexers);
        let engines = differences(&earlier.engines, &later.engines);
        let a_spread = spread(&indexers);
        let b_engines: Vec<EngineHits> = engines.iter().map(|(name, samples)| hits(name, samples)).collect();
        let sum = |of: fn(&EngineHits) -> f64| b_engines.iter().map(of).sum::<f64>();
        Self {
            from_unix_ms: earlier.at_unix_ms,
            to_unix_ms: later.at_unix_ms,
            a_max_to_mean: max_to_mean(&a_spread),
            a_spread,
            b_hit_rate: ratio(sum(|engine| engine.hit_tokens), sum(|engine| engine.queried_tokens)),
            b_engines,
            c_indexers: indexers.iter().map(|(name, samples)| did(name, samples)).collect(),
            c_policies: policies(&indexers),
            problems: problems(earlier, later),
        }
    }
}

/// What each source counted, by its name. Without a reading at the beginning, what one counted before is not known.
fn differences(earlier: &[Source], later: &[Source]) -> Vec<(String, Samples)> {
    let read = later.iter().filter(|source| source.problem.is_none());
    read.filter_map(|source| {
        let samples = match earlier.iter().find(|before| before.name == source.name) {
            None => source.samples.clone(),
            Some(Source { problem: Some(_), .. }) => return None,
            Some(before) => source.samples.since(&before.samples),
        };
        Some((source.name.clone(), samples))
    })
    .collect()
}

/// Every source that could not be read, and when.
fn problems(earlier: &Reading, later: &Reading) -> Vec<String> {
    let of = |reading: &Reading, when: &str| -> Vec<String> {
        let sources = reading.indexers.iter().chain(&reading.engines);
        let problem = |source: &Source| Some(format!("{}: {}{when}", source.name, source.problem.as_ref()?));
        sources.filter_map(problem).collect()
    };
    let mut all = of(earlier, " (at the beginning)");
    all.extend(of(later, ""));
    all
}

fn spread(indexers: &[(String, Samples)]) -> Vec<Served> {
    const FAMILY: &str = "warmpath_endpoint_requests_total";
    let mut requests: BTreeMap<String, f64> = BTreeMap::new();
    for (_, samples) in indexers {
        // Endpoints without a request are told as idle ones are: by their streams or usability they are known.
        for endpoint in samples.values(FAMILY, "endpoint") {
            *requests.entry(endpoint.clone()).or_default() += samples.sum(FAMILY, &[("endpoint", &endpoint)]);
        }
    }
    let all: f64 = requests.values().sum();
    let served = |(endpoint, requests): (String, f64)| Served {
        endpoint,
        requests,
        share: ratio(requests, all).unwrap_or(0.0),
    };
    requests.into_iter().map(served).collect()
}

fn max_to_mean(spread: &[Served]) -> Option<f64> {
    let all: f64 = spread.iter().map(|served| served.requests).sum();
    let most = spread.iter().map(|served| served.requests).fold(0.0, f64::max);
    ratio(most * spread.len() as f64, all)
}

fn hits(name: &str, samples: &Samples) -> EngineHits {
    let tokens = |(queries, hits): &(&str, &str)| (samples.sum(queries, &[]), samples.sum(hits, &[]));
    let found = HIT_FAMILIES.iter().map(tokens).find(|(queried, _)| *queried > 0.0);
    let (queried_tokens, hit_tokens) = found.unwrap_or((0.0, 0.0));
    EngineHits {
        engine: name.to_owned(),
        queried_tokens,
        hit_tokens,
        hit_rate: ratio(hit_tokens, queried_tokens),
    }
}

fn did(name: &str, samples: &Samples) -> IndexerDid {
    let sum = |family: &str| samples.sum(family, &[]);
    let outcome = |outcome| samples.sum("warmpath_decisions_total", &[("outcome", outcome)]);
    let predictions = |result| samples.sum("warmpath_predictions_total", &[("result", result)]);
    let equal = predictions("equal");
    IndexerDid {
        indexer: name.to_owned(),
        scored: outcome("scored"),
        load_only: outcome("load_only"),
        batches: sum("warmpath_kv_batches_published_total") + sum("warmpath_kv_batches_replayed_total"),
        batches_lost: sum("warmpath_kv_batches_lost_total"),
        gaps: sum("warmpath_kv_gaps_total"),
        blocks_admitted: sum("warmpath_index_admissions_total"),
        blocks_removed: sum("warmpath_index_removals_total"),
        live_streams: samples.sum("warmpath_kv_trust", &[("trust", "live")]),
        streams: sum("warmpath_kv_trust"),
        predicted_exactly: ratio(equal, equal + predictions("overpredicted") + predictions("underpredicted")),
    }
}

fn policies(indexers: &[(String, Samples)]) -> Vec<PolicyEvidence> {
    let mut names: Vec<String> = indexers
        .iter()
        .flat_map(|(_, samples)| samples.values("warmpath_decisions_total", "policy"))
        .collect();
    names.sort_unstable();
    names.dedup();
    let of = |policy: String| {
        let sum = |family: &str, more: &[(&str, &str)]| -> f64 {
            let labels: Vec<(&str, &str)> =
                [("policy", policy.as_str())].into_iter().chain(more.iter().copied()).collect();
            indexers.iter().map(|(_, samples)| samples.sum(family, &labels)).sum()
        };
        let tokens = |kind| sum("warmpath_evidence_tokens_total", &[("kind", kind)]);
        let prompt_tokens = tokens("prompt");
        PolicyEvidence {
            decisions: sum("warmpath_decisions_total", &[]),
            prompt_tokens,
            reachable: ratio(tokens("reachable"), prompt_tokens),
            captured: ratio(tokens("captured"), prompt_tokens),
            delivered: ratio(tokens("delivered"), prompt_tokens),
            policy: policy.clone(),
        }
    };
    names.into_iter().map(of).filter(|evidence| evidence.decisions > 0.0).collect()
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// A share in percent.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c] = CORNERS;
        match self.from_unix_ms {
            0 => writeln!(f, "Since each program started")?,
            from => writeln!(f, "{:.1} s", (self.to_unix_ms - from) as f64 / 1000.0)?,
        }
        writeln!(f, "\nA  How requests were spread")?;
        for served in &self.a_spread {
            let share = percent(Some(served.share));
            writeln!(f, "   {:<24} {:>10} requests {:>8}", served.endpoint, served.requests, share)?;
        }
        match self.a_max_to_mean {
            Some(ratio) => writeln!(f, "   busiest / mean: {ratio:.2}")?,
            None => writeln!(f, "   no request has ended")?,
        }
        writeln!(f, "\nB  The engines' own prefix-cache hit rate, in tokens")?;
        for engine in &self.b_engines {
            let (hits, all, rate) = (engine.hit_tokens, engine.queried_tokens, percent(engine.hit_rate));
            writeln!(f, "   {:<24} {hits:>12} of {all:>12} {rate:>8}", engine.engine)?;
        }
        writeln!(f, "   all: {}", percent(self.b_hit_rate))?;
        writeln!(f, "\nC  What index and events did")?;
        for indexer in &self.c_indexers {
            writeln!(
                f,
                "   {}: {} scored, {} by load only; {} of {} streams live, {} batches, {} lost, {} gaps; {} blocks in, {} out; \
                 predicted exactly: {}",
                indexer.indexer,
                indexer.scored,
                indexer.load_only,
                indexer.live_streams,
                indexer.streams,
                indexer.batches,
                indexer.batches_lost,
                indexer.gaps,
                indexer.blocks_admitted,
                indexer.blocks_removed,
                percent(indexer.predicted_exactly),
            )?;
        }
        writeln!(
            f,
            "   {:<18} {:>10} {:>14} {:>10} {:>10} {:>10}",
            "policy", "decisions", "prompt tokens", "reachable", "captured", "delivered"
        )?;
        for policy in &self.c_policies {
            writeln!(
                f,
                "   {:<18} {:>10} {:>14} {:>10} {:>10} {:>10}",
                policy.policy,
                policy.decisions,
                policy.prompt_tokens,
                percent(policy.reachable),
                percent(policy.captured),
                percent(policy.delivered),
            )?;
        }
        writeln!(f, "\n{a}\n{b}\n{c}")?;
        for problem in &self.problems {
            writeln!(f, "Not read: {problem}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str, text: &str) -> Source {
        Source { name: name.to_owned(), problem: None, samples: Samples::parse(text) }
    }

    fn reading(at_unix_ms: u64, indexers: Vec<Source>, engines: Vec<Source>) -> Reading {
        Reading { at_unix_ms, indexers, engines }
    }

    fn indexer(name: &str, requests: u64) -> Source {
        source(
            name,
            &format!(
                "warmpath_endpoint_requests_total{{endpoint=\"a:1\",policy=\"cost\"}} {requests}\n\
                 warmpath_endpoint_requests_total{{endpoint=\"b:1\",policy=\"cost\"}} 10\n\
                 warmpath_decisions_total{{policy=\"cost\",outcome=\"scored\",reason=\"\"}} {requests}\n\
                 warmpath_evidence_tokens_total{{model=\"m\",policy=\"cost\",kind=\"prompt\"}} {}\n\
                 warmpath_evidence_tokens_total{{model=\"m\",policy=\"cost\",kind=\"reachable\"}} {}\n\
                 warmpath_evidence_tokens_total{{model=\"m\",policy=\"cost\",kind=\"delivered\"}} {}\n\
                 warmpath_kv_trust{{endpoint=\"a:1\",rank=\"0\",trust=\"live\"}} 1\n\
                 warmpath_kv_trust{{endpoint=\"b:1\",rank=\"0\",trust=\"live\"}} 0\n\
                 warmpath_kv_trust{{endpoint=\"b:1\",rank=\"0\",trust=\"stale\"}} 1\n",
                requests * 100,
                requests * 80,
                requests * 60
            ),
        )
    }

    fn engine(name: &str, queries: u64, hits: u64) -> Source {
        source(
            name,
            &format!(
                "vllm:prefix_cache_queries_total{{engine=\"0\"}} {queries}\nvllm:prefix_cache_hits_total{{engine=\"0\"}} {hits}\n"
            ),
        )
    }

    #[test]
    fn indexers_and_engines_are_joined_over_one_window() {
        let earlier = reading(1000, vec![indexer("i1", 10)], vec![engine("a:1", 100, 10)]);
        let broken = Source { problem: Some("cannot connect".to_owned()), ..source("c:1", "") };
        let later = reading(
            61_000,
            vec![indexer("i1", 40), indexer("i2", 20)],
            vec![engine("a:1", 1100, 510), engine("b:1", 1000, 500), broken],
        );
        let report = Report::between(&earlier, &later);
        // 30 of the first, 20 of the second that was not there before; b: 0 and 10.
        let spread: Vec<_> = report.a_spread.iter().map(|s| (s.endpoint.as_str(), s.requests)).collect();
        assert_eq!(spread, [("a:1", 50.0), ("b:1", 10.0)]);
        assert_eq!(report.a_max_to_mean.map(|ratio| (ratio * 100.0).round()), Some(167.0));
        assert_eq!(report.b_hit_rate, Some(0.5));
        let [cost] = &report.c_policies[..] else { panic!("one policy") };
        assert_eq!((cost.decisions, cost.prompt_tokens), (50.0, 5000.0));
        assert_eq!((cost.reachable, cost.captured, cost.delivered), (Some(0.8), Some(0.0), Some(0.6)));
        assert_eq!((report.c_indexers[0].live_streams, report.c_indexers[0].streams), (1.0, 2.0));
        assert_eq!(report.problems, ["c:1: cannot connect"]);
        let text = report.to_string();
        for part in [
            "60.0 s",
            "a:1",
            "busiest / mean: 1.67",
            "all: 50.0 %",
            "80.0 %",
            "It says nothing about locality",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
    }

    /// An engine that did not answer at the beginning would otherwise count with all that it did in its life.
    #[test]
    fn who_was_not_read_at_the_beginning_is_left_out_and_named() {
        let broken = |name| Source { problem: Some("timed out".to_owned()), ..source(name, "") };
        let earlier =
            reading(1000, vec![indexer("i1", 10), broken("i2")], vec![broken("a:1"), engine("b:1", 10, 0)]);
        let later = reading(
            2000,
            vec![indexer("i1", 40), indexer("i2", 900)],
            vec![engine("a:1", 90_000, 90_000), engine("b:1", 110, 50)],
        );
        let report = Report::between(&earlier, &later);
        assert_eq!(report.b_hit_rate, Some(0.5));
        assert_eq!(report.c_policies[0].decisions, 30.0);
        assert_eq!(
            report.problems,
            ["i2: timed out (at the beginning)", "a:1: timed out (at the beginning)"]
        );
    }

    #[test]
    fn nothing_counted_is_no_share() {
        let report = Report::between(&Reading::default(), &reading(1, vec![source("i", "")], vec![]));
        assert_eq!((report.a_max_to_mean, report.b_hit_rate), (None, None));
        assert!(report.to_string().contains("no request has ended"));
    }
}
