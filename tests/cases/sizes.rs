//! Bodies that are large: they flow, what is sent about them is small, and where a limit is met it has a name.

use anyhow::Result;
use prost::Message as _;
use serde_json::json;
use warmpath_tests::case::case;
use warmpath_tests::client::Call;
use warmpath_tests::paths;
use warmpath_tests::prompts::{chat, completion, text};
use warmpath_tests::scripted::Script;
use warmpath_tests::stack::{MODEL, Stack, StackBuilder};

/// Longer than the tokenizer of a busy machine takes for megabytes.
const PATIENT_TIMEOUT_MS: u64 = 10_000;

/// One recorder, and an indexer that always chooses it.
async fn choose_the_recorder(stack: &Stack) -> Result<()> {
    stack.scripted()?.play(Script::Rank(vec![(stack.recorders[0].address(), None)]));
    Ok(())
}

fn one_recorder() -> Result<StackBuilder> {
    Ok(Stack::builder()?.recorders(1).script(Script::Silence))
}

// A13 (envoyproxy/ai-gateway#1209)
#[test]
fn prompts_beyond_the_usual_limit_of_grpc_are_decided_by_the_indexer() {
    let stack = Stack::builder().map(|stack| {
        stack.recorders(1).filter(|filter| filter["indexer"]["timeout_ms"] = PATIENT_TIMEOUT_MS.into())
    });
    case(stack, async |stack| {
        // 640 KB, as in the report; 5 MiB; 3 MiB that are three times as long when they are escaped as JSON.
        let plain = |bytes: usize| "word ".repeat(bytes / 5);
        let calls = [
            Call::json("/v1/embeddings", &json!({ "model": MODEL, "input": plain(640_000) })),
            completion(plain(5 << 20)),
            chat(json!([{ "role": "user", "content": plain(5 << 20) }])),
            chat(json!([{ "role": "user", "content": "\u{1}\n".repeat(1 << 20) }])),
        ];
        for call in calls {
            let body = call.body().clone();
            let answer = stack.send(call).await?;
            let receipt = answer.receipt();
            // A recorder has no events: the indexer read the question and ranked by load. Refused, it would be a fallback.
            assert_eq!((answer.status, receipt.outcome.as_str()), (200, "load_only"), "{receipt:?}");
            assert!(stack.recorders[0].take()[0].body == body, "another body arrived");
        }
        Ok(())
    });
}

/// What may be remembered of prompts: at about a byte and a tenth a token, a third of what is asked for.
const MEMO_BYTES: u64 = 1 << 20;
/// What the whole indexer may take, tokenizer and index included.
const RESIDENT_BYTES_MAX: u64 = 1 << 30;

// D18 (llm-d/llm-d-router#1348)
#[test]
fn prompts_of_a_hundred_thousand_tokens_take_bounded_memory() {
    let stack = Stack::builder().map(|stack| {
        stack
            .recorders(1)
            .indexer(|config| config["limits"] = json!({ "prompt_memo_bytes": MEMO_BYTES }))
            .filter(|filter| filter["indexer"]["timeout_ms"] = PATIENT_TIMEOUT_MS.into())
    });
    case(stack, async |stack| {
        for seed in 0..30 {
            let answer = stack.send(completion(text(seed, 100_000))).await?;
            assert_eq!(answer.status, 200);
            stack.recorders[0].take();
        }
        let metrics = stack.indexer()?.metrics().await?;
        let held = metrics.sum("warmpath_prompt_memo_bytes", &[]);
        assert!(held > 0.0 && held <= MEMO_BYTES as f64, "{held} bytes are remembered");
        assert!(
            metrics.sum("warmpath_prompt_memo_evictions_total", &[]) > 0.0,
            "more came than there is room for"
        );
        let resident = stack.indexer()?.process().resident_bytes()?;
        println!("{} MiB resident after 30 prompts of 100,000 tokens", resident >> 20);
        assert!(resident < RESIDENT_BYTES_MAX, "{resident}");
        Ok(())
    });
}

// A14 (kubernetes-sigs/gateway-api-inference-extension#2056)
#[test]
fn another_body_filter_in_front_changes_nothing() {
    let stack = one_recorder().map(|stack| {
        stack.bootstrap(|bootstrap| {
            let filters = bootstrap.http_filters()?;
            filters.insert(
                0,
                json!({
                    "name": "envoy.filters.http.buffer",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer",
                        "max_request_bytes": 32 << 20,
                    },
                }),
            );
            Ok(())
        })
    });
    case(stack, async |stack| {
        choose_the_recorder(stack).await?;
        let call = completion("a".repeat(10 << 20));
        let answer = stack.send(call.clone()).await?;
        assert_eq!(
            (answer.status, answer.receipt().outcome.as_str()),
            (200, "scored"),
            "{:?}",
            answer.receipt()
        );
        assert!(stack.recorders[0].take()[0].body == call.body(), "another body arrived");
        Ok(())
    });
}

