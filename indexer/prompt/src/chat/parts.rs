//! The content of one message: a text, or a list of parts, in the form that the template wants.

use serde_json::{Map, Value as Json};

use super::form::Form;
use super::media::{self, Medium, View};
use crate::error::PromptError;
use crate::template::ContentFormat;
use crate::values::type_of;

/// Part types that are text, with the key that holds it.
const TEXT_TYPES: [(&str, &str); 5] = [
    ("text", "text"),
    ("input_text", "text"),
    ("output_text", "text"),
    ("refusal", "refusal"),
    ("thinking", "thinking"),
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
pub(crate) const BILLING_HEADER: &str = "x-anthropic-billing-header";

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
    Medium(Medium),
}

/// The parts of a message's content. A text is one part, no content none.
pub(super) fn read(form: &Form<'_>, role: &str, content: Option<Json>) -> Result<Vec<Part>, PromptError> {
    let mut list = match content {
        None => Vec::new(),
        // The engine's model of every other role wants a content, if there is one.
        Some(Json::Null) if role == "assistant" => Vec::new(),
        Some(Json::String(text)) => vec![text_part(text)],
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
pub(super) fn write(format: ContentFormat, parts: Vec<Part>, view: View) -> Json {
    match format {
        ContentFormat::Parts => parts.into_iter().map(|part| part.into_json(view)).collect(),
        ContentFormat::Text => {
            let parts = match <[Part; 1]>::try_from(parts) {
                Ok([Part::Text { text, .. } | Part::Bare(text)]) => return text.into(),
                Ok(one) => one.into(),
                Err(parts) => parts,
            };
            let has_media = parts.iter().any(|part| matches!(part, Part::Medium(_)));
            let mark = has_media.then(|| media::mark(view));
            // The engine drops empty texts before it joins.
            let texts = parts.iter().map(Part::as_text).filter(|text| !text.is_empty());
            mark.into_iter().chain(texts).collect::<Vec<_>>().join("\n").into()
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
    if let Some(mut medium) = Medium::read(&part) {
        medium.unknown = unknown_keys(form, part);
        return Ok(Some(Part::Medium(medium)));
    }
    let kind = match part.get("type") {
        Some(Json::String(kind)) => kind.clone(),
        _ => return Err(PromptError::refused("a content part has no type")),
    };
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
        Some(Json::String(text)) => Ok(Some(Part::Text { text, unknown: unknown_keys(form, part) })),
        None | Some(Json::Null) if kind == "text" || kind == "refusal" => Ok(None),
        _ => Err(PromptError::refused(format!("a content part's \"{key}\" is no text"))),
    }
}

fn text_part(text: String) -> Json {
    Map::from_iter([("type".into(), "text".into()), ("text".into(), text.into())]).into()
}

/// The keys of a part that no part type defines, where the engine passes them on.
fn unknown_keys(form: &Form<'_>, mut part: Map<String, Json>) -> Map<String, Json> {
    if form.rules.keeps_unknown_part_keys {
        part.retain(|key, _| !KNOWN_KEYS.contains(&key.as_str()));
    } else {
        part.clear();
    }
    part
}

// === impl Part ===

impl Part {
    fn text(text: String) -> Self {
        Part::Text { text, unknown: Map::new() }
    }

    pub(super) fn is_text(&self) -> bool {
        matches!(self, Part::Text { .. } | Part::Bare(_))
    }

    pub(super) fn as_text(&self) -> &str {
        match self {
            Part::Text { text, .. } | Part::Bare(text) => text,
            Part::ToolReference { name } => name,
            Part::Medium(_) => "",
        }
    }

    fn into_json(self, view: View) -> Json {
        match self {
            Part::Medium(medium) => medium.into_part(view),
            Part::Bare(text) => text.into(),
            Part::Text { text, unknown } => {
                let mut part = text_part(text);
                if let Json::Object(fields) = &mut part {
                    fields.extend(unknown);
                }
                part
            }
            Part::ToolReference { name } => {
                Map::from_iter([("type".into(), "tool_reference".into()), ("name".into(), name.into())])
                    .into()
            }
        }
    }
}
