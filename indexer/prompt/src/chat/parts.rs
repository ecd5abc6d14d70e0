//! The content of one message: a text, or a list of parts, in the form that the template wants.

use serde_json::{Map, Value as Json};

use super::messages::Form;
use super::type_of;
use crate::error::PromptError;
use crate::template::ContentFormat;

/// Part types that are text, with the key that holds it.
const TEXT_TYPES: [(&str, &str); 5] = [
    ("text", "text"),
    ("input_text", "text"),
    ("output_text", "text"),
    ("refusal", "refusal"),
    ("thinking", "thinking"),
];

/// Part types that the engine replaces by placeholder tokens, and keys that mark a part as such whatever its type.
const MEDIA_TYPES: [&str; 11] = [
    "image_url",
    "input_image",
    "image_pil",
    "image_embeds",
    "audio_url",
    "input_audio",
    "audio_embeds",
    "video_url",
    "video_embeds",
    "prompt_embeds",
    "file",
];

/// Keys that some part type of the engine's request model defines; they never reach the template.
const KNOWN_KEYS: [&str; 18] = [
    "audio_embeds",
    "audio_url",
    "closed",
    "data",
    "file",
    "image_embeds",
    "image_pil",
    "image_url",
    "input_audio",
    "name",
    "prompt_cache_breakpoint",
    "refusal",
    "text",
    "thinking",
    "type",
    "uuid",
    "video_embeds",
    "video_url",
];

/// The first line of a system text that some clients add; its value changes with every request.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// One part, understood.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    Text {
        text: String,
        unknown: Map<String, Json>,
    },
    /// A text that stands among the parts and stays one.
    Bare(String),
    /// A tool that the template looks up by its name.
    ToolReference {
        name: String,
    },
}

/// The parts of a message's content. A text is one part, no content none.
pub(super) fn read(form: &Form<'_>, role: &str, content: Option<Json>) -> Result<Vec<Part>, PromptError> {
    let mut list = match content {
        None => Vec::new(),
        // The engine's model of every other role wants a content, if there is one.
        Some(Json::Null) if role == "assistant" => Vec::new(),
        Some(Json::String(text)) => vec![Part::text(text).into_json()],
        Some(Json::Array(list)) => list,
        Some(other) => {
            return Err(PromptError::refused(format!(
                "the content of a message is {}, expected a text or a list of parts",
                type_of(&other)
            )));
        }
    };
    if role == "system" && form.rules.strips_billing_header {
        list.retain_mut(strip_billing_header);
    }
    list.into_iter().map(|part| read_part(form, part)).filter_map(Result::transpose).collect()
}

/// Removes a leading billing-header line from a text. False: nothing but it was there, so the part goes.
fn strip_billing_header(part: &mut Json) -> bool {
    let text = match part {
        Json::Object(fields) if fields.get("type").is_some_and(|kind| kind == "text") => {
            fields.get_mut("text")
        }
        text => Some(text),
    };
    let Some(Json::String(text)) = text else { return true };
    if !text.starts_with(BILLING_HEADER) {
        return true;
    }
    *text = text.split_once('\n').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
    !text.is_empty()
}

/// The content as the template sees it.
pub(super) fn write(format: ContentFormat, parts: Vec<Part>) -> Json {
    match format {
        ContentFormat::Parts => parts.into_iter().map(Part::into_json).collect(),
        ContentFormat::Text => {
            // The engine drops empty texts before it joins.
            let texts: Vec<&str> = parts.iter().map(Part::as_text).filter(|text| !text.is_empty()).collect();
            texts.join("\n").into()
        }
    }
}

/// `None`: a part that the engine skips.
fn read_part(form: &Form<'_>, part: Json) -> Result<Option<Part>, PromptError> {
    let mut part = match part {
        Json::String(text) if form.rules.wraps_bare_texts => return Ok(Some(Part::text(text))),
        Json::String(text) => return Ok((!text.is_empty()).then_some(Part::Bare(text))),
        Json::Object(part) => part,
        other => {
            return Err(PromptError::refused(format!("a content part is {}", type_of(&other))));
        }
    };
    if let Some(key) = MEDIA_TYPES.iter().find(|key| part.contains_key(**key)) {
        return Err(PromptError::Media { kind: (*key).into() });
    }
    let kind = match part.get("type") {
        Some(Json::String(kind)) => kind.clone(),
        _ => return Err(PromptError::refused("a content part has no type")),
    };
    if MEDIA_TYPES.contains(&kind.as_str()) || part.get("uuid").is_some_and(|uuid| !uuid.is_null()) {
        return Err(PromptError::Media { kind });
    }
    if kind == "tool_reference" && form.rules.knows_tool_reference {
        return match part.shift_remove("name") {
            Some(Json::String(name)) => Ok(Some(Part::ToolReference { name })),
            _ => Err(PromptError::refused("a tool_reference part has no name")),
        };
    }
    let Some((_, key)) = TEXT_TYPES.iter().find(|(known, _)| *known == kind) else {
        return Err(PromptError::refused("a content part has a type that the engine does not know"));
    };
    match part.shift_remove(*key) {
        Some(Json::String(text)) => {
            if form.rules.keeps_unknown_part_keys {
                part.retain(|key, _| !KNOWN_KEYS.contains(&key.as_str()));
            } else {
                part.clear();
            }
            Ok(Some(Part::Text { text, unknown: part }))
        }
        None | Some(Json::Null) if kind == "text" || kind == "refusal" => Ok(None),
        _ => Err(PromptError::refused(format!("a content part's \"{key}\" is no text"))),
    }
}

// === impl Part ===

impl Part {
    fn text(text: String) -> Self {
        Part::Text { text, unknown: Map::new() }
    }

    pub(super) fn is_text(&self) -> bool {
        !matches!(self, Part::ToolReference { .. })
    }

    pub(super) fn as_text(&self) -> &str {
        match self {
            Part::Text { text, .. } | Part::Bare(text) => text,
            Part::ToolReference { name } => name,
        }
    }

    fn into_json(self) -> Json {
        match self {
            Part::Bare(text) => text.into(),
            Part::Text { text, unknown } => {
                let mut fields =
                    Map::from_iter([("type".into(), "text".into()), ("text".into(), text.into())]);
                fields.extend(unknown);
                Json::Object(fields)
            }
            Part::ToolReference { name } => {
                Map::from_iter([("type".into(), "tool_reference".into()), ("name".into(), name.into())])
                    .into()
            }
        }
    }
}
