//! The memory of prompts with a real model, Qwen3, and whichever encoder that has, against encoding whole texts with the
//! reference. The families of tokenizers have their tests beside the code, with small ones.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/ids.rs"]
mod ids;
#[path = "support/qwen3.rs"]
mod qwen3;

use std::sync::LazyLock;

use ids::{Ids, ids_of};
use proptest::prelude::*;
use qwen3::QWEN3;
use warmpath_prompt::{
    CompletionRequest, CutRule, EncoderKind, Fold, Folded, Memo, ModelFiles, ModelPrompt, NewlineCuts,
    Prepared, PromptTokens, Tenant, Truncate,
};

/// The chosen encoder, which is fastokens, and the reference.
static MODELS: LazyLock<[ModelPrompt; 2]> = LazyLock::new(|| {
    let load = |encoder| ModelPrompt::load(&ModelFiles { encoder, ..ModelFiles::in_dir(&*QWEN3) }).unwrap();
    let models = [load(None), load(Some(EncoderKind::Reference))];
    let [chosen, _] = &models;
    assert_eq!(chosen.encoder().kind, EncoderKind::Fastokens);
    models
});

fn reference(text: &str, special: bool) -> Vec<u32> {
    let [_, reference] = &*MODELS;
    reference.tokens(request(text, special)).unwrap().ids.into_vec()
}

fn request(text: &str, special: bool) -> CompletionRequest<'_> {
    CompletionRequest { text, add_special_tokens: Some(special), ..CompletionRequest::default() }
}

fn folded(memo: &Memo<Ids>, text: &str) -> Vec<u32> {
    let [model, _] = &*MODELS;
    ids_of(&model.fold(model.prepare(request(text, false)).unwrap(), memo, Tenant::Common, &Ids).unwrap())
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "( [a-z]{1,9}){1,8}",
        2 => "\n[A-Z][a-z]{0,9}",
        2 => "[ \t\r\n\u{a0}\u{3000}]{1,5}",
        1 => "[0-9]{1,9}",
        1 => "[-'’.,;:!?/_=+*#@$%^&()<>|`\"]{1,6}",
        1 => "[\u{300}-\u{345}\u{3099}\u{1d165}]{1,3}",
        1 => "[à-öа-яα-ωא-ת一-丕あ-ん가-갛\u{1112}\u{1161}]{1,6}",
        1 => "(<\\|im_start\\|>|<\\|im_end\\|>|<think>|</think>|<\\|im_)",
        1 => any::<String>(),
    ]
}

fn text(pieces: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    proptest::collection::vec(piece(), pieces).prop_map(|pieces| pieces.concat())
}

#[test]
fn every_kind_of_cut_is_proven_for_qwen3() {
    let rule = CutRule::Characters { newline: NewlineCuts::All, blank: true };
    for model in &*MODELS {
        assert_eq!(model.cuts().rule, rule);
        assert!(model.cuts().obstacles.is_empty(), "{:?}", model.cuts().obstacles);
    }
}

/// Counts what it is given and says which prompt it is for.
struct Length;

impl Fold for Length {
    type State = usize;
    type Part = usize;

    fn identify(&self, _: &mut Vec<u8>) {}

    fn begin(&self) -> usize {
        0
    }

    fn fold(&self, state: &mut usize, ids: &[u32]) -> usize {
        *state += ids.len();
        ids.len()
    }

    fn owned_bytes(_: &usize, _: &usize) -> usize {
        0
    }
}

#[test]
fn truncated_prompts_and_given_ids_go_round_the_memory() {
    let [model, _] = &*MODELS;
    let memo = Memo::<Length>::with_parts_of(16, [1; 16], 1 << 20);
    let fold = |prepared: Prepared<'_>| -> Folded<Length> {
        model.fold(prepared, &memo, Tenant::Common, &Length).unwrap()
    };
    let text = "word ".repeat(100);
    for _ in 0..2 {
        let truncate = Truncate { tokens: Some(7), ..Truncate::default() };
        let request = CompletionRequest { text: &text, truncate, ..CompletionRequest::default() };
        let cut = fold(model.prepare(request).unwrap());
        assert_eq!((cut.tokens(), cut.parts().sum::<usize>()), (7, 7));
        let given = fold(Prepared::Ids(PromptTokens { ids: vec![1, 2, 3].into(), whole: false }));
        assert_eq!((given.tokens(), given.whole), (3, false));
    }
    assert_eq!(memo.stats().parts_encoded, 0);
}

#[test]
fn a_model_that_is_loaded_again_finds_nothing_of_what_it_was() {
    let memo = Memo::<Ids>::with_parts_of(16, [1; 16], 1 << 20);
    let text = "word ".repeat(100);
    for model in &*MODELS {
        let prepared = model.prepare(request(&text, false)).unwrap();
        model.fold(prepared, &memo, Tenant::Common, &Ids).unwrap();
    }
    assert_eq!(memo.stats().parts_found, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_text_in_its_smallest_parts_has_the_ids_of_the_reference(text in text(0..60)) {
        let memo = Memo::with_parts_of(1, [1; 16], 1 << 22);
        let whole = reference(&text, false);
        prop_assert_eq!(&folded(&memo, &text), &whole);
        prop_assert_eq!(&folded(&memo, &text), &whole);
    }

    /// A conversation: each turn is asked for, then the next is added, and some turns are edited.
    #[test]
    fn growing_and_edited_texts_have_the_ids_of_the_reference(
        turns in proptest::collection::vec((text(1..30), any::<proptest::sample::Index>(), 0..4), 1..8),
    ) {
        // With room for some 100 parts, of those it forgets some.
        let memo = Memo::with_parts_of(32, [1; 16], 64 * 3000);
        let mut whole = String::new();
        for (turn, place, edit) in turns {
            if edit == 0 {
                let place = whole.char_indices().map(|(place, _)| place).nth(place.index(whole.len().max(1)));
                whole.insert_str(place.unwrap_or(0), &turn);
            } else {
                whole.push_str(&turn);
            }
            prop_assert_eq!(folded(&memo, &whole), reference(&whole, false));
        }
    }
}
