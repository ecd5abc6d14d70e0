//! Prompts through the memory of prompts, from text to block keys of 16 tokens, beside plain encoding with the same
//! encoder and with the reference. One thread; times are those that it was on a core.
//!
//! Qwen3 is measured always; further models are the folders in `WARMPATH_BENCH_MODELS`, each with a tokenizer.json.

#![expect(clippy::unwrap_used, reason = "a bench without its fixture has nothing to measure")]

#[path = "memo/cpu_time.rs"]
mod cpu_time;
#[path = "memo/fold.rs"]
mod fold;
#[path = "memo/prose.rs"]
mod prose;
#[path = "../tests/support/qwen3.rs"]
mod qwen3;

use std::cell::Cell;
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};

use cpu_time::CpuTime;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use fold::{BlockKeys, plan};
use prose::Prose;
use rustix::time::ClockId;
use warmpath_kv::PromptKeys;
use warmpath_prompt::{ChatRenderer, CompletionRequest, EncoderKind, Memo, ModelFiles, ModelPrompt, Tenant};

/// More than all texts of one measurement take.
const MEMO_BYTES: usize = 256 << 20;

/// Bytes of a prompt that is often asked for.
const SHORT_BYTES: usize = 12_000;

/// Bytes of a last turn: about 70 tokens.
const TURN_BYTES: usize = 300;

/// Sizes of parts that are compared; the first is the one in use.
const PART_BYTES: [usize; 3] = [2048, 1024, 4096];

/// Bytes of a word without an end.
const WORD_BYTES: usize = 64 << 10;

/// The memory that is filled to its limit: as much as the indexer's default.
const FULL_BYTES: usize = 128 << 20;

struct Model {
    name: String,
    chosen: ModelPrompt,
    reference: ModelPrompt,
}

fn models() -> Vec<Model> {
    #[expect(clippy::disallowed_methods, reason = "the one setting of this bench")]
    let further = std::env::var("WARMPATH_BENCH_MODELS").unwrap_or_default();
    let further = further.split(':').filter(|dir| !dir.is_empty()).map(PathBuf::from);
    std::iter::once(qwen3::QWEN3.clone()).chain(further).map(|dir| Model::load(&dir)).collect()
}

// === impl Model ===

impl Model {
    fn load(dir: &Path) -> Self {
        let load = |encoder| {
            let files = ModelFiles { encoder, chat_renderer: ChatRenderer::Jinja, ..ModelFiles::in_dir(dir) };
            ModelPrompt::load(&files).unwrap()
        };
        let name = dir.file_name().unwrap().to_string_lossy().replace("-memo", "");
        Model { name, chosen: load(None), reference: load(Some(EncoderKind::Reference)) }
    }

    /// What a decision does with a text.
    fn keys(&self, memo: &Memo<BlockKeys>, text: &str) -> PromptKeys {
        let fold = BlockKeys::new();
        let prepared = self.chosen.prepare(request(text)).unwrap();
        fold.keys(&self.chosen.fold(prepared, memo, Tenant::Common, &fold).unwrap())
    }

    /// Without a memory.
    fn plain(model: &ModelPrompt, text: &str) -> PromptKeys {
        let tokens = model.tokens(request(text)).unwrap();
        plan().keys(&fold::NAMESPACE, tokens.ids.as_slice())
    }

    /// A text of about so many tokens, and the bytes of one.
    fn text(&self, tokens: usize) -> String {
        let mut prose = Prose::new(1);
        let sample = prose.text(40_000);
        let per_token = sample.len() / self.chosen.tokens(request(&sample)).unwrap().ids.len();
        let mut text = prose.text(tokens * per_token);
        let found = self.chosen.tokens(request(&text)).unwrap().ids.len();
        text.push_str(&prose.text(tokens.saturating_sub(found) * per_token));
        text
    }
}

fn request(text: &str) -> CompletionRequest<'_> {
    CompletionRequest { text, add_special_tokens: Some(false), ..CompletionRequest::default() }
}

fn memo(part_bytes: usize) -> Memo<BlockKeys> {
    Memo::with_parts_of(part_bytes, [7; 16], MEMO_BYTES)
}

fn prompts(criterion: &mut Criterion<CpuTime>) {
    let models = models();
    // First, while the allocator holds little that was freed before.
    models.first().into_iter().for_each(full);
    for model in &models {
        short(criterion, model);
        conversation(criterion, model, 32_000);
        conversation(criterion, model, 128_000);
        words(criterion, model);
    }
}

