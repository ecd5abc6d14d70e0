//! How requests spread over endpoints, in the situations in which other routers were reported to pile them up.

use std::collections::{BTreeMap, HashMap};

use tonic::transport::Channel;
use warmpath_proto::v1::scorer_client::ScorerClient;
use warmpath_proto::v1::{ScoreRequest, ScoreResponse, TokenIds, TokenPrompts, score_request};

use crate::engine::{BLOCK, Engine};
use crate::support::{Indexer, end, eventually, first_byte, report, tokens};

const ENDPOINTS: usize = 8;

/// Eight endpoints, each with an engine that is heard; what is picked counts as cached from then on.
struct Fleet {
    indexer: Indexer,
    client: ScorerClient<Channel>,
    _engines: Vec<Engine>,
}

impl Fleet {
    async fn start(policy: &str) -> Self {
        let mut engines: Vec<Engine> = (0..ENDPOINTS).map(|_| Engine::start()).collect();
        let endpoints: String = engines
            .iter()
            .enumerate()
            .map(|(host, engine)| {
                format!("    - {{ address: \"10.0.0.{host}:8000\", events: \"{}\" }}\n", engine.events)
            })
            .collect();
        let indexer = Indexer::start(&format!(
            "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\nmodels: [{{ name: tiny }}]\n\
             policy: {policy}\nleases: {{ speculative_ms: 600000, reservation_ms: 600000 }}\n\
             scrape: {{ interval_ms: 60000, failures_to_avoid: 1000 }}\nendpoints:\n  static:\n{endpoints}"
        ))
        .await;
        // One block each that no prompt has, so that all caches are known.
        for engine in &mut engines {
            engine.store(90_000_000..90_000_000 + BLOCK);
        }
        eventually("all are heard", async || {
            indexer.state().await["index"]["references"].as_u64() == Some(ENDPOINTS as u64)
        })
        .await;
        let client = indexer.client().await;
        Self { indexer, client, _engines: engines }
    }

    async fn score(&mut self, request: ScoreRequest) -> ScoreResponse {
        self.client.score(request).await.unwrap().into_inner()
    }

    async fn finish(&mut self, answer: &ScoreResponse) {
        let (id, endpoint) = (answer.decision_id, &answer.candidates[0].endpoint);
        report(&mut self.client, vec![first_byte(id, endpoint), end(id, endpoint, None)]).await;
    }
}

/// A prompt made of these ranges of ids.
fn prompt(parts: &[std::ops::Range<u32>]) -> ScoreRequest {
    let ids = parts.iter().cloned().flatten().collect();
    let prompts = vec![TokenIds { ids }];
    ScoreRequest { prompt: Some(score_request::Prompt::Tokens(TokenPrompts { prompts })), ..tokens(0..0) }
}

fn count(picks: &mut BTreeMap<String, u32>, answer: &ScoreResponse) {
    *picks.entry(answer.candidates[0].endpoint.clone()).or_default() += 1;
}

/// 800 equal requests in lock step, twice: a wave sees its own picks, not the metrics of the wave before.
// D35 (llm-d/llm-d-router#298)
#[tokio::test]
async fn waves_of_equal_requests_spread_evenly() {
    let mut fleet = Fleet::start("{ name: cost }").await;
    for _ in 0..2 {
        let (mut picks, mut open) = (BTreeMap::new(), Vec::new());
        for _ in 0..800 {
            let answer = fleet.score(tokens(0..512)).await;
            count(&mut picks, &answer);
            open.push(answer);
        }
        assert!(picks.len() == ENDPOINTS && picks.values().all(|n| (95..=105).contains(n)), "{picks:?}");
        for answer in open {
            fleet.finish(&answer).await;
        }
    }
    fleet.indexer.stop().await;
}

/// Long prompts of which no answer has begun yet count from the pick on.
// D8 (smg-project/smg#1714)
#[tokio::test]
async fn long_prefills_count_before_their_first_token() {
    let mut fleet = Fleet::start("{ name: cost }").await;
    let mut picks = BTreeMap::new();
    for number in 0..24 {
        let answer = fleet.score(tokens(number * 100_000..number * 100_000 + 32_000)).await;
        count(&mut picks, &answer);
    }
    assert!(picks.len() == ENDPOINTS && picks.values().all(|n| *n == 3), "{picks:?}");
    fleet.indexer.stop().await;
}

/// Short prompts that share half of themselves are worth no detour: spread as by load.
// D27 (ai-dynamo/dynamo#12300)
#[tokio::test]
async fn short_prompts_with_a_common_beginning_spread_as_by_load() {
    let mut fleet = Fleet::start("{ name: cost }").await;
    let mut picks = BTreeMap::new();
    for number in 1..=160u32 {
        let answer = fleet.score(prompt(&[0..32, number * 1000..number * 1000 + 32])).await;
        count(&mut picks, &answer);
    }
    assert!(picks.len() == ENDPOINTS && picks.values().all(|n| (17..=23).contains(n)), "{picks:?}");
    fleet.indexer.stop().await;
}

