//! The admin listener.

use std::collections::BTreeSet;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use warmpath_indexer::admin::listener::CONNECTIONS_MAX;

use crate::support::{Indexer, config, tokens};

#[tokio::test]
async fn pages_answer_and_metrics_have_the_prefix() {
    let indexer = Indexer::start(&config(&["10.0.0.1:8000"])).await;
    assert_eq!(indexer.get("/livez").await, (200, "ok\n".to_owned()));
    let (status, ready) = indexer.get("/readyz").await;
    assert_eq!((status, ready.as_str()), (200, r#"{"ready":true,"pending":[],"degraded":[]}"#));
    let (status, metrics) = indexer.get("/metrics").await;
    assert_eq!(status, 200);
    let samples = metrics.lines().filter(|line| !line.starts_with('#'));
    assert!(
        samples.clone().count() > 5 && samples.clone().all(|line| line.starts_with("warmpath_")),
        "{metrics}"
    );
    assert!(metrics.ends_with("# EOF\n"));
    let state = indexer.state().await;
    assert_eq!(state["endpoints"][0]["endpoint"], "10.0.0.1:8000");
    assert_eq!(state["endpoints"][0]["model"], "tiny");
    for (page, status, word) in [
        ("/", 200, "GET  /metrics"),
        ("/nothing", 404, "/nothing is no page here; there are\nGET  /metrics"),
        ("/drain", 405, "/drain does not take GET; there are\nGET  /metrics"),
        (
            "/receipts?limit=x",
            400,
            "the query of /receipts cannot be read: limit: invalid digit found in string; there",
        ),
        (
            "/receipts?endpont=a",
            400,
            "the query of /receipts cannot be read: endpont: unknown field `endpont`, expected",
        ),
        (
            "/blocks?rank=1",
            400,
            "the query of /blocks cannot be read: missing field `endpoint`; there are\nGET",
        ),
    ] {
        let answer = indexer.get(page).await;
        assert!(answer.0 == status && answer.1.starts_with(word), "{page}: {answer:?}");
    }
    indexer.stop().await;
}

/// Half a request on each of many connections keeps nobody else from being answered, and no descriptors.
#[tokio::test]
async fn connections_without_end_keep_no_page_from_being_read() {
    let indexer = Indexer::start(&config(&["10.0.0.1:8000"])).await;
    let mut halves = Vec::new();
    for _ in 0..CONNECTIONS_MAX + 40 {
        let mut half = TcpStream::connect(indexer.bound.admin).await.unwrap();
        half.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nx-never:").await.unwrap();
        halves.push(half);
    }
    assert_eq!(indexer.get("/livez").await.0, 200);
    for (number, half) in halves.iter_mut().take(40).enumerate() {
        let read = half.read(&mut [0; 1]).await;
        assert!(matches!(read, Ok(0) | Err(_)), "connection {number} is closed for a newer one: {read:?}");
    }
    drop(halves);
    indexer.stop().await;
}

/// Every family that the program shows has a row in the README, and every row is of a family that exists.
#[tokio::test]
async fn the_readme_lists_every_metric() {
    let sources = concat!(
        include_str!("../../src/admin/collector.rs"),
        include_str!("../../src/decide/memo_metrics.rs"),
        include_str!("../../src/decide/metrics.rs"),
        include_str!("../../src/drift/metrics.rs"),
        include_str!("../../src/engines/metrics.rs"),
        include_str!("../../src/fleet/metrics.rs"),
        include_str!("../../src/ingest/metrics.rs"),
        include_str!("../../src/logs.rs"),
        include_str!("../../src/mirror/metrics.rs"),
        include_str!("../../src/models/metrics.rs"),
        include_str!("../../src/peers/metrics.rs"),
        include_str!("../../src/sources.rs"),
        include_str!("../../src/volatile.rs"),
    );
    let readme = include_str!("../../README.md");
    let documented: BTreeSet<&str> =
        readme.lines().filter_map(|line| line.strip_prefix("| `warmpath_")?.split('`').next()).collect();
    assert!(documented.len() > 40);
    for name in &documented {
        let registered = [*name, name.trim_end_matches("_seconds")];
        assert!(
            registered.iter().any(|name| sources.contains(&format!("\"{name}\""))),
            "README.md describes warmpath_{name}, which does not exist"
        );
    }
    let indexer = Indexer::start(&config(&["10.0.0.1:8000"])).await;
    indexer.client().await.score(tokens(0..100)).await.unwrap();
    let (_, metrics) = indexer.get("/metrics").await;
    let shown = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE warmpath_")?.split(' ').next());
    let missing: Vec<&str> = shown.filter(|name| !documented.contains(name)).collect();
    assert!(missing.is_empty(), "README.md has no row for {missing:?}");
    indexer.stop().await;
}
