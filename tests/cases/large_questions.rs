//! Questions of many kilobytes: many at once, and such whose indexer is gone.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use serde_json::json;
use warmpath_tests::case::case;
use warmpath_tests::client::Receipt;
use warmpath_tests::ports::Port;
use warmpath_tests::prompts::completion;
use warmpath_tests::scripted::Script;
use warmpath_tests::stack::{Stack, StackBuilder};

/// Envoy keeps so much of a call for another try.
const KEPT_BYTES: usize = 64 << 10;

/// A prompt of about this many bytes, which ends with its number.
fn prompt(number: usize, bytes: usize) -> String {
    format!("{}{number}", "word ".repeat(bytes / 5))
}

/// A scripted indexer, and beside it an address that nobody listens on, of which Envoy learns from its calls alone.
fn beside_one_that_is_gone(gone: &str) -> Result<StackBuilder> {
    let gone = gone.parse::<std::net::SocketAddr>()?;
    let stack = Stack::builder()?.recorders(1).script(Script::Silence).workers(1);
    Ok(stack.bootstrap(move |bootstrap| {
        let cluster = bootstrap.cluster("indexer")?;
        let of_cluster = cluster.as_object_mut().into_iter();
        of_cluster
            .for_each(|keys| keys.retain(|key, _| key != "health_checks" && key != "outlier_detection"));
        let hosts = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"].as_array_mut();
        let address = json!({ "address": gone.ip().to_string(), "port_value": gone.port() });
        hosts.into_iter().for_each(|hosts| {
            hosts.push(json!({ "endpoint": { "address": { "socket_address": address } } }));
        });
        Ok(())
    }))
}

/// Sends some of these, each of which must arrive whole. How they were decided, with how often.
async fn outcomes(stack: &Stack, bytes: usize) -> Result<BTreeMap<(String, String), usize>> {
    const TIMES: usize = 40;
    let mut seen = BTreeMap::new();
    for number in 0..TIMES {
        let call = completion(prompt(number, bytes));
        let answer = stack.send(call.clone()).await?;
        ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
        let received = stack.recorders[0].take();
        ensure!(received.len() == 1 && received[0].body == call.body(), "another body arrived");
        let Receipt { outcome, reason, .. } = answer.receipt();
        *seen.entry((outcome, reason)).or_insert(0) += 1;
    }
    Ok(seen)
}

#[test]
fn a_question_that_envoy_cannot_keep_goes_by_the_fallback_where_its_indexer_is_gone() {
    let gone = Port::claim().expect("a port");
    case(beside_one_that_is_gone(&gone.to_string()), async |stack| {
        stack.scripted()?.play(Script::Rank(vec![(stack.recorders[0].address(), None)]));
        let counts = async |stack: &Stack| -> Result<[f64; 2]> {
            let metrics = stack.envoy.metrics().await?;
            let of_indexers = [("envoy_cluster_name", "indexer")];
            Ok(["envoy_cluster_upstream_rq_retry", "envoy_cluster_retry_or_shadow_abandoned"]
                .map(|name| metrics.sum(name, &of_indexers)))
        };
        let scored = ("scored".to_owned(), String::new());
        for bytes in [100, KEPT_BYTES - 4096] {
            let seen = outcomes(stack, bytes).await?;
            println!("{bytes} bytes: {seen:?}");
            assert_eq!(seen.keys().collect::<Vec<_>>(), [&scored], "{bytes} bytes");
        }
        let [asked_again, given_up] = counts(stack).await?;
        assert!(asked_again > 0.0 && given_up == 0.0, "{asked_again} asked again, {given_up} given up");

        let seen = outcomes(stack, 2 * KEPT_BYTES).await?;
        println!("{} bytes: {seen:?}", 2 * KEPT_BYTES);
        let of = |reason: &str| seen.get(&("fallback".to_owned(), reason.to_owned())).copied().unwrap_or(0);
        let decided = seen.get(&scored).copied().unwrap_or(0);
        assert!(decided > 0, "the indexer that is there is asked: {seen:?}");
        assert!(of("unavailable") > 0, "and the one that is gone: {seen:?}");
        let others = of("unavailable") + of("circuit_open") + decided;
        assert_eq!(others, seen.values().sum::<usize>(), "{seen:?}");
        let [_, given_up] = counts(stack).await?;
        assert!(given_up > 0.0, "Envoy says that it was too long to be kept");
        Ok(())
    });
}

/// Longer than a busy machine takes for all of them together; the longest that there is.
const PATIENT_TIMEOUT_MS: u64 = 10_000;
/// At once.
const MANY: usize = 300;
const LARGE_BYTES: usize = 220_000;
/// Envoy holds a body for a retry of the engine's, and its question until that is sent.
const COPIES_MAX: u64 = 4;
/// Two VMs with what is in work, sockets, and what the allocator keeps.
const ENVOY_MIB_MORE: u64 = 96;
/// A second burst may leave so much more than the first.
const AGAIN_MIB_MORE: u64 = 48;

// E25 (llm-d/llm-d-router#1109); `make overhead` with 1,200 in flight has the times.
#[test]
fn hundreds_of_large_bodies_at_once_are_all_decided_and_take_bounded_memory() {
    let stack = Stack::builder().map(|stack| {
        stack.recorders(2).filter(|filter| filter["indexer"]["timeout_ms"] = PATIENT_TIMEOUT_MS.into())
    });
    case(stack, async |stack| {
        stack.send(completion("hello")).await?;
        // Long enough for many of them to be in flight before the first is answered.
        stack.recorders.iter().for_each(|recorder| recorder.hold(Duration::from_secs(2)));
        let resident =
            |stack: &mut Stack| Ok::<_, anyhow::Error>(stack.envoy.process().resident_bytes()? >> 20);
        let idle = resident(stack)?;
        let mut after = Vec::new();
        for burst in 0..2 {
            stack.recorders.iter().for_each(|recorder| drop(recorder.take()));
            let sent = (0..MANY).map(async |number| {
                let call = completion(prompt(burst * MANY + number, LARGE_BYTES));
                let (length, answer) = (call.body().len(), stack.send(call).await?);
                ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
                let receipt = answer.receipt();
                // A recorder has no events: the indexer has read the question and ranked by load.
                ensure!(receipt.outcome == "load_only", "{receipt:?}");
                Ok(length)
            });
            let lengths = try_join_all(sent).await?;
            let arrived: Vec<usize> = stack
                .recorders
                .iter()
                .flat_map(|recorder| recorder.take())
                .map(|received| received.body.len())
                .collect();
            let sum = |lengths: &[usize]| lengths.iter().sum::<usize>();
            assert_eq!(
                (arrived.len(), sum(&arrived)),
                (MANY, sum(&lengths)),
                "every body arrives whole, once"
            );
            after.push(resident(stack)?);
        }
        println!(
            "Envoy: {idle} MiB before, {after:?} MiB after bursts of {MANY} bodies of {LARGE_BYTES} bytes"
        );
        let bodies = (MANY * LARGE_BYTES) as u64 >> 20;
        assert!(after[0] < idle + COPIES_MAX * bodies + ENVOY_MIB_MORE, "{after:?}");
        assert!(after[1] < after[0] + AGAIN_MIB_MORE, "it grows: {after:?}");
        Ok(())
    });
}
