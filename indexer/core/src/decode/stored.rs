//! The fields of `BlockStored`.

use crate::event::{Group, GroupKind, Medium, Problems, RawExtra, Stored};

use super::reader::{Head, ReadError, Reader};
use super::{BLOCKS_PER_EVENT_MAX, Body, read_hash, read_hashes, read_is_remote, read_medium, read_opt_u32};

#[derive(Clone, Copy)]
enum Field {
    Hashes,
    Parent,
    Tokens,
    BlockSize,
    LoraId,
    Medium,
    LoraName,
    ExtraKeys,
    GroupIndex,
    GroupKind,
    SlidingWindow,
    Locality,
    CacheSalt,
    Lookahead,
    /// Media items by block (TensorRT-LLM).
    MediaInfos,
    /// Known, but nothing here depends on it: the offload tier's id, and the session, which owns nothing.
    Unused,
    Unknown,
}

/// Array order after the type name.
const ORDER: [Field; 15] = [
    Field::Hashes,
    Field::Parent,
    Field::Tokens,
    Field::BlockSize,
    Field::LoraId,
    Field::Medium,
    Field::LoraName,
    Field::ExtraKeys,
    Field::GroupIndex,
    Field::GroupKind,
    Field::SlidingWindow,
    Field::Locality,
    Field::Unused,
    Field::Unused,
    Field::Lookahead,
];

fn by_name(name: &[u8]) -> Field {
    match name {
        b"block_hashes" => Field::Hashes,
        b"parent_block_hash" => Field::Parent,
        b"token_ids" => Field::Tokens,
        b"block_size" => Field::BlockSize,
        b"lora_id" => Field::LoraId,
        b"medium" => Field::Medium,
        b"lora_name" => Field::LoraName,
        b"extra_keys" => Field::ExtraKeys,
        b"group_idx" => Field::GroupIndex,
        b"kv_cache_spec_kind" => Field::GroupKind,
        b"kv_cache_spec_sliding_window" => Field::SlidingWindow,
        b"locality" => Field::Locality,
        b"cache_salt" => Field::CacheSalt,
        b"lookahead_token_ids" => Field::Lookahead,
        b"block_mm_infos" => Field::MediaInfos,
        b"type" | b"ownership" | b"session_id" => Field::Unused,
        _ => Field::Unknown,
    }
}

/// What has been read so far.
#[derive(Default)]
struct Partial<'a> {
    /// In its place: it is large.
    stored: Box<Stored>,
    has_hashes: bool,
    has_tokens: bool,
    has_block_size: bool,
    is_remote: bool,
    kind: Option<&'a str>,
    window: Option<u32>,
    /// Per block; empty where none has any.
    media_infos: Vec<Option<RawExtra>>,
    unknown_fields: u32,
}

pub(super) fn read(
    reader: &mut Reader<'_>,
    body: Body,
    problems: &mut Problems,
) -> Result<Box<Stored>, ReadError> {
    let mut partial = Partial::default();
    match body {
        Body::Map(entries) => partial.read_map(reader, entries)?,
        Body::Array(elements) => {
            for position in 0..elements {
                // SGLang 0.5.19 appends a map with the salt to its arrays.
                if reader.at_map() {
                    let Head::Map(entries) = reader.head()? else { return Err(ReadError::WrongType) };
                    partial.read_map(reader, entries)?;
                } else {
                    partial.read_field(reader, ORDER.get(position).copied().unwrap_or(Field::Unknown))?;
                }
            }
        }
    }
    let unknown_fields = partial.unknown_fields;
    let stored = partial.finish()?;
    problems.unknown_fields += unknown_fields;
    Ok(stored)
}

// === impl Partial ===

impl<'a> Partial<'a> {
    fn read_map(&mut self, reader: &mut Reader<'a>, entries: usize) -> Result<(), ReadError> {
        for _ in 0..entries {
            let field = by_name(reader.name()?);
            self.read_field(reader, field)?;
        }
        Ok(())
    }

