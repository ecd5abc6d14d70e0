//! Responses that engines keep (`/v1/responses`): how we name them, and where an answer says its own name.
//!
//! The id of an answer is among its first bytes, in a JSON body as in the first event of a stream. [`IdReader`] sees
//! those as they pass by; it keeps at most [`ANSWER_HEAD_BYTES`] of them, and nothing once it has the id.

use std::hash::Hasher;
use std::num::NonZeroU64;

use siphasher::sip::SipHasher13;

use crate::json::Scanner;
use crate::limits::ANSWER_HEAD_BYTES;

/// Names a response: SipHash-1-3 of its id under the key of all zeros, so that every filter and every indexer name it
/// alike. Ids stay out of messages and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseKey(NonZeroU64);

impl ResponseKey {
    /// The key of an id. None where it is 0, which stands for "no response" in the contract: one id in 2^64.
    pub fn of(id: &[u8]) -> Option<Self> {
        let mut hasher = SipHasher13::new();
        hasher.write(id);
        NonZeroU64::new(hasher.finish()).map(Self)
    }

    /// As in the contract.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

/// Looks for the id that an answer gives itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdReader {
    /// It is not looked for, or was not among the first bytes.
    Off,
    /// The first bytes so far.
    Seeking(Vec<u8>),
    /// It was there.
    Found(ResponseKey),
}

impl IdReader {
    /// Bytes that it wants to see of the beginning of the next chunk.
    pub fn wanted(&self) -> usize {
        match self {
            Self::Seeking(bytes) => ANSWER_HEAD_BYTES.saturating_sub(bytes.len()),
            Self::Off | Self::Found(_) => 0,
        }
    }

    /// Takes the next chunk, or as much of its beginning as is wanted.
    pub fn push(&mut self, head: &[u8]) {
        let wanted = self.wanted();
        let Self::Seeking(bytes) = self else { return };
        bytes.extend_from_slice(head.get(..wanted).unwrap_or(head));
        if let Some(key) = find(bytes) {
            *self = Self::Found(key);
        } else if self.wanted() == 0 {
            *self = Self::Off;
        }
    }

    /// The key of the id.
    pub fn key(&self) -> Option<ResponseKey> {
        match self {
            Self::Found(key) => Some(*key),
            Self::Off | Self::Seeking(_) => None,
        }
    }
}

/// The id in the beginning of an answer: of a JSON body its own, of an event stream that of the first event that tells of
/// a response. What is cut off is read as far as it goes.
fn find(bytes: &[u8]) -> Option<ResponseKey> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(bytes.get(..error.valid_up_to())?).ok()?,
    };
    if text.trim_start().starts_with('{') {
        return id(&mut Scanner::new(text));
    }
    text.lines().filter_map(|line| line.strip_prefix("data:")).find_map(|event| {
        let mut found = None;
        // A fault is the end of what has come so far.
        _ = Scanner::new(event).object(|s, key| {
            if key == "response" && s.peek() == Some(b'{') && found.is_none() {
                let mut response = s.clone();
                found = id(&mut response);
            }
            s.value().map(drop)
        });
        found
    })
}

