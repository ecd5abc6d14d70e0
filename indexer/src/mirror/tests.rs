use std::time::{Duration, Instant};

use bytes::Bytes;
use servers::{Certificates, Cluster, RedisServer, TIMEOUT, Watched, store};
use tokio::time::sleep;

use super::*;

mod failing;
mod format;
mod gathering;
mod loading;
#[expect(
    unreachable_pub,
    reason = "the ports of the end-to-end cases, for servers of this crate's tests too"
)]
#[path = "../../../tests/src/ports.rs"]
mod ports;
mod proxy;
mod saving;
mod servers;

const LONG: Duration = Duration::from_secs(60);

fn name(rank: u32) -> StreamName {
    StreamName { endpoint: "10.0.0.1:8000".to_owned(), rank }
}

async fn images(store: &impl Store) -> Vec<Bytes> {
    let mut images = Vec::new();
    for name in store.names().await.unwrap() {
        images.extend(store.image(&name, &Room::default()).await.unwrap());
    }
    images
}

/// Tries until it works: a connection that failed is made anew after a pause.
async fn until_it_works<T>(mut attempt: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
    let begun = Instant::now();
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(error) => assert!(begun.elapsed() < LONG, "{error}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// What any store does, seen by two indexers. `brief`: the same store, whose images expire after 300 ms.
async fn behaves(first: impl Store, second: impl Store, brief: impl Store) {
    let (new, kept) = (Agreed { secret: [1; 16], is_new: true }, Agreed { secret: [1; 16], is_new: false });
    assert_eq!(first.secret().await.unwrap(), None);
    assert_eq!(first.agree([1; 16]).await.unwrap(), new);
    assert_eq!(second.secret().await.unwrap(), Some([1; 16]));
    assert_eq!(second.agree([2; 16]).await.unwrap(), kept, "who comes first decides");
    assert_eq!(first.agree([1; 16]).await.unwrap(), kept, "and it stays so");

    assert!(second.names().await.unwrap().is_empty());
    assert!(!first.has_image(&name(0)).await.unwrap());
    first.save(&name(0), Bytes::from_static(b"old")).await.unwrap();
    assert!(second.has_image(&name(0)).await.unwrap());
    sleep(Duration::from_millis(2)).await;
    first.save(&name(1), Bytes::from_static(b"\x00\xff")).await.unwrap();
    sleep(Duration::from_millis(2)).await;
    second.save(&name(0), Bytes::from_static(b"new")).await.unwrap();
    assert_eq!(images(&first).await, [&b"new"[..], b"\x00\xff"], "those saved last come first");
    assert_eq!(first.image("nothing/7", &Room::default()).await.unwrap(), None);

    let turn = Duration::from_millis(400);
    assert!(first.take_turn(&name(0), turn).await.unwrap());
    assert!(!second.take_turn(&name(0), turn).await.unwrap(), "one saves");
    assert!(second.take_turn(&name(1), turn).await.unwrap(), "each stream has its own turn");
    sleep(turn * 2).await;
    assert!(second.take_turn(&name(0), turn).await.unwrap(), "and the next may be another's");

    for rank in 2..6 {
        brief.save(&name(rank), Bytes::from_static(b"brief")).await.unwrap();
    }
    assert_eq!(first.names().await.unwrap().len(), 6);
    sleep(Duration::from_millis(600)).await;
    assert!(!first.has_image(&name(2)).await.unwrap());
    assert_eq!(images(&first).await.len(), 2, "what has expired is gone");
    assert_eq!(first.names().await.unwrap().len(), 2, "with its name");

    let room = Room::of(4);
    let first_of = async |rank: u32| first.image(&name(rank).to_string(), &room).await;
    assert_eq!(first_of(1).await.unwrap().unwrap(), &b"\x00\xff"[..]);
    let error = first_of(0).await.unwrap_err();
    assert!(matches!(error, StoreError::TooLarge { bytes: 3 }), "{error}");
    assert!(room.take(2), "what was not read took no room");
}

/// Without being read: streams come and go with every rollout, and most starts find a store that nobody started from.
async fn forgets_what_has_expired(store: impl Store, brief: impl Store) {
    for rank in 0..100 {
        brief.save(&name(rank), Bytes::from_static(b"brief")).await.unwrap();
    }
    store.save(&name(1000), Bytes::from_static(b"image")).await.unwrap();
    sleep(Duration::from_millis(600)).await;
    let (mut next, mut names) = (0, 0);
    for _ in 0..12 {
        let forgotten = store.forget_expired(next).await.unwrap();
        (next, names) = (forgotten.next, names + forgotten.names);
    }
    assert!(names >= 100, "{names}");
    assert_eq!(store.names().await.unwrap(), [name(1000).to_string()]);
    assert_eq!(images(&store).await, [&b"image"[..]]);
}

async fn redis_behaves(settings: &str) {
    let brief = Duration::from_millis(300);
    behaves(store(settings, LONG), store(settings, LONG), store(settings, brief)).await;
}

#[tokio::test]
async fn memory_behaves_as_a_store() {
    let store = MemoryStore::new(LONG);
    let brief = store.with_expiry(Duration::from_millis(300));
    behaves(store.clone(), store, brief).await;
}

#[tokio::test]
async fn redis_behaves_as_a_store() {
    let server = RedisServer::start(&[]);
    let settings = format!("redis: \"redis://{}/3\"", server.address());
    redis_behaves(&settings).await;
    assert!(server.ask(&["-n", "3", "dbsize"])[0] != "0", "in the database that the URL names");
}

#[tokio::test]
async fn memory_forgets_what_has_expired() {
    let store = MemoryStore::new(LONG);
    let brief = store.with_expiry(Duration::from_millis(300));
    forgets_what_has_expired(store, brief).await;
}

/// Whatever the times are with which the names were entered: clocks jump.
#[tokio::test]
async fn redis_forgets_what_has_expired() {
    let server = RedisServer::start(&[]);
    let settings = format!("redis: \"{}\"", server.address());
    for (number, time) in ["9007199254740991", "0", "-5"].into_iter().enumerate() {
        server.ask(&["zadd", "{warmpath}:streams", time, &format!("gone/{number}")]);
    }
    let brief = store(&settings, Duration::from_millis(300));
    forgets_what_has_expired(store(&settings, LONG), brief).await;
}

/// One indexer saves a stream whose image has expired while another finds that out.
#[tokio::test]
async fn what_is_saved_while_it_is_forgotten_stays() {
    let server = RedisServer::start(&[]);
    let settings = format!("redis: \"{}\"", server.address());
    let (saver, brief) = (store(&settings, LONG), store(&settings, Duration::from_millis(1)));
    let (other, stream) = (store(&settings, LONG), name(0));
    for round in 0..200 {
        brief.save(&stream, Bytes::from_static(b"old")).await.unwrap();
        sleep(Duration::from_millis(2)).await;
        let (saved, forgotten) =
            tokio::join!(saver.save(&stream, Bytes::from_static(b"new")), other.forget_expired(0));
        saved.unwrap();
        forgotten.unwrap();
        assert_eq!(saver.names().await.unwrap(), [stream.to_string()], "round {round}");
    }
}

/// With no more rights than the README says.
#[tokio::test]
async fn redis_with_tls_and_a_user_behaves_as_a_store() {
    let certificates = Certificates::make();
    let user = format!("user warmpath on >s3cret ~{{warmpath}}:* {}", rights());
    let port = ports::Port::claim().unwrap();
    let server = RedisServer::start_at(port, Some(&certificates), &["user default off", &user]);
    let folder = servers::Folder::new();
    let password = folder.write("password", "s3cret\n");
    let file = |name: &str| certificates.file(name).display().to_string();
    let tls = certificates.settings();
    let user = format!("username: warmpath, password_file: {}", password.display());
    let settings = format!("redis: \"{}\", {tls}, {user}", server.address());
    redis_behaves(&settings).await;
    assert_eq!(store(&settings, LONG).forget_expired(0).await.unwrap(), Forgotten::default());

    // A URL says of itself that it means TLS.
    let files = tls.trim_start_matches("tls: true, ");
    let url = |user: &str| format!("redis: \"rediss://{user}{}\"", server.address());
    let again = store(&format!("{}, {files}", url("warmpath:s3cret@")), LONG);
    assert_eq!(again.agree([9; 16]).await.unwrap().secret, [1; 16], "a URL says the same");
    for (settings, reason) in [
        (format!("{}, {files}", url("warmpath:wrong@")), "denied"),
        (format!("{}, {files}", url("")), "denied"),
        // Not shown a certificate; not of an authority that is known; not TLS.
        (format!("{}, tls_ca_file: {}", url("warmpath:s3cret@"), file("ca.pem")), "unreachable"),
        (url("warmpath:s3cret@"), "unreachable"),
        (format!("redis: \"redis://warmpath:s3cret@{}\"", server.address()), "unreachable"),
    ] {
        let error = store(&settings, LONG).agree([1; 16]).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{settings}: {error}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
}

/// The commands of the README's row on the user.
fn rights() -> String {
    let readme = include_str!("../../README.md");
    let row = readme.lines().find(|line| line.starts_with("| `mirror.username` |")).unwrap();
    let commands =
        row.split('`').skip(3).step_by(2).filter(|word| word.chars().all(|c| c.is_ascii_uppercase()));
    commands.map(|command| format!("+{} ", command.to_lowercase())).collect()
}

#[tokio::test]
async fn redis_found_by_sentinels_behaves_as_a_store_and_a_failover_is_followed() {
    a_failover_is_followed(None).await;
}

#[tokio::test]
async fn redis_with_tls_is_found_by_sentinels_with_tls_and_a_failover_is_followed() {
    a_failover_is_followed(Some(&Certificates::make())).await;
}

async fn a_failover_is_followed(certificates: Option<&Certificates>) {
    let mut watched = Watched::start(certificates);
    let settings = watched.settings();
    // It is asked as well, and nobody waits for it.
    watched.sentinels[0].pause();
    redis_behaves(&settings).await;
    watched.sentinels[0].go_on();

    let store = store(&settings, LONG);
    assert_eq!(store.agree([9; 16]).await.unwrap().secret, [1; 16]);
    // The replica has all before its master dies.
    watched.master.ask(&["wait", "1", "5000"]);
    watched.master.stop();
    assert_eq!(until_it_works(async || store.agree([9; 16]).await).await.secret, [1; 16]);
    until_it_works(async || store.save(&name(7), Bytes::from_static(b"after")).await).await;
    assert_eq!(watched.replica.ask(&["info", "replication"])[1].trim(), "role:master");

    let unknown = settings.replace("master: main", "master: other");
    let error = servers::store(&unknown, LONG).agree([1; 16]).await.unwrap_err();
    assert!(error.to_string().contains("mirror.master"), "{error}");
}

#[tokio::test]
async fn a_redis_cluster_behaves_as_a_store_and_its_redirects_are_followed() {
    redirects_are_followed(None).await;
}

#[tokio::test]
async fn a_redis_cluster_with_tls_behaves_as_a_store_and_its_redirects_are_followed() {
    redirects_are_followed(Some(&Certificates::make())).await;
}

async fn redirects_are_followed(certificates: Option<&Certificates>) {
    let cluster = Cluster::start(certificates);
    redis_behaves(&cluster.settings()).await;
    let (first, _) = cluster.owner();
    for (number, node) in cluster.nodes.iter().enumerate() {
        let keys = &node.ask(&["dbsize"])[0];
        assert_eq!(keys == "0", number != first, "all keys are in one slot");
    }
    let store = store(&cluster.settings(), LONG);
    let check = async |rank: u32| {
        assert_eq!(store.agree([9; 16]).await.unwrap().secret, [1; 16]);
        store.save(&name(rank), Bytes::from_static(b"image")).await.unwrap();
        assert!(store.names().await.unwrap().contains(&name(rank).to_string()));
        assert_eq!(store.image(&name(rank).to_string(), &Room::default()).await.unwrap().unwrap(), "image");
    };
    check(20).await;
    let to = cluster.begin_to_move();
    check(21).await;
    cluster.move_keys(to);
    check(22).await;
    cluster.end_move(to);
    check(23).await;
    assert_eq!(cluster.owner().0, to);
}

/// A fleet that shares a Redis with another one has a prefix of its own.
#[tokio::test]
async fn prefixes_are_kept_apart() {
    let server = RedisServer::start(&[]);
    let access = servers::access(&format!("redis: \"{}\"", server.address()));
    let (one, other) = (server.store(LONG), RedisStore::new(access, "other", LONG));
    one.agree([1; 16]).await.unwrap();
    one.save(&name(0), Bytes::from_static(b"image")).await.unwrap();
    assert!(other.names().await.unwrap().is_empty());
    assert_eq!(other.agree([2; 16]).await.unwrap().secret, [2; 16]);
}

/// The times of saving only order what is read first: an indexer whose clock was ahead, or that was set back, hides nothing.
#[tokio::test]
async fn images_saved_by_a_clock_that_jumped_are_found_and_replaced() {
    let server = RedisServer::start(&[]);
    let store = server.store(LONG);
    store.agree([1; 16]).await.unwrap();
    store.save(&name(0), Bytes::from_static(b"then")).await.unwrap();
    for time in ["9007199254740991", "0", "-5"] {
        server.ask(&["zadd", "{warmpath}:streams", time, &name(0).to_string()]);
        store.save(&name(1), Bytes::from_static(b"other")).await.unwrap();
        let mut found = images(&store).await;
        found.sort_unstable();
        assert_eq!(found, [&b"other"[..], b"then"], "{time}");
    }
    server.ask(&["zadd", "{warmpath}:streams", "9007199254740991", &name(0).to_string()]);
    store.save(&name(0), Bytes::from_static(b"now")).await.unwrap();
    sleep(Duration::from_millis(2)).await;
    store.save(&name(1), Bytes::from_static(b"later")).await.unwrap();
    assert_eq!(images(&store).await, [&b"later"[..], b"now"], "by the clock as it is now");
}
