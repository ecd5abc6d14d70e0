//! What endpoints show of themselves while they serve, and how it is chosen by, told and explained.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use serde_json::{Value, json};
use warmpath_tests::case::case;
use warmpath_tests::client::Call;
use warmpath_tests::eventually::{eventually, seen_if};
use warmpath_tests::paths;
use warmpath_tests::prompts::{chat, completion, text};
use warmpath_tests::stack::{Stack, StackBuilder};

/// In which a replica that came up must have its share.
const FAIR_WITHIN: Duration = Duration::from_secs(30);

/// Prompts that share nothing.
fn fresh(number: u64) -> Call {
    completion(text(10_000 + number, 300))
}

/// Three recorders, of which the first is told to fail; how often a client met that among 60 requests.
async fn failures(stack: &mut Stack) -> Result<usize> {
    stack.recorders[0].answer_with(500);
    let mut failed = 0;
    for number in 0..60 {
        let answer = stack.send_alone(fresh(number)).await?;
        failed += usize::from(answer.status == 500);
    }
    Ok(failed)
}

/// One replica answers 500 at once and is healthy by all checks.
// D12 (higress-group/higress#3255)
#[test]
fn a_replica_that_fails_fast_draws_no_traffic() {
    case(Stack::builder().map(|stack| stack.recorders(3)), async |stack| {
        let failed = failures(stack).await?;
        assert!((1..=6).contains(&failed), "{failed} of 60 failed, a third is 20");
        Ok(())
    });
}

/// A policy that looks at no errors still does not choose who is ejected; and it comes back.
#[test]
fn a_replica_that_keeps_failing_is_ejected_whatever_the_policy_and_comes_back() {
    let stack = Stack::builder().map(|stack| {
        stack
            .recorders(3)
            .policy("round_robin")
            .indexer(|config| config["outliers"] = json!({ "eject_ms": 1000 }))
    });
    case(stack, async |stack| {
        let failed = failures(stack).await?;
        // Five in a row, and a probe now and then.
        assert!((5..=12).contains(&failed), "{failed} of 60 failed, a third is 20");
        stack.recorders[0].answer_with(200);
        let back = stack.recorders[0].address();
        let mut number = 1000;
        eventually("it is chosen again", async || {
            number += 1;
            let answer = stack.client.send(&stack.envoy.address(), fresh(number)).await?;
            let state = stack.indexers[0].state().await?;
            let endpoints = state["endpoints"].as_array().context("no endpoints")?;
            let standing =
                endpoints.iter().find(|endpoint| endpoint["endpoint"] == *back).map(|e| &e["standing"]);
            let used = answer.receipt().endpoint == back;
            seen_if(used && standing == Some(&json!("trusted")), format!("{standing:?}"))
        })
        .await
    });
}

/// Of three engines one is down, and comes up while the other two are busy. Slow start is on, as it is by default.
// D13 (higress-group/higress#3255)
#[test]
fn a_replica_that_comes_up_under_load_has_its_share_within_half_a_minute() {
    let stack: Result<StackBuilder> =
        Stack::builder().map(|stack| stack.engines(3).each_engine(|engine| engine.speedup = 4.0));
    case(stack, async |stack| {
        let young = stack.engines[0].address();
        stack.engines[0].process().kill()?;
        let (client, address) = (stack.client.clone(), stack.envoy.address());
        let mut number = 50_000;
        // Of two dozen requests, a dozen at a time and no two alike, so many went to the one that came up.
        let mut turn = async || {
            let mut served = 0;
            for _ in 0..2 {
                number += 12;
                let calls = (0..12).map(|place| client.send(&address, completion(text(number + place, 600))));
                for answer in try_join_all(calls).await? {
                    anyhow::ensure!(answer.status == 200, "status {}: {}", answer.status, answer.text());
                    served += usize::from(answer.receipt().endpoint == young);
                }
            }
            anyhow::Ok(served)
        };
        for _ in 0..3 {
            assert_eq!(turn().await?, 0, "nobody listens there");
        }
        stack.engines[0].launch_again()?;
        stack.engines[0].wait_until_healthy().await?;
        let back = Instant::now();
        let mut shares = vec![];
        // A third is 8; chance and the end of a turn take some.
        while shares.iter().rev().take(3).sum::<usize>() < 3 * 6 {
            assert!(back.elapsed() < FAIR_WITHIN, "of 24 each it served {shares:?}");
            shares.push(turn().await?);
        }
        println!(
            "fair {:.1} s after it answered; of 24 each it served {shares:?}",
            back.elapsed().as_secs_f64()
        );
        Ok(())
    });
}

