use warmpath_core::rank::{Blend, CostWeights, Policy, Sticky};

use super::*;

mod mirror;

const FULL: &str = r#"
listen: { grpc: "127.0.0.1:0", admin: "[::1]:9091" }
policy:
  { name: longest_prefix, lambda: 2, mu_tokens: 10.5, memory: 3, behind: 0.2, recent: 0.5, agree: 1.5, weights: { kv: 7 }, sticky: { gate_tokens: 9 }, zone: b,
    split: [{ name: cost, percent: 30 }, { name: sticky, percent: 20 }], split_by: request }
models:
  - { name: qwen3, aliases: [tiny, 7], adapters: [sql, support], tokenizer_dir: /models/qwen3, chat_template: null, engine_version: "0.32" }
  - name: other
    content_format: openai
    max_model_len: 40960
    trust_request_chat_template: true
    default_chat_template_kwargs: { enable_thinking: false }
    exclude_tools_when_tool_choice_none: true
    rendering: { converts_developer: false }
endpoints:
  static:
    - { address: "127.0.0.1:8100", events: "tcp://127.0.0.1:5557", replay: "tcp://h:5562", ranks: 2, rank_ports: engine, model: qwen3, capacity: 2.5, zone: a }
  dns:
    - { name: vllm-headless, port: 8000, events_port: 5557, rank_ports: shared, model: other, family: ipv6, refresh_ms: 1000, grace_ms: 0 }
outliers: { failures: 0 }
receipts: { keep: 10, log_percent: 0.5 }
scrape: { interval_ms: 250 }
leases: { reservation_ms: 1000, speculative_ms: 2000 }
peers: ["10.0.0.9:50051", "indexer-1.local:50061"]
mirror:
  { redis: "[::1]:6379", database: 2, username: warmpath, password_file: /run/secrets/redis, prefix: blue,
    tls: true, tls_ca_file: /etc/ca.pem, tls_cert_file: /etc/own.pem, tls_key_file: /etc/own.key,
    interval_ms: 5000, expiry_ms: 60000, timeout_ms: 250 }
log: { format: text, level: "info,warmpath_indexer=debug" }
"#;

/// The paths of all problems with this text.
fn problems(text: &str) -> Vec<String> {
    match Config::parse(text) {
        Err(ConfigError::Invalid { problems, .. }) => problems.iter().map(|p| p.path().to_owned()).collect(),
        Ok(_) => Vec::new(),
        other => panic!("expected problems, got {other:?}"),
    }
}

#[test]
fn a_full_configuration_is_taken_as_written() {
    let config = Config::parse(FULL).unwrap();
    assert_eq!(config.policy.policy(), Policy::LongestPrefix);
    let cost = CostWeights { lambda: 2.0, mu: 10.5, memory: 3.0, behind: 0.2, recent: 0.5, agree: 1.5 };
    assert_eq!(config.policy.named("cost"), Some(Policy::Cost(cost)));
    let blend = Blend { kv: 7.0, ..Blend::DEFAULT };
    assert_eq!(config.policy.named("weighted"), Some(Policy::Weighted { name: "weighted", blend }));
    assert_eq!(config.policy.named("weighted_3_1_1"), Policy::by_name("weighted_3_1_1"));
    let sticky = Sticky { gate_tokens: 9, ..Sticky::default() };
    assert_eq!(config.policy.named("sticky"), Some(Policy::Sticky(sticky)));
    let shares: Vec<_> = config.policy.split.iter().map(|share| (share.name, share.percent)).collect();
    assert_eq!((shares, config.policy.split_by), (vec![("cost", 30), ("sticky", 20)], SplitBy::Request));
    assert_eq!(config.models[0].aliases, ["tiny", "7"]);
    assert_eq!(config.models[0].adapters, ["sql", "support"]);
    assert_eq!(config.models[0].engine_version.as_deref(), Some("0.32"));
    let other = &config.models[1];
    assert_eq!((other.content_format, other.max_model_len), (ContentFormat::OpenAi, Some(40_960)));
    assert!(other.trust_request_chat_template && other.exclude_tools_when_tool_choice_none);
    assert_eq!(other.default_chat_template_kwargs["enable_thinking"], serde_json::json!(false));
    assert_eq!(other.rendering["converts_developer"], serde_json::json!(false));
    let endpoint = &config.endpoints.fixed[0];
    let replay = endpoint.replay.as_ref().and_then(|replay| replay.of_rank(1));
    assert_eq!(replay.map(|replay| replay.to_string()).as_deref(), Some("tcp://h:5563"));
    assert_eq!((endpoint.capacity, endpoint.zone.as_deref()), (2.5, Some("a")));
    assert_eq!(config.outliers, Outliers { failures: 0, eject_ms: defaults::EJECT_MS });
    assert_eq!(config.receipts, Receipts { keep: 10, log_percent: 0.5 });
    assert_eq!(config.endpoints.dns[0].replay_port, None);
    let rank_ports = (endpoint.rank_ports, config.endpoints.dns[0].rank_ports);
    assert_eq!(rank_ports, (RankPorts::Engine, RankPorts::Shared));
    assert_eq!(config.scrape.timeout_ms, defaults::SCRAPE_TIMEOUT_MS);
    let mirror = config.mirror.as_ref().unwrap();
    assert_eq!(mirror.servers, RedisServers::One { redis: "[::1]:6379".parse().unwrap() });
    assert_eq!((mirror.database, mirror.tls, &mirror.password), (2, true, &None));
    assert_eq!((mirror.prefix.as_str(), mirror.interval_ms, mirror.timeout_ms), ("blue", 5000, 250));
    assert_eq!(config.log.format, LogFormat::Text);
    assert_eq!(Config::parse(&config.to_yaml().unwrap()).unwrap(), config, "what is printed reads back");
}

