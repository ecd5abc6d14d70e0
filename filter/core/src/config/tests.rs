//! One mistake or many: all are named, each with its remedy.

use super::*;
use crate::limits::TICK_MS_MIN;

/// What every call is made again for: of `retry_policy`, 1.00013 and 16,000 ms, twice, for what, and where not; ten
/// choices.
const RETRY: &str = "2\u{74}\n\u{a}\n\u{4}\u{10}\u{85}=\u{12}\u{2}\u{8}\u{10}\u{12}\u{2}\u{8}\u{2}\u{1a}\u{5}reset\u{2a}\u{59}\n\u{e}previous_hosts\u{12}\u{47}\n\u{45}/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate0d";

fn problems(json: &str) -> Vec<String> {
    match Config::read(json.as_bytes()) {
        Err(ConfigError::Invalid(problems)) => problems.into_iter().map(|p| p.field).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_configured_is_the_documented_default() {
    let config = Config::read(b" \n").expect("default");
    assert_eq!(config, Config::read(b"{}").expect("default"));
    assert_eq!((config.timeout_us, config.max_body_bytes), (50_000, 16 << 20));
    assert_eq!((config.report_interval_us, config.tick_ms, config.load_factor), (50_000, 25, 1.25));
    assert!(!config.response_header && config.policy.is_empty() && config.group_header.is_empty());
}

#[test]
fn the_documented_example_is_read() {
    let readme = include_str!("../../../README.md");
    let example =
        readme.split("```json").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let config = Config::read(example.as_bytes()).expect("valid");
    assert_eq!(config.upstream, format!("\n\u{12}\n\u{7}indexer\u{12}\u{7}indexer{RETRY}"));
}

#[test]
fn every_wrong_value_is_named_at_once() {
    let json = r#"{"indexer":{"cluster":"","authority":"outbound|1||x","timeout_ms":0},"max_body_bytes":3,
        "policy":"fastest","group_header":"x session","report_interval_ms":1,"fallback":{"load_factor":0.5}}"#;
    let expected = [
        "indexer.cluster",
        "indexer.authority",
        "indexer.timeout_ms",
        "max_body_bytes",
        "report_interval_ms",
        "policy",
        "group_header",
        "fallback.load_factor",
    ];
    assert_eq!(problems(json), expected);
    let error = Config::read(json.as_bytes()).expect_err("invalid").to_string();
    assert!(error.contains("policy is \"fastest\": give one of round_robin, "), "{error}");
    assert!(error.contains("indexer.timeout_ms is 0: give 1 to 10000"), "{error}");
}

#[test]
fn unknown_members_and_wrong_types_are_named_with_all_the_rest() {
    let json = r#"{"indexer":{"clutser":"x","timeout_ms":"50","authority":""},"fallback":[],"max_body_byte":1,
        "response_header":"yes","policy":"fastest","report_interval_ms":1.5}"#;
    let mut fields = problems(json);
    fields.sort();
    let expected = [
        "fallback",
        "indexer.authority",
        "indexer.clutser",
        "indexer.timeout_ms",
        "max_body_byte",
        "policy",
        "report_interval_ms",
        "response_header",
    ];
    assert_eq!(fields, expected);
    let error = Config::read(json.as_bytes()).expect_err("invalid").to_string();
    assert!(
        error.contains("indexer.clutser is \"x\": no such member; there are cluster, authority"),
        "{error}"
    );
    assert_eq!(problems("[]"), ["the configuration"]);
    assert!(matches!(Config::read(b"{"), Err(ConfigError::NotJson(_))));
}

#[test]
fn names_are_accepted_as_far_as_they_can_be_encoded() {
    let with = |cluster: usize| {
        let cluster = "c".repeat(cluster);
        format!(r#"{{"indexer":{{"cluster":"{cluster}","authority":"indexer"}}}}"#)
    };
    let config = Config::read(with(116).as_bytes()).expect("fits");
    assert_eq!(config.upstream.as_bytes().get(..2), Some([0x0a, 127].as_slice()));
    assert_eq!(config.upstream.len(), 129 + RETRY.len());
    assert_eq!(problems(&with(117)), ["indexer.cluster"]);
    // Names that a proxy would take for an encoded message are encoded too.
    let config = Config::read(br#"{"indexer":{"cluster":"indexer-a"}}"#).expect("valid");
    assert_eq!(config.upstream, format!("\n\u{14}\n\u{9}indexer-a\u{12}\u{7}indexer{RETRY}"));
}

#[test]
fn ticks_are_fine_enough_for_the_deadline() {
    let tick = |json: &str| Config::read(json.as_bytes()).expect("valid").tick_ms;
    assert_eq!(tick(r#"{"indexer":{"timeout_ms":1}}"#), TICK_MS_MIN);
    assert_eq!(tick(r#"{"indexer":{"timeout_ms":10000},"report_interval_ms":500}"#), 500);
}
