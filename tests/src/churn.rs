//! Event streams at a fixed rate, without the engines: blocks that are stored, and, once a cache is full, those that leave
//! it for them. For what follows streams of many blocks a second, which no emulated engine on the same machine serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use rmpv::Value;

/// Tokens of a block.
const BLOCK_TOKENS: u64 = 16;
/// A prompt is told in so many batches, as one that is computed in steps is.
const BATCHES_OF_PROMPT: u64 = 8;

/// What a stream tells of.
#[derive(Clone, Copy, Debug)]
pub struct Churn {
    /// Its number: no two share a block.
    pub stream: u64,
    /// Blocks of a batch.
    pub blocks: u64,
    /// Batches after which the cache is full. From then on each batch also tells of as many blocks that left.
    pub full_after: u64,
}

/// A running publisher: a thread with a socket. It ends when it is dropped.
pub struct Publisher {
    address: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<zmq::Socket>>>,
    /// When it has stopped: open, so that what was told can be read.
    stopped: Option<zmq::Socket>,
}

#[derive(Debug, Default)]
struct Shared {
    told: AtomicU64,
    may_begin: AtomicBool,
    is_over: AtomicBool,
}

/// Between two looks at whether it may begin.
const LOOK: Duration = Duration::from_millis(5);

// === impl Churn ===

impl Churn {
    /// Blocks that are held after so many batches.
    pub fn held(&self, batches: u64) -> u64 {
        batches.min(self.full_after) * self.blocks
    }

    /// The payload of this batch, as vLLM 0.32 writes it; `made`: in seconds since 1970.
    fn payload(&self, number: u64, made: f64) -> Result<Vec<u8>> {
        let mut events = vec![self.stored(number)];
        events.extend(number.checked_sub(self.full_after).map(|left| self.removed(left)));
        let batch = Value::Array(vec![made.into(), Value::Array(events), 0.into()]);
        let mut out = Vec::new();
        rmpv::encode::write_value(&mut out, &batch).context("a batch that cannot be written")?;
        Ok(out)
    }

    fn stored(&self, number: u64) -> Value {
        let (prompt, part) = (number / BATCHES_OF_PROMPT, number % BATCHES_OF_PROMPT);
        let parent = part.checked_sub(1).map(|before| self.hashes(prompt, before).last().copied());
        let first_token = (prompt * BATCHES_OF_PROMPT + part) * self.blocks * BLOCK_TOKENS;
        let tokens = (first_token..first_token + self.blocks * BLOCK_TOKENS).map(|at| self.token(at).into());
        Value::Map(vec![
            ("type".into(), "BlockStored".into()),
            ("block_hashes".into(), values(self.hashes(prompt, part))),
            ("parent_block_hash".into(), parent.flatten().map_or(Value::Nil, Value::from)),
            ("token_ids".into(), Value::Array(tokens.collect())),
            ("block_size".into(), BLOCK_TOKENS.into()),
            ("lora_id".into(), Value::Nil),
            ("medium".into(), "GPU".into()),
            ("lora_name".into(), Value::Nil),
            ("group_idx".into(), 0.into()),
            ("kv_cache_spec_kind".into(), "full_attention".into()),
        ])
    }

    /// The oldest prompt leaves first, and of a prompt its end, as engines free them.
    fn removed(&self, left: u64) -> Value {
        let (prompt, part) = (left / BATCHES_OF_PROMPT, BATCHES_OF_PROMPT - 1 - left % BATCHES_OF_PROMPT);
        Value::Map(vec![
            ("type".into(), "BlockRemoved".into()),
            ("block_hashes".into(), values(self.hashes(prompt, part))),
            ("medium".into(), "GPU".into()),
            ("group_idx".into(), 0.into()),
        ])
    }

    fn hashes(&self, prompt: u64, part: u64) -> Vec<u64> {
        let first = (prompt * BATCHES_OF_PROMPT + part) * self.blocks;
        (first..first + self.blocks).map(|block| mix(block << 8 | self.stream)).collect()
    }

    /// Ids of a large vocabulary.
    fn token(&self, at: u64) -> u64 {
        mix(at << 8 | self.stream) >> 47
    }
}

fn values(numbers: Vec<u64>) -> Value {
    Value::Array(numbers.into_iter().map(Value::from).collect())
}

/// A number that looks random, one to one (the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

// === impl Publisher ===

