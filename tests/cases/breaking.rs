//! Calls that break, bodies that are too much, headers that are no text: the filter's VM survives all of it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use warmpath_core::outcome::Reason;
use warmpath_tests::case::{case, case_that_leaves};
use warmpath_tests::chaos::proc::Holdings;
use warmpath_tests::client::Call;
use warmpath_tests::eventually::{eventually, seen_if};
use warmpath_tests::prompts::{completion, text};
use warmpath_tests::scripted::Script;
use warmpath_tests::stack::{AfterCase, MODEL, Stack};

/// An indexer that starts at once: it has no tokenizer to load.
fn without_tokenizer(config: &mut Value) {
    config["models"] = json!([{ "name": MODEL }]);
}

/// Envoy's time since its start, in seconds, and the calls to indexers that run.
async fn uptime_and_calls(stack: &Stack) -> Result<(f64, f64)> {
    let metrics = stack.envoy.metrics().await?;
    let calls = metrics.sum("envoy_cluster_upstream_rq_active", &[("envoy_cluster_name", "indexer")]);
    Ok((metrics.sum("envoy_server_uptime", &[]), calls))
}

// E12 (istio/istio#31194)
#[test]
fn an_indexer_that_is_killed_fifty_times_with_calls_in_flight_takes_nothing_along() {
    const CALLS: usize = 100;
    let stack = Stack::builder().map(|stack| {
        // One worker, so that whoever is answered closes the circuit for all.
        let stack = stack.recorders(2).indexer(without_tokenizer).workers(1);
        stack.filter(|filter| filter["indexer"]["timeout_ms"] = 10_000.into())
    });
    case(stack, async |stack| {
        let mut uptime = 0.0;
        for round in 0..50 {
            eventually("the indexer is asked", async || {
                let outcome = stack.send(completion(vec![1; 40])).await?.receipt().outcome;
                seen_if(outcome == "load_only", outcome)
            })
            .await?;
            stack.indexer()?.process().freeze()?;
            let (client, address) = (stack.client.clone(), stack.envoy.address());
            let sent = tokio::spawn(async move {
                try_join_all((0..CALLS).map(|_| client.send(&address, completion(vec![1; 40])))).await
            });
            eventually("all calls are in flight", async || {
                let (_, calls) = uptime_and_calls(stack).await?;
                seen_if(calls >= CALLS as f64, format!("{calls} calls"))
            })
            .await?;
            stack.indexer()?.process().kill()?;
            for answer in sent.await?? {
                ensure!(answer.status == 200, "round {round}: {}", answer.status);
            }
            stack.indexer()?.start_again().await?;
            let (now, _) = uptime_and_calls(stack).await?;
            ensure!(now >= uptime, "round {round}: Envoy has started anew");
            uptime = now;
        }
        Ok(())
    });
}

// E34 (proxy-wasm/proxy-wasm-rust-sdk#163), E33 (proxy-wasm/proxy-wasm-rust-sdk#240)
#[test]
fn a_call_is_answered_whatever_callback_made_it() {
    let stack = Stack::builder().map(|stack| stack.recorders(1).script(Script::Silence));
    case(stack, async |stack| {
        let rank = Script::Rank(vec![(stack.recorders[0].address(), None)]);
        stack.scripted()?.play(rank);
        // On headers, on a body in one piece and in many; and on a tick, by which reports go.
        let about = stack.send(Call::get("/v1/responses/resp_1")).await?;
        let whole = stack.send(completion("hello")).await?;
        let pieces =
            stack.send(completion("hello").framing(warmpath_tests::client::Framing::Chunked(3))).await?;
        for answer in [about, whole, pieces] {
            assert_eq!((answer.status, answer.receipt().outcome.as_str()), (200, "scored"));
        }
        let mut reported = 0;
        eventually("reports come", async || {
            reported += stack.scripted()?.take_reported().len();
            seen_if(reported > 0, "none")
        })
        .await?;
        assert_eq!(stack.scripted()?.take_asked().len(), 3, "one question for each");
        Ok(())
    });
}

// E34 (proxy-wasm/proxy-wasm-rust-sdk#163)
#[test]
fn a_cluster_of_indexers_without_http2_is_told_and_costs_no_request() {
    let stack = Stack::builder().map(|stack| {
        stack.recorders(1).bootstrap(|bootstrap| {
            let cluster = bootstrap.cluster("indexer")?.as_object_mut().context("no cluster")?;
            cluster.remove("typed_extension_protocol_options").context("no HTTP/2").map(drop)
        })
    });
    case(stack, async |stack| {
        for seed in 0..10 {
            let answer = stack.send(completion(text(seed, 40))).await?;
            assert_eq!(answer.status, 200);
            assert_eq!(answer.receipt().outcome, "passed", "{:?}", answer.receipt());
        }
        let metrics = stack.envoy.metrics().await?;
        let told =
            |reason: Reason| metrics.sum(&format!("warmpath_filter_unscored_total_reason_{reason}"), &[]);
        let told = told(Reason::Unavailable) + told(Reason::CircuitOpen) + told(Reason::Deadline);
        assert_eq!(told, 10.0);
        Ok(())
    });
}

