//! Public request traces → requests. They hold lengths and, in two of the three kinds, ids that say which leading blocks
//! are those of other requests; no text.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;

use super::{Request, Start};
use crate::prompt::{PromptBuilder, mix};

/// Tokens per id in the traces of Mooncake.
const MOONCAKE_BLOCK: u32 = 512;
/// Their times are rounded to steps of this length: without an offset inside the step, each would be a burst.
const MOONCAKE_STEP_MS: u64 = 3000;
/// Clients of an agent that went to lunch are not waited for.
const PAUSE_MAX: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
struct MooncakeLine {
    timestamp: u64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// A trace of Mooncake (JSON lines), played `speed` times as fast.
pub fn mooncake(file: &Path, block_tokens: u32, speed: f64) -> Result<Vec<Request>> {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut requests = Vec::new();
    for line in read(file)?.lines().filter(|line| !line.is_empty()) {
        let line: MooncakeLine = serde_json::from_str(line)?;
        let at_ms = line.timestamp + random.random_range(0..MOONCAKE_STEP_MS);
        let mut prompt = PromptBuilder::new(block_tokens);
        let mut left = line.input_length;
        for id in line.hash_ids {
            prompt = prompt.text(id, left.min(MOONCAKE_BLOCK));
            left = left.saturating_sub(MOONCAKE_BLOCK);
        }
        let start = Start::At(Duration::from_millis(at_ms).div_f64(speed));
        requests.push(Request { start, prompt: prompt.build(), output: line.output_length.max(1) });
    }
    Ok(in_order(requests))
}

/// A trace of Azure (CSV: time, prompt tokens, answer tokens), `speed` times as fast. Nothing in it is shared.
pub fn azure(file: &Path, block_tokens: u32, speed: f64) -> Result<Vec<Request>> {
    let mut requests = Vec::new();
    let mut begin = None;
    for (number, line) in read(file)?.lines().skip(1).enumerate() {
        let mut fields = line.split(',');
        let mut next = || fields.next().with_context(|| format!("line `{line}` is too short"));
        let (time, input, output) = (next()?, next()?, next()?);
        let seconds = seconds_of_day(time).with_context(|| format!("no time: `{time}`"))?;
        let since = seconds - *begin.get_or_insert(seconds);
        let input: u32 = input.trim().parse()?;
        let output: u32 = output.trim().parse()?;
        let prompt = PromptBuilder::new(block_tokens).text(mix(2, number as u64), input.max(1)).build();
        let start = Start::At(Duration::from_secs_f64(since.max(0.0) / speed));
        requests.push(Request { start, prompt, output: output.max(1) });
    }
    Ok(in_order(requests))
}

/// `2023-11-16 18:17:03.9799600` → seconds of its day.
fn seconds_of_day(time: &str) -> Option<f64> {
    let (_, clock) = time.split_once(' ')?;
    clock.split(':').try_fold(0.0, |sum, part| Some(sum * 60.0 + part.parse::<f64>().ok()?))
}

#[derive(Deserialize)]
struct Session {
    block_size: u32,
    tool_tokens: u32,
    system_tokens: u32,
    requests: Vec<Turn>,
}

#[derive(Deserialize)]
struct Turn {
    #[serde(rename = "in", default)]
    input: u32,
    #[serde(default)]
    out: u32,
    #[serde(default)]
    hash_ids: Vec<u64>,
    #[serde(default)]
    think_time: Option<f64>,
}

/// Sessions of coding agents (a folder of JSON files), one beginning every `every` in the mean. Requests of a session
/// follow each other. Which sessions have tools and system prompt in common is not in the trace: those with equal
/// lengths of both count as equal in them.
pub fn agents(folder: &Path, block_tokens: u32, every: Duration, longest: u32) -> Result<Vec<Request>> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .with_context(|| format!("cannot list {}", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    ensure!(!files.is_empty(), "no sessions in {}", folder.display());
    let mut random = Pcg64Mcg::seed_from_u64(3);
    let mut begin = 0.0;
    let mut requests = Vec::new();
    for (number, file) in (0u64..).zip(files) {
        let session: Session = serde_json::from_str(&read(&file)?)?;
        let common = session.tool_tokens + session.system_tokens;
        let common_name = mix(u64::from(session.tool_tokens), u64::from(session.system_tokens));
        let mut before: Option<usize> = None;
        for turn in session.requests {
            if turn.hash_ids.is_empty() || turn.input == 0 || turn.input + turn.out > longest {
                continue;
            }
            let mut prompt = PromptBuilder::new(block_tokens);
            let mut at = 0;
            for id in turn.hash_ids {
                let tokens = (turn.input - at).min(session.block_size);
                let name =
                    if at + tokens <= common { mix(common_name, u64::from(at)) } else { mix(number, id) };
                prompt = prompt.text(name, tokens);
                at += tokens;
            }
            let pause = Duration::from_secs_f64(turn.think_time.unwrap_or(0.0).max(0.0)).min(PAUSE_MAX);
            let start = match before {
                None => Start::At(Duration::from_secs_f64(begin)),
                Some(request) => Start::After { request, pause },
            };
            before = Some(requests.len());
            requests.push(Request { start, prompt: prompt.build(), output: turn.out.max(1) });
        }
        begin += -(1.0 - random.random::<f64>()).ln() * every.as_secs_f64();
    }
    Ok(requests)
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn in_order(mut requests: Vec<Request>) -> Vec<Request> {
    requests.sort_by_key(|request| match request.start {
        Start::At(at) => at,
        Start::After { .. } => Duration::MAX,
    });
    requests
}
