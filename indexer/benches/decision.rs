//! A whole decision of the indexer, from the question to the ranking: JSON, template, tokens, keys, the lookup over eight
//! endpoints, ranking, reservation, speculation. The prompt is a conversation of about 32,000 tokens of which all
//! endpoints hold a part; only its last turn is new, another one each time. Times are those of all threads on a core.

#![expect(clippy::unwrap_used, reason = "a bench without its fixture has nothing to measure")]

#[path = "../prompt/benches/memo/cpu_time.rs"]
mod cpu_time;
#[path = "../prompt/benches/memo/prose.rs"]
mod prose;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cpu_time::CpuTime;
use criterion::{Criterion, criterion_group, criterion_main};
use flate2::read::GzDecoder;
use parking_lot::{Mutex, RwLock};
use prose::Prose;
use rustix::time::ClockId;
use serde_json::{Value as Json, json};
use warmpath_indexer::books::{Books, IndexerId};
use warmpath_indexer::clock::Clock;
use warmpath_indexer::config::Config;
use warmpath_indexer::decide::metrics::DecideMetrics;
use warmpath_indexer::decide::{Chat, Decider, Prompt, PromptMemo, Question, Shared, Verdict};
use warmpath_indexer::engines::Directory;
use warmpath_indexer::fleet::{EndpointSpec, Fleet, Observation, View};
use warmpath_indexer::models::{Models, Registry};
use warmpath_indexer::receipts::Receipts;
use warmpath_indexer::volatile::VolatileHeads;
use warmpath_kv::event::{Batch, Event, Stored};
use warmpath_kv::index::Origin;
use warmpath_kv::{EngineHash, Index, IndexLimits, KeyHasher, Millis, StreamId, Trust};
use warmpath_prompt::{ChatRequest, ModelFiles, ModelPrompt, Task, Truncate};

/// The program's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ENDPOINTS: usize = 8;
const BLOCK: usize = 16;
/// Messages of about 800 tokens, all but the last one known.
const MESSAGES: usize = 41;
const MESSAGE_BYTES: usize = 3_000;
const TURN_BYTES: usize = 300;

/// A folder with the model's files, unpacked.
static QWEN3: LazyLock<PathBuf> = LazyLock::new(|| {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/tokenizers/qwen3");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("qwen3-decision");
    fs::create_dir_all(&dir).unwrap();
    let mut text = Vec::new();
    GzDecoder::new(fs::File::open(packed.join("tokenizer.json.gz")).unwrap()).read_to_end(&mut text).unwrap();
    fs::write(dir.join("tokenizer.json"), text).unwrap();
    fs::copy(packed.join("tokenizer_config.json"), dir.join("tokenizer_config.json")).unwrap();
    dir
});

struct Setup {
    decider: Decider,
    index: Arc<RwLock<Index>>,
    books: Arc<Mutex<Books>>,
    messages: Vec<Json>,
    prose: Prose,
}

// === impl Setup ===

impl Setup {
    fn new(memo_bytes: usize) -> Self {
        let endpoints: String = (1..=ENDPOINTS)
            .map(|host| {
                format!("    - {{address: \"10.0.0.{host}:8000\", events: \"tcp://10.0.0.{host}:5557\"}}\n")
            })
            .collect();
        let dir = QWEN3.display();
        let yaml =
            format!("models:\n  - {{name: m, tokenizer_dir: \"{dir}\"}}\nendpoints:\n  static:\n{endpoints}");
        let config = Config::parse(&yaml).unwrap();
        let mut prose = Prose::new(7);
        let messages = conversation(&mut prose);
        let ids = tokens(&messages);
        let mut fleet = Fleet::new(3);
        let specs =
            config.endpoints.fixed.iter().filter_map(|spec| EndpointSpec::of_static(spec, &config.models));
        fleet.apply(Observation::Listed { source: 0, endpoints: specs.collect() });
        let (view, snapshot) = (View::default(), fleet.snapshot());
        let index = Arc::new(RwLock::new(Index::new(KeyHasher::new([5; 16]), IndexLimits::default())));
        for (place, endpoint) in snapshot.endpoints.iter().enumerate() {
            // The first holds all of it, the others less and less.
            let blocks = ids.len() / BLOCK * (ENDPOINTS - place) / ENDPOINTS;
            for rank in &endpoint.ranks {
                hold(&mut index.write(), rank.place, ids.get(..blocks * BLOCK).unwrap());
            }
        }
        view.publish(snapshot);
        let books = Arc::new(Mutex::new(Books::new(IndexerId::random(), 1 << 18)));
        let registry = Registry::of_names(&config.models);
        registry.install(Models::load(&config.models).unwrap());
        let (_, engines) = tokio::sync::watch::channel(Arc::new(Directory::default()));
        let shared = Shared {
            registry: Arc::new(registry),
            engines,
            view: Arc::new(view),
            index: index.clone(),
            books: books.clone(),
            volatile: Arc::new(VolatileHeads::new(Clock::start())),
            clock: Clock::start(),
            memo: Arc::new(PromptMemo::new([3; 16], memo_bytes)),
            receipts: Arc::new(Receipts::new(config.receipts)),
        };
        let decider = Decider::new(&config, shared, DecideMetrics::new());
        Self { decider, index, books, messages, prose }
    }

