//! `extra_keys` of an event → namespace and extras. Position and type are all that tells its entries apart: adapter
//! name, media items, cache salt (in a prompt's first block only), digest of embeddings.

use std::num::NonZeroU32;

use crate::event::{RawExtra, Stored};
use crate::key::{Extra, Namespace};
use crate::prompt_keys::Layout;

/// The namespace of a chain that begins with this event.
pub(super) fn of_first_block<'a>(model: &'a str, stored: &'a Stored) -> Namespace<'a> {
    let lora = stored.lora_name.as_deref();
    let salt = stored.cache_salt.as_deref().or_else(|| salt_in_extras(stored));
    Namespace { model, lora, salt }
}

/// Whether nothing of the event but the model tells its [namespace](of_first_block).
#[inline]
pub(super) fn is_of_model(stored: &Stored) -> bool {
    stored.lora_name.is_none() && stored.cache_salt.is_none() && stored.extra_keys.is_empty()
}

/// The last bare text of the first block, if it is not the adapter's name. In vLLM 0.17 and 0.18 the identifier of a
/// media item is bare text too; a block that begins with one then gets a namespace nobody asks for, which is right,
/// as prompts with media are not looked up.
fn salt_in_extras(stored: &Stored) -> Option<&str> {
    let extras = stored.extra_keys.first()?;
    without_lora(extras, stored.lora_name.as_deref()).iter().rev().find_map(|extra| match extra {
        RawExtra::Text(text) => Some(&**text),
        RawExtra::Media { .. } | RawExtra::Bytes(_) | RawExtra::Unknown(_) => None,
    })
}

/// Whether any block of the event may depend on more than namespace, parent and tokens.
#[inline]
pub(super) fn has_extras(stored: &Stored) -> bool {
    !stored.extra_keys.is_empty() || !stored.lookahead.is_empty()
}

/// What the block at `position` of the event depends on besides namespace, parent and tokens.
pub(super) fn extras_of(stored: &Stored, position: usize) -> Vec<Extra> {
    if !has_extras(stored) {
        return Vec::new();
    }
    let extras = stored.extra_keys.get(position).map(Vec::as_slice).unwrap_or_default();
    let extras = without_lora(extras, stored.lora_name.as_deref());
    let is_first = stored.parent.is_none() && position == 0;
    let salt = if is_first { salt_in_extras(stored) } else { None };
    let ahead = stored.lookahead.get(position).filter(|ahead| !ahead.is_empty());
    // Collecting nothing allocates nothing, which is the case of most blocks.
    extras
        .iter()
        .filter(|extra| !matches!((extra, salt), (RawExtra::Text(text), Some(salt)) if **text == *salt))
        .map(|extra| match extra {
            RawExtra::Text(text) => Extra::Media { id: text.clone(), offset: None },
            RawExtra::Media { id, offset } => Extra::Media { id: id.clone(), offset: Some(*offset) },
            RawExtra::Bytes(digest) => Extra::Embeddings(digest.clone()),
            RawExtra::Unknown(bytes) => Extra::Unknown(bytes.clone()),
        })
        .chain(ahead.map(|ahead| Extra::Ahead(ahead.as_slice().into())))
        .collect()
}

/// The layout of the event's blocks, by the most tokens behind one that its hash covers.
pub(super) fn layout_of(stored: &Stored, size: NonZeroU32) -> Option<Layout> {
    let ahead = stored.lookahead.iter().map(Vec::len).max().unwrap_or_default();
    Layout::new(size, u32::try_from(ahead).ok()?)
}

/// The adapter's name comes first, in every block.
fn without_lora<'a>(extras: &'a [RawExtra], lora: Option<&str>) -> &'a [RawExtra] {
    match (extras, lora) {
        ([RawExtra::Text(first), rest @ ..], Some(lora)) if **first == *lora => rest,
        _ => extras,
    }
}
