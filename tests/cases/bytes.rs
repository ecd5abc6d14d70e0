//! What a client sends is what the engine gets, byte for byte, whatever it is and however its length is told.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use warmpath_tests::case::case;
use warmpath_tests::client::{Answer, Call, Framing};
use warmpath_tests::eventually::{eventually, seen_if};
use warmpath_tests::prompts::{chat, completion, text};
use warmpath_tests::scripted::Script;
use warmpath_tests::stack::{Stack, StackBuilder};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

fn one_recorder() -> Result<StackBuilder> {
    Ok(Stack::builder()?.recorders(1).script(Script::Silence))
}

/// Lets the scripted indexer choose the only recorder.
fn choose_the_recorder(stack: &Stack) -> Result<()> {
    stack.scripted()?.play(Script::Rank(vec![(stack.recorders[0].address(), None)]));
    Ok(())
}

/// Checks that exactly this body, and no other request, has arrived.
fn arrived(stack: &Stack, body: &[u8]) -> Result<()> {
    let received = stack.recorders[0].take();
    ensure!(received.len() == 1, "{} requests arrived", received.len());
    ensure!(
        received[0].body == body,
        "another body arrived: {} bytes, not {}",
        received[0].body.len(),
        body.len()
    );
    Ok(())
}

/// Sends it and checks that it arrived unchanged.
async fn send_unchanged(stack: &Stack, call: Call) -> Result<Answer> {
    let body = call.body().clone();
    let answer = stack.send(call).await?;
    ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
    arrived(stack, &body)?;
    Ok(answer)
}

// A8 (vllm-project/router#107)
#[test]
fn json_arrives_as_it_was_written() {
    let written = [
        // A tool call: an assistant's message without content, a tool's message, arguments as text.
        (
            CHAT,
            r#"{"model":"qwen3","messages":[{"role":"user","content":"weather?"},{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"w","arguments":"{\"city\":\"Kyiv\"}"}}]},{"role":"tool","tool_call_id":"1","content":"rain"}]}"#,
        ),
        (
            CHAT,
            r#"{"model":"qwen3","messages":[{"role":"assistant","content":null},{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}]}"#,
        ),
        // Space, numbers in odd forms, escapes, the order of keys, keys twice.
        (
            COMPLETIONS,
            " {\t\"prompt\" :\r\n\"a\\u00e9\\/\\ud83d\\ude00\" , \"model\":\"qwen3\", \"temperature\": 1.0E-0, \"seed\":9007199254740993 }\n",
        ),
        (COMPLETIONS, r#"{"model":"a","model":"qwen3","prompt":"x","prompt":"y"}"#),
        (COMPLETIONS, "{\"model\":\"qwen3\",\"prompt\":\"žluťoučký kůň \u{1F40E}\u{2028}\"}"),
        // What is no request at all passes too.
        (COMPLETIONS, "not JSON"),
        (COMPLETIONS, "[1,2,3]"),
        (COMPLETIONS, "{\"model\":\"qwen3\",\"prompt\":\"cut of"),
        (COMPLETIONS, "\u{feff}{}"),
        ("/v1/responses", r#"{"model":"qwen3","input":"hi"}"#),
        ("/v1/unknown", "whatever\0"),
    ];
    case(one_recorder(), async |stack| {
        choose_the_recorder(stack)?;
        for (path, body) in written {
            send_unchanged(stack, Call::post(path, body)).await.with_context(|| body.to_owned())?;
        }
        send_unchanged(stack, Call::post(COMPLETIONS, vec![0xff, 0xfe, 0, 1, b'{'])).await?;
        Ok(())
    });
}

// A19 (envoyproxy/ai-gateway#839)
#[test]
fn every_framing_arrives_and_is_read() {
    case(one_recorder(), async |stack| {
        choose_the_recorder(stack)?;
        let call = completion(text(1, 20_000));
        let framings = [
            Framing::Length,
            Framing::Chunked(1 << 20),
            Framing::Chunked(1000),
            Framing::Chunked(77),
            Framing::Trailers(1 << 20),
            Framing::Trailers(1000),
        ];
        for framing in framings {
            let call = call.clone().framing(framing);
            let answer = send_unchanged(stack, call.clone()).await?;
            assert_eq!(answer.receipt().outcome, "scored", "{framing:?}");
            let answer = stack.client.send_http2(&stack.envoy.address(), call.clone()).await?;
            assert_eq!((answer.status, answer.receipt().outcome.as_str()), (200, "scored"), "{framing:?}");
            arrived(stack, call.body())?;
        }
        let small = completion("hello").framing(Framing::Chunked(1));
        assert_eq!(send_unchanged(stack, small).await?.receipt().outcome, "scored");
        Ok(())
    });
}

/// The head of a `POST`, written by hand.
fn head(length: usize, more: &str) -> String {
    format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{more}\r\n"
    )
}

/// Reads until the words have come.
async fn read_until(connection: &mut TcpStream, words: &str) -> Result<String> {
    let mut read = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&read).contains(words) {
            ensure!(connection.read_buf(&mut read).await? > 0, "closed");
        }
        Ok(())
    };
    tokio::time::timeout(Duration::from_secs(10), reading)
        .await
        .with_context(|| format!("waiting for `{words}`"))??;
    Ok(String::from_utf8_lossy(&read).into_owned())
}

