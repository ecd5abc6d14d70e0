//! Schedules of random faults under load, some seconds each; `make chaos` plays hundreds of long ones.

use std::collections::BTreeSet;

use warmpath_tests::case::{fresh_dir, print_logs};
use warmpath_tests::chaos::run;
use warmpath_tests::chaos::schedule::Schedule;
use warmpath_tests::paths;

const LENGTH_MS: u64 = 8000;
/// Requests in a second.
const RATE: f64 = 20.0;

/// What must befall somebody in one of the schedules.
const KINDS: [&str; 10] = [
    "indexer killed",
    "indexer ended",
    "indexer frozen",
    "indexer clock set",
    "indexer disk full",
    "engine killed",
    "redis clock set",
    "redis disk full",
    "envoy clock set",
    "indexer to engine cut",
];
/// Seeds to choose from.
const SEEDS: std::ops::Range<u64> = 1..400;

/// Few schedules in which all of it happens.
fn schedules() -> Vec<Schedule> {
    let kinds = |schedule: &Schedule| -> BTreeSet<String> {
        schedule.faults.iter().map(|timed| timed.fault.kind()).collect()
    };
    let mut missing = BTreeSet::from(KINDS.map(str::to_owned));
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let all = SEEDS.map(|seed| Schedule::of(seed, LENGTH_MS));
        let best = all.max_by_key(|schedule| kinds(schedule).intersection(&missing).count()).unwrap();
        let before = missing.len();
        missing = &missing - &kinds(&best);
        assert!(missing.len() < before, "none of the seeds has {missing:?}");
        chosen.push(best);
    }
    chosen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_random_faults_no_request_fails_by_us_and_nothing_is_left() {
    for schedule in schedules() {
        let seed = schedule.seed;
        let dir = fresh_dir(&paths::target().join(format!("e2e/chaos/seed-{seed}")));
        let report = run(schedule, RATE, &dir).await;
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
