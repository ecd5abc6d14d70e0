//! `/v1/responses`, `/v1/messages` and what goes with them: conversations that the client holds are scored like chats, and
//! those that an engine holds go where they are.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use hyper::Method;
use serde_json::{Value, json};
use warmpath_tests::case::case;
use warmpath_tests::client::{Answer, Call, Receipt};
use warmpath_tests::eventually::{Look, eventually, seen_if};
use warmpath_tests::prompts::{completion, text};
use warmpath_tests::stack::{MODEL, Stack, StackBuilder};

const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

fn without_speculation() -> Result<StackBuilder> {
    Ok(Stack::builder()?.without_speculation())
}

/// A request for a response of few tokens, with these further members.
fn response(input: impl Into<Value>, more: &Value) -> Call {
    let mut body = json!({ "model": MODEL, "input": input.into(), "max_output_tokens": 2 });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Call::json(RESPONSES, &body)
}

fn message(system: &str, messages: &[Value]) -> Call {
    Call::json(MESSAGES, &json!({ "model": MODEL, "system": system, "messages": messages, "max_tokens": 2 }))
}

// A7 (envoyproxy/ai-gateway#1838)
#[test]
fn every_form_of_the_input_of_a_response_is_answered_and_scored() {
    let call =
        json!({ "type": "function_call", "call_id": "1", "name": "w", "arguments": "{\"city\":\"Kyiv\"}" });
    let output = json!({ "type": "function_call_output", "call_id": "1", "output": text(5, 40) });
    let user = |seed| json!({ "role": "user", "content": text(seed, 60) });
    let parts = |seed| {
        json!({ "role": "user", "content": [
        { "type": "input_text", "text": text(seed, 60) }, { "type": "input_text", "text": text(seed + 1, 20) },
    ] })
    };
    let forms = [
        ("a text", json!(text(1, 100))),
        ("messages", json!([user(2), { "role": "assistant", "content": "well" }, user(3)])),
        ("parts", json!([parts(10)])),
        ("a call and its output", json!([user(4), call, output])),
    ];
    case(without_speculation(), async |stack| {
        for (form, input) in forms {
            for turn in 0..2 {
                let call = response(input.clone(), &json!({ "instructions": text(20, 40) }));
                let answer =
                    stack.send_predicted(call).await.with_context(|| format!("{form}, turn {turn}"))?;
                if turn == 1 {
                    assert!(answer.receipt().cached_tokens >= Some(96), "{form}: {:?}", answer.receipt());
                }
            }
        }
        // A picture: what comes before it is known, and its sight fails nothing.
        let picture = json!({ "type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=" });
        let words = json!({ "type": "input_text", "text": text(30, 100) });
        let input = json!([{ "role": "user", "content": [words, picture] }]);
        let receipt = stack.send_alone(response(input, &json!({}))).await?.receipt();
        assert_eq!(receipt.reason, "media", "{receipt:?}");
        Ok(())
    });
}

#[test]
fn conversations_of_responses_and_messages_stay_where_they_began() {
    case(without_speculation().map(|stack| stack.engines(3)), async |stack| {
        let mut homes = BTreeSet::new();
        // Which of several equals gets a prompt that nobody knows is chance.
        for talk in 0..40_u64 {
            if talk >= 4 && homes.len() > 1 {
                break;
            }
            let seed = 1000 * (talk + 1);
            let system = text(seed, 150);
            let mut turns = Vec::new();
            let mut home = None;
            for turn in 0..3 {
                turns.push(json!({ "role": "user", "content": text(seed + 10 + turn, 50) }));
                let call = if talk % 2 == 0 {
                    response(turns.clone(), &json!({ "instructions": system, "stream": turn == 1 }))
                } else {
                    message(&system, &turns)
                };
                let receipt =
                    stack.send_predicted(call).await.with_context(|| format!("{talk}, {turn}"))?.receipt();
                let home = home.get_or_insert_with(|| receipt.endpoint.clone());
                assert_eq!(receipt.endpoint, *home, "talk {talk}, turn {turn}");
                assert!(
                    turn == 0 || receipt.cached_tokens >= Some(192),
                    "talk {talk}, turn {turn}: {receipt:?}"
                );
                turns.push(json!({ "role": "assistant", "content": text(seed + 20 + turn, 30) }));
            }
            homes.extend(home);
        }
        assert!(homes.len() > 1, "all of them are at {homes:?}");
        Ok(())
    });
}

/// The id of a response.
fn id_of(answer: &Answer) -> Result<String> {
    let streamed = answer.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
    let id =
        if streamed { answer.events()?[0]["response"]["id"].clone() } else { answer.json()?["id"].clone() };
    Ok(id.as_str().with_context(|| answer.text())?.to_owned())
}

