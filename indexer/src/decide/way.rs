//! Where a prompt is measured: a hop to another thread and back costs more than measuring a short prompt.

use warmpath_prompt::EncoderKind;

use super::Prompt;
use super::pool::Lane;

/// Prompts of up to this many token ids are looked up at once: 32,768 tokens are 2,048 blocks of 16, about 40 µs of
/// hashing.
const TOKENS_AT_ONCE_MAX: usize = 32_768;
/// Prompts of up to this many bytes of text are tokenized at once by a fast encoder: never seen before, prose of this
/// size takes it about half a millisecond, and no other request of that thread waits longer.
const BYTES_AT_ONCE_MAX: usize = 32 << 10;
/// Texts of more than this many bytes are tokenized in the long lane. The slowest kind of text, one endless word, takes
/// some hundred milliseconds at this size; prose takes the 50 ms that an answer usually has.
const QUICK_BYTES_MAX: usize = 256 << 10;

/// Where a prompt is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By the thread that has the question.
    AtOnce,
    /// By the pool.
    Pool(Lane),
}

// === impl Way ===

impl Way {
    /// `encoder`: of the prompt's model; none where it has none.
    pub(super) fn of(prompt: &Prompt, encoder: Option<EncoderKind>) -> Self {
        let bytes = prompt.bytes();
        match (prompt, prompt.token_count()) {
            (_, Some(tokens)) if tokens <= TOKENS_AT_ONCE_MAX => Self::AtOnce,
            (_, Some(_)) => Self::Pool(Lane::Quick),
            // A template of the client's may do anything with few bytes.
            (Prompt::Chat(chat), None) if chat.chat_template.is_some() => Self::Pool(lane(bytes)),
            (_, None) if bytes <= BYTES_AT_ONCE_MAX && encoder.is_some_and(is_fast) => Self::AtOnce,
            (_, None) => Self::Pool(lane(bytes)),
        }
    }
}

fn lane(bytes: usize) -> Lane {
    if bytes > QUICK_BYTES_MAX { Lane::Long } else { Lane::Quick }
}

/// The reference takes some milliseconds where the others take tenths.
fn is_fast(encoder: EncoderKind) -> bool {
    match encoder {
        EncoderKind::Fastokens | EncoderKind::Splintr => true,
        EncoderKind::Reference => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Chat;

    fn texts(bytes: usize) -> Prompt {
        Prompt::Texts(vec!["x".repeat(bytes)])
    }

    #[test]
    fn only_what_is_short_and_surely_quick_is_measured_at_once() {
        let fast = Some(EncoderKind::Fastokens);
        let quick = Way::Pool(Lane::Quick);
        assert_eq!(Way::of(&texts(BYTES_AT_ONCE_MAX), fast), Way::AtOnce);
        assert_eq!(Way::of(&texts(BYTES_AT_ONCE_MAX), Some(EncoderKind::Splintr)), Way::AtOnce);
        assert_eq!(Way::of(&texts(BYTES_AT_ONCE_MAX + 1), fast), quick);
        assert_eq!(Way::of(&texts(1), Some(EncoderKind::Reference)), quick);
        assert_eq!(Way::of(&texts(1), None), quick);
        assert_eq!(Way::of(&texts(QUICK_BYTES_MAX + 1), fast), Way::Pool(Lane::Long));
    }

    #[test]
    fn ids_go_by_their_number() {
        let ids = |count| Prompt::Tokens(vec![vec![7; count]]);
        assert_eq!(Way::of(&ids(TOKENS_AT_ONCE_MAX), None), Way::AtOnce);
        assert_eq!(Way::of(&ids(TOKENS_AT_ONCE_MAX + 1), None), Way::Pool(Lane::Quick));
    }

    #[test]
    fn a_clients_own_template_never_holds_up_the_thread() {
        let chat = |template: Option<&str>| {
            let chat_template = template.map(str::to_owned);
            Prompt::Chat(Box::new(Chat { messages: b"[]".to_vec(), chat_template, ..Chat::default() }))
        };
        let fast = Some(EncoderKind::Fastokens);
        assert_eq!(Way::of(&chat(None), fast), Way::AtOnce);
        assert_eq!(Way::of(&chat(Some("{{ messages }}")), fast), Way::Pool(Lane::Quick));
    }
}