    /// The conversation with a last turn that was never seen; of the decision before nothing is left.
    fn next(&mut self) -> Question {
        self.index.write().expire(Millis(u64::MAX));
        self.books.lock().expire(Millis(u64::MAX));
        let mut messages = self.messages.clone();
        messages.push(json!({"role": "user", "content": self.prose.text(TURN_BYTES)}));
        let messages = serde_json::to_vec(&messages).unwrap();
        Question {
            model: "m".into(),
            body_bytes: messages.len() as u64,
            prompt: Prompt::Chat(Box::new(Chat { messages, ..Chat::default() })),
            cache_salt: None,
            task: Task::Generate,
            add_special_tokens: None,
            truncate: Truncate::default(),
            previous_response: None,
            sequences_per_prompt: 1,
            policy: None,
            group_key: 0,
            answer_by: None,
        }
    }
}

fn conversation(prose: &mut Prose) -> Vec<Json> {
    let message = |place: usize| {
        let role = if place.is_multiple_of(2) { "user" } else { "assistant" };
        json!({"role": role, "content": prose.text(MESSAGE_BYTES)})
    };
    (0..MESSAGES - 1).map(message).collect()
}

fn tokens(messages: &[Json]) -> Vec<u32> {
    let model = ModelPrompt::load(&ModelFiles::in_dir(&*QWEN3)).unwrap();
    let messages = serde_json::to_vec(messages).unwrap();
    let request =
        ChatRequest { messages: &messages, add_generation_prompt: Some(false), ..ChatRequest::default() };
    model.tokens(request).unwrap().ids.into_vec()
}

fn hold(index: &mut Index, stream: StreamId, tokens: &[u32]) {
    index.add_stream(stream, "m");
    index.set_trust(stream, Trust::Live);
    let stored = Stored {
        hashes: (0..tokens.len() / BLOCK).map(|number| EngineHash(number as u64)).collect(),
        tokens: tokens.to_vec(),
        block_size: u32::try_from(BLOCK).unwrap(),
        ..Stored::default()
    };
    let batch = Batch { events: vec![Event::Stored(Box::new(stored))], ..Batch::default() };
    index.apply(stream, &batch, Origin::Published);
}

fn decision(criterion: &mut Criterion<CpuTime>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let clock = CpuTime(ClockId::ProcessCPUTime);
    let mut group = criterion.benchmark_group("whole decision, 32,000 tokens, 8 endpoints");
    for (name, memo_bytes) in [("new last turn", 128 << 20), ("without memo", 0)] {
        let mut setup = Setup::new(memo_bytes);
        let question = setup.next();
        let decision = runtime.block_on(setup.decider.decide(question));
        assert!(decision.verdict == Verdict::Scored && decision.reachable_tokens > 25_000, "{decision:?}");
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| {
                let mut spent = Duration::ZERO;
                for _ in 0..rounds {
                    let question = setup.next();
                    let begun = clock.now();
                    let decision = runtime.block_on(setup.decider.decide(question));
                    spent += clock.now() - begun;
                    assert_eq!(decision.verdict, Verdict::Scored);
                }
                spent
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime(ClockId::ProcessCPUTime));
    targets = decision
}
criterion_main!(benches);