/// The member `id` of the object that comes next. The first counts: what follows may not have come yet.
fn id(scanner: &mut Scanner<'_>) -> Option<ResponseKey> {
    let mut found = None;
    // A fault is the end of what has come so far.
    _ = scanner.object(|s, key| {
        let value = s.value()?;
        if key == "id" && found.is_none() {
            found = value.as_str().and_then(Result::ok).and_then(|id| ResponseKey::of(id.as_bytes()));
        }
        Ok(())
    });
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "resp_8a1c";

    fn read(answer: &str, chunk_bytes: usize) -> IdReader {
        let mut reader = IdReader::Seeking(vec![]);
        for chunk in answer.as_bytes().chunks(chunk_bytes) {
            reader.push(chunk.get(..reader.wanted()).unwrap_or(chunk));
        }
        if let IdReader::Seeking(bytes) = &reader {
            assert!(bytes.len() < ANSWER_HEAD_BYTES);
        }
        reader
    }

    #[test]
    fn a_key_is_the_same_everywhere() {
        // Computed with another implementation of SipHash-1-3.
        assert_eq!(ResponseKey::of(b"").map(ResponseKey::get), Some(0xd1fb_a762_150c_532c));
        assert_eq!(ResponseKey::of(ID.as_bytes()).map(ResponseKey::get), Some(0x6097_db5a_bd4c_f203));
    }

    #[test]
    fn the_id_is_found_however_the_answer_is_cut() {
        let long = "é\\n".repeat(ANSWER_HEAD_BYTES);
        for answer in [
            format!(r#"{{"id":"{ID}","created_at":1,"instructions":"{long}"}}"#),
            " \r\n{\"object\":\"response\",\"error\":null,\"id\" : \"resp_8\\u00611c\"}".to_owned(),
            format!(
                "event: response.created\ndata: {{\"response\":{{\"id\":\"{ID}\",\"instructions\":\"{long}\"}},\
                 \"type\":\"response.created\"}}\n\n"
            ),
            format!(
                ": ping\r\n\r\nevent: response.created\r\ndata:{{\"type\":\"response.created\",\"sequence_number\":0,\
                 \"response\":{{\"object\":\"response\",\"id\":\"{ID}\",\"usage\":null}}}}\r\n\r\n"
            ),
        ] {
            for size in [1, 7, 1000, 1_000_000] {
                let found = read(&answer, size).key();
                assert_eq!(found, ResponseKey::of(ID.as_bytes()), "chunks of {size}: {:.80}", answer);
            }
        }
    }

    #[test]
    fn what_is_no_id_of_the_answer_is_not_taken_for_one() {
        for answer in [
            "",
            "{}",
            r#"{"error":{"id":"x"}}"#,
            r#"{"id":7}"#,
            r#"{"id":null}"#,
            r#"{"id":"\ud800"}"#,
            r#"{"id":"cut o"#,
            r#"[{"id":"x"}]"#,
            "id: 7\n\n",
            "data: {\"id\":\"x\"}\n\n",
            "data: {\"response\":\"x\",\"item\":{\"id\":\"x\"}}\n\n",
            "data: [DONE]\n\n",
            "\u{0}\u{1}",
        ] {
            assert_eq!(read(answer, 3).key(), None, "{answer}");
        }
    }

    #[test]
    fn it_is_looked_for_in_the_first_bytes_only() {
        let late = format!(r#"{{"text":"{}","id":"{ID}"}}"#, "x".repeat(ANSWER_HEAD_BYTES));
        assert_eq!(read(&late, 100), IdReader::Off);
        let mut found = read(&format!(r#"{{"id":"{ID}""#), 100);
        assert_eq!(found.wanted(), 0);
        found.push(br#"{"id":"other"}"#);
        assert_eq!(found.key(), ResponseKey::of(ID.as_bytes()));
        let mut off = IdReader::Off;
        off.push(br#"{"id":"x"}"#);
        assert_eq!((off.wanted(), off.key()), (0, None));
    }

    /// What answers are made of, in any order.
    fn nearly_answers() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "{",
            "}",
            ":",
            ",",
            " ",
            "\n",
            "data:",
            "data: ",
            "event: x\n",
            "\"id\":\"a\"",
            "\"id\":\"b\"",
            "\"id\":",
            "\"\\u0061\"",
            "\"response\":",
            "{\"id\":\"c\"",
            "null",
            "1",
            "é",
            "\"",
            "[",
            "]",
        ]);
        prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter_and_nothing_panics(
            pieces in nearly_answers(), bytes in prop::collection::vec(any::<u8>(), 0..40), size in 1usize..9,
        ) {
            let answer = [pieces.as_bytes(), &bytes].concat();
            let mut whole = IdReader::Seeking(vec![]);
            whole.push(&answer);
            let mut cut = IdReader::Seeking(vec![]);
            answer.chunks(size).for_each(|chunk| cut.push(chunk));
            prop_assert_eq!(whole.key(), cut.key());
        }
    }
}
