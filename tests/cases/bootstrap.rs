//! The bootstrap that is shipped: Envoy takes it, and refuses what the filter refuses.

use serde_json::json;
use warmpath_tests::case::fresh_dir;
use warmpath_tests::envoy::Bootstrap;
use warmpath_tests::paths;

#[test]
fn envoy_takes_the_bootstrap_as_it_is_shipped() {
    paths::filter_wasm().unwrap();
    let dir = fresh_dir(&paths::target().join("e2e/bootstrap/as_shipped"));
    let output = Bootstrap::shipped().unwrap().validate(&dir).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_wrong_filter_configuration_is_refused_with_every_reason() {
    paths::filter_wasm().unwrap();
    let dir = fresh_dir(&paths::target().join("e2e/bootstrap/wrong_filter"));
    let mut bootstrap = Bootstrap::shipped().unwrap();
    bootstrap
        .set_filter(&json!({ "indexer": { "cluster": "" }, "max_body_bytes": 1, "colour": "red" }))
        .unwrap();
    let output = bootstrap.validate(&dir).unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{log}");
    for field in ["cluster", "max_body_bytes", "colour"] {
        assert!(log.contains(field), "no word about `{field}`:\n{log}");
    }
}

#[test]
fn the_filter_lets_go_of_a_large_body_before_envoy_refuses_it() {
    let mut bootstrap = Bootstrap::shipped().unwrap();
    let filter = bootstrap.filter().unwrap();
    let hosts =
        "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0";
    let envoy = bootstrap.at(&format!("{hosts}/request_body_buffer_limit")).unwrap().as_u64().unwrap();
    let filter = filter["max_body_bytes"].as_u64().unwrap();
    assert!(filter < envoy, "max_body_bytes {filter} is not below request_body_buffer_limit {envoy}");
}
