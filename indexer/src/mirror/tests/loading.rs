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

/// An image is asked for its length before it is read, and what is too large keeps no other from being read.
#[tokio::test]
async fn an_image_without_room_is_not_read_and_keeps_no_other_from_it() {
    let server = RedisServer::start(&[]);
    let store = server.store(LONG);
    store.agree([1; 16]).await.unwrap();
    let golden = format::golden();
    store.save(&name(0), golden.clone().into()).await.unwrap();
    for rank in 1..8 {
        store.save(&name(rank), vec![7; 4 << 20].into()).await.unwrap();
    }
    let read = || -> u64 {
        let info = server.ask(&["info", "stats"]);
        let of = |line: &str| line.trim().strip_prefix("total_net_output_bytes:")?.parse().ok();
        info.iter().find_map(|line| of(line)).unwrap()
    };
    let (before, metrics) = (read(), MirrorMetrics::default());
    let room = Room::of(golden.len() + 1);
    let (loaded, error) = load::load_into(&room, &store, [1; 16], LONG, &metrics).await;
    assert_eq!(error, None);
    assert_eq!(loaded.saved, [format::saved()]);
    assert_eq!((count(&metrics, "refused"), count(&metrics, "unreadable")), (7, 0));
    let sent = read() - before;
    assert!(sent < 1 << 20, "{sent} bytes were sent");
}
