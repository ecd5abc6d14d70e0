//! The reference is the oracle: small tokenizers of every family that the proof knows, and of some that it refuses, on
//! random texts. `tests/memo.rs` does the same with a real one.

mod texts;
mod tiny;

use std::path::Path;

use super::*;
use crate::tokenizer::{Chosen, EncoderKind, HuggingFace, Loaded};
use texts::Random;
use tiny::Tiny;

/// Random texts per tokenizer.
const TEXTS: usize = 200;
/// Of those, as many as a test takes that encodes each of them a hundred times.
const FEW_TEXTS: usize = 30;

/// The smallest parts, so that a text of some hundred bytes has many.
const PART_BYTES_MIN: usize = 8;

/// All ids.
struct Ids;

impl Fold for Ids {
    type State = usize;
    type Part = Vec<u32>;

    fn identify(&self, _: &mut Vec<u8>) {}

    fn begin(&self) -> usize {
        0
    }

    fn fold(&self, state: &mut usize, ids: &[u32]) -> Vec<u32> {
        *state += ids.len();
        ids.to_vec()
    }

    fn owned_bytes(_: &usize, ids: &Vec<u32>) -> usize {
        size_of_val(ids.as_slice())
    }
}

/// A tokenizer with its cuts; the reference is its encoder and the oracle.
struct Model {
    encoder: HuggingFace,
    parts: Parts,
}

impl Model {
    fn of(tiny: &Tiny) -> Self {
        let json = serde_json::to_vec(&tiny.json).unwrap();
        let path = Path::new("tokenizer.json");
        let encoder = HuggingFace::load(path, &json).unwrap();
        let parts = Parts::of(path, &json, &encoder, Some(EncoderKind::Reference));
        assert_eq!(parts.cuts().rule, tiny.rule, "{}: {:?}", tiny.name, parts.cuts().obstacles);
        Self { encoder, parts }
    }

    fn whole(&self, text: &str, special: SpecialTokens) -> Vec<u32> {
        self.encoder.encode(text, special).unwrap()
    }

    /// A text parted at all its cuts.
    fn parted(&self, text: &str) -> (Vec<u32>, usize) {
        let (mut ids, mut rest, mut cuts) = (Vec::new(), text, 0);
        loop {
            let begin = text.len() - rest.len();
            let end = self.parts.end(text, begin, 1);
            let (part, behind) = rest.split_at(end.map_or(rest.len(), |end| end - begin));
            ids.extend(self.parts.encode(&self.encoder, part, begin == 0).unwrap());
            if end.is_none() {
                return (ids, cuts);
            }
            (rest, cuts) = (behind, cuts + 1);
        }
    }

    fn remembered(
        &self,
        memo: &Memo<Ids>,
        text: &str,
        special: SpecialTokens,
        tenant: Tenant<'_>,
    ) -> Vec<u32> {
        let model = Text { text, special, encoder: &self.encoder, parts: &self.parts, generation: 0 };
        let folded = memo.fold(model, tenant, &Ids).unwrap();
        let ids: Vec<u32> = folded.parts().flatten().copied().collect();
        assert_eq!(folded.tokens(), ids.len());
        ids
    }
}

fn memo(limit_bytes: usize) -> Memo<Ids> {
    Memo::with_parts_of(PART_BYTES_MIN, [9; 16], limit_bytes)
}

