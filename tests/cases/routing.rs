//! The main job: a request goes to the engine that holds its prefix, and what was predicted is what happens.

use std::collections::BTreeSet;

use serde_json::json;
use warmpath_tests::case::case;
use warmpath_tests::eventually::{eventually, seen_if};
use warmpath_tests::prompts::{chat, completion, text};
use warmpath_tests::scripted::Script;
use warmpath_tests::stack::Stack;

#[test]
fn requests_with_the_same_prefix_go_to_the_same_engine() {
    case(Stack::builder(), async |stack| {
        let mut used = BTreeSet::new();
        for prefix in 0..6 {
            let shared = text(prefix, 512);
            let first = stack.send_alone(completion(shared.clone() + &text(100 + prefix, 40))).await?;
            assert_eq!(first.receipt().outcome, "scored", "{first:?}");
            assert_eq!(first.receipt().cached_tokens, Some(0));
            for turn in 0..2 {
                let later = stack
                    .send_alone(completion(shared.clone() + &text(1000 * (turn + 1) + prefix, 40)))
                    .await?;
                assert_eq!(later.receipt().endpoint, first.receipt().endpoint);
                assert_eq!(later.receipt().cached_tokens, Some(512));
                assert_eq!(later.usage()?.cached_tokens, Some(512));
            }
            used.insert(first.receipt().endpoint);
        }
        // Equal engines are chosen by chance: one of them alone for 40 prefixes in a row is none.
        for prefix in 6..40 {
            if used.len() < 2 {
                used.insert(stack.send_alone(completion(text(prefix, 512))).await?.receipt().endpoint);
            }
        }
        assert_eq!(used.len(), 2, "the first uses were spread over both engines");
        Ok(())
    });
}

/// Requests of the case below; five standard deviations of how many of them a fair draw gives to one of two are 35.
const DRAWS: u64 = 200;
const ODDS_MAX: u64 = 35;

/// Engines whose figures are read, whose events come and whose speeds are learnt are still equal where they are idle and
/// hold nothing of a prompt: neither is picked more often, nor is it told by the pick before.
#[test]
fn idle_engines_that_hold_nothing_of_a_prompt_are_drawn_fairly() {
    case(Stack::builder(), async |stack| {
        let mut picks = Vec::new();
        for number in 0..DRAWS {
            picks.push(stack.send_alone(completion(text(number, 100))).await?.receipt().endpoint);
        }
        let of_first = picks.iter().filter(|pick| **pick == picks[0]).count() as u64;
        let repeated = picks.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
        println!("{of_first} of {DRAWS} at one engine, {repeated} at the same as the one before");
        assert!(of_first.abs_diff(DRAWS / 2) <= ODDS_MAX, "{of_first} of {DRAWS} at one of two engines");
        assert!(
            repeated.abs_diff(DRAWS / 2) <= ODDS_MAX,
            "{repeated} of {DRAWS} go where the one before went"
        );
        Ok(())
    });
}

#[test]
fn a_conversation_stays_where_it_began() {
    case(Stack::builder(), async |stack| {
        let mut messages = json!([
            { "role": "system", "content": text(1, 200) },
            { "role": "user", "content": text(2, 60) },
        ]);
        let first = stack.send_alone(chat(messages.clone())).await?;
        assert_eq!(first.receipt().outcome, "scored", "{first:?}");
        assert_eq!(first.receipt().prompt_tokens, Some(first.usage()?.prompt_tokens));
        for turn in 0..3 {
            let list = messages.as_array_mut().unwrap();
            list.push(json!({ "role": "assistant", "content": text(10 + turn, 30) }));
            list.push(json!({ "role": "user", "content": text(20 + turn, 30) }));
            let next = stack.send_alone(chat(messages.clone())).await?;
            assert_eq!(next.receipt().endpoint, first.receipt().endpoint);
            assert_eq!(next.receipt().prompt_tokens, Some(next.usage()?.prompt_tokens));
            assert_eq!(next.receipt().cached_tokens, next.usage()?.cached_tokens);
            assert!(next.receipt().cached_tokens >= Some(240), "{:?}", next.receipt());
        }
        Ok(())
    });
}

#[test]
fn the_same_token_ids_are_found_whether_sent_as_text_or_as_ids() {
    case(Stack::builder(), async |stack| {
        let prompt = text(3, 320);
        let ids = stack.engines[0].tokenize(&prompt).await?;
        assert_eq!(ids.len(), 320);
        let first = stack.send_alone(completion(prompt)).await?;
        let second = stack.send_alone(completion(ids)).await?;
        assert_eq!(second.receipt().endpoint, first.receipt().endpoint);
        // The last block is computed in any case.
        assert_eq!(second.receipt().cached_tokens, Some(304));
        assert_eq!(second.usage()?.cached_tokens, Some(304));
        Ok(())
    });
}

