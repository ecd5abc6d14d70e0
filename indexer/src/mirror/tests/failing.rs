//! What Redis does when it does not do what it should, and that every call ends, names its reason, and works again when
//! Redis does.

use super::*;

/// No call takes longer: to connect takes two times the time of a command.
const CALL_MAX: Duration = Duration::from_millis(3 * TIMEOUT.as_millis() as u64 + 1000);

/// Row E27 of the bug log: a Redis that stops answering without closing its sockets held its callers for minutes.
#[tokio::test]
async fn e27_a_redis_that_hangs_or_is_gone_or_was_wiped_costs_bounded_time() {
    let mut server = RedisServer::start(&[]);
    let store = server.store(LONG);
    assert_eq!(store.agree([1; 16]).await.unwrap().secret, [1; 16]);

    server.pause();
    for _ in 0..3 {
        let begun = Instant::now();
        assert_eq!(store.names().await.unwrap_err().reason(), "late");
        assert!(begun.elapsed() < CALL_MAX, "{:?}", begun.elapsed());
    }
    server.go_on();
    assert_eq!(until_it_works(async || store.agree([7; 16]).await).await.secret, [1; 16]);

    server.restart();
    assert_eq!(until_it_works(async || store.agree([7; 16]).await).await.secret, [7; 16]);
    server.stop();
    let begun = Instant::now();
    let error = store.save(&name(0), Bytes::from_static(b"image")).await.unwrap_err();
    assert_eq!(error.reason(), "unreachable");
    assert!(begun.elapsed() < CALL_MAX, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn between_attempts_to_connect_there_is_a_pause() {
    let mut server = RedisServer::start(&[]);
    let store = server.store(LONG);
    server.stop();
    let mut waited = 0;
    for _ in 0..50 {
        let error = store.names().await.unwrap_err();
        assert_eq!(error.reason(), "unreachable", "what it failed of is still told");
        waited += usize::from(matches!(error, StoreError::Waiting { .. }));
    }
    assert!(waited > 40, "{waited}");
}

#[tokio::test]
async fn a_redis_that_is_full_or_a_replica_says_so_until_it_is_not() {
    let server = RedisServer::start(&["maxmemory 4mb", "maxmemory-policy noeviction"]);
    let store = server.store(LONG);
    let large = Bytes::from(vec![0; 8 << 20]);
    store.agree([1; 16]).await.unwrap();
    // It takes the one that makes it full, and no other.
    let _taken = store.save(&name(0), large.clone()).await;
    let error = store.save(&name(1), large.clone()).await.unwrap_err();
    assert_eq!(error.reason(), "full", "{error}");
    assert_eq!(
        store.agree([2; 16]).await.map(|agreed| agreed.secret).ok(),
        None,
        "not even the secret is set anew"
    );
    let loaded = load(&store, [2; 16], LONG, &MirrorMetrics::default()).await;
    assert_eq!(loaded.secret, [1; 16], "what it has can be read");
    server.ask(&["config", "set", "maxmemory", "0"]);
    store.save(&name(1), large).await.unwrap();

    server.ask(&["replicaof", "127.0.0.1", "1"]);
    let error = store.save(&name(0), Bytes::from_static(b"image")).await.unwrap_err();
    assert_eq!(error.reason(), "read_only", "{error}");
    server.ask(&["replicaof", "no", "one"]);
    until_it_works(async || store.save(&name(0), Bytes::from_static(b"image")).await).await;
    assert_eq!(store.agree([2; 16]).await.unwrap().secret, [1; 16]);
}

/// The clock of the server was set back after a turn was taken: it would last until that time comes again. To the one who asks, a
/// turn lasts no longer than the next one will.
#[tokio::test]
async fn a_turn_lasts_no_longer_than_who_asks_would_take_it_for() {
    let server = RedisServer::start(&[]);
    let (store, turn) = (server.store(LONG), Duration::from_millis(200));
    assert!(store.take_turn(&name(0), Duration::from_secs(86_400)).await.unwrap());
    assert!(!store.take_turn(&name(0), turn).await.unwrap(), "another one has it for now");
    let begun = Instant::now();
    while !store.take_turn(&name(0), turn).await.unwrap() {
        assert!(begun.elapsed() < LONG);
        sleep(Duration::from_millis(10)).await;
    }
}

/// Another program uses the same keys: nothing of it is taken for ours, and it is told.
#[tokio::test]
async fn what_is_somebody_elses_is_not_taken_for_ours() {
    let server = RedisServer::start(&[]);
    let store = server.store(LONG);
    let foreign = |error: StoreError| assert_eq!(error.reason(), "foreign", "{error}");
    server.ask(&["set", "{warmpath}:secret", "short"]);
    foreign(store.agree([1; 16]).await.unwrap_err());
    server.ask(&["del", "{warmpath}:secret"]);
    server.ask(&["rpush", "{warmpath}:secret", "a", "list"]);
    foreign(store.agree([1; 16]).await.unwrap_err());
    server.ask(&["del", "{warmpath}:secret"]);
    store.agree([1; 16]).await.unwrap();

    server.ask(&["set", "{warmpath}:streams", "no sorted set"]);
    foreign(store.names().await.unwrap_err());
    foreign(store.save(&name(0), Bytes::from_static(b"image")).await.unwrap_err());
    server.ask(&["del", "{warmpath}:streams"]);
    server.ask(&["rpush", &format!("{{warmpath}}:image:{}", name(1)), "a", "list"]);
    foreign(store.image(&name(1).to_string(), &Room::default()).await.unwrap_err());
    server.ask(&["set", &format!("{{warmpath}}:turn:{}", name(1)), "for ever"]);
    foreign(store.take_turn(&name(1), LONG).await.unwrap_err());
    store
        .save(&name(1), Bytes::from_static(b"image"))
        .await
        .expect("an image takes the place of what was there");
}

/// The file is read at each connection.
#[tokio::test]
async fn a_password_that_was_changed_is_used_when_its_file_says_so() {
    let server = RedisServer::start(&["requirepass first"]);
    let folder = servers::Folder::new();
    let file = folder.write("password", "first");
    let store = store(&format!("redis: \"{}\", password_file: {}", server.address(), file.display()), LONG);
    store.agree([1; 16]).await.unwrap();
    server.ask(&["-a", "first", "--no-auth-warning", "config", "set", "requirepass", "second"]);
    server.ask(&["-a", "second", "--no-auth-warning", "client", "kill", "type", "normal"]);
    let error = async {
        loop {
            match store.names().await {
                Err(error) if error.reason() == "denied" => return error,
                _ => sleep(Duration::from_millis(50)).await,
            }
        }
    };
    tokio::time::timeout(LONG, error).await.expect("the old one is refused");
    folder.write("password", "second\n");
    until_it_works(async || store.names().await).await;
}

#[test]
fn files_that_cannot_be_used_are_named_with_the_key_and_what_to_write() {
    let certificates = Certificates::make();
    let folder = servers::Folder::new();
    let (empty, key) = (folder.write("empty.pem", "nothing"), certificates.file("client.key"));
    let broken = folder.write("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let (empty, key, broken) = (empty.display(), key.display(), broken.display());
    for (settings, expected) in [
        (
            "password_file: /does/not/exist".to_owned(),
            "mirror.password_file: found /does/not/exist; it cannot be read",
        ),
        ("tls: true, tls_ca_file: /no/ca".to_owned(), "mirror.tls_ca_file: found /no/ca; it cannot be read"),
        (format!("tls: true, tls_ca_file: {empty}"), "there is no certificate in it; expected PEM"),
        (format!("tls: true, tls_ca_file: {broken}"), "it cannot be used"),
        (format!("tls: true, tls_cert_file: {key}, tls_key_file: {key}"), "mirror.tls_cert_file: found "),
    ] {
        let config =
            crate::config::Config::parse(&format!("mirror: {{ redis: \"h:1\", {settings} }}")).unwrap();
        let message = config.redis_access().unwrap_err().to_string();
        assert!(message.contains(expected), "{settings}: {message}");
    }
}
