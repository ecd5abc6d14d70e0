//! Tries the cuts of real tokenizers: are parts encoded by themselves the whole, for every recorded text and many random
//! ones, and do texts that grow through a memory have the ids of the whole?
//!
//! ```text
//! memo DIR...     folders of models, each with tokenizer.json or tokenizer.json.gz
//! ```
//!
//! The ids of whole texts come from the reference. As a control the same texts are cut at every blank, too. Exits with 1
//! where anything differs.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "wrong test data ends the comparison")]

#[path = "../tests/support/ids.rs"]
mod ids;
#[path = "support/unpacked.rs"]
mod unpacked;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use ids::{Ids, ids_of};
use serde_json::Value as Json;
use unpacked::unpacked;
use warmpath_prompt::{ChatRenderer, CompletionRequest, EncoderKind, Memo, ModelFiles, ModelPrompt, Tenant};

/// Random texts per model, and turns of growing texts.
const TEXTS: usize = 3000;
const TURNS: usize = 2000;

const FRAGMENTS: [&str; 40] = [
    " the", " word", " of", " a", " I", "\nThe", "\nif x", "a", "b", "1", "2024", " ", "  ", "   ", "\n",
    "\n\n", " \n", "\r\n", "\t", "\u{a0}", "\u{3000}", ".", ",", "...", "!?", "'s", "'LL", "/", "//\n", "é",
    "e\u{301}", "\u{301}", "中文", "の", "한", "▁", "😀", "ſ", "<0x0A>", "\u{0}",
];

fn main() -> ExitCode {
    let mut out = std::io::stdout();
    let mut bad = 0;
    for dir in std::env::args().skip(1) {
        match compare(Path::new(&dir), &mut out) {
            Ok(wrong) => bad += wrong,
            Err(error) => {
                let _ = writeln!(out, "{dir}: {error}");
                bad += 1;
            }
        }
    }
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn compare(dir: &Path, out: &mut impl Write) -> Result<usize, String> {
    let unpacked = unpacked(dir)?;
    let load = |encoder| {
        let files =
            ModelFiles { encoder, chat_renderer: ChatRenderer::Jinja, ..ModelFiles::in_dir(&unpacked) };
        ModelPrompt::load(&files).map_err(|error| error.to_string())
    };
    let (model, reference) = (load(None)?, load(Some(EncoderKind::Reference))?);
    let mut random = Random(1);
    let mut texts = recorded(dir);
    let tokens = added_tokens(&unpacked);
    texts.extend((0..TEXTS).map(|_| random.text(&tokens)));

    let ids_of_whole = |text: &str, special: bool| {
        let request = CompletionRequest { add_special_tokens: Some(special), ..request(text) };
        reference.tokens(request).map(|tokens| tokens.ids.into_vec()).unwrap()
    };
    let whole = |text: &str| ids_of_whole(text, true);
    let through = |memo: &Memo<Ids>, text: &str| {
        ids_of(&model.fold(model.prepare(request(text)).unwrap(), memo, Tenant::Common, &Ids).unwrap())
    };
    let (mut cuts, mut wrong, mut control, mut control_wrong) = (0, 0, 0, 0);
    for text in &texts {
        let memo = Memo::with_parts_of(1, [1; 16], 1 << 26);
        let ids = whole(text);
        wrong += usize::from(through(&memo, text) != ids);
        cuts += memo.stats().parts_encoded;
        let bare = ids_of_whole(text, false);
        for (place, _) in text.match_indices(' ').take(3) {
            let (left, right) = text.split_at(place);
            let parts = [ids_of_whole(left, false), ids_of_whole(right, false)].concat();
            control += 1;
            control_wrong += usize::from(parts != bare);
        }
    }
    let memo = Memo::with_parts_of(24, [1; 16], 1 << 20);
    let mut text = String::new();
    let mut turns_wrong = 0;
    for _ in 0..TURNS {
        match random.below(6) {
            0 => text.truncate(boundary(&text, random.below(text.len() + 1))),
            1 => text.insert_str(boundary(&text, random.below(text.len() + 1)), &random.text(&tokens)),
            2 => text.clone_from(&texts[random.below(texts.len())]),
            _ => text.push_str(&random.text(&tokens)),
        }
        if text.len() > 6000 {
            text.clear();
        }
        turns_wrong += usize::from(through(&memo, &text) != whole(&text));
    }
    let stats = memo.stats();
    let _ = writeln!(
        out,
        "{}: {}, cut {}; {} texts, {cuts} cuts, {wrong} wrong; {TURNS} turns, {} parts found, {} dropped, \
         {turns_wrong} wrong; cut at blanks: {control_wrong} of {control} wrong",
        dir.display(),
        model.encoder().kind.name(),
        model.cuts().rule,
        texts.len(),
        stats.parts_found,
        stats.parts_dropped,
    );
    for obstacle in &model.cuts().obstacles {
        let _ = writeln!(out, "    {obstacle}");
    }
    Ok(wrong + turns_wrong)
}

fn request(text: &str) -> CompletionRequest<'_> {
    CompletionRequest { text, add_special_tokens: Some(true), ..CompletionRequest::default() }
}

/// Rendered conversations and texts of the golden data, where they stand beside the model.
fn recorded(dir: &Path) -> Vec<String> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let path = dir.with_file_name("golden").join(format!("{name}.jsonl"));
    let lines = fs::read_to_string(path).unwrap_or_default();
    let cases = lines.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok());
    cases
        .filter_map(|case| {
            let text = case.get("rendered").or_else(|| case.get("text"))?;
            text.as_str().map(str::to_owned)
        })
        .collect()
}

fn added_tokens(dir: &Path) -> Vec<String> {
    let json: Json = serde_json::from_slice(&fs::read(dir.join("tokenizer.json")).unwrap()).unwrap();
    let tokens = json["added_tokens"].as_array().unwrap();
    tokens.iter().map(|token| token["content"].as_str().unwrap().to_owned()).collect()
}

fn boundary(text: &str, place: usize) -> usize {
    (0..=place.min(text.len())).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(0)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % (bound.max(1) as u64)).unwrap()
    }

    fn text(&mut self, tokens: &[String]) -> String {
        let mut text = String::new();
        for _ in 0..self.below(60) {
            match self.below(10) {
                0 if !tokens.is_empty() => text.push_str(&tokens[self.below(tokens.len())]),
                1..=4 => text.push_str(FRAGMENTS[self.below(12)]),
                _ => text.push_str(FRAGMENTS[self.below(FRAGMENTS.len())]),
            }
        }
        text
    }
}