/// One of three engines computes at a third of the others' speed: that is learnt from its times to first tokens, and
/// of a load that never stops it gets less.
#[test]
fn a_slow_replica_is_found_by_its_times_to_first_tokens() {
    let stack: Result<StackBuilder> = Stack::builder().map(|stack| {
        stack.engines(3).each_engine(|engine| engine.speedup = 4.0).engine(0, |engine| {
            engine.prefill_tokens_per_second /= 4;
        })
    });
    case(stack, async |stack| {
        let slow = stack.engines[0].address();
        let (client, address) = (stack.client.clone(), stack.envoy.address());
        let served: std::cell::RefCell<BTreeMap<String, usize>> = std::cell::RefCell::default();
        // Six clients, each with one prompt after the other.
        let clients = (0..6u64).map(|who| {
            let (client, address, served) = (&client, &address, &served);
            async move {
                for turn in 0..20u64 {
                    let call = completion(text(1000 * (who + 1) + turn, 600));
                    let answer = client.send(address, call).await?;
                    assert_eq!(answer.status, 200);
                    *served.borrow_mut().entry(answer.receipt().endpoint).or_default() += 1;
                }
                anyhow::Ok(())
            }
        });
        try_join_all(clients).await?;
        let served = served.into_inner();
        let of_slow = served.get(&slow).copied().unwrap_or(0);
        assert!(of_slow * 4 < 120, "{of_slow} of 120 went to the slow one: {served:?}");
        eventually("its speed is known", async || {
            let state = stack.indexers[0].state().await?;
            let endpoints = state["endpoints"].as_array().context("no endpoints")?;
            let slowness = |endpoint: &Value| endpoint["ranks"][0]["slowness"].as_f64().unwrap_or(0.0);
            let (of_slow, others): (Vec<_>, Vec<_>) =
                endpoints.iter().partition(|endpoint| endpoint["endpoint"] == *slow);
            let of_slow = of_slow.into_iter().map(slowness).fold(0.0, f64::max);
            let others = others.into_iter().map(slowness).fold(0.0, f64::max);
            seen_if(of_slow > 1.2 && of_slow > others, format!("{of_slow} and {others}"))
        })
        .await
    });
}

/// A route names the policy of its requests in its metadata; others go by the configured one.
#[test]
fn a_route_chooses_its_policy() {
    let stack = Stack::builder().map(|stack| {
        stack.bootstrap(|bootstrap| {
            let routes = bootstrap.at(
                "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes",
            )?;
            let mut experiment = routes[0].clone();
            experiment["match"] = json!({ "prefix": "/experiment/" });
            experiment["route"]["prefix_rewrite"] = "/".into();
            experiment["metadata"] = json!({ "filter_metadata": { "warmpath": { "policy": "least_load" } } });
            let mut wrong = experiment.clone();
            wrong["match"] = json!({ "prefix": "/wrong/" });
            wrong["metadata"]["filter_metadata"]["warmpath"]["policy"] = "fastest".into();
            let routes = routes.as_array_mut().context("no routes")?;
            routes.splice(0..0, [experiment, wrong]);
            Ok(())
        })
    });
    case(stack, async |stack| {
        let body = json!({ "model": "qwen3", "prompt": text(1, 100), "max_tokens": 2 });
        for (prefix, expected) in [("", "cost"), ("/experiment", "least_load"), ("/wrong", "cost")] {
            let answer = stack.send(Call::json(&format!("{prefix}/v1/completions"), &body)).await?;
            assert_eq!(answer.status, 200, "{prefix}");
            assert_eq!(answer.header("x-warmpath-policy"), Some(expected), "{prefix}");
        }
        let log = stack.envoy.process().log();
        assert_eq!(log.matches("names the policy \"fastest\"").count(), 1, "told once");
        Ok(())
    });
}

/// Half of the requests by another policy, in one line of the indexer's configuration: what has the same session stays
/// with one policy, on two indexers that know nothing of each other's draws.
#[test]
fn a_split_keeps_sessions_together_on_every_indexer() {
    let stack = Stack::builder().map(|stack| {
        stack
            .indexers(2)
            .filter(|filter| filter["group_header"] = "x-session-id".into())
            .indexer(|config| config["policy"]["split"] = json!([{ "name": "least_load", "percent": 50 }]))
    });
    case(stack, async |stack| {
        let mut policies: BTreeMap<u64, String> = BTreeMap::new();
        for turn in 0..4 {
            for session in 0..16 {
                let call = fresh(100 * turn + session).header("x-session-id", &format!("s{session}"));
                let answer = stack.send(call).await?;
                let policy = answer.header("x-warmpath-policy").context("no policy")?.to_owned();
                let before = policies.insert(session, policy.clone());
                assert!(
                    before.is_none_or(|before| before == policy),
                    "session {session} changed to {policy}"
                );
            }
        }
        let by_cost = policies.values().filter(|policy| *policy == "cost").count();
        assert!((2..=14).contains(&by_cost), "{by_cost} of 16");
        Ok(())
    });
}

