//! Starts indexers on free ports and speaks to them as a filter does.

use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use warmpath_indexer::app::{App, Bound};
use warmpath_indexer::config::Config;
use warmpath_proto::v1::scorer_client::ScorerClient;
use warmpath_proto::v1::{
    Alive, ChatPrompt, End, EndCause, Event, FirstByte, ReportRequest, ScoreRequest, TokenIds, TokenPrompts,
    event, score_request,
};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// One running program.
pub(crate) struct Indexer {
    pub bound: Bound,
    end: oneshot::Sender<()>,
    run: JoinHandle<anyhow::Result<()>>,
}

impl Indexer {
    pub(crate) async fn start(yaml: &str) -> Self {
        Self::start_from(yaml, None).await
    }

    /// Starts with this configuration, which is read from `file` when it is reloaded.
    pub(crate) async fn start_from(yaml: &str, file: Option<PathBuf>) -> Self {
        let config = Config::parse(yaml).expect("a valid configuration");
        let app = App::build(config, file).await.expect("the program starts");
        let bound = app.bound();
        let (end, ended) = oneshot::channel::<()>();
        let run = tokio::spawn(app.run_until(async {
            let _dropped = ended.await;
        }));
        let indexer = Self { bound, end, run };
        eventually("ready", async || indexer.get("/readyz").await.0 == 200).await;
        indexer
    }

    /// Tells it to end and waits until it has.
    pub(crate) async fn stop(self) {
        self.begin_end().await.unwrap().expect("a clean end");
    }

    /// Tells it to end.
    pub(crate) fn begin_end(self) -> JoinHandle<anyhow::Result<()>> {
        self.end.send(()).expect("it runs");
        self.run
    }

    pub(crate) async fn client(&self) -> ScorerClient<Channel> {
        client(self.bound).await
    }

    /// Status and text of an admin page.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        admin(self.bound, Method::GET, path).await
    }

    /// Status and text of the answer to a POST without a body.
    pub(crate) async fn post(&self, path: &str) -> (u16, String) {
        admin(self.bound, Method::POST, path).await
    }

    /// Status and text of the answer to a POST with this body.
    pub(crate) async fn post_body(&self, path: &str, body: &str) -> (u16, String) {
        admin_with(self.bound, Method::POST, path, body).await
    }

    pub(crate) async fn state(&self) -> Value {
        serde_json::from_str(&self.get("/state").await.1).unwrap()
    }

    /// Queued tokens and active sequences of every endpoint, by address.
    pub(crate) async fn loads(&self) -> Vec<(String, u64, u64)> {
        let state = self.state().await;
        let sum = |endpoint: &Value, key: &str| -> u64 {
            endpoint["ranks"].as_array().unwrap().iter().map(|rank| rank[key].as_u64().unwrap()).sum()
        };
        let endpoints = state["endpoints"].as_array().unwrap().iter();
        endpoints
            .map(|endpoint| {
                let name = endpoint["endpoint"].as_str().unwrap().to_owned();
                (name, sum(endpoint, "queued_tokens"), sum(endpoint, "active_sequences"))
            })
            .collect()
    }

    pub(crate) async fn load(&self, endpoint: &str) -> (u64, u64) {
        let loads = self.loads().await;
        loads
            .into_iter()
            .find(|(name, _, _)| name == endpoint)
            .map(|(_, q, a)| (q, a))
            .expect("a known endpoint")
    }

    /// The value of a sample in `/metrics`, by its whole name with labels; 0 where it is not there.
    pub(crate) async fn metric(&self, sample: &str) -> f64 {
        let text = self.get("/metrics").await.1;
        let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }
}

/// Asks the admin listener.
pub(crate) async fn admin(bound: Bound, method: Method, path: &str) -> (u16, String) {
    admin_with(bound, method, path, "").await
}

async fn admin_with(bound: Bound, method: Method, path: &str, body: &str) -> (u16, String) {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let uri = format!("http://{}{path}", bound.admin);
    let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
    let request = Request::builder().method(method).uri(uri).body(body).unwrap();
    let response = client.request(request).await.expect("the admin listener answers");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.into()).unwrap())
}

pub(crate) async fn client(bound: Bound) -> ScorerClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", bound.grpc)).unwrap();
    ScorerClient::new(endpoint.connect().await.expect("the gRPC listener answers"))
}

/// A configuration with these endpoints, which nobody has to serve, and no events.
pub(crate) fn config(endpoints: &[&str]) -> String {
    let endpoints: Vec<String> =
        endpoints.iter().map(|address| format!("    - {{ address: \"{address}\" }}\n")).collect();
    // Scrapes go nowhere in these tests, so they are made rare; endpoints stay in use all the same.
    format!(
        "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\n\
         models: [{{ name: tiny }}]\n\
         scrape: {{ interval_ms: 60000, failures_to_avoid: 1000 }}\n\
         endpoints:\n  static:\n{}",
        endpoints.concat()
    )
}

/// A completion request whose prompt is these token ids.
pub(crate) fn tokens(ids: Range<u32>) -> ScoreRequest {
    let prompts = vec![TokenIds { ids: ids.collect() }];
    ScoreRequest {
        model: "tiny".into(),
        prompt: Some(score_request::Prompt::Tokens(TokenPrompts { prompts })),
        path: "/v1/completions".into(),
        ..ScoreRequest::default()
    }
}

/// A chat of these messages.
pub(crate) fn chat(model: &str, messages: &str) -> ScoreRequest {
    let chat = ChatPrompt { messages_json: messages.into(), ..ChatPrompt::default() };
    ScoreRequest {
        model: model.into(),
        prompt: Some(score_request::Prompt::Chat(chat)),
        path: "/v1/chat/completions".into(),
        body_bytes: 1000,
        ..ScoreRequest::default()
    }
}

pub(crate) fn first_byte(decision_id: u64, endpoint: &str) -> Event {
    let what = event::What::FirstByte(FirstByte { endpoint: endpoint.into(), http_status: 200 });
    Event { decision_id, elapsed_us: 120_000, what: Some(what) }
}

pub(crate) fn alive(decision_id: u64) -> Event {
    Event { decision_id, elapsed_us: 200_000, what: Some(event::What::Alive(Alive {})) }
}

pub(crate) fn end(decision_id: u64, endpoint: &str, cached_tokens: Option<u32>) -> Event {
    let end = End {
        endpoint: endpoint.into(),
        http_status: 200,
        cause: EndCause::Complete.into(),
        cached_tokens,
        ..End::default()
    };
    Event { decision_id, elapsed_us: 500_000, what: Some(event::What::End(end)) }
}

/// The request was answered to its end, and the answer said this.
pub(crate) fn end_with(decision_id: u64, told: End) -> Event {
    let end = End { http_status: 200, cause: EndCause::Complete.into(), ..told };
    Event { decision_id, elapsed_us: 500_000, what: Some(event::What::End(end)) }
}

/// The endpoint answered with an error of its own.
pub(crate) fn failed(decision_id: u64, endpoint: &str) -> Event {
    let end = End {
        endpoint: endpoint.into(),
        http_status: 500,
        cause: EndCause::Complete.into(),
        ..End::default()
    };
    Event { decision_id, elapsed_us: 1_000, what: Some(event::What::End(end)) }
}

/// Sends reports; the number of unknown decisions.
pub(crate) async fn report(client: &mut ScorerClient<Channel>, events: Vec<Event>) -> u32 {
    client.report(ReportRequest { events }).await.unwrap().into_inner().unknown_decisions
}

/// Polls until `condition` holds.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