    fn read_field(&mut self, reader: &mut Reader<'a>, field: Field) -> Result<(), ReadError> {
        match field {
            Field::Hashes => {
                self.stored.hashes = read_hashes(reader)?;
                self.has_hashes = true;
            }
            Field::Parent => self.stored.parent = read_hash(reader)?,
            Field::Tokens => {
                self.stored.tokens = read_tokens(reader)?;
                self.has_tokens = true;
            }
            Field::BlockSize => {
                self.stored.block_size = read_opt_u32(reader)?.ok_or(ReadError::WrongType)?;
                self.has_block_size = true;
            }
            Field::LoraId => {
                self.stored.has_lora_id = !reader.take_nil();
                if self.stored.has_lora_id {
                    reader.skip()?;
                }
            }
            Field::Medium => self.stored.medium = read_medium(reader)?,
            Field::LoraName => self.stored.lora_name = reader.opt_str()?.map(Box::from),
            Field::ExtraKeys => self.stored.extra_keys = read_extra_keys(reader)?,
            Field::GroupIndex => self.stored.group.index = read_opt_u32(reader)?,
            Field::GroupKind => self.kind = reader.opt_str()?,
            Field::SlidingWindow => self.window = read_opt_u32(reader)?,
            Field::Locality => self.is_remote |= read_is_remote(reader)?,
            Field::CacheSalt => self.stored.cache_salt = reader.opt_str()?.map(Box::from),
            Field::Lookahead => self.stored.lookahead = read_lookahead(reader)?,
            Field::MediaInfos => self.media_infos = read_media_infos(reader)?,
            Field::Unused => reader.skip()?,
            Field::Unknown => {
                self.unknown_fields += 1;
                reader.skip()?;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Box<Stored>, ReadError> {
        let mut stored = self.stored;
        if !self.media_infos.is_empty() {
            stored.extra_keys.resize_with(self.media_infos.len().max(stored.extra_keys.len()), Vec::new);
            for (extras, infos) in stored.extra_keys.iter_mut().zip(self.media_infos) {
                extras.extend(infos);
            }
        }
        let extras = stored.extra_keys.len();
        if !self.has_hashes || !self.has_tokens || !self.has_block_size {
            return Err(ReadError::WrongType);
        }
        let ahead = stored.lookahead.len();
        if [extras, ahead].iter().any(|entries| *entries != 0 && *entries != stored.hashes.len()) {
            return Err(ReadError::WrongType);
        }
        if self.is_remote {
            stored.medium = Medium::Remote;
        }
        stored.group =
            Group { index: stored.group.index, kind: self.kind.map(|kind| group_kind(kind, self.window)) };
        Ok(stored)
    }
}

/// A window that is named but not sized cannot be checked against, so it counts as `Other`.
fn group_kind(kind: &str, window: Option<u32>) -> GroupKind {
    match (kind, window) {
        ("full_attention" | "mla_attention" | "sink_full_attention", _) => GroupKind::Full,
        ("sliding_window" | "sliding_window_mla", Some(tokens @ 1..)) => GroupKind::SlidingWindow { tokens },
        ("mamba", _) => GroupKind::Recurrent,
        _ => GroupKind::Other,
    }
}

fn read_tokens(reader: &mut Reader<'_>) -> Result<Vec<u32>, ReadError> {
    match reader.head()? {
        Head::Array(count) => reader.tokens(count),
        Head::Nil => Ok(Vec::new()),
        _ => Err(ReadError::WrongType),
    }
}

/// What is told of each block's media, as its bytes: it separates blocks whose tokens only stand for media.
fn read_media_infos(reader: &mut Reader<'_>) -> Result<Vec<Option<RawExtra>>, ReadError> {
    let count = match reader.head()? {
        Head::Nil => return Ok(Vec::new()),
        Head::Array(count @ 0..=BLOCKS_PER_EVENT_MAX) => count,
        _ => return Err(ReadError::WrongType),
    };
    let mut per_block = Vec::with_capacity(count);
    for _ in 0..count {
        let start = *reader;
        reader.skip()?;
        per_block.push((!start.at_nil()).then(|| RawExtra::Unknown(start.until(*reader).into())));
    }
    if per_block.iter().all(Option::is_none) {
        per_block.clear();
    }
    Ok(per_block)
}

/// Empty where no block has any.
fn read_lookahead(reader: &mut Reader<'_>) -> Result<Vec<Vec<u32>>, ReadError> {
    let count = match reader.head()? {
        Head::Nil => return Ok(Vec::new()),
        Head::Array(count @ 0..=BLOCKS_PER_EVENT_MAX) => count,
        _ => return Err(ReadError::WrongType),
    };
    let mut per_block = Vec::with_capacity(count);
    for _ in 0..count {
        per_block.push(read_tokens(reader)?);
    }
    if per_block.iter().all(Vec::is_empty) {
        per_block.clear();
    }
    Ok(per_block)
}

/// Empty where no block has any, which is nearly always.
fn read_extra_keys(reader: &mut Reader<'_>) -> Result<Vec<Vec<RawExtra>>, ReadError> {
    let count = match reader.head()? {
        Head::Nil => return Ok(Vec::new()),
        Head::Array(count @ 0..=BLOCKS_PER_EVENT_MAX) => count,
        _ => return Err(ReadError::WrongType),
    };
    let mut per_block = Vec::new();
    for position in 0..count {
        let mut extras = Vec::new();
        match reader.head()? {
            Head::Nil => {}
            Head::Array(entries) => {
                for _ in 0..entries {
                    extras.push(read_extra(reader)?);
                }
            }
            _ => return Err(ReadError::WrongType),
        }
        if per_block.is_empty() && !extras.is_empty() {
            per_block.reserve_exact(count);
            per_block.resize_with(position, Vec::new);
        }
        if !extras.is_empty() || !per_block.is_empty() {
            per_block.push(extras);
        }
    }
    Ok(per_block)
}

fn read_extra(reader: &mut Reader<'_>) -> Result<RawExtra, ReadError> {
    let start = *reader;
    let known = match reader.head()? {
        Head::Str(length) => {
            std::str::from_utf8(reader.take(length)?).ok().map(|text| RawExtra::Text(Box::from(text)))
        }
        Head::Bin(length) => Some(RawExtra::Bytes(Box::from(reader.take(length)?))),
        Head::Array(2) => read_media(reader),
        _ => None,
    };
    match known {
        Some(extra) => Ok(extra),
        None => {
            *reader = start;
            reader.skip()?;
            Ok(RawExtra::Unknown(Box::from(start.until(*reader))))
        }
    }
}

/// `[identifier, offset]`; `None` where it is something else.
fn read_media(reader: &mut Reader<'_>) -> Option<RawExtra> {
    let id = Box::from(reader.str().ok()?);
    let offset = match reader.head().ok()? {
        Head::Uint(offset) => i64::try_from(offset).ok()?,
        Head::Negative(offset) => offset,
        _ => return None,
    };
    Some(RawExtra::Media { id, offset })
}
