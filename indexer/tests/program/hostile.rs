//! What each party outside may send, made up to do harm: the program answers on, with figures that are numbers.

use std::collections::VecDeque;
use std::pin::Pin;

use futures::stream::{self, Stream, StreamExt};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status};
use warmpath_proto::v1::ledger_change::What;
use warmpath_proto::v1::peer_server::{Peer, PeerServer};
use warmpath_proto::v1::{
    Answered, Attempt, ChatPrompt, CostTerms, Draining, Ejection, End, Event, ExpectedBlocks, FirstByte,
    FirstToken, FollowRequest, LedgerChange, LedgerChanges, Released, ReportRequest, Reserved, ScoreRequest,
    Sighting, TextPrompts, TokenIds, TokenPrompts, event, score_request, sighting,
};

use crate::http_engine::HttpEngine;
use crate::support::{Indexer, config, end, eventually, report, tokens};

const ENDPOINTS: [&str; 2] = ["10.0.0.1:8000", "10.0.0.2:8000"];

fn are_numbers(terms: &CostTerms) -> bool {
    let CostTerms { cost, pressure, slowness, penalty, capacity, ramp, recent_tokens, .. } = terms;
    [cost, pressure, slowness, penalty, capacity, ramp, recent_tokens]
        .into_iter()
        .all(|term| term.is_finite())
}

/// Decides a plain request as if nothing had happened, and keeps its books.
async fn goes_on(indexer: &Indexer, candidates: usize, after: &str) {
    let mut client = indexer.client().await;
    let answer = client.score(tokens(0..100)).await.expect(after).into_inner();
    assert_eq!(answer.candidates.len(), candidates, "{after}");
    for candidate in &answer.candidates {
        assert!(are_numbers(candidate.terms.as_ref().unwrap()), "{after}: {candidate:?}");
    }
    let endpoint = answer.candidates[0].endpoint.clone();
    assert_eq!(report(&mut client, vec![end(answer.decision_id, &endpoint, None)]).await, 0, "{after}");
    assert_eq!(indexer.get("/livez").await.0, 200, "{after}");
    assert!(indexer.state().await["endpoints"].is_array(), "{after}");
    assert_eq!(indexer.metric("warmpath_ledger_invariant_violations_total").await, 0.0, "{after}");
}

#[tokio::test]
async fn whatever_engines_metrics_say_costs_are_numbers() {
    let engine = HttpEngine::start().await;
    let yaml = format!(
        "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\nmodels: [{{ name: tiny }}]\n\
         scrape: {{ interval_ms: 10, failures_to_avoid: 1000 }}\n\
         endpoints: {{ static: [{{ address: \"{}\" }}] }}\n",
        engine.address
    );
    let indexer = Indexer::start(&yaml).await;
    let figures = ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"];
    let values = ["NaN", "inf", "-inf", "-1", "1e308", "1e9", "18446744073709551616", "0x10", "", "1e-320"];
    let mut pages: Vec<String> = values
        .iter()
        .map(|value| figures.map(|name| format!("vllm:{name}{{engine=\"0\"}} {value}\n")).concat())
        .collect();
    for size in ["0", "-16", "NaN", "1e9", "4294967296", "None", "\\\"", "}"] {
        pages.push(format!(
            "vllm:num_requests_running 1\nvllm:kv_cache_usage_perc 1.5\n\
             vllm:cache_config_info{{block_size=\"{size}\",num_gpu_blocks=\"{size}\"}} 1.0\n\
             sglang:max_total_num_tokens {size}\nsglang:page_size {size}\n"
        ));
    }
    pages.extend([
        String::new(),
        "\0".repeat(100),
        "<html>".to_owned(),
        "vllm:num_requests_running{engine=\"99999999999999999999\"} 1".to_owned(),
        "vllm:num_requests_running{{{{}}}} 1".to_owned(),
        "vllm:engine_sleep_state{sleep_state=\"awake\"} NaN".to_owned(),
        "vllm:num_requests_running 1e9\n".repeat(1000),
        "x".repeat(1 << 20),
    ]);
    for page in pages {
        let shown: String = page.chars().take(80).collect();
        engine.say_text("/metrics", page);
        let read = async || indexer.metric("warmpath_engine_scrapes_total{result=\"answered\"}").await;
        let before = read().await;
        eventually("it was read", async || read().await >= before + 2.0).await;
        goes_on(&indexer, 1, &shown).await;
    }
    engine.say_text("/metrics", "vllm:num_requests_running 3\n".to_owned());
    let running = async || indexer.state().await["endpoints"][0]["ranks"][0]["engine"]["running"] == 3;
    eventually("a good page counts again", running).await;
    indexer.stop().await;
    engine.stop().await;
}

