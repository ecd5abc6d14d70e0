//! Chat messages → the same bytes with the payloads of media parts replaced by digests.
//!
//! A payload is a string at one of the places where engines look for pictures, sound, video or files: a member of
//! [`MEDIA`] in an element of a message's `content` array, or a member of [`PAYLOADS`] in the object there. Nothing else
//! is touched, so that text which looks like media stays the text that it is. One pass; what is replaced is never
//! copied.

use std::borrow::Cow;
use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::json::{Fault, Scanner, unescape};

/// Members of a content part that hold media, in the dialects of engines.
const MEDIA: [&str; 9] = [
    "image_url",
    "input_audio",
    "audio_url",
    "video_url",
    "image",
    "image_pil",
    "image_embeds",
    "audio_embeds",
    "file",
];

/// Members of such a member that hold the payload, where it is an object.
const PAYLOADS: [&str; 4] = ["url", "data", "file_data", "image_url"];

/// Messages that are part of the head: the system prompt and the first turn of a conversation stay what they are.
const HEAD_MESSAGES: usize = 2;

/// The messages of a chat request, ready to be sent to the indexer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Messages<'a> {
    /// The JSON array.
    pub(crate) json: Cow<'a, str>,
    /// A part of it is media.
    pub(crate) has_media: bool,
    /// The first messages of the array, as in the body.
    pub(crate) head: &'a str,
}

/// Reads the JSON array `text`.
pub(crate) fn digest_media(text: &str) -> Result<Messages<'_>, Fault> {
    let mut walk = Walk { text, json: String::new(), copied: 0, has_media: false };
    let mut head_end = 1;
    let mut scanner = Scanner::new(text);
    scanner.array(|s, index| {
        walk.message(s)?;
        if index < HEAD_MESSAGES {
            head_end = s.at();
        }
        Ok(())
    })?;
    let head = text.get(1..head_end).unwrap_or_default();
    let Walk { json, copied, has_media, .. } = walk;
    let json = if copied == 0 {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(json + text.get(copied..).unwrap_or_default())
    };
    Ok(Messages { json, has_media, head })
}

struct Walk<'a> {
    text: &'a str,
    /// The result up to `copied`; empty while nothing has been replaced.
    json: String,
    copied: usize,
    has_media: bool,
}

impl<'a> Walk<'a> {
    fn message(&mut self, scanner: &mut Scanner<'a>) -> Result<(), Fault> {
        if scanner.peek() != Some(b'{') {
            return scanner.value().map(drop);
        }
        scanner.object(|s, key| {
            if s.peek() == Some(b'[') && is_one_of(key, &["content"]) {
                s.array(|s, _| self.part(s))
            } else {
                s.value().map(drop)
            }
        })
    }

    fn part(&mut self, scanner: &mut Scanner<'a>) -> Result<(), Fault> {
        if scanner.peek() != Some(b'{') {
            return scanner.value().map(drop);
        }
        scanner.object(|s, key| if is_one_of(key, &MEDIA) { self.media(s) } else { s.value().map(drop) })
    }

    fn media(&mut self, scanner: &mut Scanner<'a>) -> Result<(), Fault> {
        if scanner.peek() != Some(b'{') {
            return self.payload(scanner);
        }
        scanner.object(|s, key| if is_one_of(key, &PAYLOADS) { self.payload(s) } else { s.value().map(drop) })
    }

    fn payload(&mut self, scanner: &mut Scanner<'a>) -> Result<(), Fault> {
        let value = scanner.value()?;
        let end = scanner.at();
        self.has_media |= !value.is_null();
        if let Some(inner) = value.text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) {
            let start = end - value.text.len();
            self.json.push_str(self.text.get(self.copied..start).unwrap_or_default());
            self.json.push_str(&format!("\"warmpath-media:{:032x}\"", digest(inner)));
            self.copied = end;
        }
        Ok(())
    }
}

/// Is the key, as it stands between its quotes, one of these names?
fn is_one_of(key: &str, names: &[&str]) -> bool {
    unescape(key).is_ok_and(|key| names.contains(&key.as_ref()))
}

/// A digest of what the string stands for, the same however it is escaped. The key is fixed: every filter must make
/// the same digest, and a collision costs no more than one wrong prediction.
fn digest(escaped: &str) -> u128 {
    let mut hasher = SipHasher13::new();
    match unescape(escaped) {
        Ok(payload) => hasher.write(payload.as_bytes()),
        Err(_) => hasher.write(escaped.as_bytes()),
    }
    hasher.finish128().as_u128()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Messages<'_> {
        digest_media(text).expect("a JSON array")
    }

    #[test]
    fn text_is_borrowed_untouched_even_where_it_looks_like_media() {
        let text = r#"[ {"role":"user", "content":"data:image/png;base64,AAAA", "image_url":{"url":"x"}},
            {"content":[{"type":"text","text":"{\"image_url\":\"x\"}"}, null, 3, "image_url"]}, null ]"#;
        let messages = read(text);
        assert!(matches!(messages.json, Cow::Borrowed(json) if json == text));
        assert!(!messages.has_media);
    }

    #[test]
    fn payloads_become_digests_and_nothing_else_changes() {
        let text = r#"[{"role":"user","content":[{"type":"image_url","image_url":{"url":"AAAA","detail":"low"}},
            {"type":"input_audio","input_audio":{"data":"BBBB","format":"wav"}},{"type":"text","text":"AAAA"},
            {"image_\u0075rl":"AAAA"},{"image_url":{"url":null}}]}]"#;
        let digest = |payload| format!("warmpath-media:{:032x}", digest(payload));
        let expected = text
            .replace(r#""url":"AAAA""#, &format!(r#""url":"{}""#, digest("AAAA")))
            .replace(r#""BBBB""#, &format!(r#""{}""#, digest("BBBB")))
            .replace(r#"\u0075rl":"AAAA""#, &format!(r#"\u0075rl":"{}""#, digest("AAAA")));
        let messages = read(text);
        assert_eq!(messages.json, expected);
        assert!(messages.has_media);
        assert_ne!(digest("AAAA"), digest("BBBB"));
    }

    #[test]
    fn a_digest_does_not_depend_on_escapes() {
        assert_eq!(digest("data:image/png"), digest(r"data:image\/png"));
        assert_eq!(digest("A"), digest(r"\u0041"));
        assert_ne!(digest(r"\ud800"), digest(""));
    }

    #[test]
    fn the_head_is_the_first_two_messages() {
        assert_eq!(read(r#"[{"a":1}, {"b":2} ,{"c":3}]"#).head, r#"{"a":1}, {"b":2}"#);
        assert_eq!(read(r#"[{"a":1}]"#).head, r#"{"a":1}"#);
        assert_eq!(read("[]").head, "");
    }
}
