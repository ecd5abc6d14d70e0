//! Starts, with all that may be in a store.

use super::*;

fn count(metrics: &MirrorMetrics, result: &'static str) -> u64 {
    metrics.restores.get_or_create(&metrics::ByResult { result }).get()
}

/// Else it could never save anything, until it is restarted.
#[tokio::test]
async fn who_cannot_load_the_images_takes_the_secret_all_the_same() {
    let server = RedisServer::start(&[]);
    let store = server.store(LONG);
    store.agree([1; 16]).await.unwrap();
    server.ask(&["set", "{warmpath}:streams", "no sorted set"]);
    let metrics = MirrorMetrics::default();
    let loaded = load(&store, [2; 16], LONG, &metrics).await;
    assert_eq!((loaded.secret, loaded.saved.len()), ([1; 16], 0));
    assert_eq!(metrics.errors.get_or_create(&metrics::ByReason { reason: "foreign" }).get(), 1);
}

#[tokio::test]
async fn loading_takes_what_it_can_read() {
    let server = RedisServer::start(&[]);
    let store = server.store(LONG);
    store.agree([1; 16]).await.unwrap();
    store.save(&name(0), format::golden().into()).await.unwrap();
    store.save(&name(1), Bytes::from_static(b"\xff\xff")).await.unwrap();
    let mut foreign = format::saved();
    foreign.secret_check ^= 1;
    store.save(&name(2), format::encoded(foreign).into()).await.unwrap();
    store.save(&name(3), format::newer().into()).await.unwrap();
    for rank in 4..6 {
        store.save(&name(rank), Bytes::from_static(b"image")).await.unwrap();
        let key = format!("{{warmpath}}:image:{}", name(rank));
        server.ask(&["del", &key]);
        server.ask(&["rpush", &key, "a", "list"]);
    }
    let metrics = MirrorMetrics::default();
    let loaded = load(&store, [2; 16], LONG, &metrics).await;
    assert_eq!(loaded.secret, [1; 16]);
    assert_eq!(loaded.saved, [format::saved()]);
    assert_eq!((count(&metrics, "unreadable"), count(&metrics, "foreign")), (4, 1));
}

#[tokio::test]
async fn loading_takes_no_longer_than_it_may() {
    let server = RedisServer::start(&[]);
    server.pause();
    let begun = Instant::now();
    let metrics = MirrorMetrics::default();
    let loaded = load(&server.store(LONG), [2; 16], Duration::from_millis(100), &metrics).await;
    assert_eq!((loaded.secret, loaded.saved.len()), ([2; 16], 0));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    server.go_on();
}
