//! Streams and index as a scrape shows them.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::bench::{Bench, STREAM, patient};
use crate::engine::{Engine, removed, stored};

#[test]
fn a_scrape_shows_streams_and_index() {
    let mut engine = Engine::start();
    engine.lose(&[stored(None, &[10, 11], &[1, 2, 3, 4])]);
    engine.lose(&[removed(&[11, 99])]);
    let bench = Bench::start(patient());
    bench.follow(STREAM, &engine);
    bench.until_live(&mut engine);

    let mut registry = Registry::with_prefix("warmpath");
    registry.register_collector(Box::new(bench.ingest.collector()));
    let mut text = String::new();
    encode(&mut text, &registry).expect("encoded");
    for line in [
        r#"warmpath_kv_batches_replayed_total{endpoint="127.0.0.1:8000",rank="0"} 2"#,
        r#"warmpath_kv_events_total{endpoint="127.0.0.1:8000",rank="0"} 2"#,
        r#"warmpath_kv_connected{endpoint="127.0.0.1:8000",rank="0"} 1.0"#,
        r#"warmpath_kv_stream_blocks{endpoint="127.0.0.1:8000",rank="0"} 1.0"#,
        r#"warmpath_kv_batches_waiting{endpoint="127.0.0.1:8000",rank="0"} 0.0"#,
        r#"warmpath_kv_trust{endpoint="127.0.0.1:8000",rank="0",trust="live"} 1"#,
        r#"warmpath_kv_trust{endpoint="127.0.0.1:8000",rank="0",trust="stale"} 0"#,
        r#"warmpath_index_admissions_total{cause="restored"} 2"#,
        r#"warmpath_index_removals_total{cause="engine_removed"} 1"#,
        r#"warmpath_index_skipped_total{reason="unknown_parent"} 0"#,
        "warmpath_index_blocks 1",
        "warmpath_index_unknown_removals_total 1",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}\nis not in\n{text}");
    }
}
