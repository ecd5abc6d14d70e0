//! Schedules of random faults under load, some seconds each; `make chaos` plays hundreds of long ones.

use warmpath_tests::case::{fresh_dir, print_logs};
use warmpath_tests::chaos::run;
use warmpath_tests::chaos::schedule::Schedule;
use warmpath_tests::paths;

const LENGTH_MS: u64 = 8000;
/// Requests in a second.
const RATE: f64 = 20.0;

/// Chosen because together they kill, end and freeze indexers, kill an engine, and do something to Redis and to each kind
/// of way.
const SEEDS: [u64; 3] = [1, 2, 3];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_random_faults_no_request_fails_by_us_and_nothing_is_left() {
    for seed in SEEDS {
        let dir = fresh_dir(&paths::target().join(format!("e2e/chaos/seed-{seed}")));
        let report = run(Schedule::of(seed, LENGTH_MS), RATE, &dir).await;
        let is_clean = report.as_ref().is_ok_and(|report| report.is_clean());
        if !is_clean {
            print_logs(&dir);
        }
        let report = report.unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
        println!("{report}");
        assert!(report.is_clean(), "{report}");
        assert!(report.requests >= 100 && report.streams_compared() > 0, "{report}");
    }
}