/// Says something that goes on from an earlier response.
fn go_on(from: &str, seed: u64) -> Call {
    response(text(seed, 30), &json!({ "previous_response_id": from }))
}

/// Sent where the earlier response is kept, and so answered.
fn went_home(answer: &Answer, home: &str) -> Result<()> {
    let receipt = answer.receipt();
    ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
    ensure!(receipt.reason == "previous_response", "{receipt:?}");
    ensure!(receipt.endpoint == home, "not to {home}: {receipt:?}");
    Ok(())
}

#[test]
fn a_response_goes_on_where_it_was_made() {
    // In turn, so that responses are made everywhere.
    let in_turn = |stack: StackBuilder| {
        stack.engines(3).indexer(|config| config["policy"] = json!({ "name": "round_robin" }))
    };
    case(Stack::builder().map(in_turn), async |stack| {
        let mut talks: Vec<(String, String)> = Vec::new();
        for talk in 0..6 {
            // Every other one is streamed: its id comes with the first event.
            let first = response(text(100 * talk, 60), &json!({ "stream": talk % 2 == 1 }));
            let first = stack.send_alone(first).await?;
            assert_eq!(first.receipt().outcome, "scored", "{:?}", first.receipt());
            talks.push((id_of(&first)?, first.receipt().endpoint));
        }
        let homes: BTreeSet<&String> = talks.iter().map(|(_, home)| home).collect();
        assert_eq!(homes.len(), 3, "{homes:?}");
        for turn in 0..3 {
            for (talk, (id, home)) in talks.iter_mut().enumerate() {
                let answer = stack.send_alone(go_on(id, 100 * talk as u64 + turn + 1)).await?;
                went_home(&answer, home).with_context(|| format!("talk {talk}, turn {turn}"))?;
                *id = id_of(&answer)?;
            }
        }
        // It can be asked for, too: by its id alone.
        for (id, home) in &talks {
            let answer = stack.send(Call::get(&format!("{RESPONSES}/{id}"))).await?;
            went_home(&answer, home).context("GET")?;
            assert_eq!(id_of(&answer)?, *id);
        }
        Ok(())
    });
}

#[test]
fn a_response_that_nobody_knows_is_the_engines_to_refuse() {
    case(Stack::builder(), async |stack| {
        let unknown = "resp_that_nobody_made";
        for call in [go_on(unknown, 1), Call::get(&format!("{RESPONSES}/{unknown}"))] {
            let answer = stack.send_alone(call).await?;
            let receipt = answer.receipt();
            let said = (answer.status, receipt.outcome.as_str(), receipt.reason.as_str());
            assert_eq!(said, (404, "load_only", "previous_response_unknown"), "{}", answer.text());
            assert!(answer.text().contains(unknown), "the engine's own words: {}", answer.text());
        }
        // One that the engine does not keep is not looked for either.
        let unkept = stack.send_alone(response(text(1, 60), &json!({ "store": false }))).await?;
        let answer = stack.send_alone(go_on(&id_of(&unkept)?, 2)).await?;
        assert_eq!((answer.status, answer.receipt().reason.as_str()), (404, "previous_response_unknown"));
        // An engine that restarts has lost its memory. Where it is asked, it says so; nothing of ours fails.
        let made = stack.send_alone(response(text(3, 60), &json!({}))).await?;
        let home = made.receipt().endpoint;
        stack.engine_at(&home)?.restart().await?;
        let answer = stack.send_alone(go_on(&id_of(&made)?, 4)).await?;
        assert_eq!(answer.status, 404, "{}", answer.text());
        assert_eq!(stack.send_alone(response(text(5, 60), &json!({}))).await?.status, 200);
        Ok(())
    });
}

#[test]
fn any_of_two_indexers_knows_where_a_response_was_made() {
    case(Stack::builder().map(|stack| stack.engines(3).indexers(2)), async |stack| {
        for talk in 0..4 {
            let first = stack.send_alone(response(text(100 * talk, 60), &json!({}))).await?;
            let (id, home) = (id_of(&first)?, first.receipt().endpoint);
            // Envoy asks them in turn: several in a row are answered by both.
            eventually("both know", async || {
                for turn in 0..6 {
                    let answer = stack.send(go_on(&id, 100 * talk + turn)).await?;
                    if let Err(why) = went_home(&answer, &home) {
                        return Ok(Look::NotYet(format!("talk {talk}: {why}")));
                    }
                }
                Ok(Look::Seen(()))
            })
            .await?;
        }
        for indexer in &stack.indexers {
            let metrics = indexer.metrics().await?;
            let asked = metrics.sum("warmpath_decisions_total", &[("reason", "previous_response")]);
            assert!(asked > 0.0, "{} was never asked", indexer.admin_address());
        }
        Ok(())
    });
}