#[test]
fn parts_encoded_by_themselves_have_the_ids_of_the_whole() {
    for tiny in tiny::all() {
        let model = Model::of(&tiny);
        let mut random = Random(1);
        let mut cuts = 0;
        for number in 0..TEXTS {
            let text = random.text(&tiny.tokens);
            let whole = model.whole(&text, SpecialTokens::Omit);
            let (ids, found) = model.parted(&text);
            assert_eq!(ids, whole, "{}: {text:?}", tiny.name);
            // Each cut alone, too: a fault of one must not be made good by another.
            let mut begin = 0;
            while let Some(end) = model.parts.end(&text, begin, 1).filter(|_| number < FEW_TEXTS) {
                let (left, right) = text.split_at(end);
                let left = model.parts.encode(&model.encoder, left, true).unwrap();
                let right = model.parts.encode(&model.encoder, right, false).unwrap();
                assert_eq!([left, right].concat(), whole, "{}: {text:?} at {end}", tiny.name);
                // A part begins where tokens do, so for cuts before them the next may only be looked for from there.
                begin = end;
            }
            cuts += found;
        }
        assert!(tiny.rule == CutRule::Nowhere || cuts > TEXTS, "{}: {cuts} cuts", tiny.name);
    }
}

#[test]
fn texts_that_grow_shrink_and_change_have_the_ids_of_the_whole() {
    for tiny in tiny::all() {
        let model = Model::of(&tiny);
        // Too small for all of it, so that parts are dropped in the middle of texts.
        let memo = memo(64 * 1500);
        let mut random = Random(2);
        let mut text = String::new();
        for _ in 0..TEXTS {
            match random.below(4) {
                0 => text.truncate(texts::boundary(&text, random.below(text.len() + 1))),
                1 => {
                    let place = texts::boundary(&text, random.below(text.len() + 1));
                    text.insert_str(place, &random.text(&tiny.tokens));
                }
                _ => text.push_str(&random.text(&tiny.tokens)),
            }
            if text.len() > 4000 {
                text.clear();
            }
            let special = SpecialTokens::from(random.below(2) == 0);
            let tenant = if random.below(4) == 0 { Tenant::Salted("s") } else { Tenant::Common };
            let ids = model.remembered(&memo, &text, special, tenant);
            assert_eq!(ids, model.whole(&text, special), "{}: {special:?} {text:?}", tiny.name);
        }
        let stats = memo.stats();
        assert!(stats.bytes_held <= 64 * 1500);
        if tiny.rule != CutRule::Nowhere {
            assert!(stats.parts_found > stats.parts_encoded / 10, "{}: {stats:?}", tiny.name);
            assert!(stats.parts_dropped > 0, "{}: {stats:?}", tiny.name);
        }
    }
}

/// The same texts and tokenizers, cut at every blank and every line feed: what the proof has to rule out is there.
#[test]
fn cuts_that_are_not_proven_are_wrong_on_the_same_texts() {
    for tiny in tiny::all().into_iter().filter(|tiny| matches!(tiny.rule, CutRule::Characters { .. })) {
        let model = Model::of(&tiny);
        let mut random = Random(1);
        let (mut cuts, mut wrong) = (0, 0);
        for _ in 0..FEW_TEXTS {
            let text = random.text(&tiny.tokens);
            let whole = model.whole(&text, SpecialTokens::Omit);
            for place in text.match_indices([' ', '\n']).flat_map(|(place, _)| [place, place + 1]) {
                let (left, right) = text.split_at(place);
                let parts = [left, right].map(|part| model.whole(part, SpecialTokens::Omit)).concat();
                cuts += 1;
                wrong += usize::from(parts != whole);
            }
        }
        assert!(wrong * 20 > cuts, "{}: {wrong} of {cuts}", tiny.name);
    }
}

/// A continued gap needs the second encoder: with the first one, the same cuts are wrong.
#[test]
fn continuing_a_gap_with_the_encoder_of_its_beginning_is_wrong() {
    for tiny in tiny::all().into_iter().filter(|tiny| tiny.has_prefix) {
        let mut model = Model::of(&tiny);
        model.parts.forget_continuation();
        let mut random = Random(1);
        let wrong = std::iter::repeat_with(|| random.text(&tiny.tokens))
            .take(TEXTS)
            .filter(|text| model.parted(text).0 != model.whole(text, SpecialTokens::Omit))
            .count();
        assert!(wrong > TEXTS / 10, "{}: {wrong}", tiny.name);
    }
}

