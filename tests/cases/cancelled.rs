//! Clients that go away at any moment: nothing of their requests stays counted.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use warmpath_tests::case::case;
use warmpath_tests::eventually::{eventually, seen_if};
use warmpath_tests::prompts::{completion, text};
use warmpath_tests::stack::{MODEL, Stack};

/// Tokens of an answer that takes far longer than a client here waits: forty seconds.
const OUTPUT_TOKENS: u32 = 4096;

/// A request for a long answer, as bytes: head and body.
fn request(seed: u64) -> (String, String) {
    let prompt = text(seed, 320);
    let body =
        json!({ "model": MODEL, "prompt": prompt, "max_tokens": OUTPUT_TOKENS, "stream": true }).to_string();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: warmpath\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (head, body)
}

/// A connection on which so many bytes of the request were sent.
async fn sent(stack: &Stack, seed: u64, part: impl Fn(usize, usize) -> usize) -> Result<TcpStream> {
    let (head, body) = request(seed);
    let whole = format!("{head}{body}");
    let bytes = part(head.len(), whole.len());
    let mut stream = TcpStream::connect(stack.envoy.address()).await?;
    stream.write_all(whole.as_bytes().get(..bytes).context("no more than all of it")?).await?;
    Ok(stream)
}

async fn reservations(stack: &mut Stack, count: u64) -> Result<()> {
    let indexer = stack.indexer()?;
    eventually(&format!("{count} reservations"), async || {
        let state = indexer.state().await?;
        let ranks = state["endpoints"].as_array().into_iter().flatten().map(|endpoint| &endpoint["ranks"][0]);
        let sequences: u64 = ranks.clone().filter_map(|rank| rank["active_sequences"].as_u64()).sum();
        let queued: u64 = ranks.filter_map(|rank| rank["queued_tokens"].as_u64()).sum();
        let is_so = state["reservations"] == count && sequences == count && (count > 0 || queued == 0);
        seen_if(
            is_so,
            format!("{} reservations, {sequences} sequences, {queued} tokens", state["reservations"]),
        )
    })
    .await
}

// D26 (Avarok-Cybersecurity/atlas#368)
#[test]
fn clients_that_go_away_at_any_moment_leave_no_load_behind() {
    // Real time: an answer takes long enough to be left in the middle.
    let stack = Stack::builder().map(|stack| stack.each_engine(|engine| engine.speedup = 1.0));
    case(stack, async |stack| {
        // Before the headers are over, before the body begins, and in its middle.
        let parts: [fn(usize, usize) -> usize; 3] =
            [|head, _| head / 2, |head, _| head, |head, whole| (head + whole) / 2];
        for part in parts {
            drop(sent(stack, 1, part).await?);
        }
        // Decided, and no byte of the answer read.
        let waiting = sent(stack, 2, |_, whole| whole).await?;
        reservations(stack, 1).await?;
        drop(waiting);
        reservations(stack, 0).await?;

        // In the middle of the answer.
        let mut reading = sent(stack, 3, |_, whole| whole).await?;
        let mut answer = Vec::new();
        while !answer.windows(6).any(|bytes| bytes == b"data: ") {
            ensure!(reading.read_buf(&mut answer).await? > 0, "the answer ended");
        }
        reservations(stack, 1).await?;
        drop(reading);
        reservations(stack, 0).await?;

        // While Envoy is at the second endpoint, after the first one refused.
        let home = stack.send_alone(completion(text(4, 320))).await?.receipt().endpoint;
        stack.engine_at(&home)?.process().kill()?;
        let mut retried = sent(stack, 4, |_, whole| whole).await?;
        let mut first = [0];
        tokio::time::timeout(Duration::from_secs(60), retried.read_exact(&mut first)).await??;
        reservations(stack, 1).await?;
        drop(retried);
        reservations(stack, 0).await?;
        Ok(())
    });
}