/// Whether any load is on an endpoint: queued tokens or sequences.
fn loads(state: &Value) -> Vec<(u64, u64)> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let ranks = list(&state["endpoints"]).into_iter().flat_map(|endpoint| list(&endpoint["ranks"]));
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    ranks.map(|rank| (number(&rank["queued_tokens"]), number(&rank["active_sequences"]))).collect()
}

#[test]
fn counting_tokens_is_no_load() {
    case(Stack::builder().map(|stack| stack.engines(1)), async |stack| {
        let words = text(1, 200);
        let counts = [
            Call::json("/tokenize", &json!({ "model": MODEL, "prompt": words })),
            Call::json(
                "/tokenize",
                &json!({ "model": MODEL, "messages": [{ "role": "user", "content": words }] }),
            ),
            Call::json(
                "/v1/messages/count_tokens",
                &json!({ "model": MODEL, "messages": [{ "role": "user", "content": words }] }),
            ),
        ];
        for call in &counts {
            let answer = stack.send_alone(call.clone()).await?;
            let receipt = answer.receipt();
            let said = (answer.status, receipt.outcome.as_str(), receipt.reason.as_str());
            assert_eq!(said, (200, "load_only", "no_prefill"));
        }
        // While they are under way nothing is reserved for them; for a prompt something is.
        stack.engines[0].faults(&json!({ "http": { "hang": true } })).await?;
        for (call, reserves) in
            counts.into_iter().map(|call| (call, false)).chain([(completion(words), true)])
        {
            let before = decisions(stack).await?;
            let (client, address) = (stack.client.clone(), stack.envoy.address());
            let waiting = tokio::spawn(async move { client.send(&address, call).await });
            eventually("it is decided", async || {
                let now = decisions(stack).await?;
                seen_if(now > before, format!("{now} decisions"))
            })
            .await?;
            let loads = loads(&stack.indexers[0].state().await?);
            assert_eq!(loads.iter().any(|load| *load != (0, 0)), reserves, "{loads:?}");
            waiting.abort();
        }
        stack.engines[0].faults(&json!({ "http": { "hang": false } })).await
    });
}

async fn decisions(stack: &Stack) -> Result<f64> {
    let metrics = stack.indexers[0].metrics().await?;
    Ok(metrics.sum("warmpath_decisions_total", &[]))
}

#[test]
fn embeddings_are_scored_like_prompts() {
    case(Stack::builder(), async |stack| {
        let embed = |input: Value| Call::json("/v1/embeddings", &json!({ "model": MODEL, "input": input }));
        let prompt = text(1, 320);
        let first = stack.send_alone(embed(json!(prompt))).await?;
        assert_eq!(
            (first.status, first.receipt().outcome.as_str()),
            (200, "scored"),
            "{:?}",
            first.receipt()
        );
        let home = first.receipt().endpoint;
        for (input, cached) in [(json!(prompt), 304), (json!([prompt, text(2, 40)]), 304)] {
            let before = stack.engine_at(&home)?.prefix_cache().await?.hits;
            let receipt = stack.send_alone(embed(input)).await?.receipt();
            assert_eq!((&receipt.endpoint, receipt.cached_tokens), (&home, Some(cached)));
            // Its usage does not tell what was cached: the engine's counters do.
            let hits = stack.engine_at(&home)?.prefix_cache().await?.hits - before;
            assert_eq!(hits, cached as f64);
        }
        Ok(())
    });
}

#[test]
fn requests_about_responses_are_answered_without_a_body() {
    let about = |method: Method, path: &str| Call::get(&format!("{RESPONSES}/{path}")).method(method);
    case(Stack::builder().map(|stack| stack.recorders(2)), async |stack| {
        let calls = [
            about(Method::GET, "resp_1"),
            about(Method::DELETE, "resp_1"),
            about(Method::POST, "resp_1/cancel"),
            about(Method::GET, "resp_1?stream=true&starting_after=3"),
        ];
        let receipts: Vec<Receipt> = {
            let mut receipts = Vec::new();
            for call in calls {
                let answer = stack.send(call).await?;
                assert_eq!(answer.status, 200);
                receipts.push(answer.receipt());
            }
            receipts
        };
        for receipt in receipts {
            let said = (receipt.outcome.as_str(), receipt.reason.as_str());
            assert_eq!(said, ("load_only", "previous_response_unknown"));
        }
        let arrived: usize = stack.recorders.iter().map(|recorder| recorder.take().len()).sum();
        assert_eq!(arrived, 4);
        Ok(())
    });
}
