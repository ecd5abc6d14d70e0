//! Event streams that are configured and say nothing.

use crate::engine::Engine;
use crate::support::{Indexer, eventually};

/// Three engines, of which one has no publisher.
#[tokio::test]
async fn a_source_that_is_missing_is_counted() {
    let mut engines = [Engine::start(), Engine::start()];
    let sources = [engines[0].events.clone(), engines[1].events.clone(), "tcp://127.0.0.1:1".to_owned()];
    let endpoints: Vec<String> = (1..)
        .zip(&sources)
        .map(|(host, events)| format!("    - {{ address: \"10.0.0.{host}:8000\", events: \"{events}\" }}\n"))
        .collect();
    let yaml = format!(
        "listen: {{ grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }}\n\
         models: [{{ name: tiny }}]\n\
         scrape: {{ interval_ms: 60000, failures_to_avoid: 1000 }}\n\
         lifecycle: {{ warmup_ms: 1 }}\n\
         endpoints:\n  static:\n{}",
        endpoints.concat()
    );
    let indexer = Indexer::start(&yaml).await;
    engines.iter_mut().for_each(|engine| engine.store(0..160));
    eventually("one is missing", async || indexer.metric("warmpath_kv_sources_missing").await == 1.0).await;
    let silent = "warmpath_kv_trust{endpoint=\"10.0.0.3:8000\",rank=\"0\",trust=\"silent\"}";
    assert_eq!(indexer.metric(silent).await, 1.0);
    indexer.stop().await;
}