#[test]
fn an_empty_file_is_the_defaults() {
    let config = Config::parse("").unwrap();
    assert_eq!(config.listen.grpc.to_string(), defaults::GRPC);
    assert_eq!(config.policy.policy(), Policy::by_name("cost").unwrap());
    assert_eq!(config.leases.reservation_ms, defaults::RESERVATION_MS);
    assert_eq!(config.mirror, None);
    let mirror = Config::parse("mirror: { redis: \"r:1\" }").unwrap().mirror.unwrap();
    assert_eq!(
        (mirror.prefix.as_str(), mirror.expiry_ms),
        (defaults::MIRROR_PREFIX, defaults::MIRROR_EXPIRY_MS)
    );
}

#[test]
fn every_mistake_is_found_at_once() {
    let text = r#"
listen: { grpc: nowhere }
policy:
  { name: fast, lambda: -1, mu_tokens: .nan, weights: { kv: x }, sticky: { share: 2 },
    split: [{ percent: 60 }, { name: cost, percent: 50 }, { name: cost, percent: 0 }], split_by: user }
models:
  - { aliases: [""] }
  - { name: a }
  - { name: a, tokenizer: x }
  - { name: d, adapters: [a] }
  - { name: c, content_format: xml, max_model_len: 0, trust_request_chat_template: 1, default_chat_template_kwargs: [] }
endpoints:
  static:
    - { address: "host:1", model: b }
    - { address: "127.0.0.1:1", events: "udp://x:1", ranks: 0, model: a, capacity: 0 }
    - { address: "127.0.0.1:1", replay: "tcp://x:1", model: a }
  dns: [{ port: 0, events_port: 65535, ranks: 2, model: a }]
scrape: 5
leases: { reservation_ms: 1 }
peers: [7]
log: { format: xml, level: "a=b=c" }
nonsense: true
"#;
    let expected = [
        "models[0].name",
        "models[0].aliases[0]",
        "models[2].name",
        "models[2].tokenizer",
        "models[3].name",
        "models[4].content_format",
        "models[4].max_model_len",
        "models[4].trust_request_chat_template",
        "models[4].default_chat_template_kwargs",
        "listen.grpc",
        "policy.name",
        "policy.lambda",
        "policy.mu_tokens",
        "policy.weights.kv",
        "policy.sticky.share",
        "policy.split[0].name",
        "policy.split[2].percent",
        "policy.split",
        "policy.split_by",
        "endpoints.static[0].address",
        "endpoints.static[0].model",
        "endpoints.static[1].ranks",
        "endpoints.static[1].events",
        "endpoints.static[1].capacity",
        "endpoints.static[2].replay",
        "endpoints.static[2].address",
        "endpoints.dns[0].name",
        "endpoints.dns[0].port",
        "endpoints.dns[0].events_port",
        "scrape",
        "leases.reservation_ms",
        "peers[0]",
        "log.format",
        "log.level",
        "nonsense",
    ];
    assert_eq!(problems(text), expected);
}

