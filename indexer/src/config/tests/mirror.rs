use super::*;

pub(super) const SENTINELS: &str = r#"
mirror:
  { sentinels: ["s1:26379", "s2:26379"], master: main, sentinel_username: watcher, sentinel_password_file: /run/sentinel,
    password_file: /run/redis, tls: true }
"#;
pub(super) const CLUSTER: &str =
    r#"mirror: { cluster: ["n1:7000", "n2:7000"], username: me, password_file: /run/redis }"#;

fn mirror(text: &str) -> MirrorConfig {
    Config::parse(text).unwrap().mirror.unwrap()
}

/// With no mistake named twice.
fn message(text: &str) -> String {
    Config::parse(text).unwrap_err().to_string()
}

/// Row E28 of the bug log: what a URL says was dropped, or meant something else than the same in keys.
#[test]
fn e28_a_url_and_keys_give_the_same_settings() {
    for (url, keys) in [
        ("{ redis: \"redis://h:7/2\" }", "{ redis: \"h:7\", database: 2 }"),
        ("{ redis: \"redis://h\" }", "{ redis: \"h:6379\" }"),
        (
            "{ redis: \"rediss://me:s%20x@h:7\", timeout_ms: 50, tls_ca_file: /ca }",
            "{ redis: \"h:7\", tls: true, username: me, password: s x, timeout_ms: 50, tls_ca_file: /ca }",
        ),
        (
            "{ redis: \"rediss://me@[::1]:7/1\", password_file: /p }",
            "{ redis: \"[::1]:7\", tls: true, username: me, database: 1, password_file: /p }",
        ),
    ] {
        let (url, keys) = (format!("mirror: {url}"), format!("mirror: {keys}"));
        assert_eq!(mirror(&url), mirror(&keys));
        let printed = |text: &str| Config::parse(text).unwrap().to_yaml().unwrap();
        assert_eq!(printed(&url), printed(&keys), "and the effective configuration shows it");
    }
    let printed = Config::parse("mirror: { redis: \"rediss://me:p@h:7/2\", timeout_ms: 50 }")
        .unwrap()
        .to_yaml()
        .unwrap();
    for line in
        ["redis: h:7", "tls: true", "database: 2", "username: me", "password: (hidden)", "timeout_ms: 50"]
    {
        assert!(printed.contains(line), "{line} in {printed}");
    }
}

#[test]
fn no_password_is_shown_anywhere() {
    for text in [
        "mirror: { redis: \"redis://me:s3cret@h:7\" }",
        "mirror: { redis: \"h:7\", password: s3cret }",
        "mirror: { redis: \"redis://:s3cret@h:7?timeout=1\" }",
        "mirror: { redis: \"http://:s3cret@h:7\" }",
        "mirror: { redis: \"redis://me:s3cret@h:7\", password: s3cret, username: me, password_file: /p }",
        "mirror: { redis: \"h:7\", pasword: s3cret, password: [s3cret], redis_pass: s3cret }",
        "mirror: { cluster: [\"redis://:s3cret@h:7\"] }",
    ] {
        let shown = match Config::parse(text) {
            Ok(config) => format!("{}{config:?}", config.to_yaml().unwrap()),
            Err(error) => error.to_string(),
        };
        assert!(shown.contains("(hidden)") && !shown.contains("s3cret"), "{shown}");
    }
}

#[test]
fn sentinels_and_clusters_are_named_by_lists() {
    let (sentinels, cluster) = (Config::parse(SENTINELS).unwrap(), Config::parse(CLUSTER).unwrap());
    for config in [&sentinels, &cluster] {
        assert_eq!(Config::parse(&config.to_yaml().unwrap()).unwrap(), *config, "what is printed reads back");
    }
    let RedisServers::Sentinels { sentinels, master, .. } = sentinels.mirror.unwrap().servers else {
        panic!()
    };
    assert_eq!((sentinels.len(), master.as_str()), (2, "main"));
    let RedisServers::Cluster { cluster } = cluster.mirror.unwrap().servers else { panic!() };
    assert_eq!(cluster[1].to_string(), "n2:7000");
}

#[test]
fn every_mistake_is_named_with_what_to_write() {
    for (text, paths) in [
        ("{ prefix: blue }", &["mirror.redis"][..]),
        ("{ redis: \"h\" }", &["mirror.redis"]),
        ("{ redis: \"redis://h:1?db=2\" }", &["mirror.redis"]),
        ("{ redis: \"h:1\", cluster: [\"h:2\"] }", &["mirror.cluster"]),
        (
            "{ cluster: [], sentinels: 7, master: m }",
            &["mirror.cluster", "mirror.sentinels", "mirror.sentinels"],
        ),
        ("{ cluster: [\"h\"] }", &["mirror.cluster[0]"]),
        ("{ cluster: [\"h:1\"], database: 1 }", &["mirror.database"]),
        ("{ sentinels: [\"h:1\"] }", &["mirror.master"]),
        ("{ redis: \"h:1\", master: m }", &["mirror.master"]),
        ("{ redis: \"redis://h:1/2\", database: 2 }", &["mirror.database"]),
        ("{ redis: \"redis://u:p@h:1\", username: u, password: p }", &["mirror.username", "mirror.password"]),
        ("{ redis: \"redis://h:1\", tls: true }", &["mirror.tls"]),
        ("{ redis: \"h:1\", tls_ca_file: /ca }", &["mirror.tls_ca_file"]),
        ("{ redis: \"rediss://h:1\", tls_cert_file: /c }", &["mirror.tls_cert_file"]),
        (
            "{ redis: \"h:1\", username: u, prefix: \"{a}\", interval_ms: 900, expiry_ms: 1000 }",
            &["mirror.username", "mirror.expiry_ms", "mirror.prefix"],
        ),
    ] {
        assert_eq!(problems(&format!("mirror: {text}")), paths, "{text}");
    }
    let message = message("mirror: { redis: \"redis://u:p@h:1?ssl=1\" }");
    assert!(
        message.contains("mirror.redis: found \"redis://(hidden)@h:1?ssl=1\"; options in a URL are not read"),
        "{message}"
    );
}