/// Questions and reports that the contract allows and nobody means, and some that it does not.
#[tokio::test]
async fn whatever_clients_ask_and_report_is_answered_or_refused_by_its_field() {
    let indexer = Indexer::start(&config(&ENDPOINTS)).await;
    let mut client = indexer.client().await;
    let of_tokens = |prompts: Vec<Vec<u32>>| {
        let prompts = prompts.into_iter().map(|ids| TokenIds { ids }).collect();
        Some(score_request::Prompt::Tokens(TokenPrompts { prompts }))
    };
    let of_texts = |texts: &[&str]| {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        Some(score_request::Prompt::Texts(TextPrompts { texts }))
    };
    let chat = |messages: &[u8]| {
        Some(score_request::Prompt::Chat(ChatPrompt {
            messages_json: messages.to_vec(),
            tools_json: Some(b"\xff".to_vec()),
            chat_template: Some("{{ ".to_owned()),
            ..ChatPrompt::default()
        }))
    };
    let plain = || ScoreRequest { model: "tiny".into(), ..ScoreRequest::default() };
    let questions = [
        ScoreRequest::default(),
        ScoreRequest { body_bytes: u64::MAX, sequences_per_prompt: 128, ..plain() },
        ScoreRequest {
            prompt: of_tokens(vec![vec![u32::MAX; 40]; 1024]),
            sequences_per_prompt: 128,
            ..plain()
        },
        ScoreRequest { prompt: of_tokens(vec![Vec::new()]), ..plain() },
        ScoreRequest { prompt: of_tokens(Vec::new()), ..plain() },
        ScoreRequest { prompt: of_texts(&[]), ..plain() },
        ScoreRequest { prompt: of_texts(&["", "\0", "\u{10ffff}"]), ..plain() },
        ScoreRequest { prompt: chat(b""), ..plain() },
        ScoreRequest { prompt: chat(b"[[[[[[["), ..plain() },
        ScoreRequest { deadline_us: 1, ..tokens(0..100) },
        ScoreRequest { deadline_us: u32::MAX, ..tokens(0..100) },
        ScoreRequest { sequences_per_prompt: u32::MAX, ..tokens(0..100) },
        ScoreRequest { truncate_prompt_tokens: Some(i64::MIN), ..tokens(0..100) },
        ScoreRequest { truncate_prompt_tokens: Some(i64::MAX), ..tokens(0..100) },
        ScoreRequest { truncation_side: Some("up".into()), max_output_tokens: u32::MAX, ..tokens(0..100) },
        ScoreRequest { previous_response_key: u64::MAX, group_key: u64::MAX, ..tokens(0..100) },
        ScoreRequest { path: "/../\u{0}".into(), not_scorable_reason: "x".repeat(10_000), ..plain() },
        ScoreRequest { model: "m".repeat(513), ..tokens(0..100) },
        ScoreRequest { policy: "weighted\n".into(), ..tokens(0..100) },
    ];
    for question in questions {
        let shown: String = format!("{question:?}").chars().take(300).collect();
        match client.score(question).await {
            Ok(answer) => {
                let answer = answer.into_inner();
                assert!(answer.candidates.iter().all(|c| are_numbers(c.terms.as_ref().unwrap())), "{shown}");
                let endpoint = answer.candidates[0].endpoint.clone();
                report(&mut client, vec![end(answer.decision_id, &endpoint, None)]).await;
            }
            Err(status) => assert_eq!(status.code(), Code::InvalidArgument, "{shown}: {status}"),
        }
        goes_on(&indexer, 2, &shown).await;
    }

    let decision = client.score(tokens(0..100)).await.unwrap().into_inner();
    let (id, endpoint) = (decision.decision_id, decision.candidates[0].endpoint.clone());
    let ended = |endpoint: &str, http_status| {
        event::What::End(End {
            endpoint: endpoint.into(),
            http_status,
            cause: i32::MAX,
            cached_tokens: Some(u32::MAX),
            prompt_tokens: Some(0),
            completion_tokens: Some(u32::MAX),
            attempts: u32::MAX,
            fallback_reason: "\n".repeat(5000),
            response_key: u64::MAX,
        })
    };
    let began = |endpoint: &str, http_status| {
        event::What::FirstByte(FirstByte { endpoint: endpoint.into(), http_status })
    };
    for (decision_id, elapsed_us, what) in [
        (0, 0, None),
        (u64::MAX, u64::MAX, Some(ended("", 0))),
        (0, u64::MAX, Some(ended("no address", u32::MAX))),
        (id, u64::MAX, Some(began("[::]:0", 0))),
        (id, 0, Some(began(&endpoint, u32::MAX))),
        (id, 0, Some(began(&endpoint, 200))),
        (id, u64::MAX, Some(ended(&endpoint, 200))),
        (id, 1, Some(ended(&endpoint, 200))),
        (id, 1, Some(began(&"9".repeat(100_000), 200))),
    ] {
        let told = ReportRequest { events: vec![Event { decision_id, elapsed_us, what }] };
        if let Err(status) = client.report(told).await {
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        }
        goes_on(&indexer, 2, &format!("a report of {decision_id} after {elapsed_us} µs")).await;
    }
    eventually("nothing is left open", async || {
        indexer.loads().await.iter().all(|(_, queued, active)| (*queued, *active) == (0, 0))
    })
    .await;

    for path in [
        "/blocks",
        "/blocks?endpoint=10.0.0.1:8000&rank=18446744073709551616",
        "/blocks?endpoint=10.0.0.1:8000&rank=1024",
        "/blocks?endpoint=%00",
        "/receipts?limit=-1",
        "/receipts?limit=18446744073709551615",
        "/receipts?decision=%ff&policy=%0a&endpoint=%e2%88%9e",
        "/state?x=%",
        "/metrics/../state",
    ] {
        assert!(indexer.get(path).await.0 < 500, "{path}");
    }
    for path in
        ["/drain", "/drain?endpoint=", "/undrain?endpoint=[::1", "/explain?path=/../", "/explain?policy=x"]
    {
        assert!((400..500).contains(&indexer.post_body(path, "\0").await.0), "{path}");
    }
    goes_on(&indexer, 2, "admin pages").await;
    indexer.stop().await;
}

