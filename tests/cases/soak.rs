//! Events over real sockets, with faults, for some seconds; `make soak-events` does it for as long as one likes.

use std::collections::BTreeSet;

use warmpath_tests::case::{fresh_dir, print_logs};
use warmpath_tests::paths;
use warmpath_tests::soak::{Plan, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_every_fault_the_index_becomes_exact_again() {
    let dir = fresh_dir(&paths::target().join("e2e/soak"));
    let plan = Plan { events: 200_000, seed: 7, requests_between: 40, has_slow_faults: false };
    let report = match run(&plan, &dir).await {
        Ok(report) => report,
        Err(error) => {
            print_logs(&dir);
            panic!("{error:#}");
        }
    };
    println!("{report}");
    assert!(report.events >= 200_000.0, "{report}");
    let met: BTreeSet<&str> = report.recoveries.iter().map(|recovery| recovery.fault.name()).collect();
    assert!(met.len() >= 6, "only {met:?}");
    assert_eq!(report.audited.len(), 8);
    assert!(
        report.audited.iter().all(|line| line.contains(" 0 missing, 0 phantom, 0 miscounted")),
        "{report}"
    );
}
