//! Requests with their arrival order and the blocks that they share: of a file in the format of the Mooncake traces, or
//! made up so that lengths and reuse are like those of the Mooncake conversation trace.

use std::path::Path;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::block::Random;

/// Tokens of a block of the trace.
pub(crate) const TRACE_BLOCK: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Tokens of the prompt.
    pub(crate) tokens: usize,
    /// One per 512 tokens, the last perhaps only partly filled. Equal numbers: equal blocks, and equal ones before.
    pub(crate) blocks: Vec<u64>,
}

#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) requests: Vec<Request>,
    /// Where it comes from.
    pub(crate) origin: String,
}

/// What there is to say of a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) requests: usize,
    pub(crate) tokens_p50: usize,
    pub(crate) tokens_p99: usize,
    /// Blocks that were there before, in one cache without end.
    pub(crate) reuse: f64,
}

// === impl Trace ===

impl Trace {
    /// Reads one JSON object per line, with `input_length` and `hash_ids`.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| {
            format!(
                "cannot read the trace {}: get conversation_trace.jsonl of the repository kvcache-ai/Mooncake, folder \
                 FAST25-release/traces, or leave --trace out for made-up requests of the same shape",
                path.display()
            )
        })?;
        let requests = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
            .map(|(number, line)| read_line(line).with_context(|| format!("line {}", number + 1)))
            .collect::<anyhow::Result<Vec<Request>>>()?;
        ensure!(!requests.is_empty(), "the trace {} has no requests", path.display());
        let name = path.file_name().unwrap_or(path.as_os_str());
        Ok(Self { requests, origin: name.to_string_lossy().into_owned() })
    }

    /// So many requests: conversations that go on, all behind one system prompt.
    pub(crate) fn made_up(count: usize) -> Self {
        let mut random = Random::new(1);
        let mut next = 1;
        let mut conversations: Vec<Request> = Vec::new();
        let mut requests = Vec::with_capacity(count);
        while requests.len() < count {
            let goes_on = !conversations.is_empty() && random.fraction() < 0.39;
            let recent = conversations.len().saturating_sub(400);
            let place = recent + random.below((conversations.len() - recent).max(1));
            let (before, more) = if goes_on {
                (conversations[place].clone(), log_normal(&mut random, 2_000.0, 1.0))
            } else {
                (Request { tokens: TRACE_BLOCK, blocks: vec![0] }, log_normal(&mut random, 4_700.0, 1.25))
            };
            let mut request = before;
            request.tokens += more;
            // A block that was not full is another one when it is.
            request.blocks.truncate((request.tokens - more) / TRACE_BLOCK);
            while request.blocks.len() < request.tokens.div_ceil(TRACE_BLOCK) {
                request.blocks.push(next);
                next += 1;
            }
            if goes_on {
                conversations[place] = request.clone();
            } else {
                conversations.push(request.clone());
            }
            requests.push(request);
        }
        Self { requests, origin: "made up".to_owned() }
    }

    pub(crate) fn summary(&self) -> Summary {
        let mut tokens: Vec<usize> = self.requests.iter().map(|request| request.tokens).collect();
        tokens.sort_unstable();
        let mut seen = std::collections::HashSet::new();
        let blocks = self.requests.iter().flat_map(|request| &request.blocks);
        let known = blocks.clone().filter(|block| !seen.insert(**block)).count();
        let at = |part: f64| tokens[(part * (tokens.len() - 1) as f64) as usize];
        Summary {
            requests: tokens.len(),
            tokens_p50: at(0.5),
            tokens_p99: at(0.99),
            reuse: known as f64 / blocks.count() as f64,
        }
    }
}

fn read_line(line: &str) -> anyhow::Result<Request> {
    let value: Value = serde_json::from_str(line)?;
    let tokens = value["input_length"].as_u64().context("no input_length")? as usize;
    let ids = value["hash_ids"].as_array().context("no hash_ids")?;
    let blocks =
        ids.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>().context("hash_ids are no numbers")?;
    ensure!(blocks.len() == tokens.div_ceil(TRACE_BLOCK), "{} hash_ids for {tokens} tokens", blocks.len());
    Ok(Request { tokens, blocks })
}

/// A length whose logarithm is normally distributed, up to 125,000.
fn log_normal(random: &mut Random, median: f64, deviation: f64) -> usize {
    let radius = (-2.0 * (1.0 - random.fraction()).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * random.fraction()).cos();
    (median * (deviation * normal).exp()).clamp(1.0, 125_000.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_requests_are_like_those_of_the_conversation_trace() {
        let trace = Trace::made_up(12_031);
        let Summary { requests, tokens_p50, tokens_p99, reuse } = trace.summary();
        assert_eq!(requests, 12_031);
        // The trace has 6,909, 85,401 and 0.366.
        assert!((6_000..8_000).contains(&tokens_p50), "{tokens_p50}");
        assert!((70_000..100_000).contains(&tokens_p99), "{tokens_p99}");
        assert!((0.33..0.40).contains(&reuse), "{reuse}");
        for request in &trace.requests {
            assert_eq!(request.blocks.len(), request.tokens.div_ceil(TRACE_BLOCK));
            assert_eq!(request.blocks[0], 0, "one system prompt");
        }
    }

    #[test]
    fn a_block_of_a_made_up_trace_always_comes_after_the_same_one() {
        let trace = Trace::made_up(2_000);
        let mut before = std::collections::HashMap::new();
        for request in &trace.requests {
            for pair in request.blocks.windows(2) {
                assert_eq!(*before.entry(pair[1]).or_insert(pair[0]), pair[0]);
            }
        }
    }

    #[test]
    fn lines_are_read_and_wrong_ones_refused() {
        let request =
            read_line(r#"{"timestamp": 0, "input_length": 513, "output_length": 5, "hash_ids": [0, 7]}"#);
        assert_eq!(request.expect("a request"), Request { tokens: 513, blocks: vec![0, 7] });
        for wrong in
            ["{}", r#"{"input_length": 513, "hash_ids": [0]}"#, r#"{"input_length": 5, "hash_ids": ["a"]}"#]
        {
            assert!(read_line(wrong).is_err(), "{wrong}");
        }
        let missing = Trace::read(Path::new("/nowhere/trace.jsonl")).expect_err("there is none");
        assert!(missing.to_string().contains("leave --trace out"), "{missing}");
    }
}