#[test]
fn a_message_names_key_value_and_remedy() {
    let error = Config::parse("policy: { name: fast }").unwrap_err().to_string();
    let line = "policy.name: found \"fast\"; expected one of round_robin, power_of_two, least_load, ";
    assert!(error.starts_with("1 mistake in the configuration:") && error.contains(line), "{error}");
}

#[test]
fn ports_of_ranks_have_to_exist_and_listeners_to_differ() {
    let endpoint = "models: [{ name: a }]\nendpoints: { static: [{ address: \"1.2.3.4:5\", events: \"tcp://x:65535\", ranks: 2 }] }";
    assert_eq!(problems(endpoint), ["endpoints.static[0].events"]);
    assert_eq!(problems(&endpoint.replace("ranks: 2", "ranks: 2, rank_ports: shared")), [""; 0]);
    assert_eq!(
        problems(&endpoint.replace("ranks: 2", "rank_ports: own")),
        ["endpoints.static[0].rank_ports"]
    );
    assert_eq!(problems("listen: { grpc: \"127.0.0.1:1\", admin: \"127.0.0.1:1\" }"), ["listen.admin"]);
}

/// Numbers that would make every cost infinite, or none at all, and addresses that name nobody, or somebody twice.
#[test]
fn values_that_make_no_sense_are_refused() {
    for (text, path) in [
        ("policy: { lambda: 1e300 }", "policy.lambda"),
        ("policy: { mu_tokens: .inf }", "policy.mu_tokens"),
        ("policy: { behind: .nan }", "policy.behind"),
        ("policy: { other_zone_tokens: 1e10 }", "policy.other_zone_tokens"),
        ("policy: { weights: { prefix: 1e18 } }", "policy.weights.prefix"),
        ("policy: { slower_media: 1.01 }", "policy.slower_media"),
        (
            "models: [{ name: m }]\nendpoints: { dns: [{ name: n, port: 1, family: 4 }] }",
            "endpoints.dns[0].family",
        ),
        (
            "models: [{ name: m }]\nendpoints: { dns: [{ name: n, port: 1, replay_port: 2 }] }",
            "endpoints.dns[0].replay_port",
        ),
        (
            "models: [{ name: m }]\nendpoints: { static: [{ address: \"1.2.3.4:5\", events: \"x:1\", replay: \"tcp://x:2\" }] }",
            "endpoints.static[0].events",
        ),
        ("receipts: { log_percent: .nan }", "receipts.log_percent"),
        ("peers: [\"h:1\", \"g:1\", \"h:1\"]", "peers[2]"),
        ("models: [{ name: m, engine_version: 0.30 }]", "models[0].engine_version"),
        ("models: [{ name: m, engine_version: \"v32\" }]", "models[0].engine_version"),
        ("models: [{ name: m, aliases: [1e3] }]", "models[0].aliases[0]"),
        ("models: [{ name: m, rendering: { nonsense: true } }]", "models[0].rendering.nonsense"),
        (
            "models: [{ name: m }]\nendpoints: { dns: [{ name: \"n:8000\", port: 1 }] }",
            "endpoints.dns[0].name",
        ),
        ("log: { level: verbose }", "log.level"),
        ("log: { level: \"info,peers\" }", "log.level"),
        ("peers: [\"*:1\"]", "peers[0]"),
        ("peers: [\"[]:1\"]", "peers[0]"),
        ("peers: [\"[a b]:1\"]", "peers[0]"),
        ("peers: [\"::1:1\"]", "peers[0]"),
        ("scrape: { interval_ms: 18446744073709551615 }", "scrape.interval_ms"),
    ] {
        assert_eq!(problems(text), [path], "{text}");
    }
    assert_eq!(problems("policy: { lambda: 1e9, mu_tokens: 0 }\npeers: [\"[::1]:1\"]"), [""; 0]);
}

