//! The body of `/v1/embeddings`: `input` as a text, texts, token ids or lists of them; or a conversation, in `messages` or
//! as `input`.

use super::fields::{Field, Fields};
use super::head::Head;
use super::{ChatPrompt, Prompt, Read, chat, completions};
use crate::json::Raw;
use crate::outcome::Reason;

pub(super) fn read<'a>(fields: &Fields<'a>) -> Read<'a> {
    let input = fields.given(Field::Input);
    let messages = fields.given(Field::Messages).or(input.filter(is_conversation));
    match messages.or(input.filter(is_batch)) {
        // One conversation for each vector: only newer engines know that.
        Some(batch) if is_batch(&batch) => Read::unscored(Reason::UnsupportedField, batch.text),
        Some(messages) => conversation(fields, messages),
        None => completions::texts_or_ids(input),
    }
}

fn conversation<'a>(fields: &Fields<'a>, raw: Raw<'a>) -> Read<'a> {
    let messages = match chat::messages(raw) {
        Ok(messages) => messages,
        Err(reason) => return Read::unscored(reason, raw.text),
    };
    let head = Head::of(messages.head.as_bytes());
    let prompt = chat::conversation(fields, messages).map(|chat| {
        Prompt::Chat(Box::new(ChatPrompt {
            // Nothing is generated unless asked for, unlike in a chat; and nobody forwards ids.
            add_generation_prompt: chat.add_generation_prompt.or(Some(false)),
            prompt_token_ids: None,
            ..chat
        }))
    });
    Read { prompt: prompt.unwrap_or_else(Prompt::Unscored), head }
}

/// A list that begins with an object.
fn is_conversation(raw: &Raw<'_>) -> bool {
    raw.is_array() && raw.first_inside() == Some(b'{')
}

/// A list that begins with a list that begins with an object.
fn is_batch(raw: &Raw<'_>) -> bool {
    let mut opening = raw.text.bytes().filter(|b| !b.is_ascii_whitespace());
    [Some(b'['), Some(b'['), Some(b'{')].into_iter().all(|expected| opening.next() == expected)
}
