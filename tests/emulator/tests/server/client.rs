//! What tests need to talk to an emulator: HTTP, a subscriber, a replay client.

use std::time::{Duration, Instant};

use engine_emulator::{Emulator, EmulatorConfig};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

/// Fast enough that no test waits for the timing model.
const SPEEDUP: f64 = 100.0;
/// Longest wait for something that must come.
const PATIENCE: Duration = Duration::from_secs(10);

/// A small configuration on free ports with events and replay.
pub(crate) fn config() -> EmulatorConfig {
    EmulatorConfig {
        events: Some("tcp://127.0.0.1:0".into()),
        replay: Some("tcp://127.0.0.1:0".into()),
        topic: "kv@here".into(),
        blocks: 64,
        speedup: SPEEDUP,
        ..EmulatorConfig::default()
    }
}

pub(crate) async fn start(config: EmulatorConfig) -> Emulator {
    Emulator::start(config).await.unwrap()
}

/// A prompt of `len` token ids that shares nothing with one of another family.
pub(crate) fn prompt(family: u32, len: u32) -> Value {
    json!((0..len).map(|i| family * 10_000 + i).collect::<Vec<_>>())
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Sends one request on a connection of its own.
pub(crate) async fn send(
    emulator: &Emulator,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let uri = format!("http://{}{path}", emulator.addresses().http);
    let mut request = hyper::Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = client.request(request.body(Full::from(body.to_vec()))?).await?;
    let status = answer.status().as_u16();
    Ok(Answer { status, body: answer.into_body().collect().await?.to_bytes() })
}

pub(crate) async fn get(emulator: &Emulator, path: &str) -> Answer {
    send(emulator, "GET", path, &[], b"").await.unwrap()
}

pub(crate) async fn post(emulator: &Emulator, path: &str, body: &Value) -> Answer {
    send(emulator, "POST", path, &[], body.to_string().as_bytes()).await.unwrap()
}

/// A completion of two tokens; its number of cached tokens.
pub(crate) async fn complete(emulator: &Emulator, prompt: Value) -> u64 {
    let answer = post(emulator, "/v1/completions", &json!({"prompt": prompt, "max_tokens": 2})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
}

/// A received event message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    pub(crate) topic: String,
    pub(crate) number: u64,
    pub(crate) payload: Vec<u8>,
}

impl Message {
    /// Type and number of hashes of its events, as `stored 3`.
    pub(crate) fn events(&self) -> Vec<String> {
        let batch = rmpv::decode::read_value(&mut self.payload.as_slice()).unwrap();
        let events = batch[1].as_array().unwrap().iter();
        let one = |event: &rmpv::Value| {
            let (kind, hashes) = match event {
                rmpv::Value::Array(fields) => (fields[0].clone(), fields.get(1).cloned()),
                map => (map["type"].clone(), Some(map["block_hashes"].clone())),
            };
            let hashes = hashes.and_then(|hashes| hashes.as_array().map(Vec::len));
            match (kind.as_str().unwrap(), hashes) {
                ("BlockStored", Some(count)) => format!("stored {count}"),
                ("BlockRemoved", Some(count)) => format!("removed {count}"),
                (other, _) => other.to_owned(),
            }
        };
        events.map(one).collect()
    }
}

/// A subscriber to one rank.
pub(crate) struct Subscriber(zmq::Socket);

impl Subscriber {
    /// Subscribes, and waits until that has reached the publisher: the socket has its connection.
    pub(crate) fn connect(emulator: &Emulator, rank: usize) -> Self {
        let context = zmq::Context::new();
        let socket = context.socket(zmq::SUB).unwrap();
        socket
            .monitor("inproc://connected", i32::from(zmq::SocketEvent::HANDSHAKE_SUCCEEDED as u16))
            .unwrap();
        let monitor = context.socket(zmq::PAIR).unwrap();
        monitor.connect("inproc://connected").unwrap();
        socket.set_reconnect_ivl(10).unwrap();
        socket.set_subscribe(b"").unwrap();
        socket.connect(&emulator.addresses().events[rank]).unwrap();
        assert_eq!(monitor.poll(zmq::POLLIN, PATIENCE.as_millis() as i64).unwrap(), 1, "not connected");
        // The subscription follows the handshake on the same connection; the publisher's thread has to read it.
        std::thread::sleep(Duration::from_millis(50));
        Self(socket)
    }

    /// The next message; panics if none comes.
    pub(crate) fn next(&self) -> Message {
        self.within(PATIENCE).expect("no message came")
    }

    /// The next message, if one comes in that time.
    pub(crate) fn within(&self, time: Duration) -> Option<Message> {
        if self.0.poll(zmq::POLLIN, time.as_millis() as i64).unwrap() == 0 {
            return None;
        }
        let frames = self.0.recv_multipart(0).unwrap();
        let [topic, number, payload] = <[Vec<u8>; 3]>::try_from(frames).unwrap();
        let number = u64::from_be_bytes(number.try_into().unwrap());
        Some(Message { topic: String::from_utf8(topic).unwrap(), number, payload })
    }
}

/// All answers to a replay request, each as its frames after the empty delimiter, the end marker included.
pub(crate) fn replay(emulator: &Emulator, rank: usize, start: u64) -> Vec<Vec<Vec<u8>>> {
    let context = zmq::Context::new();
    let socket = context.socket(zmq::DEALER).unwrap();
    socket.connect(&emulator.addresses().replay[rank]).unwrap();
    socket.send_multipart([b"".as_slice(), &start.to_be_bytes()], 0).unwrap();
    let mut answers = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if socket.poll(zmq::POLLIN, 100).unwrap() == 0 {
            continue;
        }
        let frames = socket.recv_multipart(0).unwrap();
        assert!(frames[0].is_empty(), "the delimiter comes first");
        let ends = frames[frames.len() - 2] == [0xff; 8];
        answers.push(frames[1..].to_vec());
        if ends {
            return answers;
        }
    }
    panic!("no end of the replay came");
}
