//! Event payloads as vLLM's publisher writes them, release by release.
//!
//! A payload is always the array `[ts, events, rank]`. An event is an array or a map (see
//! [`EventEncoding`](crate::version::EventEncoding)) over the fields below, of which a release knows the first
//! [`stored_fields`](VllmVersion::stored_fields).
//!
//! | field | required | here |
//! |---|---|---|
//! | block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium, lora_name | yes | from the event, `medium` is `GPU` |
//! | extra_keys | no | one list or nil per block |
//! | group_idx, kv_cache_spec_kind | no | 0, `full_attention` |
//! | kv_cache_spec_sliding_window, locality, ownership, lookahead_token_ids | no | unset |
//! | session_id | no | from the request |

mod msgpack;

use msgpack::Writer;

use crate::core::{Digest, ExtraKey, KvEvent, Stored};
use crate::version::{EventEncoding, VllmVersion};

/// Form of block hashes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashForm {
    /// The last eight bytes of the digest as an unsigned big-endian integer: the default of every release.
    Integers,
    /// The whole digest (`VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0`).
    Bytes,
}

/// Writes payloads of one release.
#[derive(Debug, Clone, Copy)]
pub struct Encoder {
    version: VllmVersion,
    hashes: HashForm,
}

/// Fields of `BlockStored` in array order, and how many of them are always written.
const STORED_FIELDS: [&str; 15] = [
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
    "locality",
    "ownership",
    "session_id",
    "lookahead_token_ids",
];
const STORED_REQUIRED: usize = 7;
const REMOVED_FIELDS: [&str; 5] = ["block_hashes", "medium", "group_idx", "locality", "ownership"];
const REMOVED_REQUIRED: usize = 2;

/// From this many possible keys on (the type included), the encoder of real releases reserves a 16-bit map header.
const WIDE_MAP_KEYS: usize = 16;

impl Encoder {
    /// Encoder of a release.
    pub fn new(version: VllmVersion, hashes: HashForm) -> Self {
        Self { version, hashes }
    }

    /// One batch: `unix_seconds` is its time stamp, `rank` the data-parallel rank.
    pub fn payload(&self, unix_seconds: f64, events: &[KvEvent], rank: Option<u32>) -> Vec<u8> {
        let mut out = Writer::default();
        out.array(3);
        out.float(unix_seconds);
        out.array(events.len());
        for event in events {
            match event {
                KvEvent::Stored(stored) => self.stored(&mut out, stored),
                KvEvent::Removed(hashes) => self.removed(&mut out, hashes),
                KvEvent::Cleared => self.event(&mut out, "AllBlocksCleared", &[], 0, &[]),
            }
        }
        match rank {
            Some(rank) => out.uint(rank.into()),
            None => out.nil(),
        }
        out.finish()
    }

    /// The integer form of a digest.
    pub fn integer(digest: &Digest) -> u64 {
        digest.iter().skip(digest.len() - 8).fold(0, |value, byte| (value << 8) | u64::from(*byte))
    }

    fn stored(&self, out: &mut Writer, stored: &Stored) {
        let values = [
            Value::Hashes(&stored.hashes),
            stored.parent.as_ref().map_or(Value::Nil, Value::Hash),
            Value::Tokens(&stored.tokens),
            Value::Uint(stored.block_size as u64),
            stored.lora.as_ref().map_or(Value::Nil, |lora| Value::Uint(lora.id)),
            Value::Text("GPU"),
            stored.lora.as_ref().map_or(Value::Nil, |lora| Value::Text(&lora.name)),
            Value::ExtraKeys(&stored.extra_keys),
            Value::Uint(0),
            Value::Text("full_attention"),
            Value::Nil,
            Value::Nil,
            Value::Nil,
            stored.session.as_deref().map_or(Value::Nil, Value::Text),
            Value::Nil,
        ];
        let known = values.get(..self.version.stored_fields()).unwrap_or(&values);
        self.event(out, "BlockStored", &STORED_FIELDS, STORED_REQUIRED, known);
    }

    fn removed(&self, out: &mut Writer, hashes: &[Digest]) {
        let values = [Value::Hashes(hashes), Value::Text("GPU"), Value::Uint(0), Value::Nil, Value::Nil];
        let known = values.get(..self.version.removed_fields()).unwrap_or(&values);
        self.event(out, "BlockRemoved", &REMOVED_FIELDS, REMOVED_REQUIRED, known);
    }

    fn event(&self, out: &mut Writer, kind: &str, names: &[&str], required: usize, values: &[Value<'_>]) {
        match self.version.encoding() {
            EventEncoding::Arrays => {
                out.array(1 + values.len());
                out.text(kind);
                for value in values {
                    self.value(out, value);
                }
            }
            EventEncoding::Maps => {
                let is_present = |(index, (_, value)): &(usize, (&&str, &Value<'_>))| {
                    *index < required || !matches!(value, Value::Nil)
                };
                let fields = || names.iter().zip(values).enumerate().filter(is_present);
                let keys = 1 + fields().count();
                match u16::try_from(keys) {
                    Ok(keys) if values.len() + 1 >= WIDE_MAP_KEYS => out.map16(keys),
                    _ => out.map(keys),
                }
                out.text("type");
                out.text(kind);
                for (_, (name, value)) in fields() {
                    out.text(name);
                    self.value(out, value);
                }
            }
        }
    }

    fn value(&self, out: &mut Writer, value: &Value<'_>) {
        match value {
            Value::Nil => out.nil(),
            Value::Uint(number) => out.uint(*number),
            Value::Text(text) => out.text(text),
            Value::Hash(digest) => self.hash(out, digest),
            Value::Hashes(digests) => {
                out.array(digests.len());
                for digest in *digests {
                    self.hash(out, digest);
                }
            }
            Value::Tokens(tokens) => {
                out.array(tokens.len());
                for token in *tokens {
                    out.uint(u64::from(*token));
                }
            }
            Value::ExtraKeys(blocks) => {
                out.array(blocks.len());
                for keys in *blocks {
                    extra_keys(out, keys);
                }
            }
        }
    }

    fn hash(&self, out: &mut Writer, digest: &Digest) {
        match self.hashes {
            HashForm::Integers => out.uint(Self::integer(digest)),
            HashForm::Bytes => out.bytes(digest),
        }
    }
}

enum Value<'a> {
    Nil,
    Uint(u64),
    Text(&'a str),
    Hash(&'a Digest),
    Hashes(&'a [Digest]),
    Tokens(&'a [u32]),
    ExtraKeys(&'a [Vec<ExtraKey>]),
}

fn extra_keys(out: &mut Writer, keys: &[ExtraKey]) {
    if keys.is_empty() {
        return out.nil();
    }
    out.array(keys.len());
    for key in keys {
        match key {
            ExtraKey::Lora(text) | ExtraKey::Salt(text) => out.text(text),
            ExtraKey::Embeds(digest) => out.bytes(digest),
        }
    }
}
