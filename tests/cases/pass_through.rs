//! Every reason for which a request is not scored, brought about through the real filter: the request is answered all
//! the same, and the reason is told. `provoke` names the way for each of them, so a new reason does not compile
//! without one.

use anyhow::{Result, ensure};
use hyper::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use warmpath_core::outcome::{Outcome, Reason};
use warmpath_proto::v1::{Candidate, Outcome as Ranked, ScoreResponse};
use warmpath_tests::case::case;
use warmpath_tests::client::Call;
use warmpath_tests::eventually::{eventually, seen_if};
use warmpath_tests::prompts::{completion, text};
use warmpath_tests::scripted::Script;
use warmpath_tests::stack::{Stack, StackBuilder};

const COMPLETIONS: &str = "/v1/completions";

/// How a reason comes about.
enum Provoke {
    /// By what the request is, with a real indexer.
    Request(Call, Outcome),
    /// By what the indexer answers to an ordinary request.
    Answer(Script, Outcome),
    /// In the case of this name.
    OwnCase(#[expect(dead_code, reason = "named so that the case exists; the test runner runs it")] fn()),
}

fn provoke(reason: Reason) -> Provoke {
    use Provoke::{Answer, OwnCase, Request};
    let passed = |call| Request(call, Outcome::Passed);
    let load_only = |call| Request(call, Outcome::LoadOnly);
    let body = |body: &str| Call::post(COMPLETIONS, body.to_owned());
    match reason {
        Reason::Path => passed(Call::post("/v1/other", "{}")),
        Reason::Method => passed(completion("x").method(Method::PUT)),
        Reason::EmptyBody => passed(body("")),
        Reason::BodyTooLarge => passed(completion("a".repeat(LIMIT))),
        Reason::ContentEncoding => passed(body("xyz").header("content-encoding", "br")),
        Reason::NotJson => passed(body("prompt=hello")),
        Reason::ExpectContinue => OwnCase(where_the_engine_is_to_say_go_on_a_body_is_not_waited_for),
        Reason::BodyNotSeen => OwnCase(without_the_switch_requests_go_on_unread),
        Reason::Unreadable => passed(body(r#"{"model":"qwen3","prompt":"cut of"#)),
        Reason::TooDeep => passed(body(&format!(r#"{{"x":{}{}}}"#, "[".repeat(200), "]".repeat(200)))),
        Reason::FieldTooLong => passed(body(&json!({ "model": "m".repeat(513), "prompt": "x" }).to_string())),
        Reason::AnsweredEarly => OwnCase(a_body_that_envoy_refuses_is_counted_as_answered_early),
        Reason::ClientGone => OwnCase(a_client_that_leaves_while_the_indexer_is_asked_is_counted),

        Reason::Deadline => Answer(Script::Silence, Outcome::Fallback),
        Reason::Unavailable => Answer(Script::Status(14), Outcome::Fallback),
        Reason::CircuitOpen => OwnCase(after_failures_in_a_row_the_indexer_is_left_alone),
        Reason::Rejected => Answer(Script::Status(3), Outcome::Fallback),
        Reason::BadReply => Answer(Script::Garbage, Outcome::Fallback),
        Reason::NoEndpoints => Answer(Script::Rank(Vec::new()), Outcome::Passed),

        Reason::NoPrefill => load_only(Call::json("/tokenize", &json!({ "model": "qwen3", "prompt": "hi" }))),
        Reason::NotRenderable => Answer(load_only_because("not_renderable"), Outcome::LoadOnly),
        Reason::NoPrompt => load_only(body(r#"{"model":"qwen3"}"#)),
        Reason::BadPrompt => load_only(completion(json!({ "a": "map" }))),
        Reason::PromptEmbeds => load_only(body(r#"{"model":"qwen3","prompt_embeds":"AAAA"}"#)),
        Reason::TokenOutOfRange => load_only(completion(json!([1, -2, 3]))),
        Reason::LoneSurrogate => load_only(body(r#"{"model":"qwen3","prompt":"\ud83d alone"}"#)),
        Reason::TooManyPrompts => load_only(completion(vec!["a"; 1025])),
        Reason::TooManyTokens => load_only(completion(vec![7u32; (1 << 22) + 1])),
        Reason::UnsupportedField => {
            load_only(body(r#"{"model":"qwen3","prompt":"x","truncate_prompt_tokens":"many"}"#))
        }
        // What is kept of a prompt that is cut depends on its whole length, which is not known of one with a picture.
        Reason::Media => {
            let url = json!({ "url": "data:image/png;base64,iVBORw0KGgo=" });
            let messages =
                json!([{ "role": "user", "content": [{ "type": "image_url", "image_url": url }] }]);
            let asked = json!({ "model": "qwen3", "messages": messages, "truncate_prompt_tokens": 8 });
            load_only(Call::json("/v1/chat/completions", &asked))
        }
        Reason::NoTokenizer => {
            load_only(Call::json(COMPLETIONS, &json!({ "model": TOKENLESS, "prompt": text(1, 100) })))
        }
        Reason::UnknownModel => {
            load_only(Call::json(COMPLETIONS, &json!({ "model": "nobody-knows-it", "prompt": text(1, 100) })))
        }
        Reason::PreviousResponse => Answer(load_only_because("previous_response"), Outcome::LoadOnly),
        Reason::PreviousResponseUnknown => {
            Answer(load_only_because("previous_response_unknown"), Outcome::LoadOnly)
        }
        Reason::BelowBlock => Answer(load_only_because("below_block"), Outcome::LoadOnly),
        Reason::NoEvents => Answer(load_only_because("no_events"), Outcome::LoadOnly),
        Reason::Busy => Answer(load_only_because("busy"), Outcome::LoadOnly),
        Reason::Failed => Answer(load_only_because("failed"), Outcome::LoadOnly),
        Reason::Late => Answer(load_only_because("late"), Outcome::LoadOnly),
        Reason::Other => Answer(load_only_because("invented_tomorrow"), Outcome::LoadOnly),
    }
}

/// Largest body that the filter reads in the cases about requests: above the largest list of token ids.
const LIMIT: usize = 12 << 20;
/// A model that the indexer knows without a tokenizer.
const TOKENLESS: &str = "tokenless";

/// An answer that ranked by load; the endpoint is put in by the case.
fn load_only_because(reason: &str) -> Script {
    Script::Answer(Box::new(ScoreResponse {
        decision_id: 1,
        outcome: Ranked::LoadOnly.into(),
        reason: reason.to_owned(),
        ..ScoreResponse::default()
    }))
}

/// Sends it and checks that it was answered, arrived, and says this.
async fn check(stack: &Stack, reason: Reason, call: Call, outcome: Outcome) -> Result<()> {
    let body = call.body().clone();
    let answer = stack.send(call).await?;
    let receipt = answer.receipt();
    let said = (receipt.outcome.as_str(), receipt.reason.as_str());
    ensure!(said == (outcome.name(), reason.name()), "{reason}: the receipt says {said:?}");
    ensure!(answer.status == 200, "{reason}: {} {}", answer.status, answer.text());
    let received: Vec<_> = stack.recorders.iter().flat_map(|recorder| recorder.take()).collect();
    ensure!(
        received.len() == 1 && received[0].body == body,
        "{reason}: the body did not arrive once and unchanged"
    );
    Ok(())
}

#[test]
fn requests_that_cannot_be_scored_are_answered_and_say_why() {
    let stack = Stack::builder().map(|stack| {
        stack.recorders(2).filter(|filter| filter["max_body_bytes"] = LIMIT.into()).indexer(|config| {
            config["models"].as_array_mut().unwrap().push(json!({ "name": TOKENLESS }));
            config["endpoints"]["static"][0]["model"] = json!(TOKENLESS);
        })
    });
    case(stack, async |stack| {
        for reason in Reason::ALL {
            if let Provoke::Request(call, outcome) = provoke(*reason) {
                check(stack, *reason, call, outcome).await?;
            }
        }
        Ok(())
    });
}

/// One worker, so that a request shows what the one before left in the filter's state.
fn scripted() -> Result<StackBuilder> {
    let stack = Stack::builder()?.recorders(1).script(Script::Silence).workers(1);
    Ok(stack.filter(|filter| filter["indexer"]["timeout_ms"] = 200.into()))
}

/// Lets the indexer choose the recorder, until a request is scored: failures before are forgotten then.
async fn recover(stack: &Stack) -> Result<()> {
    stack.scripted()?.play(Script::Rank(vec![(stack.recorders[0].address(), None)]));
    eventually("a request is scored", async || {
        let receipt = stack.send(completion("x")).await?.receipt();
        stack.recorders[0].take();
        seen_if(receipt.outcome == "scored", format!("{receipt:?}"))
    })
    .await
}

#[test]
fn whatever_the_indexer_answers_the_request_is_answered_and_says_why() {
    case(scripted(), async |stack| {
        for reason in Reason::ALL {
            let Provoke::Answer(mut script, outcome) = provoke(*reason) else { continue };
            recover(stack).await?;
            if let Script::Answer(answer) = &mut script {
                let endpoint = stack.recorders[0].address();
                answer.candidates = vec![Candidate { endpoint, ..Candidate::default() }];
            }
            stack.scripted()?.play(script);
            check(stack, *reason, completion("hello"), outcome).await?;
        }
        Ok(())
    });
}

#[test]
fn after_failures_in_a_row_the_indexer_is_left_alone() {
    case(scripted(), async |stack| {
        recover(stack).await?;
        stack.scripted()?.play(Script::Status(14));
        for _ in 0..3 {
            check(stack, Reason::Unavailable, completion("hello"), Outcome::Fallback).await?;
        }
        stack.scripted()?.take_asked();
        check(stack, Reason::CircuitOpen, completion("hello"), Outcome::Fallback).await?;
        assert!(stack.scripted()?.take_asked().is_empty(), "asked although the circuit is open");
        recover(stack).await
    });
}

/// A counter of the filter, over all workers.
async fn unscored(stack: &Stack, reason: Reason) -> Result<f64> {
    let name = format!("warmpath_filter_unscored_total_reason_{reason}");
    let metrics = stack.envoy.metrics().await?;
    ensure!(
        metrics.names().any(|name| name.starts_with("warmpath_filter_")),
        "Envoy shows no statistics of the filter"
    );
    Ok(metrics.sum(&name, &[]))
}

// E18 (networking-incubator/coraza-kubernetes-operator#133)
#[test]
fn without_the_switch_requests_go_on_unread() {
    let stack = scripted().map(|stack| {
        stack.bootstrap(|bootstrap| {
            bootstrap.plugin()?["allow_on_headers_stop_iteration"] = false.into();
            Ok(())
        })
    });
    case(stack, async |stack| {
        check(stack, Reason::BodyNotSeen, completion("hello"), Outcome::Passed).await?;
        let log = stack.envoy.process().log();
        assert!(log.contains("allow_on_headers_stop_iteration"), "the log names the switch:\n{log}");
        Ok(())
    });
}

/// An Envoy that leaves it to the engine to ask for the body: while the headers are held, nobody would.
#[test]
fn where_the_engine_is_to_say_go_on_a_body_is_not_waited_for() {
    let stack = scripted().map(|stack| {
        stack.bootstrap(|bootstrap| {
            bootstrap.connection_manager()?["proxy_100_continue"] = true.into();
            Ok(())
        })
    });
    case(stack, async |stack| {
        let body = completion("hello").body().clone();
        let mut connection = TcpStream::connect(stack.envoy.address()).await?;
        let head = format!(
            "POST {COMPLETIONS} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        connection.write_all(head.as_bytes()).await?;
        let mut answer = vec![0; 1024];
        let begun = connection.read(&mut answer).await?;
        answer.truncate(begun);
        ensure!(answer.starts_with(b"HTTP/1.1 100"), "{}", String::from_utf8_lossy(&answer));
        connection.write_all(&body).await?;
        connection.read_to_end(&mut answer).await?;
        let answer = String::from_utf8_lossy(&answer);
        ensure!(
            answer.contains("200 OK") && answer.contains("x-warmpath-reason: expect_continue"),
            "{answer}"
        );
        ensure!(stack.recorders[0].take().iter().map(|request| &request.body).eq([&body]));
        Ok(())
    });
}

#[test]
fn a_body_that_envoy_refuses_is_counted_as_answered_early() {
    let stack = scripted().map(|stack| {
        stack.bootstrap(|bootstrap| {
            let hosts = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0";
            *bootstrap.at(&format!("{hosts}/request_body_buffer_limit"))? = 65_536.into();
            Ok(())
        })
    });
    case(stack, async |stack| {
        assert_eq!(stack.send(completion("a".repeat(1 << 20))).await?.status, 413);
        eventually("it is counted", async || {
            let count = unscored(stack, Reason::AnsweredEarly).await?;
            seen_if(count == 1.0, format!("{count}"))
        })
        .await
    });
}

#[test]
fn a_client_that_leaves_while_the_indexer_is_asked_is_counted() {
    let stack =
        scripted().map(|stack| stack.filter(|filter| filter["indexer"]["timeout_ms"] = 10_000.into()));
    case(stack, async |stack| {
        let body = completion("hello").body().clone();
        let mut connection = TcpStream::connect(stack.envoy.address()).await?;
        let head =
            format!("POST {COMPLETIONS} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
        connection.write_all(&[head.as_bytes(), &body].concat()).await?;
        eventually("the indexer is asked", async || {
            let asked = stack.scripted()?.take_asked().len();
            seen_if(asked == 1, format!("{asked} questions"))
        })
        .await?;
        drop(connection);
        eventually("it is counted", async || {
            let count = unscored(stack, Reason::ClientGone).await?;
            seen_if(count == 1.0, format!("{count}"))
        })
        .await?;
        assert!(stack.recorders[0].take().is_empty(), "nothing was sent to an engine");
        Ok(())
    });
}