/// What the answer's header names is found with all terms, with what the engine said; and the same body is explained the
/// same way without being sent.
#[test]
fn a_receipt_joins_prediction_and_fact_and_an_explanation_predicts_it() {
    case(Stack::builder(), async |stack| {
        let shared = text(1, 512);
        stack.send_alone(completion(shared.clone())).await?;
        stack.wait_for_events().await?;
        let message = |own: u64| shared.clone() + &text(own, 40);
        let admin = stack.indexers[0].admin_address();
        let ask = completion(message(7));
        let explained = stack
            .client
            .send(&admin, Call::post("/explain?path=/v1/completions", ask.body().clone()))
            .await?;
        let explained = explained.json()?;
        let answer = stack.send_alone(ask).await?;
        let id = answer.header("x-warmpath-decision").context("no decision")?.to_owned();
        let receipts =
            stack.client.send(&admin, Call::get(&format!("/receipts?decision={id}"))).await?.json()?;
        let receipt = &receipts[0];
        assert_eq!(receipt["fate"]["endpoint"], answer.receipt().endpoint);
        assert_eq!(receipt["fate"]["cached_tokens"], json!(answer.usage()?.cached_tokens));
        assert_eq!(receipt["candidates"][0]["cached_tokens"], 512);
        assert_eq!(receipt["candidates"][0]["trust"], "live");
        assert!(receipt["fate"]["ttft_ms"].as_f64() > Some(0.0), "{receipt}");
        for what in ["prompt_tokens", "reachable_tokens", "outcome", "policy", "model"] {
            assert_eq!(explained[what], receipt[what], "{what}");
        }
        assert_eq!(explained["candidates"][0]["endpoint"], receipt["candidates"][0]["endpoint"]);
        // A chat is read like that of a gateway, too.
        let talk = chat(json!([{ "role": "user", "content": message(9) }]));
        let explained =
            stack.client.send(&admin, Call::post("/explain", talk.body().clone())).await?.json()?;
        let answer = stack.send_alone(talk).await?;
        assert_eq!(json!(answer.receipt().prompt_tokens), explained["prompt_tokens"]);
        Ok(())
    });
}

/// The whole evidence of a run in one table, read by the program that operators have.
#[test]
fn the_report_joins_spread_hits_and_events() {
    case(Stack::builder(), async |stack| {
        let shared = text(1, 512);
        for turn in 0..6 {
            stack.send_alone(completion(shared.clone() + &text(50 + turn, 40))).await?;
            stack.wait_for_events().await?;
        }
        let mut command = Command::new(paths::indexer()?);
        command.args(["report", "--json", "--config"]).arg(stack.dir().join("indexer-0.yaml"));
        for indexer in &stack.indexers {
            command.args(["--indexer", &indexer.admin_address()]);
        }
        let output = command.output()?;
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let requests: f64 =
            report["a_spread"].as_array().context("A")?.iter().filter_map(|s| s["requests"].as_f64()).sum();
        assert_eq!(requests, 6.0);
        // What the engines say of themselves is what was delivered of our requests, since there were no others.
        let (hits, queries) =
            (sum(&report["b_engines"], "hit_tokens"), sum(&report["b_engines"], "queried_tokens"));
        let cost = &report["c_policies"][0];
        assert_eq!((&cost["policy"], &cost["decisions"]), (&json!("cost"), &json!(6.0)));
        assert_eq!(cost["prompt_tokens"].as_f64(), Some(queries));
        let delivered = cost["delivered"].as_f64().context("delivered")?;
        assert!((delivered * queries - hits).abs() < 1.0, "{delivered} of {queries}, {hits}");
        assert!(cost["reachable"].as_f64() >= cost["captured"].as_f64() && delivered > 0.5, "{cost}");
        Ok(())
    });
}

fn sum(rows: &Value, field: &str) -> f64 {
    rows.as_array().into_iter().flatten().filter_map(|row| row[field].as_f64()).sum()
}
