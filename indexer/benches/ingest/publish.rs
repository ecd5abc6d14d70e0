//! The publishers: a process with a thread and a socket for each. Messages are made before anyone waits for them.

use std::io::{BufRead as _, Write as _};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rmpv::Value;

use crate::shape::{BLOCK, PUBLISHERS, Pace, SHAPES, Shape};

/// Tells its addresses, waits for subscribers and for a line on standard input, publishes, and tells when it is done.
pub(crate) fn run(shape: usize, pace: Pace) {
    let shape = SHAPES.get(shape).unwrap();
    let publishers: Vec<_> = (0..PUBLISHERS).map(|number| Publisher::new(number, shape, pace)).collect();
    let addresses: Vec<String> =
        publishers.iter().map(|publisher| publisher.socket.get_last_endpoint().unwrap().unwrap()).collect();
    println!("{}", addresses.join(" "));
    for publisher in &publishers {
        // A subscription is a message here.
        publisher.socket.recv_bytes(0).unwrap();
    }
    println!("subscribed");
    std::io::stdout().flush().unwrap();
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    let begin = Instant::now();
    let threads: Vec<_> = publishers
        .into_iter()
        .map(|publisher| thread::spawn(move || publisher.publish(begin, pace)))
        .collect();
    let publishers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    println!("published");
    // The sockets stay open until nobody reads any more.
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    drop(publishers);
}

struct Publisher {
    socket: zmq::Socket,
    payloads: Vec<Vec<u8>>,
}

impl Publisher {
    fn new(number: usize, shape: &Shape, pace: Pace) -> Self {
        let socket = zmq::Context::new().socket(zmq::XPUB).unwrap();
        socket.set_sndhwm(0).unwrap();
        socket.set_linger(0).unwrap();
        socket.bind("tcp://127.0.0.1:*").unwrap();
        let payloads = (0..pace.events(shape)).map(|event| payload(number, event, shape.blocks)).collect();
        Self { socket, payloads }
    }

    fn publish(self, begin: Instant, pace: Pace) -> Self {
        for (number, payload) in self.payloads.iter().enumerate() {
            if let Pace::Open { rate } = pace {
                let due = number as f64 * PUBLISHERS as f64 / rate as f64;
                if let Some(wait) = Duration::from_secs_f64(due).checked_sub(begin.elapsed()) {
                    thread::sleep(wait);
                }
            }
            let seq = (number as u64).to_be_bytes();
            self.socket.send_multipart([b"", seq.as_slice(), payload.as_slice()], 0).unwrap();
        }
        self
    }
}

/// A new prompt for each event, as vLLM 0.32 writes it.
fn payload(publisher: usize, event: usize, blocks: usize) -> Vec<u8> {
    let first = (publisher * 1_000_000 + event) * 1_000;
    let hash = |block: usize| Value::from(((first + block) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // Ids of a large vocabulary, common ones more often: an eighth takes five bytes, the others three or fewer.
    let token = |at: usize| {
        let number = mix((first + at) as u64);
        (number >> 47) >> (2 * (number & 0b11))
    };
    let stored = Value::Map(vec![
        ("type".into(), "BlockStored".into()),
        ("block_hashes".into(), Value::Array((0..blocks).map(hash).collect())),
        ("parent_block_hash".into(), Value::Nil),
        ("token_ids".into(), Value::Array((0..blocks * BLOCK).map(|at| token(at).into()).collect())),
        ("block_size".into(), BLOCK.into()),
        ("lora_id".into(), Value::Nil),
        ("medium".into(), "GPU".into()),
        ("lora_name".into(), Value::Nil),
        ("group_idx".into(), 0.into()),
        ("kv_cache_spec_kind".into(), "full_attention".into()),
    ]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let batch = Value::Array(vec![now.into(), Value::Array(vec![stored]), 0.into()]);
    let mut out = Vec::new();
    rmpv::encode::write_value(&mut out, &batch).unwrap();
    out
}

/// A number that looks random, one to one (the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}
