//! Time of the stages of a prompt with the Qwen3 model: rendering a chat, encoding texts of three sizes with every
//! encoder side by side, and loading. Encoders keep caches of words, so encoding goes round several texts of one size.

#![expect(clippy::unwrap_used, reason = "a bench without its fixture has nothing to measure")]

use std::fmt::Write;
use std::fs;
use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flate2::read::GzDecoder;
use serde_json::json;
use warmpath_prompt::{ChatRequest, CompletionRequest, EncoderKind, ModelFiles, ModelPrompt};

/// Turns of the conversation; each has about 150 tokens.
const TURNS: usize = 20;

const SENTENCE: &str = "The router keeps each conversation where its prefix is warm, unless waiting costs more. \
    Measured in tokens: 42% of 1,024 blocks, naïvely. ";

/// Sizes of the encoded texts, in tokens.
const SIZES: [usize; 3] = [3_000, 32_000, 120_000];

/// Different texts of each size.
const TEXTS: usize = 4;

/// Bytes per token of the texts, about.
const BYTES_PER_TOKEN: usize = 4;

const WORDS: [&str; 24] = [
    "router",
    "the",
    "replica",
    "of",
    "cache",
    "prefix",
    "tokens",
    "and",
    "measured",
    "a",
    "naïve",
    "block",
    "in",
    "scheduler",
    "request",
    "to",
    "Größe",
    "latency",
    "is",
    "кэш",
    "缓存",
    "fn main()",
    "{ x => y; }",
    "unless",
];

fn qwen3() -> PathBuf {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tokenizers/qwen3");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("qwen3-bench");
    fs::create_dir_all(&dir).unwrap();
    let mut text = Vec::new();
    GzDecoder::new(fs::File::open(packed.join("tokenizer.json.gz")).unwrap()).read_to_end(&mut text).unwrap();
    fs::write(dir.join("tokenizer.json"), text).unwrap();
    fs::copy(packed.join("tokenizer_config.json"), dir.join("tokenizer_config.json")).unwrap();
    dir
}

fn conversation() -> Vec<u8> {
    let turn = |place: usize| {
        let role = if place.is_multiple_of(2) { "user" } else { "assistant" };
        json!({"role": role, "content": format!("{place}. {}", SENTENCE.repeat(4))})
    };
    let messages: Vec<_> = (0..=TURNS).map(turn).collect();
    json!(messages).to_string().into_bytes()
}

/// Words, numbers, line ends and turns in an order that `seed` decides.
fn prose(seed: usize, bytes: usize) -> String {
    let mut text = String::new();
    let mut state = seed;
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = state >> 33;
        match draw % 32 {
            0 => write!(text, "{}, ", draw % 10_000).unwrap(),
            1 => text.push_str(".\n"),
            2 if draw % 8 == 2 => text.push_str("<|im_end|>\n<|im_start|>user\n"),
            _ => text.extend(WORDS.get(draw / 32 % WORDS.len()).into_iter().flat_map(|word| [*word, " "])),
        }
    }
    text
}

fn rendering(criterion: &mut Criterion) {
    let model = ModelPrompt::load(&ModelFiles::in_dir(qwen3())).unwrap();
    let messages = conversation();
    let request = ChatRequest { messages: &messages, ..ChatRequest::default() };
    let tokens = model.tokens(request).unwrap().ids.len();
    let mut group = criterion.benchmark_group(format!("chat of {tokens} tokens"));
    group.sample_size(20);
    group.bench_function("render", |bencher| bencher.iter(|| model.render_chat(black_box(&request))));
    group.bench_function("render and encode", |bencher| bencher.iter(|| model.tokens(black_box(request))));
    group.finish();
}

fn encoding(criterion: &mut Criterion) {
    let dir = qwen3();
    let load =
        |encoder| ModelPrompt::load(&ModelFiles { encoder: Some(encoder), ..ModelFiles::in_dir(&dir) });
    // Those that the self-check lets the model have.
    let models: Vec<_> = EncoderKind::ALL.into_iter().filter_map(|encoder| load(encoder).ok()).collect();
    for size in SIZES {
        let texts: Vec<_> = (0..TEXTS).map(|seed| prose(seed, size * BYTES_PER_TOKEN)).collect();
        let encode = |model: &ModelPrompt, text: &str| {
            let request = CompletionRequest { text, add_special_tokens: Some(false), ..Default::default() };
            model.tokens(request).unwrap().ids
        };
        let tokens: usize = models.first().map(|model| encode(model, &texts.concat()).len()).unwrap() / TEXTS;
        let mut group = criterion.benchmark_group(format!("encode {tokens} tokens"));
        group.sample_size(20).throughput(Throughput::Elements(u64::try_from(tokens).unwrap()));
        for model in &models {
            let mut texts = texts.iter().cycle();
            group.bench_function(model.encoder().kind.name(), |bencher| {
                bencher.iter(|| encode(model, black_box(texts.next().unwrap())));
            });
        }
        group.finish();
    }
}

fn loading(criterion: &mut Criterion) {
    let dir = qwen3();
    let mut group = criterion.benchmark_group("load");
    group.sample_size(10);
    group.bench_function("reference only", |bencher| {
        let files = ModelFiles { encoder: Some(EncoderKind::Reference), ..ModelFiles::in_dir(&dir) };
        bencher.iter(|| ModelPrompt::load(&files).unwrap());
    });
    group.bench_function("choosing", |bencher| {
        bencher.iter(|| ModelPrompt::load(&ModelFiles::in_dir(&dir)).unwrap());
    });
    group.finish();
}

criterion_group!(benches, encoding, rendering, loading);
criterion_main!(benches);
