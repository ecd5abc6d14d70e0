//! What a warm start costs: images of a million block references, in a real Redis.
//!
//! `cargo bench --package warmpath-indexer --bench warm_start`; needs `redis-server`. Prints one table. Eight streams of
//! 131,072 blocks each; a quarter of the blocks are held by all of them. Then what saving costs where engines store 100,000
//! blocks a second: CPU of this thread and of Redis for one round of all streams, and the bytes that are written.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a bench without its Redis has nothing to measure"
)]
#![expect(clippy::print_stdout, reason = "figures go there")]

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use warmpath_indexer::config::Config;
use warmpath_indexer::ingest::Taken;
use warmpath_indexer::mirror::{self, MirrorMetrics, RedisStore, Store, StreamName, load};
use warmpath_kv::event::{EngineHash, Stored};
use warmpath_kv::index::Origin;
use warmpath_kv::{Batch, Event, Index, IndexLimits, KeyHasher, StreamId};

const STREAMS: u32 = 8;
/// Blocks of one prompt, and prompts of one stream.
const BLOCKS: u32 = 128;
const PROMPTS: u32 = 1024;
/// Of the prompts, so many are the same on each stream.
const SHARED: u32 = PROMPTS / 4;
const SECRET: [u8; 16] = [3; 16];
const ROUNDS: usize = 5;
const LONG: Duration = Duration::from_secs(60);
/// Between rounds of saving, by default.
const INTERVAL: Duration = Duration::from_secs(10);

struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let port_text = port.to_string();
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port_text, "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, port }
    }

    fn store(&self) -> RedisStore {
        let text = format!("mirror: {{ redis: \"127.0.0.1:{}\", timeout_ms: 60000 }}", self.port);
        let config = Config::parse(&text).expect("a configuration");
        let access = config.redis_access().expect("no files").expect("a mirror");
        RedisStore::new(access, "bench", LONG * 60)
    }

    fn info(&self, section: &str, name: &str) -> String {
        let info = Command::new("redis-cli").args(["-p", &self.port.to_string(), "info", section]).output();
        let text = String::from_utf8(info.expect("redis-cli").stdout).expect("text");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.expect("what Redis tells").trim().to_owned()
    }

    fn used_memory(&self) -> u64 {
        self.info("memory", "used_memory").parse().expect("a number")
    }

    fn cpu(&self) -> Duration {
        let seconds = |name| self.info("cpu", name).parse::<f64>().expect("seconds");
        Duration::from_secs_f64(seconds("used_cpu_sys") + seconds("used_cpu_user"))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ended");
    }
}

/// Streams that hold prompts of 2,048 tokens.
fn filled() -> Index {
    let mut index = Index::new(KeyHasher::new(SECRET), IndexLimits::default());
    for stream in 0..STREAMS {
        index.add_stream(StreamId(stream), "model");
        for prompt in 0..PROMPTS {
            let owner = if prompt < SHARED { 0 } else { stream + 1 };
            let first = (owner * PROMPTS + prompt) * BLOCKS;
            // Each stream's engine has hashes of its own.
            let hash = |block| {
                EngineHash(
                    (u64::from(first + block) << 8 | u64::from(stream)).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                )
            };
            let stored = Stored {
                hashes: (0..BLOCKS).map(hash).collect(),
                tokens: (0..BLOCKS * 16).map(|token| first.wrapping_mul(31) + token).collect(),
                block_size: 16,
                ..Stored::default()
            };
            let batch = Batch { events: vec![Event::Stored(Box::new(stored))], ..Batch::default() };
            index.apply(StreamId(stream), &batch, Origin::Published);
        }
    }
    index
}

/// Of this process.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("nanoseconds"))
}

/// Of a core, in percent, where a round comes every interval.
fn share(cpu: Duration) -> f64 {
    cpu.as_secs_f64() / INTERVAL.as_secs_f64() * 100.0
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let index = filled();
    let references = index.stats().references;
    let redis = Redis::start();
    let before = redis.used_memory();
    let store = redis.store();
    runtime.block_on(store.agree(SECRET)).expect("agreed");

    let (mut gathering, mut encoding, mut saving, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for stream in 0..STREAMS {
        let name = StreamName { endpoint: format!("10.0.0.{stream}:8000"), rank: 0 };
        let begun = Instant::now();
        let gathered = index.gather(StreamId(stream)).expect("a whole stream");
        gathering.push(begun.elapsed());
        let begun = Instant::now();
        let taken = Taken { seq: 1, digest: [0; 16], made_us: 1, gathered };
        let image = Bytes::from(mirror::encode(&name, taken, SECRET));
        encoding.push(begun.elapsed());
        bytes += image.len();
        let begun = Instant::now();
        runtime.block_on(store.save(&name, image)).expect("saved");
        saving.push(begun.elapsed());
    }
    let kept = redis.used_memory() - before;

    // One round of a saver when every stream has changed, as they all have after ten seconds at 100,000 blocks a second.
    let (own, theirs) = (cpu(), redis.cpu());
    for _ in 0..ROUNDS {
        for stream in 0..STREAMS {
            let name = StreamName { endpoint: format!("10.0.0.{stream}:8000"), rank: 0 };
            let gathered = index.gather(StreamId(stream)).expect("a whole stream");
            let taken = Taken { seq: 1, digest: [0; 16], made_us: 1, gathered };
            let image = Bytes::from(mirror::encode(&name, taken, SECRET));
            runtime.block_on(store.save(&name, image)).expect("saved");
        }
    }
    let (own, theirs) = ((cpu() - own) / ROUNDS as u32, (redis.cpu() - theirs) / ROUNDS as u32);

    let (mut loading, mut restoring) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let metrics = MirrorMetrics::default();
        let begun = Instant::now();
        let loaded = runtime.block_on(load(&store, [9; 16], LONG, &metrics));
        loading.push(begun.elapsed());
        let begun = Instant::now();
        let (restored, resumable) = loaded.restore(IndexLimits::default(), &metrics);
        restoring.push(begun.elapsed());
        assert_eq!((restored.stats().references, resumable.len()), (references, STREAMS as usize));
        assert_eq!(restored.stats().blocks, index.stats().blocks);
    }
    let total: Vec<_> = loading.iter().zip(&restoring).map(|(load, restore)| *load + *restore).collect();
    let per = |bytes: usize| bytes as f64 / references as f64;
    println!("references                      {references}");
    println!("image bytes per reference       {:.1}", per(bytes));
    println!("Redis bytes per reference       {:.1}", per(kept as usize));
    println!("gather, one stream (median)     {:?}", median(gathering));
    println!("order and encode, one stream    {:?}", median(encoding));
    println!("save, one stream                {:?}", median(saving));
    println!("load and decode all             {:?}", median(loading));
    println!("restore all                     {:?}", median(restoring));
    println!("warm start, all of it           {:?}", median(total));
    println!("Redis MB per million blocks     {:.1}", per(kept as usize));
    println!("one round, CPU of the saver     {own:?}, {:.2} % of a core", share(own));
    println!("one round, CPU of Redis         {theirs:?}, {:.2} % of a core", share(theirs));
    println!("written, MB a second            {:.2}", bytes as f64 / 1e6 / INTERVAL.as_secs_f64());
}