#[test]
fn what_one_tenant_or_model_or_kind_of_text_brought_in_another_does_not_find() {
    let tiny = tiny::all().remove(0);
    let model = Model::of(&tiny);
    let memo = memo(1 << 20);
    let text = "some words and some words and some words and some words";
    let found = |tenant, generation, special| {
        let before = memo.stats().parts_found;
        let model = Text { text, special, encoder: &model.encoder, parts: &model.parts, generation };
        memo.fold(model, tenant, &Ids).unwrap();
        memo.stats().parts_found - before
    };
    let askers = [
        (Tenant::Common, 0, SpecialTokens::Omit),
        (Tenant::Salted(""), 0, SpecialTokens::Omit),
        (Tenant::Salted("a"), 0, SpecialTokens::Omit),
        (Tenant::Salted("b"), 0, SpecialTokens::Omit),
        (Tenant::Common, 1, SpecialTokens::Omit),
        (Tenant::Common, 0, SpecialTokens::Add),
    ];
    for (tenant, generation, special) in askers {
        assert_eq!(found(tenant, generation, special), 0, "{tenant:?} {generation} {special:?}");
    }
    for (tenant, generation, special) in askers {
        assert!(found(tenant, generation, special) > 2, "{tenant:?} {generation} {special:?}");
    }
}

/// What passes the self-check has the ids of the reference on other texts too, whatever rules added tokens have.
#[test]
fn encoders_that_pass_the_self_check_have_the_ids_of_the_reference() {
    let mut passed = 0;
    for tiny in tiny::all() {
        let json = serde_json::to_vec(&tiny.json).unwrap();
        let loaded = Loaded::load(Path::new("tokenizer.json"), &json, None).unwrap();
        let Chosen { encoder, choice } = loaded.choose().unwrap();
        if choice.kind == EncoderKind::Reference {
            continue;
        }
        passed += 1;
        let reference = HuggingFace::load(Path::new("tokenizer.json"), &json).unwrap();
        let mut random = Random(4);
        for _ in 0..TEXTS {
            let text = random.text(&tiny.tokens);
            for special in [SpecialTokens::Add, SpecialTokens::Omit] {
                let (ours, theirs) = (encoder.encode(&text, special), reference.encode(&text, special));
                assert_eq!(ours.unwrap(), theirs.unwrap(), "{} by {:?}: {text:?}", tiny.name, choice.kind);
            }
        }
    }
    assert!(passed > 20, "{passed}");
}

#[test]
fn a_memo_without_memory_encodes_everything_and_keeps_nothing() {
    let tiny = tiny::all().remove(0);
    let model = Model::of(&tiny);
    let memo = memo(0);
    for _ in 0..2 {
        let text = "some words and some words";
        let ids = model.remembered(&memo, text, SpecialTokens::Add, Tenant::Common);
        assert_eq!(ids, model.whole(text, SpecialTokens::Add));
    }
    assert_eq!(memo.stats(), MemoStats::default());
}

#[test]
fn parts_that_were_dropped_in_the_middle_are_encoded_again_and_those_behind_them_are_found() {
    let tiny = tiny::all().remove(0);
    let model = Model::of(&tiny);
    let memo = memo(1 << 20);
    let text = "one two three four five six seven eight nine ten eleven twelve";
    let ids = model.remembered(&memo, text, SpecialTokens::Omit, Tenant::Common);
    let parts = memo.stats().parts_encoded;
    memo.store.drop_some(|number| number % 3 == 1);
    let dropped = parts - memo.stats().parts_held as u64;
    assert!(dropped > 0 && dropped < parts);
    assert_eq!(model.remembered(&memo, text, SpecialTokens::Omit, Tenant::Common), ids);
    assert_eq!(memo.stats().parts_encoded, parts + dropped);
    assert_eq!(memo.stats().parts_found, parts - dropped);
}