// E7 (envoyproxy/envoy#26485)
#[test]
fn headers_that_are_no_text_and_answers_without_any_trap_nothing() {
    let stack = Stack::builder().map(|stack| {
        let stack = stack.recorders(1).script(Script::Bare).workers(1);
        stack.filter(|filter| filter["group_header"] = "x-tenant".into())
    });
    case(stack, async |stack| {
        let body = completion("hello").body().clone();
        let mut head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n".to_vec();
        head.extend(b"x-tenant: \xff\xfe\xc3\r\nx-empty:\r\n");
        head.extend(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        for _ in 0..5 {
            let mut connection = TcpStream::connect(stack.envoy.address()).await?;
            connection.write_all(&[&head[..], &body].concat()).await?;
            let mut answer = Vec::new();
            connection.read_to_end(&mut answer).await?;
            let answer = String::from_utf8_lossy(&answer).into_owned();
            ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        // The indexer answers without a status, without a message, and the filter goes on asking.
        stack.scripted()?.play(Script::Rank(vec![(stack.recorders[0].address(), None)]));
        eventually("a request is scored", async || {
            let receipt = stack.send(completion("hello")).await?.receipt();
            seen_if(receipt.outcome == "scored", format!("{receipt:?}"))
        })
        .await
    });
}

// E16 (envoyproxy/envoy#14856)
#[test]
fn a_body_far_above_the_limit_passes_unread() {
    let stack = Stack::builder().map(|stack| {
        let stack = stack.recorders(1).script(Script::Silence);
        stack.filter(|filter| filter["max_body_bytes"] = (1 << 20).into())
    });
    case(stack, async |stack| {
        for framing in
            [warmpath_tests::client::Framing::Length, warmpath_tests::client::Framing::Chunked(1 << 16)]
        {
            let call = completion("a".repeat(64 << 20)).framing(framing);
            let body = call.body().clone();
            let answer = stack.send(call).await?;
            assert_eq!((answer.status, answer.receipt().reason.as_str()), (200, "body_too_large"));
            assert!(stack.recorders[0].take()[0].body == body, "another body arrived");
        }
        Ok(())
    });
}

// E15 (higress-group/higress#3920)
#[test]
fn large_bodies_leave_a_bounded_memory_in_every_worker() {
    const WORKERS: usize = 16;
    /// A body of 8 MiB is copied into the VM once, and once more into the question.
    const MIB_PER_WORKER_MAX: u64 = 64;
    let stack = Stack::builder().map(|stack| {
        let stack = stack.recorders(1).script(Script::Silence).workers(WORKERS);
        stack.filter(|filter| filter["indexer"]["timeout_ms"] = 10_000.into())
    });
    case(stack, async |stack| {
        stack.scripted()?.play(Script::Rank(vec![(stack.recorders[0].address(), None)]));
        stack.send(completion("hello")).await?;
        let first = Holdings::of(stack.envoy.process().id())?;
        for _ in 0..100 {
            // A connection of its own each time, so that all workers get some.
            let call = completion("a".repeat(8 << 20)).header("connection", "close");
            let answer = stack.send(call).await?;
            assert_eq!((answer.status, answer.receipt().outcome.as_str()), (200, "scored"));
            stack.recorders[0].take();
            stack.scripted()?.take_asked();
        }
        let last = Holdings::of(stack.envoy.process().id())?;
        println!("Envoy before and after 100 bodies of 8 MiB on {WORKERS} workers: {first:?}, {last:?}");
        let grown = last.rss_mib.saturating_sub(first.rss_mib);
        ensure!(grown < WORKERS as u64 * MIB_PER_WORKER_MAX, "{grown} MiB more");
        Ok(())
    });
}

// E5 (ai-dynamo/dynamo#4904)
#[test]
fn an_indexer_with_twenty_sources_is_connected_to_all_or_names_those_that_are_missing() {
    let stack = Stack::builder().map(|stack| {
        let stack = stack.engines(20).each_engine(|engine| engine.tokenizer = None);
        stack.indexer(without_tokenizer)
    });
    let left = AfterCase::default();
    case_that_leaves(left, stack, async |stack| {
        stack.indexer()?.stop()?;
        stack.indexer()?.start_again().await?;
        assert_eq!(stack.indexers[0].connected_streams().await?, 20, "ready with all of them");

        let missing = stack.engines[7].address();
        stack.engines[7].process().kill()?;
        stack.indexer()?.stop()?;
        stack.indexer()?.launch_again()?;
        // Until it is ready it says for whom it waits, and afterwards who is not there.
        eventually("the missing one is named", async || {
            let state = stack.indexers[0].state().await?;
            let connected = stack.indexers[0].connected_streams().await?;
            let pending = state["pending"].to_string();
            seen_if(connected == 19 && pending.contains(&missing), format!("{connected} and {pending}"))
        })
        .await?;
        stack.indexer()?.wait_until_ready().await?;
        let state = stack.indexers[0].state().await?;
        let endpoints = state["endpoints"].as_array().context("no endpoints")?;
        let absent: Vec<_> = endpoints
            .iter()
            .filter(|endpoint| endpoint["ranks"][0]["stream"]["connected"] == false)
            .collect();
        assert_eq!(absent.len(), 1);
        assert_eq!(absent[0]["endpoint"], missing);
        tokio::time::timeout(Duration::from_secs(20), stack.engines[7].restart()).await?
    });
}