/// Events of one engine that are taken for those of two promise each of them the other's cache.
#[test]
fn sockets_of_events_belong_to_one_rank_each() {
    let endpoints = |first: &str, second: &str| {
        let of = |port: u16, more: &str| format!("{{ address: \"10.0.0.1:{port}\", {more} }}");
        format!("models: [{{ name: m }}]\nendpoints: {{ static: [{}, {}] }}", of(1, first), of(2, second))
    };
    let first = "events: \"tcp://h:5557\", replay: \"tcp://h:5657\"";
    for (second, path) in [
        (first, "endpoints.static[1].events"),
        ("events: \"tcp://h:5657\"", "endpoints.static[1].events"),
        ("events: \"tcp://h:5555\", ranks: 3", "endpoints.static[1].events"),
        ("events: \"tcp://i:5557\", replay: \"tcp://i:5557\"", "endpoints.static[1].replay"),
        ("events: \"tcp://i:5557\", replay: \"tcp://i:5558\", ranks: 2", "endpoints.static[1].replay"),
        ("events: \"tcp://*:5557\"", "endpoints.static[1].events"),
    ] {
        let found = problems(&endpoints(first, second));
        assert_eq!(found.first().map(String::as_str), Some(path), "{second}: {found:?}");
    }
    for second in [
        "events: \"tcp://i:5557\", replay: \"tcp://i:5657\"",
        "events: \"tcp://h:5558\", replay: \"tcp://h:5658\"",
        "events: \"tcp://i:5557\", replay: \"tcp://i:5558\", ranks: 2, rank_ports: shared",
    ] {
        assert_eq!(problems(&endpoints(first, second)), [""; 0], "{second}");
    }
}

#[test]
fn an_endpoint_without_any_model_says_where_models_are_written() {
    for more in ["", ", model: m"] {
        let text = format!("endpoints: {{ static: [{{ address: \"1.2.3.4:5\"{more} }}] }}");
        let error = Config::parse(&text).unwrap_err().to_string();
        assert!(error.contains("endpoints.static[0].model: ") && error.contains(" in `models`"), "{error}");
    }
}

/// Editors on some systems put one there.
#[test]
fn a_mark_of_the_byte_order_is_no_part_of_the_file() {
    assert_eq!(Config::parse("\u{feff}listen: {}").unwrap(), Config::parse("").unwrap());
}

#[test]
fn what_is_no_yaml_is_refused_with_its_file_and_place() {
    let text = "listen:\n  grpc: \"127.0.0.1:1\"\n  admin: [7\n";
    let place = |error: &ConfigError| match error {
        ConfigError::Syntax { place, .. } => place.clone(),
        other => panic!("{other}"),
    };
    let error = Config::parse(text).unwrap_err();
    let at = place(&error).at;
    assert_eq!(at.map(|(line, _)| line), Some(4), "{error}");
    let file = std::env::temp_dir().join(format!("warmpath-no-yaml-{}.yaml", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let error = Config::load(&file).unwrap_err();
    std::fs::write(&file, "listen: { grpc: 7 }").unwrap();
    let invalid = Config::load(&file).unwrap_err().to_string();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(place(&error), Place { file: Some(file.clone()), at });
    let (line, column) = at.unwrap();
    let begins = format!("{}:{line}:{column}: not YAML: ", file.display());
    assert!(error.to_string().starts_with(&begins), "{error}");
    assert!(invalid.starts_with(&format!("1 mistake in {}:\n  listen.grpc: ", file.display())), "{invalid}");
}

/// Every key is in the README with its default.
#[test]
fn the_readme_lists_every_key() {
    let readme = include_str!("../../README.md");
    let mut keys = Vec::new();
    for text in [FULL, mirror::SENTINELS, mirror::CLUSTER] {
        let config = Config::parse(text).unwrap();
        let printed: serde_yaml_ng::Value = serde_yaml_ng::from_str(&config.to_yaml().unwrap()).unwrap();
        let printed = if text == FULL { printed } else { printed["mirror"].clone() };
        collect(&printed, if text == FULL { "" } else { "mirror" }, &mut keys);
    }
    assert!(keys.len() > 40, "{keys:?}");
    for key in keys {
        assert!(readme.contains(&format!("| `{key}` |")), "README.md has no row for `{key}`");
    }
}

/// The paths of all leaves, with `[]` for the items of a list.
fn collect(value: &serde_yaml_ng::Value, path: &str, keys: &mut Vec<String>) {
    match value {
        serde_yaml_ng::Value::Mapping(entries) => {
            for (key, value) in entries {
                let key = key.as_str().unwrap();
                let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
                collect(value, &path, keys);
            }
        }
        serde_yaml_ng::Value::Sequence(items) if items.iter().any(serde_yaml_ng::Value::is_mapping) => {
            items.iter().for_each(|item| collect(item, &format!("{path}[]"), keys));
        }
        _ if path.contains("_kwargs.") || path.contains("rendering.") => {}
        _ if keys.iter().any(|known| known == path) => {}
        _ => keys.push(path.to_owned()),
    }
}
