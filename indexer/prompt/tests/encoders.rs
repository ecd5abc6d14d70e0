//! Every encoder that the self-check lets a model have against the reference, on random texts.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/qwen3.rs"]
mod qwen3;

use std::sync::LazyLock;

use proptest::prelude::*;
use qwen3::QWEN3;
use warmpath_prompt::{CompletionRequest, EncoderKind, ModelFiles, ModelPrompt, first_difference};

static MODELS: LazyLock<Vec<ModelPrompt>> = LazyLock::new(|| {
    let load =
        |encoder| ModelPrompt::load(&ModelFiles { encoder: Some(encoder), ..ModelFiles::in_dir(&*QWEN3) });
    let models: Vec<_> = EncoderKind::ALL.into_iter().filter_map(|encoder| load(encoder).ok()).collect();
    assert_eq!(models.first().map(|model| model.encoder().kind), Some(EncoderKind::Fastokens));
    assert_eq!(models.last().map(|model| model.encoder().kind), Some(EncoderKind::Reference));
    models
});

/// Texts up to about 400 characters of which most are boundaries of something.
fn nasty_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-zA-Z]{1,12}",
        2 => "[0-9]{1,6}",
        3 => "[ \t\r\n\u{a0}\u{3000}\u{2028}]{1,5}",
        2 => "[-'’.,;:!?/\\\\_=+*#@$%^&()<>\\[\\]{}|~`\"]{1,6}",
        2 => "('s|'LL|’ve|n't|'d'|ſ|İ|ß|ª)",
        2 => "[\u{300}-\u{345}\u{3099}\u{1f3fb}-\u{1f3ff}\u{fe0f}\u{200b}-\u{200f}]{1,3}",
        2 => "[à-öа-яα-ωא-תء-ي]{1,8}",
        2 => "[一-丕あ-んア-ン가-갛\u{1100}-\u{1112}\u{1161}-\u{1175}\u{11a8}-\u{11c2}ก-๛क-ह़-ॐ]{1,6}",
        1 => "[😀-😏🇦-🇿👨👩𝔘𐍈]{1,3}",
        1 => "(<\\|im_start\\|>|<\\|im_end\\|>|<\\|endoftext\\|>|<think>|</think>|<tool_call>|<\\|im_|_end\\|>)",
        1 => any::<String>(),
        1 => "\\PC{1,4}",
        1 => ("[a= \\-]", 50_usize..200).prop_map(|(letter, count)| letter.repeat(count)),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn check_equal(text: &str, special: bool) -> Result<(), TestCaseError> {
    let request = CompletionRequest { text, add_special_tokens: Some(special), ..Default::default() };
    let ids = |model: &ModelPrompt| model.tokens(request).unwrap().ids.into_vec();
    let (reference, others) = MODELS.split_last().unwrap();
    let theirs = ids(reference);
    for model in others {
        let difference = first_difference(&ids(model), &theirs);
        prop_assert!(difference.is_none(), "{:?}: {}", model.encoder().kind, difference.unwrap());
    }
    Ok(())
}

/// splintr orders combining marks of recent Unicode versions otherwise, which only shows where a model normalises.
#[test]
fn an_encoder_with_other_unicode_tables_is_refused_by_a_model_that_normalises() {
    let files = ModelFiles { encoder: Some(EncoderKind::Splintr), ..ModelFiles::in_dir(&*QWEN3) };
    assert!(ModelPrompt::load(&files).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn ids_are_those_of_the_reference(text in nasty_text(), special: bool) {
        check_equal(&text, special)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// From 64 kB on fastokens has other ways through the text.
    #[test]
    fn ids_of_long_texts_are_those_of_the_reference(text in nasty_text(), newline: bool) {
        let line = format!("{text}{}", if newline { "\n" } else { "" });
        check_equal(&line.repeat(100_000 / line.len().max(1) + 1), false)?;
    }
}