/// A chat whose first message is a picture of this many bytes, as a data URL, and some words.
fn picture(bytes: usize, words: &str) -> Call {
    let url = format!("data:image/png;base64,{}", "iVBORw0K".repeat(bytes / 8));
    chat(json!([{ "role": "user", "content": [
        { "type": "image_url", "image_url": { "url": url } },
        { "type": "text", "text": words },
    ] }]))
}

// A28 (mnfst/llm-gateway#2126)
#[test]
fn a_large_picture_flows_and_only_its_digest_is_sent_on() {
    const QUESTION_BYTES_MAX: usize = 4096;
    case(one_recorder(), async |stack| {
        choose_the_recorder(stack).await?;
        for bytes in [1 << 20, 4 << 20] {
            let call = picture(bytes, "what is this?");
            let answer = stack.send(call.clone()).await?;
            assert_eq!(answer.status, 200);
            assert!(stack.recorders[0].take()[0].body == call.body(), "another body arrived");
            let asked = stack.scripted()?.take_asked();
            let question = asked[0].encoded_len();
            assert!(question < QUESTION_BYTES_MAX, "{question} bytes were asked about {bytes}");
            assert_eq!(asked[0].body_bytes, call.body().len() as u64, "its size is told all the same");
        }
        // Above what the filter reads: the reason says so, and the body flows.
        let answer = stack.send(picture(17 << 20, "and this?")).await?;
        assert_eq!((answer.status, answer.receipt().reason.as_str()), (200, "body_too_large"));
        Ok(())
    });
}

// A31 (llm-d/llm-d-router#1501)
#[test]
fn pictures_are_ranked_with_a_reason_and_without_a_log_line_each() {
    case(Stack::builder().map(|stack| stack.recorders(3)), async |stack| {
        let lines = async |stack: &mut Stack| -> Result<usize> {
            let indexer = stack.indexer()?.process().log().lines().count();
            Ok(indexer + stack.envoy.process().log().lines().count())
        };
        stack.send(completion(text(1, 40))).await?;
        let before = lines(stack).await?;
        for _ in 0..30 {
            let answer = stack.send(picture(1000, "what is this?")).await?;
            let receipt = answer.receipt();
            let said = (answer.status, receipt.outcome.as_str(), receipt.reason.as_str());
            // The text before the picture is known, but these engines tell nothing of their caches.
            assert_eq!(said, (200, "load_only", "no_events"));
        }
        let more = lines(stack).await? - before;
        assert!(more <= 1, "{more} log lines for 30 pictures");
        let served: Vec<usize> = stack.recorders.iter().map(|recorder| recorder.take().len()).collect();
        assert!(served.iter().all(|count| *count >= 5), "not spread by load: {served:?}");
        Ok(())
    });
}

// A30 (agentgateway/agentgateway#2715)
#[test]
fn a_body_above_a_limit_names_the_setting_to_raise() {
    const FILTER_MAX: usize = 64 << 10;
    const ENVOY_MAX: usize = 256 << 10;
    let stack = one_recorder().map(|stack| {
        stack.filter(|filter| filter["max_body_bytes"] = FILTER_MAX.into()).bootstrap(|bootstrap| {
            let hosts = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0";
            *bootstrap.at(&format!("{hosts}/request_body_buffer_limit"))? = ENVOY_MAX.into();
            Ok(())
        })
    });
    case(stack, async |stack| {
        choose_the_recorder(stack).await?;
        let answer = stack.send(picture(2 << 20, "what is this?")).await?;
        assert_eq!(answer.status, 200, "the filter let go of it before Envoy's limit");
        assert_eq!(answer.receipt().reason, "body_too_large");
        let count = stack.envoy.metrics().await?;
        assert_eq!(count.sum("warmpath_filter_unscored_total_reason_body_too_large", &[]), 1.0);
        Ok(())
    });
    // The page that lists the reason says which setting it is, and which one goes with it.
    let readme = std::fs::read_to_string(paths::root().join("filter/README.md")).unwrap();
    for (reason, settings) in [
        ("body_too_large", &["max_body_bytes", "request_body_buffer_limit"][..]),
        ("answered_early", &["request_body_buffer_limit"]),
    ] {
        let row = readme.lines().find(|line| line.starts_with(&format!("| `{reason}`"))).unwrap();
        let unnamed: Vec<_> = settings.iter().filter(|name| !row.contains(*name)).collect();
        assert!(unnamed.is_empty(), "{reason} does not name {unnamed:?}: {row}");
    }
}
