//! Event streams and replay.

use std::collections::HashMap;
use std::time::Duration;

use engine_emulator::{EmulatorConfig, ParentDump, VllmVersion};
use futures::future::join_all;
use serde_json::json;

use crate::client::{Subscriber, complete, config, post, prompt, replay, start};

#[tokio::test(flavor = "multi_thread")]
async fn batches_are_numbered_from_zero_under_the_topic() {
    let emulator = start(EmulatorConfig { ranks: 2, ..config() }).await;
    let subscriber = Subscriber::connect(&emulator, 0);
    let body = json!({"prompt": prompt(1, 40), "max_tokens": 20}).to_string();
    let headers = [("x-data-parallel-rank", "0")];
    crate::client::send(&emulator, "POST", "/v1/completions", &headers, body.as_bytes()).await.unwrap();
    let messages = [subscriber.next(), subscriber.next()];
    assert!(messages.iter().all(|message| message.topic == "kv@here"));
    assert_eq!(messages.clone().map(|message| message.number), [0, 1]);
    assert_eq!(
        messages.map(|message| message.events()),
        [["stored 2"], ["stored 1"]],
        "the prompt, then output"
    );
    emulator.stop().await;
}

/// Both ranks number their own batches from 0, and a replay gives those of both.
#[tokio::test(flavor = "multi_thread")]
async fn ranks_may_share_a_socket_and_still_count_for_themselves() {
    let emulator = start(EmulatorConfig { ranks: 2, one_socket: true, ..config() }).await;
    assert_eq!((emulator.addresses().events.len(), emulator.addresses().replay.len()), (1, 1));
    let subscriber = Subscriber::connect(&emulator, 0);
    for (family, rank) in [(1, "0"), (2, "1"), (3, "1")] {
        let body = json!({"prompt": prompt(family, 20), "max_tokens": 1}).to_string();
        let headers = [("x-data-parallel-rank", rank)];
        crate::client::send(&emulator, "POST", "/v1/completions", &headers, body.as_bytes()).await.unwrap();
    }
    let told = [subscriber.next(), subscriber.next(), subscriber.next()].map(|message| {
        let batch = rmpv::decode::read_value(&mut message.payload.as_slice()).unwrap();
        (batch[2].as_u64().unwrap(), message.number)
    });
    assert_eq!(told, [(0, 0), (1, 0), (1, 1)], "rank, number");
    assert_eq!(replay(&emulator, 0, 0).len(), 4, "three batches and the end");
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_gives_the_same_bytes_in_the_framing_of_the_release() {
    for (minor, frames) in [(25, 2), (26, 3), (33, 3)] {
        let emulator = start(EmulatorConfig { vllm_version: VllmVersion::new(minor, 0), ..config() }).await;
        let subscriber = Subscriber::connect(&emulator, 0);
        complete(&emulator, prompt(1, 40)).await;
        complete(&emulator, prompt(2, 40)).await;
        let sent = [subscriber.next(), subscriber.next()];
        let answers = replay(&emulator, 0, 1);
        assert_eq!(answers.len(), 2, "the second batch and the end");
        assert!(answers.iter().all(|answer| answer.len() == frames), "0.{minor}: {answers:?}");
        assert_eq!(answers[0][frames - 1], sent[1].payload);
        assert_eq!(answers[0][frames - 2], 1_u64.to_be_bytes());
        assert!(answers[1][frames - 1].is_empty());
        if frames == 3 {
            assert_eq!(
                (answers[0][0].as_slice(), answers[1][0].as_slice()),
                (b"kv@here".as_slice(), b"".as_slice())
            );
        }
        assert_eq!(replay(&emulator, 0, 2).len(), 1, "nothing but the end of the future");
        emulator.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_starts_at_the_oldest_batch_kept() {
    let emulator = start(EmulatorConfig { buffer_steps: 2, ..config() }).await;
    let subscriber = Subscriber::connect(&emulator, 0);
    for family in 1..6 {
        complete(&emulator, prompt(family, 20)).await;
        // An answer can overtake its events on their way through the publisher's queue.
        subscriber.next();
    }
    let numbers: Vec<Vec<u8>> = replay(&emulator, 0, 0).iter().map(|answer| answer[1].clone()).collect();
    assert_eq!(numbers, [3_u64.to_be_bytes(), 4_u64.to_be_bytes(), u64::MAX.to_be_bytes()]);
    emulator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_reset_is_published_with_the_next_batch() {
    let emulator = start(config()).await;
    let subscriber = Subscriber::connect(&emulator, 0);
    complete(&emulator, prompt(1, 20)).await;
    assert_eq!(subscriber.next().events(), ["stored 1"]);
    post(&emulator, "/reset_prefix_cache", &json!({})).await;
    assert_eq!(subscriber.within(Duration::from_millis(100)), None);
    complete(&emulator, prompt(1, 20)).await;
    assert_eq!(subscriber.next().events(), ["AllBlocksCleared", "stored 1"]);
    emulator.stop().await;
}

/// Many requests at once in a pool that is too small for them: whoever follows the events knows the cache. Slower than
/// other tests, so that the requests are there at the same time on any machine.
#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_a_busy_server_add_up_to_its_state() {
    let emulator = start(EmulatorConfig { blocks: 24, max_seqs: 8, speedup: 20.0, ..config() }).await;
    let subscriber = Subscriber::connect(&emulator, 0);
    let requests = (0..60).map(|i| {
        let body = json!({"prompt": prompt(i % 7, 30 + 16 * (i % 5)), "max_tokens": 1 + i % 40});
        let emulator = &emulator;
        async move { post(emulator, "/v1/completions", &body).await.status }
    });
    assert!(join_all(requests).await.iter().all(|status| *status == 200));
    let state = emulator.state().await;
    let rank = &state.ranks[0];
    assert!(rank.counters.preemptions > 0, "the pool was meant to be too small: {:?}", rank.counters);
    let mut copies: HashMap<u64, usize> = HashMap::new();
    for _ in 0..rank.batches {
        let message = subscriber.next();
        let batch = rmpv::decode::read_value(&mut message.payload.as_slice()).unwrap();
        for event in batch[1].as_array().unwrap() {
            let hashes = event["block_hashes"].as_array().unwrap().iter().map(|hash| hash.as_u64().unwrap());
            match event["type"].as_str().unwrap() {
                "BlockStored" => hashes.for_each(|hash| *copies.entry(hash).or_default() += 1),
                "BlockRemoved" => hashes.for_each(|hash| *copies.get_mut(&hash).unwrap() -= 1),
                other => panic!("unexpected {other}"),
            }
        }
    }
    copies.retain(|_, count| *count > 0);
    let truth: HashMap<u64, usize> = rank.blocks.iter().map(|block| (block.hash, block.count)).collect();
    assert_eq!(copies, truth);
    for (position, block) in rank.blocks.iter().enumerate() {
        assert_eq!(block.tokens.len(), rank.block_size);
        if let ParentDump::At(parent) = block.parent {
            assert!(parent < position, "parents come first");
        }
    }
    emulator.stop().await;
}