/// 12,000 characters: asked again, and never seen.
fn short(criterion: &mut Criterion<CpuTime>, model: &Model) {
    let kind = model.chosen.encoder().kind.name();
    let mut group = criterion.benchmark_group(format!("{} ({kind}): 12,000 characters", model.name));
    let mut prose = Prose::new(2);
    let text = prose.text(SHORT_BYTES);
    let known = memo(PART_BYTES[0]);
    group.bench_function("seen", |bencher| bencher.iter(|| model.keys(&known, black_box(&text))));
    group.bench_function("unseen", |bencher| {
        // Words, too, that no text before had.
        let next = || prose.text(SHORT_BYTES);
        bencher.iter_batched(next, |text| model.keys(&known, &text), BatchSize::PerIteration);
    });
    group.bench_function("without memo", |bencher| {
        bencher.iter(|| Model::plain(&model.chosen, black_box(&text)));
    });
    group.sample_size(10).bench_function("tokenizers", |bencher| {
        bencher.iter(|| Model::plain(&model.reference, black_box(&text)));
    });
    group.finish();
}

/// A long prompt that was never seen, and one of which all but the last turn was.
fn conversation(criterion: &mut Criterion<CpuTime>, model: &Model, tokens: usize) {
    let kind = model.chosen.encoder().kind.name();
    let text = model.text(tokens);
    let mut group = criterion.benchmark_group(format!("{} ({kind}): {tokens} tokens", model.name));
    let mut prose = Prose::new(3);
    for part_bytes in PART_BYTES {
        let known = memo(part_bytes);
        model.keys(&known, &text);
        group.bench_function(format!("new last turn, parts of {part_bytes}"), |bencher| {
            let next = || [&text, "<|im_end|>\n", &prose.text(TURN_BYTES)].concat();
            bencher.iter_batched(next, |text| model.keys(&known, &text), BatchSize::PerIteration);
        });
    }
    group.sample_size(10);
    group.bench_function("cold", |bencher| {
        bencher.iter_batched(
            || memo(PART_BYTES[0]),
            |memo| model.keys(&memo, &text),
            BatchSize::PerIteration,
        );
    });
    group.bench_function("without memo", |bencher| bencher.iter(|| Model::plain(&model.chosen, &text)));
    group.bench_function("tokenizers", |bencher| bencher.iter(|| Model::plain(&model.reference, &text)));
    group.finish();
}

/// One word of 64 kB, of which no beginning can be remembered.
fn words(criterion: &mut Criterion<CpuTime>, model: &Model) {
    let mut group = criterion.benchmark_group(format!("{}: one word of 64 kB", model.name));
    group.sample_size(10);
    let known = memo(PART_BYTES[0]);
    let repeated =
        [("a", "a"), ("=", "="), ("blanks", " ")].map(|(name, text)| (name, text.repeat(WORD_BYTES)));
    for (name, text) in repeated {
        group.bench_function(name, |bencher| bencher.iter(|| model.keys(&known, &text)));
    }
    let number = Cell::new(0);
    group.bench_function("base64, another each time", |bencher| {
        let next = || {
            number.set(number.get() + 1);
            base64(&mut Prose::new(number.get()))
        };
        bencher.iter_batched(next, |text| model.keys(&known, &text), BatchSize::PerIteration);
    });
    group.finish();
}

fn base64(prose: &mut Prose) -> String {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    (0..WORD_BYTES).filter_map(|_| letters.get(prose.below(64)).copied().map(char::from)).collect()
}

/// Says what a memory takes when it is full.
fn full(model: &Model) {
    let mut prose = Prose::new(4);
    let memo = Memo::with_parts_of(PART_BYTES[0], [7; 16], FULL_BYTES);
    let mut tokens = 0;
    while memo.stats().parts_dropped < 1000 {
        let text = prose.text(400_000);
        if memo.stats().parts_dropped == 0 {
            tokens += model.chosen.tokens(request(&text)).unwrap().ids.len();
        }
        model.keys(&memo, &text);
    }
    let stats = memo.stats();
    let mut out = std::io::stdout();
    let _ = writeln!(
        out,
        "{}: a memory of {FULL_BYTES} bytes holds {} parts of about {tokens} tokens; counted {} bytes",
        model.name, stats.parts_held, stats.bytes_held,
    );
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime(ClockId::ThreadCPUTime));
    targets = prompts
}
criterion_main!(benches);