/// Tells each who follows the next of what a test wrote, and then nothing more.
struct Liar(Mutex<VecDeque<Vec<LedgerChanges>>>);

#[tonic::async_trait]
impl Peer for Liar {
    type FollowStream = Pin<Box<dyn Stream<Item = Result<LedgerChanges, Status>> + Send>>;

    async fn follow(&self, _request: Request<FollowRequest>) -> Result<Response<Self::FollowStream>, Status> {
        let told = self.0.lock().pop_front().unwrap_or_default();
        let told = stream::iter(told).map(Ok).chain(stream::pending());
        Ok(Response::new(Box::pin(told)))
    }
}

#[tokio::test]
async fn whatever_peers_tell_decisions_go_on() {
    let seen = |what| What::Sighting(Sighting { endpoint: ENDPOINTS[0].into(), what: Some(what) });
    let reserved = |told: Reserved| What::Reserved(Reserved { endpoint: ENDPOINTS[0].into(), ..told });
    let blocks = |block_size, ahead, keys| ExpectedBlocks { block_size, ahead, keys: vec![7; keys] };
    let most = u64::MAX;
    let changes = vec![
        reserved(Reserved { rank: u32::MAX, ..Reserved::default() }),
        reserved(Reserved { queued_tokens: most, sequences: u32::MAX, ..Reserved::default() }),
        reserved(Reserved { queued_tokens: 1 << 32, sequences: 1 << 17, lease_ms: 1, ..Reserved::default() }),
        reserved(Reserved { lease_ms: u32::MAX, expected_ms: u32::MAX, ..Reserved::default() }),
        reserved(Reserved {
            expected: vec![blocks(0, 0, 5), blocks(u32::MAX, u32::MAX, 2000), blocks(1, u32::MAX, 9)],
            expected_ms: 1,
            ..Reserved::default()
        }),
        reserved(Reserved { expected: vec![blocks(16, 0, 100_000)], expected_ms: 1, ..Reserved::default() }),
        What::Reserved(Reserved { endpoint: "\0".repeat(100_000), ..Reserved::default() }),
        What::Released(Released {}),
        What::Answered(Answered { response_key: most, endpoint: "nobody".into() }),
        What::Reported(Event { decision_id: most, elapsed_us: most, what: None }),
        seen(sighting::What::FirstToken(FirstToken {
            rank: 0,
            work_tokens: most,
            ttft_us: most,
            age_ms: most,
        })),
        seen(sighting::What::FirstToken(FirstToken { rank: 0, work_tokens: 256, ttft_us: most, age_ms: 0 })),
        seen(sighting::What::FirstToken(FirstToken {
            rank: u32::MAX,
            work_tokens: 0,
            ttft_us: 0,
            age_ms: 0,
        })),
        seen(sighting::What::Attempt(Attempt { has_failed: true })),
        seen(sighting::What::Ejection(Ejection { for_ms: most, times: u32::MAX })),
        seen(sighting::What::Draining(Draining { draining: true, at_unix_ms: most })),
    ];
    // As of a decision of the teller, and of one that nobody made.
    let all = |id: u64| -> Vec<LedgerChange> {
        let numbered = (id..).zip(changes.iter().cloned());
        numbered.map(|(decision_id, what)| LedgerChange { decision_id, what: Some(what) }).collect()
    };
    let batch =
        |indexer_id, changes| LedgerChanges { indexer_id, changes, snapshot: true, secret_check: most };
    let batches = vec![
        batch(9, all(9 << 32)),
        batch(9, all(0)),
        batch(9, vec![LedgerChange { decision_id: most, what: None }; 50_000]),
        batch(8, Vec::new()),
    ];
    // Nobody tells the first one, and a name that is none; then it is followed anew.
    let scripts = [vec![batch(0, all(1))], vec![batch(most, all(1))], batches];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = listener.local_addr().unwrap();
    let server = Server::builder().add_service(PeerServer::new(Liar(Mutex::new(scripts.into()))));
    let server = tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let indexer = Indexer::start(&format!("peers: [\"{peer}\"]\n{}", config(&ENDPOINTS))).await;
    let unreadable = "warmpath_peer_changes_heard_total{result=\"unreadable\"}";
    eventually("all of it was heard", async || indexer.metric(unreadable).await >= 50_000.0).await;
    goes_on(&indexer, 1, "peers").await;
    // What a peer's clock said last of all orders is not the last word.
    assert_eq!(indexer.post(&format!("/undrain?endpoint={}", ENDPOINTS[0])).await.0, 200);
    let state = indexer.state().await;
    assert_eq!(state["endpoints"][0]["draining"], false);
    indexer.stop().await;
    server.abort();
}