impl Publisher {
    /// Binds a socket. Tells nothing before it may begin.
    pub fn start(churn: Churn, batches_per_second: f64) -> Result<Self> {
        let socket = zmq::Context::new().socket(zmq::PUB)?;
        // What is not read in time waits; nothing is dropped.
        socket.set_sndhwm(0)?;
        socket.set_linger(0)?;
        socket.bind("tcp://127.0.0.1:*")?;
        let address = socket.get_last_endpoint()?.ok().context("no address")?;
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = thread::spawn(move || publish(socket, churn, batches_per_second, &of_thread));
        Ok(Self { address, shared, thread: Some(thread), stopped: None })
    }

    /// `tcp://ip:port` of its events.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Lets it tell.
    pub fn begin(&self) {
        self.shared.may_begin.store(true, Ordering::Relaxed);
    }

    /// Batches told so far.
    pub fn told(&self) -> u64 {
        self.shared.told.load(Ordering::Relaxed)
    }

    /// Tells nothing more, and says how many batches it has told.
    pub fn stop(&mut self) -> Result<u64> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            self.stopped = Some(thread.join().ok().context("a publisher panicked")??);
        }
        Ok(self.told())
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

/// Until it is over.
fn publish(
    socket: zmq::Socket,
    churn: Churn,
    batches_per_second: f64,
    shared: &Shared,
) -> Result<zmq::Socket> {
    let is_over = || shared.is_over.load(Ordering::Relaxed);
    while !shared.may_begin.load(Ordering::Relaxed) && !is_over() {
        thread::sleep(LOOK);
    }
    let begun = Instant::now();
    let mut number = 0;
    while !is_over() {
        let due = Duration::from_secs_f64(number as f64 / batches_per_second);
        thread::sleep(due.saturating_sub(begun.elapsed()));
        let made = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        let payload = churn.payload(number, made)?;
        let seq = number.to_be_bytes();
        socket.send_multipart([b"".as_slice(), seq.as_slice(), payload.as_slice()], 0)?;
        number += 1;
        shared.told.store(number, Ordering::Relaxed);
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const CHURN: Churn = Churn { stream: 3, blocks: 4, full_after: 24 };

    fn field<'a>(event: &'a Value, name: &str) -> &'a Value {
        let fields = event.as_map().unwrap();
        &fields.iter().find(|(key, _)| key.as_str() == Some(name)).unwrap().1
    }

    #[test]
    fn what_leaves_was_held_and_as_much_is_held_as_is_said() {
        let mut held = BTreeSet::new();
        for number in 0..5 * CHURN.full_after {
            let payload = CHURN.payload(number, 1.5).unwrap();
            let batch = rmpv::decode::read_value(&mut payload.as_slice()).unwrap();
            for event in batch[1].as_array().unwrap() {
                let hashes = field(event, "block_hashes").as_array().unwrap();
                let mut hashes = hashes.iter().map(|hash| hash.as_u64().unwrap());
                if field(event, "type").as_str() == Some("BlockRemoved") {
                    assert!(hashes.all(|hash| held.remove(&hash)), "batch {number}");
                    continue;
                }
                let parent = field(event, "parent_block_hash");
                assert!(parent.is_nil() || held.contains(&parent.as_u64().unwrap()), "batch {number}");
                assert_eq!(field(event, "token_ids").as_array().unwrap().len(), 4 * 16);
                assert!(hashes.all(|hash| held.insert(hash)), "batch {number}: stored twice");
            }
            assert_eq!(held.len() as u64, CHURN.held(number + 1));
        }
        let other = Churn { stream: 4, ..CHURN };
        assert!(other.hashes(0, 0).iter().all(|hash| !CHURN.hashes(0, 0).contains(hash)));
    }

    #[test]
    fn a_publisher_tells_in_order() {
        let mut publisher = Publisher::start(CHURN, 1000.0).unwrap();
        let socket = zmq::Context::new().socket(zmq::SUB).unwrap();
        socket.set_subscribe(b"").unwrap();
        socket.connect(publisher.address()).unwrap();
        publisher.begin();
        let number =
            || u64::from_be_bytes(socket.recv_multipart(0).unwrap()[1].as_slice().try_into().unwrap());
        // Those before the connection are told to nobody.
        let first = number();
        for expected in first + 1..first + 5 {
            assert_eq!(number(), expected);
        }
        assert!(publisher.stop().unwrap() >= first + 5);
        assert_eq!(publisher.stop().unwrap(), publisher.told());
    }
}
