//! Messages, or input items → the same bytes with the payloads of media replaced by digests.
//!
//! A payload is a string at one of the places where engines look for pictures, sound, video or files, which differ by
//! [`Dialect`]. Nothing else is touched, so that text which looks like media stays the text that it is. One pass; what is
//! replaced is never copied.

use std::borrow::Cow;
use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::json::{Fault, Raw, Scanner, unescape};

/// Where the messages of a path hold media.
#[derive(Debug)]
pub(super) struct Dialect {
    /// Members of a message that hold a list of parts, or one.
    parts: &'static [&'static str],
    /// Members of a part that hold a list of parts again; theirs are not looked into.
    nested: &'static [&'static str],
    /// Members of a part that hold media, and types of a part that is one.
    media: &'static [&'static str],
}

/// `/v1/chat/completions`, in the dialects of engines.
pub(super) const CHAT: Dialect = Dialect {
    parts: &["content"],
    nested: &[],
    media: &[
        "image_url",
        "input_image",
        "image",
        "image_pil",
        "image_embeds",
        "input_audio",
        "audio_url",
        "audio_embeds",
        "video_url",
        "video_embeds",
        "file",
    ],
};

/// `/v1/responses`: as a chat, besides what tools put out and files that are given in the part itself.
pub(super) const RESPONSES: Dialect = Dialect {
    parts: &["content", "output"],
    nested: &[],
    media: &[
        "image_url",
        "input_image",
        "image_embeds",
        "input_audio",
        "audio_url",
        "audio_embeds",
        "video_url",
        "video_embeds",
        "input_file",
        "file_data",
        "file_url",
    ],
};

/// `/v1/messages`: pictures and documents have a source; a tool's result may hold some.
pub(super) const MESSAGES: Dialect =
    Dialect { parts: &["content"], nested: &["content"], media: &["source", "image", "document"] };

/// Members of a medium that hold its payload, where it is an object.
const PAYLOADS: [&str; 4] = ["url", "data", "file_data", "image_url"];
/// Media that are tensors are objects of payloads under names of their own.
const TENSORS: &str = "_embeds";

/// Types of parts that are text for engines. A part without a type is text.
const TEXT_TYPES: [&str; 6] = ["text", "input_text", "output_text", "refusal", "thinking", "tool_reference"];
/// Type of a part that stands for token embeddings.
const EMBEDS_TYPE: &str = "prompt_embeds";

/// Messages that are part of the head at most: a system prompt and the first turn.
const HEAD_MESSAGES: usize = 2;

/// Messages, ready to be sent to the indexer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Messages<'a> {
    /// The JSON array.
    pub(super) json: Cow<'a, str>,
    /// A part of it is media.
    pub(super) has_media: bool,
    /// A part of it is given as embeddings.
    pub(super) has_embeds: bool,
    /// No part of it is anything but text, as engines judge that.
    pub(super) only_text: bool,
    /// Its beginning, as in the body: the messages up to the first of the user. It stays what it is while the conversation
    /// grows. Empty where there is no message.
    pub(super) head: &'a str,
}

impl<'a> Messages<'a> {
    /// One text in place of messages.
    pub(super) fn of_text(text: &'a str) -> Self {
        Self { json: Cow::Borrowed(text), has_media: false, has_embeds: false, only_text: true, head: text }
    }

    /// Reads the JSON array `text`.
    pub(super) fn read(text: &'a str, dialect: &'static Dialect) -> Result<Self, Fault> {
        let mut walk = Walk {
            text,
            dialect,
            json: String::new(),
            copied: 0,
            has_media: false,
            has_embeds: false,
            only_text: true,
        };
        let (mut head_end, mut head_is_whole) = (1, false);
        let mut scanner = Scanner::new(text);
        scanner.array(|s, index| {
            let by_user = walk.message(s)?;
            if !head_is_whole {
                head_end = s.at();
                head_is_whole = by_user || index + 1 == HEAD_MESSAGES;
            }
            Ok(())
        })?;
        let Walk { json, copied, has_media, has_embeds, only_text, .. } = walk;
        let json = if copied == 0 {
            Cow::Borrowed(text)
        } else {
            Cow::Owned(json + text.get(copied..).unwrap_or_default())
        };
        let head = text.get(1..head_end).unwrap_or_default();
        Ok(Self { json, has_media, has_embeds, only_text, head })
    }
}

struct Walk<'a> {
    text: &'a str,
    dialect: &'static Dialect,
    /// The result up to `copied`; empty while nothing has been replaced.
    json: String,
    copied: usize,
    has_media: bool,
    has_embeds: bool,
    only_text: bool,
}

impl<'a> Walk<'a> {
    /// Takes a message. True: it is the user's.
    fn message(&mut self, scanner: &mut Scanner<'a>) -> Result<bool, Fault> {
        let mut by_user = false;
        if scanner.peek() != Some(b'{') {
            return scanner.value().map(|_| by_user);
        }
        scanner.object(|s, key| {
            let key = name(key);
            if self.dialect.parts.contains(&key.as_ref()) {
                return self.parts(s, true);
            }
            let value = s.value()?;
            if key == "role" {
                by_user = value.text == "\"user\"";
            }
            Ok(())
        })?;
        Ok(by_user)
    }

    /// Takes a list of parts, or one part. `outer`: their parts may hold parts.
    fn parts(&mut self, scanner: &mut Scanner<'a>, outer: bool) -> Result<(), Fault> {
        match scanner.peek() {
            Some(b'[') => scanner.array(|s, _| self.part(s, outer)),
            _ => self.part(scanner, outer),
        }
    }

    fn part(&mut self, scanner: &mut Scanner<'a>, outer: bool) -> Result<(), Fault> {
        if scanner.peek() != Some(b'{') {
            return scanner.value().map(drop);
        }
        scanner.object(|s, key| {
            let key = name(key);
            if self.dialect.media.contains(&key.as_ref()) {
                self.only_text = false;
                let tensors = key.ends_with(TENSORS);
                if s.peek() == Some(b'[') {
                    s.array(|s, _| self.medium(s, tensors))
                } else {
                    self.medium(s, tensors)
                }
            } else if outer && self.dialect.nested.contains(&key.as_ref()) {
                self.parts(s, false)
            } else {
                let value = s.value()?;
                if key == "type" {
                    self.kind(value);
                }
                Ok(())
            }
        })
    }

    /// The type of a part.
    fn kind(&mut self, value: Raw<'_>) {
        let Some(Ok(kind)) = value.as_str() else {
            self.only_text = false;
            return;
        };
        self.only_text &= TEXT_TYPES.contains(&kind.as_ref());
        self.has_media |= self.dialect.media.contains(&kind.as_ref());
        self.has_embeds |= kind == EMBEDS_TYPE;
    }

    fn medium(&mut self, scanner: &mut Scanner<'a>, tensors: bool) -> Result<(), Fault> {
        if scanner.peek() != Some(b'{') {
            return self.payload(scanner);
        }
        self.has_media = true;
        scanner.object(|s, key| {
            if tensors || PAYLOADS.contains(&name(key).as_ref()) {
                self.payload(s)
            } else {
                s.value().map(drop)
            }
        })
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

/// The name that a key, as it stands between its quotes, is; empty where it is none.
fn name(key: &str) -> Cow<'_, str> {
    unescape(key).unwrap_or_default()
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
mod tests;
