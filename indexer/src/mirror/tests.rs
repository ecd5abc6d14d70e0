use std::time::{Duration, Instant};

use bytes::Bytes;
use redis_server::RedisServer;
use tokio::time::sleep;

use super::*;

mod format;
mod redis_server;

const LONG: Duration = Duration::from_secs(60);

fn name(rank: u32) -> StreamName {
    StreamName { endpoint: "10.0.0.1:8000".to_owned(), rank }
}

/// What any store does, seen by two indexers. `brief`: the same store, whose images expire after 100 ms.
async fn behaves(first: impl Store, second: impl Store, brief: impl Store) {
    let (new, kept) = (Agreed { secret: [1; 16], is_new: true }, Agreed { secret: [1; 16], is_new: false });
    assert_eq!(first.agree([1; 16]).await.unwrap(), new);
    assert_eq!(second.agree([2; 16]).await.unwrap(), kept, "who comes first decides");
    assert_eq!(first.agree([1; 16]).await.unwrap(), kept, "and it stays so");

    assert!(second.images().await.unwrap().is_empty());
    first.save(&name(0), Bytes::from_static(b"old")).await.unwrap();
    first.save(&name(1), Bytes::from_static(b"\x00\xff")).await.unwrap();
    second.save(&name(0), Bytes::from_static(b"new")).await.unwrap();
    let mut images = first.images().await.unwrap();
    images.sort();
    assert_eq!(images, [&b"\x00\xff"[..], b"new"]);

    let turn = Duration::from_millis(200);
    assert!(first.take_turn(&name(0), turn).await.unwrap());
    assert!(!second.take_turn(&name(0), turn).await.unwrap(), "one saves");
    assert!(second.take_turn(&name(1), turn).await.unwrap(), "each stream has its own turn");
    sleep(turn * 2).await;
    assert!(second.take_turn(&name(0), turn).await.unwrap(), "and the next may be another's");

    for rank in 2..12 {
        brief.save(&name(rank), Bytes::from_static(b"brief")).await.unwrap();
    }
    assert_eq!(first.images().await.unwrap().len(), 12);
    sleep(Duration::from_millis(200)).await;
    assert_eq!(first.images().await.unwrap().len(), 2, "what has expired is gone");
    assert_eq!(first.images().await.unwrap().len(), 2);
}

#[tokio::test]
async fn memory_behaves_as_a_store() {
    let store = MemoryStore::new(LONG);
    let brief = store.with_expiry(Duration::from_millis(100));
    behaves(store.clone(), store, brief).await;
}

#[tokio::test]
async fn redis_behaves_as_a_store() {
    let server = RedisServer::start(&[]);
    behaves(server.store(LONG), server.store(LONG), server.store(Duration::from_millis(100))).await;
}

/// A fleet that shares a Redis with another one has a prefix of its own.
#[tokio::test]
async fn prefixes_are_kept_apart() {
    let server = RedisServer::start(&[]);
    let (one, other) = (server.store(LONG), server.store_with(LONG, "other", None));
    one.agree([1; 16]).await.unwrap();
    one.save(&name(0), Bytes::from_static(b"image")).await.unwrap();
    assert!(other.images().await.unwrap().is_empty());
    assert_eq!(other.agree([2; 16]).await.unwrap().secret, [2; 16]);
}

#[tokio::test]
async fn a_password_is_used() {
    let server = RedisServer::start(&["--requirepass", "s3cret"]);
    let with = server.store_with(LONG, "warmpath", Some("s3cret"));
    assert_eq!(with.agree([1; 16]).await.unwrap().secret, [1; 16]);
    let error = server.store(LONG).agree([1; 16]).await.unwrap_err();
    assert!(error.to_string().contains("NOAUTH"), "{error}");
}

/// Every call ends, whatever Redis does, and the next one works when Redis does.
#[tokio::test]
async fn a_redis_that_is_gone_or_hangs_or_was_wiped_costs_bounded_time() {
    let mut server = RedisServer::start(&[]);
    let store = server.store(LONG);
    assert_eq!(store.agree([1; 16]).await.unwrap().secret, [1; 16]);

    server.pause();
    let begun = Instant::now();
    store.images().await.unwrap_err();
    store.take_turn(&name(0), LONG).await.unwrap_err();
    assert!(begun.elapsed() < 6 * RedisServer::TIMEOUT, "{:?}", begun.elapsed());
    server.go_on();
    recovers(&store, [1; 16]).await;

    server.restart();
    recovers(&store, [7; 16]).await;
    server.stop();
    let begun = Instant::now();
    store.save(&name(0), Bytes::from_static(b"image")).await.unwrap_err();
    assert!(begun.elapsed() < 6 * RedisServer::TIMEOUT, "{:?}", begun.elapsed());
}

async fn recovers(store: &RedisStore, secret: Secret) {
    let begun = Instant::now();
    loop {
        match store.agree([7; 16]).await {
            Ok(agreed) => return assert_eq!(agreed.secret, secret),
            Err(error) => assert!(begun.elapsed() < LONG, "{error}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn what_is_no_secret_is_not_taken_for_one() {
    let server = RedisServer::start(&[]);
    server.command(&["SET", "{warmpath}:secret", "short"]);
    assert!(matches!(server.store(LONG).agree([1; 16]).await, Err(StoreError::Foreign("secret"))));
}

/// Else it could never save anything, until it is restarted.
#[tokio::test]
async fn who_cannot_load_the_images_takes_the_secret_all_the_same() {
    let server = RedisServer::start(&[]);
    let store = server.store(LONG);
    store.agree([1; 16]).await.unwrap();
    server.command(&["SET", "{warmpath}:streams", "no sorted set"]);
    let loaded = load(&store, [2; 16], LONG, &MirrorMetrics::default()).await;
    assert_eq!((loaded.secret, loaded.saved.len()), ([1; 16], 0));
}

#[tokio::test]
async fn loading_takes_what_it_can_read_and_never_longer_than_allowed() {
    let store = MemoryStore::new(LONG);
    store.agree([1; 16]).await.unwrap();
    store.save(&name(0), format::golden().into()).await.unwrap();
    store.save(&name(1), Bytes::from_static(b"\xff\xff")).await.unwrap();
    let mut foreign = format::saved();
    foreign.secret_check ^= 1;
    store.save(&name(2), format::encoded(foreign).into()).await.unwrap();
    let metrics = MirrorMetrics::default();
    let loaded = load(&store, [2; 16], LONG, &metrics).await;
    assert_eq!(loaded.secret, [1; 16]);
    assert_eq!(loaded.saved, [format::saved()]);
    let count = |result| metrics.restores.get_or_create(&metrics::ByResult { result }).get();
    assert_eq!((count("unreadable"), count("foreign")), (1, 1));

    let mut server = RedisServer::start(&[]);
    server.pause();
    let begun = Instant::now();
    let loaded = load(&server.store(LONG), [2; 16], Duration::from_millis(100), &metrics).await;
    assert_eq!((loaded.secret, loaded.saved.len()), ([2; 16], 0));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}
