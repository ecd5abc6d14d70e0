//! Time to read a request body: a short and a long conversation, one full of escapes, one with a picture, and a text to
//! be embedded. Bytes per second tell how far it is from merely looking at each byte.

#![expect(clippy::unwrap_used, reason = "a bench without its body has nothing to measure")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};
use warmpath_core::path::KnownPath;
use warmpath_core::request::{Prompt, extract};

/// Bytes of one message's text, about.
const MESSAGE_BYTES: usize = 2_000;

const PLAIN: &str =
    "The router keeps each conversation where its prefix is warm, unless waiting costs more, naïvely. ";
/// Source code as a client sends it: a quote, a backslash or a line end every few bytes.
const ESCAPED: &str = "\tprintln!(\"{}\\n\", \"a\");\n";

/// A conversation of `bytes`, whose messages repeat `piece`.
fn conversation(bytes: usize, piece: &str) -> Value {
    let text = piece.repeat(MESSAGE_BYTES.div_ceil(piece.len()));
    let turn = |place: usize| {
        let role = if place.is_multiple_of(2) { "user" } else { "assistant" };
        json!({ "role": role, "content": format!("{place}. {text}") })
    };
    let turn_bytes = turn(0).to_string().len();
    let messages: Vec<Value> = (0..bytes.div_ceil(turn_bytes)).map(turn).collect();
    json!({ "model": "qwen3", "messages": messages, "max_tokens": 64, "stream": true })
}

/// A question about a picture of `bytes` in base64.
fn picture(bytes: usize) -> Value {
    let url = format!("data:image/png;base64,{}", "QUJD".repeat(bytes / 4));
    let parts = json!([{ "type": "text", "text": "what is it?" }, { "type": "image_url", "image_url": { "url": url } }]);
    json!({ "model": "qwen3", "messages": [{ "role": "user", "content": parts }] })
}

fn read(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("extract");
    for (name, path, body) in [
        ("chat_12k", KnownPath::Chat, conversation(12_000, PLAIN)),
        ("chat_400k", KnownPath::Chat, conversation(400_000, PLAIN)),
        ("chat_400k_escapes", KnownPath::Chat, conversation(400_000, ESCAPED)),
        ("chat_4m_picture", KnownPath::Chat, picture(4 << 20)),
        ("embeddings_400k_escapes", KnownPath::Embeddings, json!({ "input": ESCAPED.repeat(12_000) })),
    ] {
        let body = body.to_string();
        let request = extract(path, body.as_bytes()).unwrap();
        assert!(!matches!(request.prompt, Prompt::Unscored(_)), "{name}: {:?}", request.prompt);
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_with_input(BenchmarkId::from_parameter(name), &body, |bench, body| {
            bench.iter(|| black_box(extract(path, black_box(body.as_bytes()))));
        });
    }
    group.finish();
}

criterion_group!(benches, read);
criterion_main!(benches);