/// Prompts of many lengths that share nothing: tokens, not requests, are what is spread; to within half of the longest
/// prompt where nothing else has a price, to within two of them with the prices of sequences.
// D39 (vllm-project/aibrix#1393)
#[tokio::test]
async fn traffic_without_reuse_spreads_by_tokens() {
    for (policy, most) in
        [("{ name: cost, mu_tokens: 0, behind: 0 }", 4100 / 2), ("{ name: cost }", 2 * 4100)]
    {
        let mut fleet = Fleet::start(policy).await;
        for number in 0..160u32 {
            let length = 100 + number * 7919 % 4000;
            fleet.score(tokens(number * 10_000..number * 10_000 + length)).await;
        }
        let queues: Vec<u64> = fleet.indexer.loads().await.into_iter().map(|(_, queued, _)| queued).collect();
        let mean = queues.iter().sum::<u64>() / ENDPOINTS as u64;
        assert!(queues.iter().all(|queue| queue.abs_diff(mean) < most), "{policy} {queues:?}");
        fleet.indexer.stop().await;
    }
}

/// Four of five requests have one prefix, with 256 in flight: affinity yields to load, and the prefix gets copies.
// D1 (vllm-project/production-stack#1035), D11 (PrimeIntellect-ai/prime-rl#3255)
#[tokio::test]
async fn a_hot_prefix_is_copied_before_its_holder_drowns() {
    let mut fleet = Fleet::start("{ name: cost }").await;
    let mut open = std::collections::VecDeque::new();
    let mut spread = Vec::new();
    for number in 1..=1500u32 {
        let own = number * 10_000..number * 10_000 + 100;
        let request = if number % 5 == 0 {
            prompt(&[number * 10_000 + 1000..number * 10_000 + 4000, own])
        } else {
            prompt(&[0..3008, own])
        };
        let answer = fleet.score(request).await;
        open.push_back(answer);
        // A prefill takes as long as some arrivals, an answer as long as 256.
        if let Some(prefilled) = open.len().checked_sub(8).and_then(|at| open.get(at)) {
            let begun = first_byte(prefilled.decision_id, &prefilled.candidates[0].endpoint);
            report(&mut fleet.client, vec![begun]).await;
        }
        if open.len() > 256
            && let Some(oldest) = open.pop_front()
        {
            fleet.finish(&oldest).await;
        }
        if number >= 1000 && number % 50 == 0 {
            let loads = fleet.indexer.loads().await;
            let most = loads.iter().map(|(_, _, active)| *active).max().unwrap();
            let all: u64 = loads.iter().map(|(_, _, active)| *active).sum();
            spread.push(most as f64 * ENDPOINTS as f64 / all as f64);
        }
    }
    assert!(spread.iter().all(|ratio| *ratio < 1.5), "busiest / mean: {spread:?}");
    fleet.indexer.stop().await;
}

/// Requests one at a time, all with one system prompt, in conversations: nothing is ever in flight. By default the
/// holder of the system prompt gets them all, which is best for each; with a price on work of late they spread, and
/// conversations stay where they are.
// D20 (AMD-AGI/Infera#103), D36 (NVIDIA/TensorRT-LLM#14307), D17 (ls1intum/edutelligence#838)
#[tokio::test]
async fn a_price_on_late_work_spreads_requests_that_come_one_at_a_time() {
    const SYSTEM: std::ops::Range<u32> = 0..512;
    for (policy, spreads) in [("{ name: cost }", false), ("{ name: cost, recent: 0.5 }", true)] {
        let mut fleet = Fleet::start(policy).await;
        let (mut picks, mut homes, mut stayed, mut later) = (BTreeMap::new(), HashMap::new(), 0, 0);
        // A hundred conversations of five turns of 800 tokens, ten of them at a time.
        for number in 0..500u32 {
            let (group, step) = (number / 50, number % 50);
            let (session, turn) = (group * 10 + step % 10, step / 10);
            let begin = 10_000 * (session + 1);
            let answer = fleet.score(prompt(&[SYSTEM, begin..begin + 800 * (turn + 1)])).await;
            count(&mut picks, &answer);
            let home = answer.candidates[0].endpoint.clone();
            if let Some(before) = homes.insert(session, home.clone()) {
                later += 1;
                stayed += u32::from(before == home);
            }
            fleet.finish(&answer).await;
        }
        let most = picks.values().copied().max().unwrap();
        if spreads {
            assert!(most <= 2 * 500 / ENDPOINTS as u32 && picks.len() == ENDPOINTS, "{picks:?}");
            assert!(stayed * 10 >= later * 8, "{stayed} of {later} turns stayed");
        } else {
            assert_eq!((most, stayed), (500, later), "{picks:?}");
        }
        fleet.indexer.stop().await;
    }
}

/// Why each request went where it did is counted: to a holder, away from one, or where nobody held anything.
// D30 (ray-project/ray#59390)
#[tokio::test]
async fn why_a_holder_was_left_is_counted() {
    let mut fleet = Fleet::start("{ name: cost }").await;
    for _ in 0..2 {
        let answer = fleet.score(tokens(0..512)).await;
        fleet.finish(&answer).await;
    }
    // The holder is busy with something long.
    let holder = fleet.score(tokens(0..512)).await;
    for number in 1..=8 {
        fleet.score(tokens(number * 100_000..number * 100_000 + 20_000)).await;
    }
    let busy = fleet.score(ScoreRequest { policy: "round_robin".into(), ..tokens(0..512) }).await;
    let away = if busy.candidates[0].cached_tokens == 0 { 1.0 } else { 0.0 };
    let choices = async |policy: &str, choice: &str| {
        let name = format!("warmpath_choices_total{{policy=\"{policy}\",choice=\"{choice}\"}}");
        fleet.indexer.metric(&name).await
    };
    assert_eq!(choices("cost", "holder").await, 2.0, "{holder:?}");
    assert_eq!(choices("cost", "cold").await, 9.0);
    assert_eq!(choices("round_robin", "spill").await, away);
    fleet.indexer.stop().await;
}