#[test]
fn each_rank_of_an_engine_is_a_place_of_its_own() {
    let stack = Stack::builder().map(|stack| stack.each_engine(|engine| engine.ranks = 2));
    case(stack, async |stack| {
        for prefix in 0..8 {
            let prompt = text(prefix, 256);
            let first = stack.send_alone(completion(prompt.clone())).await?;
            assert_eq!(first.receipt().outcome, "scored", "{first:?}");
            for _ in 0..2 {
                let again = stack.send_alone(completion(prompt.clone())).await?;
                assert_eq!(again.receipt().endpoint, first.receipt().endpoint);
                // Had it gone to the other rank, nothing would have been found there.
                assert_eq!(again.usage()?.cached_tokens, Some(240));
                assert_eq!(again.receipt().cached_tokens, Some(240));
            }
        }
        Ok(())
    });
}

#[test]
fn the_engine_is_told_the_rank_and_not_the_list() {
    let stack = Stack::builder().map(|stack| stack.recorders(2).script(Script::Silence));
    case(stack, async |stack| {
        let chosen = stack.recorders[1].address();
        stack.scripted()?.play(Script::Rank(vec![(chosen.clone(), Some(3))]));
        let answer = stack.send(completion("hello")).await?;
        assert_eq!(answer.receipt().endpoint, chosen);
        let received = stack.recorders[1].take();
        assert_eq!(received[0].headers["x-data-parallel-rank"], "3");
        let ours: Vec<_> = received[0]
            .headers
            .keys()
            .filter(|name| name.as_str().starts_with("x-warmpath") || name.as_str().starts_with("x-gateway"))
            .collect();
        assert!(ours.is_empty(), "{ours:?}");
        Ok(())
    });
}

// E30 (kubernetes-sigs/gateway-api-inference-extension#2936)
#[test]
fn a_retry_goes_to_the_next_of_the_list() {
    const DEAD: &str = "127.0.0.1:9";
    let stack = Stack::builder().map(|stack| stack.recorders(3).dead_host(DEAD).script(Script::Silence));
    case(stack, async |stack| {
        for second in [2, 1] {
            let second = stack.recorders[second].address();
            stack.scripted()?.play(Script::Rank(vec![(DEAD.to_owned(), None), (second.clone(), None)]));
            let answer = stack.send(completion("hello")).await?;
            assert_eq!(answer.status, 200);
            assert_eq!(answer.receipt().endpoint, second, "the endpoint that really answered");
        }
        Ok(())
    });
}

#[test]
fn a_list_without_a_usable_endpoint_leaves_the_choice_to_envoy() {
    let stack = Stack::builder().map(|stack| stack.recorders(2).script(Script::Silence));
    case(stack, async |stack| {
        for stranger in ["10.0.0.9:1", "localhost:80", "127.0.0.1:9"] {
            stack.scripted()?.play(Script::Rank(vec![(stranger.to_owned(), None)]));
            let answer = stack.send(completion("hello")).await?;
            assert_eq!(answer.status, 200);
            assert!(stack.endpoints().contains(&answer.receipt().endpoint), "{answer:?}");
        }
        Ok(())
    });
}

#[test]
fn what_became_of_a_request_is_reported() {
    let stack = Stack::builder().map(|stack| stack.recorders(1).script(Script::Silence));
    case(stack, async |stack| {
        let endpoint = stack.recorders[0].address();
        stack.scripted()?.play(Script::Rank(vec![(endpoint.clone(), None)]));
        stack.send(completion("hello")).await?;
        let mut events = Vec::new();
        eventually("first byte and end are reported", async || {
            events.extend(stack.scripted()?.take_reported().into_iter().flat_map(|report| report.events));
            seen_if(events.len() >= 2, format!("{events:?}"))
        })
        .await?;
        let told = format!("{events:?}");
        assert!(told.contains("FirstByte") && told.contains("End(") && told.contains(&endpoint), "{told}");
        assert!(events.iter().all(|event| event.decision_id == 1), "{told}");
        Ok(())
    });
}

#[test]
fn every_word_of_the_test_prompts_is_a_token() {
    case(Stack::builder().map(|stack| stack.engines(1)), async |stack| {
        let words = warmpath_tests::prompts::every_word();
        let count = words.split_whitespace().count();
        assert_eq!(stack.engines[0].tokenize(&words).await?.len(), count);
        Ok(())
    });
}
