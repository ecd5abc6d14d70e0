//! What a saver says of a Redis that does not do what it should.

use std::sync::Arc;

use parking_lot::RwLock;
use proxy::SlowWay;
use tokio_util::sync::CancellationToken;
use warmpath_kv::{Index, IndexLimits, KeyHasher};

use super::*;
use crate::clock::Clock;
use crate::ingest::{self, IngestConfig};
use crate::logs::Lines;

/// Rounds of saving follow each other so fast that a line for each would be a flood.
const INTERVAL: Duration = Duration::from_millis(10);

/// Row E29 of the bug log: a Redis that was slower than its time limit made millions of lines. Slow, then in time, then
/// slow again, then gone.
#[tokio::test]
async fn e29_the_log_gets_at_most_a_line_a_second() {
    let lines = Lines::default();
    let _logging = lines.begin();
    let mut server = RedisServer::start(&[]);
    let way = SlowWay::to(server.address(), 50).await;
    let settings = format!("mirror: {{ redis: \"{}\", timeout_ms: 30 }}", way.address);
    let access = crate::config::Config::parse(&settings).unwrap().redis_access().unwrap().unwrap();
    let index = Arc::new(RwLock::new(Index::new(KeyHasher::new([1; 16]), IndexLimits::default())));
    let ingest = ingest::start(IngestConfig::default(), index, Clock::start(), Vec::new()).unwrap();
    let (metrics, stop) = (MirrorMetrics::default(), CancellationToken::new());
    let store = RedisStore::new(access, "warmpath", LONG);
    let saver = Saver::new(store, Arc::new(ingest), [1; 16], INTERVAL, metrics.clone());
    let saving = tokio::spawn(saver.run(stop.clone()));
    let failed =
        |metrics: &MirrorMetrics| metrics.saves.get_or_create(&metrics::ByResult { result: "failed" }).get();
    let begun = Instant::now();
    let until = async |what: &str, is_so: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < LONG, "not in time: {what}\n{}", lines.text());
            sleep(Duration::from_millis(5)).await;
        }
    };
    for _ in 0..2 {
        way.set_delay_ms(50);
        let before = failed(&metrics);
        until("it fails", &|| failed(&metrics) >= before + 20).await;
        way.set_delay_ms(0);
        until("it works", &|| metrics.reachable.get() == 1).await;
    }
    server.stop();
    let before = failed(&metrics);
    until("it fails again", &|| failed(&metrics) >= before + 20).await;
    let (seconds, text) = (begun.elapsed().as_secs(), lines.text());
    let told = text.lines().count() as u64;
    assert!((1..=seconds + 1).contains(&told), "{told} lines in {seconds} s:\n{text}");
    assert!(text.contains("raise mirror.timeout_ms"), "the first says what to do: {text}");
    stop.cancel();
    saving.await.unwrap();
}