// A19 (envoyproxy/ai-gateway#839)
#[test]
fn a_client_that_asks_before_it_sends_is_told_to_go_on() {
    case(one_recorder(), async |stack| {
        choose_the_recorder(stack)?;
        let body = completion("hello").body().clone();
        let mut connection = TcpStream::connect(stack.envoy.address()).await?;
        connection.write_all(head(body.len(), "expect: 100-continue\r\n").as_bytes()).await?;
        read_until(&mut connection, "100 Continue").await?;
        connection.write_all(&body).await?;
        let answer = read_until(&mut connection, "\r\n\r\n").await?;
        assert!(answer.contains("200 OK") && answer.contains("x-warmpath-outcome: scored"), "{answer}");
        arrived(stack, &body)
    });
}

// E18 (networking-incubator/coraza-kubernetes-operator#133)
#[test]
fn the_engine_sees_nothing_before_the_body_is_complete() {
    case(one_recorder(), async |stack| {
        choose_the_recorder(stack)?;
        let body = completion(text(1, 100)).body().clone();
        let (first, last) = body.split_at(body.len() / 2);
        let mut connection = TcpStream::connect(stack.envoy.address()).await?;
        connection.write_all(head(body.len(), "").as_bytes()).await?;
        connection.write_all(first).await?;
        eventually("Envoy has the request", async || {
            let metrics = stack.envoy.metrics().await?;
            let active =
                metrics.sum("envoy_http_downstream_rq_active", &[("envoy_http_conn_manager_prefix", "llm")]);
            seen_if(active >= 1.0, format!("{active} active requests"))
        })
        .await?;
        assert!(stack.scripted()?.take_asked().is_empty(), "no question about half a body");
        assert_eq!(begun_towards_engines(stack).await?, 0.0, "a request was begun towards an engine");
        connection.write_all(last).await?;
        let answer = read_until(&mut connection, "\r\n\r\n").await?;
        assert!(answer.contains("200 OK") && answer.contains("x-warmpath-outcome: scored"), "{answer}");
        assert_eq!(stack.scripted()?.take_asked().len(), 1);
        arrived(stack, &body)
    });
}

/// Requests that Envoy has begun to send to engines.
async fn begun_towards_engines(stack: &Stack) -> Result<f64> {
    let metrics = stack.envoy.metrics().await?;
    Ok(metrics.sum("envoy_cluster_upstream_rq_active", &[("envoy_cluster_name", "llm")]))
}

// A11 (envoyproxy/ai-gateway#827)
#[test]
fn bodies_of_any_size_arrive_and_are_scored_up_to_the_limit() {
    case(one_recorder(), async |stack| {
        choose_the_recorder(stack)?;
        for size in [31 << 10, 33 << 10, 1 << 20, 8 << 20] {
            for framing in [Framing::Length, Framing::Chunked(64 << 10)] {
                let body = json!({ "model": "qwen3", "prompt": "a".repeat(size) }).to_string();
                let answer = send_unchanged(stack, Call::post(COMPLETIONS, body).framing(framing)).await?;
                assert_eq!(answer.receipt().outcome, "scored", "{size} bytes, {framing:?}");
            }
        }
        for size in [17 << 20, 40 << 20] {
            for framing in [Framing::Length, Framing::Chunked(256 << 10)] {
                let body = json!({ "model": "qwen3", "prompt": "a".repeat(size) }).to_string();
                let answer = send_unchanged(stack, Call::post(COMPLETIONS, body).framing(framing)).await?;
                let receipt = answer.receipt();
                let said = (receipt.outcome.as_str(), receipt.reason.as_str());
                assert_eq!(said, ("passed", "body_too_large"), "{size} bytes, {framing:?}");
            }
        }
        Ok(())
    });
}

