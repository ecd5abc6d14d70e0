//! Envoy's configuration changes while requests are under way: the filter comes, goes, is configured anew and cannot be
//! loaded, and no request pays for it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use warmpath_tests::case::case;
use warmpath_tests::chaos::proc::Holdings;
use warmpath_tests::chaos::traffic::Traffic;
use warmpath_tests::envoy::{Bootstrap, set_filter_among};
use warmpath_tests::eventually::{Look, eventually, seen_if};
use warmpath_tests::prompts::completion;
use warmpath_tests::stack::{Stack, StackBuilder};

/// Seconds that a replaced listener drains.
const DRAIN_S: u32 = 1;
/// What hundreds of configurations may leave in Envoy, in MiB.
const GROWTH_MIB_MAX: u64 = 96;

fn stack() -> Result<StackBuilder> {
    // Prompts are token ids, so that no tokenizer is needed.
    Ok(Stack::builder()?.recorders(2).reloadable(DRAIN_S))
}

/// Waits until Envoy has taken, and refused, so many listeners.
async fn updates(stack: &Stack, expected: (f64, f64)) -> Result<()> {
    eventually("Envoy has read the listener", async || {
        let updates = stack.envoy.listener_updates().await?;
        seen_if(updates == expected, format!("{updates:?} taken and refused"))
    })
    .await
}

/// Replaces the listener by one whose filter is configured for the `number`th time, and waits until it is in use.
async fn configure(stack: &mut Stack, filter: &Value, number: u32) -> Result<()> {
    let mut filter = filter.clone();
    filter["report_interval_ms"] = json!(20 + number % 100);
    stack.envoy.change_filters(|filters| set_filter_among(filters, &filter))?;
    updates(stack, (f64::from(number) + 1.0, 0.0)).await
}

fn filter() -> Result<Value> {
    let mut filter = Bootstrap::shipped()?.filter()?;
    filter["response_header"] = true.into();
    Ok(filter)
}

// E14 (envoyproxy/envoy#27336)
#[test]
fn five_hundred_configurations_leave_nothing_behind() {
    case(stack(), async |stack| {
        let filter = filter()?;
        for number in 1..=100 {
            configure(stack, &filter, number).await?;
        }
        let first = Holdings::of(stack.envoy.process().id())?;
        for number in 101..=500 {
            configure(stack, &filter, number).await?;
            if number % 50 == 0 {
                ensure!(stack.send(completion(vec![1; 40])).await?.status == 200);
            }
        }
        let last = Holdings::of(stack.envoy.process().id())?;
        println!("Envoy after 100 and after 500 configurations: {first:?}, {last:?}");
        ensure!(
            last.rss_mib < first.rss_mib + GROWTH_MIB_MAX,
            "{} MiB, then {}",
            first.rss_mib,
            last.rss_mib
        );
        Ok(())
    });
}

// E19 (istio/istio#38313)
#[test]
fn the_filter_comes_and_goes_under_load_without_an_error() {
    // Longer than the case, so that no connection of the load is closed by force.
    let stack = stack().map(|stack| stack.reloadable(60));
    case(stack, async |stack| {
        let (client, address) = (stack.client.clone(), stack.envoy.address());
        let traffic = Traffic { rate: 100.0, length: Duration::from_secs(4), seed: 1 };
        let meddle = async {
            let mut taken = Vec::new();
            for number in 1..=20_u32 {
                stack.envoy.change_filters(|filters| {
                    let filters = filters.as_array_mut().context("no list")?;
                    match taken.pop() {
                        Some(filter) => filters.insert(0, filter),
                        None => taken.push(filters.remove(0)),
                    }
                    Ok(())
                })?;
                updates(stack, (f64::from(number) + 1.0, 0.0)).await?;
                let is_there = taken.is_empty();
                eventually("a new connection sees it", async || {
                    let call = completion(vec![1; 40]).header("connection", "close");
                    let answer = stack.send(call).await?;
                    if answer.status != 200 {
                        return Ok(Look::Never(format!("{} {}", answer.status, answer.text())));
                    }
                    let outcome = answer.receipt().outcome;
                    seen_if(outcome.is_empty() != is_there, outcome)
                })
                .await?;
            }
            anyhow::Ok(())
        };
        let (sent, meddled) = tokio::join!(traffic.run(&client, &address, Instant::now()), meddle);
        meddled?;
        let sent = sent?;
        let failed: Vec<_> = sent.iter().filter(|sent| sent.failure.is_some()).collect();
        ensure!(failed.is_empty(), "{failed:?}");
        Ok(())
    });
}

