//! Members of a body → one JSON object with just those that can reach the prompt's token ids.

use std::borrow::Cow;

use super::fields::{Field, Fields};
use crate::outcome::Reason;

/// What a prompt is made of, on the paths where the engine makes a conversation of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// A JSON object. Values are slices of the body, but for the payloads of media.
    pub json: String,
    /// It holds image, audio or video parts.
    pub has_media: bool,
}

/// The object with the members of `fields` that are given and not null. `replaced` stands for the value of its field.
pub(super) fn object(
    fields: &Fields<'_>,
    names: &[Field],
    replaced: (Field, Cow<'_, str>),
) -> Result<String, Reason> {
    let mut json = String::with_capacity(replaced.1.len());
    let mut before = "{\"";
    for field in names {
        let Some(raw) = fields.given(*field) else { continue };
        if raw.lone_surrogate {
            return Err(Reason::LoneSurrogate);
        }
        let value = if *field == replaced.0 { replaced.1.as_ref() } else { raw.text };
        for piece in [before, field.name(), "\":", value] {
            json.push_str(piece);
        }
        before = ",\"";
    }
    json.push_str(if json.is_empty() { "{}" } else { "}" });
    Ok(json)
}

/// Members that engines take as one kind of value only. Another one is refused by them, or changes the prompt in a way that
/// cannot be followed.
pub(super) fn objects_only(fields: &Fields<'_>, names: &[Field]) -> Result<(), Reason> {
    let odd = names.iter().filter_map(|field| fields.given(*field)).any(|raw| !raw.is_object());
    if odd { Err(Reason::UnsupportedField) } else { Ok(()) }
}