// A15 (mlflow/mlflow#24737)
#[test]
fn encoded_bodies_arrive_untouched() {
    // gzip of `{"model":"qwen3","prompt":"hi"}`; frames of the others are only as real as their first bytes.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut gzip, completion("hi").body()).unwrap();
    let gzip = gzip.finish().unwrap();
    // 32 MiB of nothing: 32 KiB on the way. Whoever inflates it does so at his own cost.
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut bomb, &vec![0; 32 << 20]).unwrap();
    let bomb = bomb.finish().unwrap();
    let encoded = [
        ("gzip", gzip.clone()),
        ("gzip", bomb),
        ("gzip", b"corrupt".to_vec()),
        ("GZIP", gzip.clone()),
        ("deflate", vec![0x78, 0x9c, 3, 0, 0, 0, 0, 1]),
        ("zstd", vec![0x28, 0xb5, 0x2f, 0xfd, 0x24, 0, 1, 0, 0]),
        ("br", vec![0x8b, 0, 0x80, b'a', 3]),
        ("identity, gzip", gzip),
        ("rot13", b"{\"zbqry\":\"djra3\"}".to_vec()),
    ];
    case(one_recorder(), async |stack| {
        choose_the_recorder(stack)?;
        for (encoding, body) in encoded {
            let call = Call::post(COMPLETIONS, body).header("content-encoding", encoding);
            let answer = send_unchanged(stack, call).await?;
            let receipt = answer.receipt();
            let said = (receipt.outcome.as_str(), receipt.reason.as_str());
            assert_eq!(said, ("passed", "content_encoding"), "{encoding}");
        }
        let plain = completion("hi").header("content-encoding", "identity");
        assert_eq!(send_unchanged(stack, plain).await?.receipt().outcome, "scored");
        Ok(())
    });
}

// A8 (vllm-project/router#107)
#[test]
fn a_whole_conversation_arrives_unchanged() {
    case(one_recorder(), async |stack| {
        choose_the_recorder(stack)?;
        let mut messages = vec![json!({ "role": "system", "content": text(1, 3000) })];
        for turn in 0..20 {
            messages.push(json!({ "role": "user", "content": text(100 + turn, 200) }));
            messages.push(json!({ "role": "assistant", "content": text(200 + turn, 300) }));
            let answer = send_unchanged(stack, chat(messages.clone().into())).await?;
            assert_eq!(answer.receipt().outcome, "scored");
        }
        Ok(())
    });
}

// A24 (vllm-project/aibrix#2725)
#[test]
fn tools_arrive_and_are_rendered_in_the_order_and_form_they_were_written_in() {
    // Keys in no usual order, numbers in three forms, escapes of what needs none.
    let tool = |name: &str, required: &str| {
        format!(
            r#"{{"function":{{"parameters":{{"required":[{required}],"properties":{{"zeta":{{"maximum":1.0,"type":"number"}},"alpha":{{"minimum":1e2,"multipleOf":1E-1,"type":"number"}}}},"type":"object"}},"description":"caf\u00e9 \/ \"{name}\"","name":"{name}"}},"type":"function"}}"#
        )
    };
    let body = |first: &str, second: &str| {
        format!(
            r#"{{"tools":[{first},{second}],"temperature":1.0,"model":"qwen3","seed":1e2,"messages":[{{"content":"weather?","role":"user"}}],"max_tokens":2}}"#
        )
    };
    let (a, b) = (tool("a", r#""zeta","alpha""#), tool("b", r#""alpha""#));
    case(one_recorder(), async |stack| {
        choose_the_recorder(stack)?;
        send_unchanged(stack, Call::post(CHAT, body(&a, &b))).await?;
        Ok(())
    });
    // And what the indexer makes of them is what the engine makes of the same bytes: another order is another prompt.
    case(Stack::builder().map(|stack| stack.engines(1).without_speculation()), async |stack| {
        let mut cached = Vec::new();
        for body in [body(&a, &b), body(&a, &b), body(&b, &a)] {
            let answer = stack.send_predicted(Call::post(CHAT, body)).await?;
            cached.push(answer.receipt().cached_tokens);
        }
        assert_eq!(cached[0], Some(0));
        assert!(cached[1] > cached[2], "the order of the tools does not matter: {cached:?}");
        Ok(())
    });
}
