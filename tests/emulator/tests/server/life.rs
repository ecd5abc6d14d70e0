//! Restarts, aborts and stops.

use std::time::Duration;

use engine_emulator::{Emulator, StartError};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::client::{Subscriber, complete, config, get, post, prompt, send, start};

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_loses_the_cache_and_begins_at_zero_on_the_same_ports() {
    let emulator = start(config()).await;
    let subscriber = Subscriber::connect(&emulator, 0);
    let before = emulator.addresses().clone();
    complete(&emulator, prompt(1, 40)).await;
    complete(&emulator, prompt(2, 40)).await;
    assert_eq!([subscriber.next().number, subscriber.next().number], [0, 1]);
    emulator.restart(Duration::from_millis(50)).await.unwrap();
    assert_eq!(*emulator.addresses(), before);
    let subscriber = Subscriber::connect(&emulator, 0);
    assert_eq!(complete(&emulator, prompt(1, 40)).await, 0);
    assert_eq!(subscriber.next().number, 0);
    assert_eq!(emulator.requests().len(), 3, "the log goes on");
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_can_be_ordered_over_http() {
    let emulator = start(config()).await;
    complete(&emulator, prompt(1, 40)).await;
    let answer = post(&emulator, "/emulator/faults", &json!({"restart": {"down_ms": 300}})).await;
    assert_eq!(answer.status, 200);
    // Down: nobody listens. Then up again.
    let mut was_down = false;
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        assert!(std::time::Instant::now() < deadline, "it did not restart");
        match send(&emulator, "GET", "/health", &[], b"").await {
            Err(_) => was_down = true,
            Ok(_) if was_down => break,
            Ok(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(complete(&emulator, prompt(1, 40)).await, 0);
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_aborts_its_request() {
    let emulator = start(engine_emulator::EmulatorConfig { speedup: 1.0, ..config() }).await;
    let body = json!({"prompt": prompt(1, 40), "max_tokens": 500, "stream": true}).to_string();
    let mut stream = tokio::net::TcpStream::connect(emulator.addresses().http).await.unwrap();
    let head =
        format!("POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    let running = async |wanted: usize| {
        for _ in 0..500 {
            if emulator.state().await.ranks[0].running == wanted {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    };
    assert!(running(1).await, "it did not start");
    drop(stream);
    assert!(running(0).await, "it did not stop");
    assert_eq!(emulator.state().await.ranks[0].counters.aborted, 1);
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_frees_the_ports_and_cuts_what_runs() {
    let emulator = start(engine_emulator::EmulatorConfig { speedup: 1.0, ..config() }).await;
    let addresses = emulator.addresses().clone();
    let body = json!({"prompt": prompt(1, 40), "max_tokens": 900}).to_string();
    let request = send(&emulator, "POST", "/v1/completions", &[], body.as_bytes());
    assert!(tokio::time::timeout(Duration::from_millis(200), request).await.is_err(), "it takes 9 seconds");
    emulator.stop().await;
    let again = engine_emulator::EmulatorConfig {
        http: addresses.http,
        events: Some(addresses.events[0].clone()),
        replay: Some(addresses.replay[0].clone()),
        ..config()
    };
    let second = start(again.clone()).await;
    assert_eq!(*second.addresses(), addresses);
    assert_eq!(get(&second, "/health").await.status, 200);
    let third = Emulator::start(again).await;
    assert!(matches!(third, Err(StartError::Listen { .. })), "{third:?}");
    second.stop().await;
}
