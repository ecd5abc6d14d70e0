//! Time of the stages of a prompt of about 3000 tokens: rendering, encoding, and both, with the Qwen3 model.

#![expect(clippy::unwrap_used, reason = "a bench without its fixture has nothing to measure")]

use std::fs;
use std::hint::black_box;
use std::io::Read;
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use flate2::read::GzDecoder;
use serde_json::json;
use warmpath_prompt::{ChatRequest, ModelFiles, ModelPrompt};

/// Turns of the conversation; each has about 150 tokens.
const TURNS: usize = 20;

const SENTENCE: &str = "The router keeps each conversation where its prefix is warm, unless waiting costs more. \
    Measured in tokens: 42% of 1,024 blocks, naïvely. ";

fn qwen3() -> ModelPrompt {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tokenizers/qwen3");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("qwen3-bench");
    fs::create_dir_all(&dir).unwrap();
    let mut text = Vec::new();
    GzDecoder::new(fs::File::open(packed.join("tokenizer.json.gz")).unwrap()).read_to_end(&mut text).unwrap();
    fs::write(dir.join("tokenizer.json"), text).unwrap();
    fs::copy(packed.join("tokenizer_config.json"), dir.join("tokenizer_config.json")).unwrap();
    ModelPrompt::load(&ModelFiles::in_dir(dir)).unwrap()
}

fn conversation() -> Vec<u8> {
    let turn = |place: usize| {
        let role = if place.is_multiple_of(2) { "user" } else { "assistant" };
        json!({"role": role, "content": format!("{place}. {}", SENTENCE.repeat(4))})
    };
    let messages: Vec<_> = (0..=TURNS).map(turn).collect();
    json!(messages).to_string().into_bytes()
}

fn stages(criterion: &mut Criterion) {
    let model = qwen3();
    let messages = conversation();
    let request = ChatRequest { messages: &messages, ..ChatRequest::default() };
    let text = model.render_chat(&request).unwrap();
    let tokens = model.chat(&request).unwrap().len();
    let mut group = criterion.benchmark_group(format!("chat of {tokens} tokens"));
    group.sample_size(20);
    group.bench_function("render", |bencher| bencher.iter(|| model.render_chat(black_box(&request))));
    group.bench_function("encode", |bencher| {
        bencher.iter(|| model.completion(black_box(&text), Some(false), None));
    });
    group.bench_function("render and encode", |bencher| bencher.iter(|| model.chat(black_box(&request))));
    group.finish();
}

criterion_group!(benches, stages);
criterion_main!(benches);