// E20 (istio/istio#59911)
#[test]
fn a_module_that_cannot_be_loaded_leaves_the_old_one_at_work() {
    case(stack(), async |stack| {
        let before = stack.send(completion(vec![1; 40])).await?.receipt().outcome;
        stack.envoy.change_filters(|filters| {
            let code = filters.pointer_mut("/0/typed_config/config/vm_config/code/local/filename");
            *code.context("no module")? = "nowhere/filter.wasm".into();
            Ok(())
        })?;
        updates(stack, (1.0, 1.0)).await?;
        for _ in 0..10 {
            let answer = stack.send(completion(vec![1; 40])).await?;
            assert_eq!((answer.status, answer.receipt().outcome), (200, before.clone()));
        }
        Ok(())
    });
}

/// Everything that is shipped and runs the filter.
fn shipped() -> Vec<(String, String)> {
    let root = warmpath_tests::paths::root();
    let mut found = Vec::new();
    for folder in ["envoy", "deploy"] {
        for entry in root.join(folder).read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|kind| kind == "yaml" || kind == "json") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path.display().to_string(), text));
            }
        }
    }
    found
}

// E9 (istio/istio#54490), E21 (istio/istio#38214)
#[test]
fn what_is_shipped_states_the_failure_policy_and_stands_before_the_router() {
    let with_filter: Vec<_> =
        shipped().into_iter().filter(|(_, text)| text.contains("filter.wasm")).collect();
    assert!(!with_filter.is_empty());
    for (path, text) in with_filter {
        let plugins = text.matches("filter.wasm").count();
        assert_eq!(text.matches("failure_policy: FAIL_OPEN").count(), plugins, "{path}");
        assert_eq!(text.matches("allow_on_headers_stop_iteration: true").count(), plugins, "{path}");
        // Anchored on nothing but the router, whose name is Envoy's own and the same in every version.
        let (_, after) = text.split_once("filter.wasm").unwrap();
        assert!(after.contains("name: envoy.filters.http.router"), "{path}");
    }
    let filters = Bootstrap::shipped().unwrap().http_filters().unwrap().clone();
    let names: Vec<_> = filters.iter().map(|filter| filter["name"].clone()).collect();
    assert_eq!(names, ["warmpath", "envoy.filters.http.router"]);
}

// llm-d/llm-d#1564
#[test]
fn idle_connections_end_before_an_engine_closes_them() {
    /// What vLLM's server waits for the next request of a connection, unless told otherwise.
    const ENGINE_S: f64 = 5.0;
    let mut shipped = Bootstrap::shipped().unwrap();
    let options = &shipped.cluster("llm").unwrap()["typed_extension_protocol_options"]["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"];
    let idle = options["common_http_protocol_options"]["idle_timeout"].as_str().unwrap_or("3600s");
    let idle_s: f64 = idle.trim_end_matches('s').parse().unwrap();
    assert!(idle_s < ENGINE_S, "Envoy would keep them for {idle}");
}

// E10 (Kuadrant/wasm-shim#171)
#[test]
fn the_oldest_proxy_that_works_is_stated_where_it_is_needed() {
    let read = |path: &str| std::fs::read_to_string(warmpath_tests::paths::root().join(path)).unwrap();
    let table = read("envoy/README.md");
    let (_, versions) = table.split_once("## Versions").unwrap();
    assert!(versions.contains("| below 1.35 | not possible"), "{versions}");
    assert!(read("filter/README.md").contains("Envoy 1.35 or later"));
    assert!(read("README.md").contains("1.35") || read("docs/configuration.md").contains("1.35"));
}
