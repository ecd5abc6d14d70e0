//! Where the first medium stands in a rendered chat.
//!
//! The engine shows its template a medium as a part without content, or not at all, and puts tokens in for it after the
//! text is encoded; how many, only its model's processor knows. What comes before the first medium does not depend on
//! it. To find that place without knowing the template, a chat is rendered twice:
//!
//! ```text
//! shown    <|im_start|>user\nLook: <|vision_start|><|image_pad|><|vision_end|> …     as the engine's template sees it
//! marked   <|im_start|>user\nLook: \u{f8ff} …                                        every medium replaced by a mark
//!          └────── common ──────┘
//! ```
//!
//! The shown text is the engine's own up to its first placeholder. Their common beginning ends there at the latest,
//! because there one text goes on with a placeholder and the other one with something else; where a template moves
//! media, or looks whether there are any, it ends earlier, never later.
//!
//! A template that takes content as one text gets its placeholders from the engine, in front of the message's text (or
//! inside it, by a setting). Both renderings have a mark there instead, not the same one, so that the common beginning
//! ends where the content of the first message with a medium begins.

use serde_json::{Map, Value as Json};

/// Part types that the engine replaces by placeholder tokens, and keys that mark a part as such whatever its type, with
/// the type that its template sees. `None`: not the same in all releases, so that its message must be cut at its start.
const MEDIA_TYPES: [(&str, Option<&str>); 11] = [
    ("image_url", Some("image")),
    ("input_image", Some("image")),
    ("image_pil", Some("image")),
    ("image_embeds", Some("image")),
    ("audio_url", Some("audio")),
    ("input_audio", Some("audio")),
    ("audio_embeds", Some("audio")),
    ("video_url", Some("video")),
    ("video_embeds", Some("video")),
    ("prompt_embeds", None),
    ("file", None),
];

/// Stand for media. Private characters that no template prints by itself, different from their first byte on.
const SHOWN_MARK: &str = "\u{e000}";
const MARK: &str = "\u{f8ff}";

/// How media are given to the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// As the engine does it.
    Shown,
    /// As texts.
    Marked,
}

/// A medium among the parts of a content.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Medium {
    /// The type that the template sees.
    modality: Option<&'static str>,
    /// Keys that the engine passes on.
    pub(super) unknown: Map<String, Json>,
}

// === impl Medium ===

impl Medium {
    /// `None`: the part is no medium.
    pub(super) fn read(part: &Map<String, Json>) -> Option<Self> {
        let kind = part.get("type").and_then(Json::as_str);
        let is_referred_to = || part.get("uuid").is_some_and(|uuid| !uuid.is_null());
        let found = MEDIA_TYPES.iter().find(|(key, _)| part.contains_key(*key) || kind == Some(*key));
        match found {
            Some((_, modality)) => Some(Medium { modality: *modality, unknown: Map::new() }),
            None => is_referred_to().then(|| Medium { modality: None, unknown: Map::new() }),
        }
    }

    /// The part that a template gets that takes parts.
    pub(super) fn into_part(self, view: View) -> Json {
        let (kind, text) = match (view, self.modality) {
            (View::Shown, Some(modality)) => (modality, None),
            (View::Shown, None) => ("text", Some(SHOWN_MARK)),
            (View::Marked, _) => ("text", Some(MARK)),
        };
        let mut part = Map::from_iter([("type".into(), kind.into())]);
        if let Some(text) = text {
            part.insert("text".into(), text.into());
        }
        part.extend(self.unknown);
        Json::Object(part)
    }
}

/// What stands in front of a content that is one text.
pub(super) fn mark(view: View) -> &'static str {
    match view {
        View::Shown => SHOWN_MARK,
        View::Marked => MARK,
    }
}

/// Whether some message has a medium.
pub(crate) fn is_in(messages: &[Json]) -> bool {
    let is_medium = |part: &Json| part.as_object().is_some_and(|part| Medium::read(part).is_some());
    let contents = messages.iter().filter_map(|message| message.get("content"));
    contents.filter_map(Json::as_array).flatten().any(is_medium)
}

/// Bytes of the common beginning, in whole characters.
pub(super) fn common_prefix(a: &str, b: &str) -> usize {
    let equal = a.chars().zip(b.chars()).take_while(|(a, b)| a == b);
    equal.map(|(char, _)| char.len_utf8()).sum()
}
