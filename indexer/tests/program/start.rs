//! What a program says and does before it is ready.

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use warmpath_indexer::app::App;
use warmpath_indexer::config::Config;
use warmpath_proto::v1::Outcome;

use crate::engine::{BLOCK, Engine};
use crate::support::{admin, client, eventually, tokens};

const ENDPOINT: &str = "10.0.0.1:8000";

/// A Redis that takes connections and says nothing, until it is dropped.
struct SilentRedis {
    listener: TcpListener,
    connections: Vec<TcpStream>,
}

impl SilentRedis {
    async fn connected(&mut self) {
        self.connections.push(self.listener.accept().await.expect("the program connects").0);
    }
}

/// Both ports answer from the first moment, what is waited for has a name, and requests are ranked by load.
#[tokio::test]
async fn a_mirror_that_does_not_answer_keeps_no_port_closed() {
    let mut engine = Engine::start();
    let mut redis =
        SilentRedis { listener: TcpListener::bind("127.0.0.1:0").await.unwrap(), connections: Vec::new() };
    let yaml = format!(
        "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\n\
         models: [{{ name: tiny }}]\n\
         scrape: {{ interval_ms: 60000, failures_to_avoid: 1000 }}\n\
         lifecycle: {{ warmup_ms: 600000 }}\n\
         peers: [\"127.0.0.1:1\"]\n\
         mirror: {{ redis: \"{}\", timeout_ms: 600000 }}\n\
         endpoints: {{ static: [{{ address: \"{ENDPOINT}\", events: \"{}\" }}] }}\n",
        redis.listener.local_addr().unwrap(),
        engine.events,
    );
    let app = App::build(Config::parse(&yaml).unwrap(), None).await.expect("it starts");
    let bound = app.bound();
    let (end, ended) = oneshot::channel::<()>();
    let run = tokio::spawn(app.run_until(async {
        let _dropped = ended.await;
    }));
    redis.connected().await;

    let ready = async || {
        let (status, text) = admin(bound, hyper::Method::GET, "/readyz").await;
        (status, serde_json::from_str::<Value>(&text).unwrap()["pending"].clone())
    };
    assert_eq!(ready().await, (503, json!(["fleet", "mirror", "images of peers"])));
    let mut scorer = client(bound).await;
    let answer = scorer.score(tokens(0..8 * BLOCK + 5)).await.unwrap().into_inner();
    assert_eq!((answer.outcome(), answer.reason.as_str()), (Outcome::LoadOnly, "no_events"));
    assert_eq!(answer.candidates[0].endpoint, ENDPOINT);
    assert_eq!(admin(bound, hyper::Method::GET, "/livez").await.0, 200);
    assert!(admin(bound, hyper::Method::GET, "/metrics").await.1.contains("warmpath_mirror_reachable"));

    drop(redis);
    eventually("ready", async || ready().await == (200, json!([]))).await;
    engine.store(0..8 * BLOCK);
    let mut scored = async || {
        let answer = scorer.score(tokens(0..8 * BLOCK + 5)).await.unwrap().into_inner();
        answer.outcome() == Outcome::Scored && answer.candidates[0].cached_tokens == 8 * BLOCK
    };
    eventually("the engine is followed", async || scored().await).await;
    end.send(()).unwrap();
    run.await.unwrap().expect("a clean end");
}

/// Names of endpoints that are not known yet are waited for, whatever else is there already.
#[tokio::test]
async fn an_indexer_whose_endpoints_have_no_addresses_yet_says_so() {
    let yaml = "listen: { grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }\n\
         models: [{ name: tiny }]\n\
         lifecycle: { warmup_ms: 600000 }\n\
         endpoints: { dns: [{ name: \"no..name\", port: 1, refresh_ms: 10 }] }\n";
    let app = App::build(Config::parse(yaml).unwrap(), None).await.expect("it starts");
    let bound = app.bound();
    let (end, ended) = oneshot::channel::<()>();
    let run = tokio::spawn(app.run_until(async {
        let _dropped = ended.await;
    }));
    let looked_up = async || {
        let (_, text) = admin(bound, hyper::Method::GET, "/metrics").await;
        let of =
            |line: &str| line.strip_prefix("warmpath_dns_lookups_total{result=\"failed\"} ")?.parse().ok();
        text.lines().find_map(of).is_some_and(|lookups: u32| lookups > 20)
    };
    eventually("it was looked for", async || looked_up().await).await;
    let (status, text) = admin(bound, hyper::Method::GET, "/readyz").await;
    let page: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &page["pending"]), (503, &json!(["fleet"])));
    end.send(()).unwrap();
    run.await.unwrap().expect("a clean end");
}
