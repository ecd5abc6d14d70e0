//! The self-check has teeth: what differs, fails or panics is never chosen.

use super::*;
use crate::tokenizer::{EncodeError, SpecialTokens};

/// One token per byte, 256 before a text that gets special tokens; fails on `fails_on`.
#[derive(Clone, Copy, Default)]
struct Bytes {
    fails_on: Option<&'static str>,
    slip: Option<Slip>,
}

/// The single mistake of an encoder that is equal otherwise.
#[derive(Clone, Copy)]
enum Slip {
    /// One id is wrong, in texts that hold this.
    Id(&'static str),
    /// The last id is missing, where special tokens are added to a text that holds this.
    Missing(&'static str),
    Panic,
}

impl Encode for Bytes {
    fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, EncodeError> {
        if self.fails_on.is_some_and(|part| text.contains(part)) {
            return Err(EncodeError("unknown".into()));
        }
        let bos = (special == SpecialTokens::Add).then_some(256);
        let mut ids: Vec<u32> = bos.into_iter().chain(text.bytes().map(u32::from)).collect();
        match self.slip {
            Some(Slip::Id(part)) if text.contains(part) => ids[text.find(part).unwrap()] += 1,
            Some(Slip::Missing(part)) if bos.is_some() && text.contains(part) => drop(ids.pop()),
            Some(Slip::Panic) => panic!("a bug of a library"),
            _ => {}
        }
        Ok(ids)
    }
}

fn slipping(slip: Slip) -> Bytes {
    Bytes { slip: Some(slip), ..Bytes::default() }
}

/// What is chosen where fastokens is `first` and splintr `second`.
fn chosen(reference: Bytes, first: Option<Bytes>, second: Option<Bytes>) -> EncoderChoice {
    let load = |encoder: Option<Bytes>| {
        move || encoder.map(|it| Box::new(it) as Box<dyn Encode>).ok_or("unknown model".to_owned())
    };
    let candidates: Vec<(EncoderKind, Load<'_>)> =
        vec![(EncoderKind::Fastokens, Box::new(load(first))), (EncoderKind::Splintr, Box::new(load(second)))];
    let answers = Answers::of(&reference, &["<tool>".into()]);
    choose_among(Box::new(reference), &answers, candidates).choice
}

#[test]
fn equal_encoders_are_chosen_in_their_order() {
    let equal = Bytes::default();
    let choice = chosen(equal, Some(equal), Some(equal));
    assert_eq!(choice, EncoderChoice { kind: EncoderKind::Fastokens, refused: vec![] });
    let choice = chosen(equal, None, Some(equal));
    assert_eq!(choice.kind, EncoderKind::Splintr);
    assert_eq!(choice.refused, [(EncoderKind::Fastokens, "unknown model".to_owned())]);
    assert_eq!(chosen(equal, None, None).kind, EncoderKind::Reference);
}

/// Checks that an encoder with this slip is refused, and that the reason holds `why`.
fn check_refused(slip: Slip, why: &str) {
    let choice = chosen(Bytes::default(), Some(slipping(slip)), None);
    assert_eq!(choice.kind, EncoderKind::Reference);
    let (kind, reason) = &choice.refused[0];
    assert_eq!(*kind, EncoderKind::Fastokens);
    assert!(reason.contains(why), "{reason}");
}

#[test]
fn encoder_that_is_wrong_in_one_id_is_refused() {
    check_refused(Slip::Id("lazy dog"), "text 10 (Add): token 35: ours");
    check_refused(Slip::Id("\u{11ab}"), "token");
    check_refused(Slip::Id("<tool>"), "token");
    check_refused(Slip::Missing("İstanbul"), "(Add): token");
    check_refused(Slip::Panic, "it panicked");
}

#[test]
fn encoder_that_fails_elsewhere_than_the_reference_is_refused() {
    let (equal, failing) = (Bytes::default(), Bytes { fails_on: Some("ß"), ..Bytes::default() });
    let refused = |reference, candidate| chosen(reference, Some(candidate), None).refused.remove(0).1;
    assert!(refused(equal, failing).contains("it fails"));
    assert!(refused(failing, equal).contains("the reference fails"));
    assert_eq!(chosen(failing, Some(failing), None).kind, EncoderKind::Fastokens, "failing alike is equal");
}
