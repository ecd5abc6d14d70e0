//! Event messages as decoded MessagePack values, with hashes replaced by the order of their first appearance: what is
//! left can be compared between two publishers that hash differently.

use std::collections::HashMap;

use rmpv::Value;

/// One event; the whole value, so that unexpected fields and lengths differ too.
pub(crate) type Event = Value;

/// The events of a payload `[ts, events, rank]`.
pub(crate) fn decode(payload: &[u8]) -> Vec<Event> {
    let mut bytes = payload;
    let batch = rmpv::decode::read_value(&mut bytes).expect("payload is MessagePack");
    assert!(bytes.is_empty(), "payload has trailing bytes");
    let outer = batch.as_array().expect("payload is an array");
    assert_eq!(outer.len(), 3, "payload has three elements");
    outer[1].as_array().expect("events are an array").clone()
}

/// Fields of `BlockStored` before the optional ones, as far as tests look at them.
const STORED: [&str; 5] = ["type", "block_hashes", "parent_block_hash", "token_ids", "block_size"];

/// A field of an event by its name, wherever the encoding keeps it.
pub(crate) fn field<'a>(event: &'a Event, name: &str) -> Option<&'a Value> {
    match event {
        Value::Array(fields) => fields.get(STORED.iter().position(|n| *n == name)?),
        Value::Map(fields) => {
            fields.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value)
        }
        _ => None,
    }
}

pub(crate) fn kind(event: &Event) -> &str {
    field(event, "type").and_then(Value::as_str).expect("event has a type")
}

/// A stored run, for tests that need its content.
#[derive(Debug, Clone)]
pub(crate) struct StoredRun {
    pub(crate) hashes: Vec<Value>,
    pub(crate) parent: Option<Value>,
    pub(crate) tokens: Vec<u32>,
}

pub(crate) fn stored(event: &Event) -> Option<StoredRun> {
    if kind(event) != "BlockStored" {
        return None;
    }
    let parent = field(event, "parent_block_hash").filter(|parent| !parent.is_nil()).cloned();
    let tokens = field(event, "token_ids")?.as_array()?.iter().map(|token| token.as_u64().unwrap() as u32);
    let hashes = field(event, "block_hashes")?.as_array()?.clone();
    Some(StoredRun { hashes, parent, tokens: tokens.collect() })
}

/// Numbers hashes in the order of their first appearance.
#[derive(Debug, Default)]
pub(crate) struct Ordinals(HashMap<Vec<u8>, u64>);

impl Ordinals {
    pub(crate) fn normalise(&mut self, event: &Event) -> Event {
        let mut event = event.clone();
        match &mut event {
            Value::Array(fields) => {
                let is_stored = fields.first().and_then(Value::as_str) == Some("BlockStored");
                let hashes = if is_stored { 3 } else { 2 };
                fields.iter_mut().take(hashes).skip(1).for_each(|value| self.replace(value));
            }
            Value::Map(fields) => {
                let hashes = fields
                    .iter_mut()
                    .filter(|(key, _)| matches!(key.as_str(), Some("block_hashes" | "parent_block_hash")));
                hashes.for_each(|(_, value)| self.replace(value));
            }
            other => panic!("event is neither array nor map: {other}"),
        }
        event
    }

    fn replace(&mut self, value: &mut Value) {
        match value {
            Value::Nil => {}
            Value::Array(hashes) => hashes.iter_mut().for_each(|hash| self.replace(hash)),
            hash => {
                let mut key = Vec::new();
                rmpv::encode::write_value(&mut key, hash).unwrap();
                let next = self.0.len() as u64;
                *hash = Value::from(*self.0.entry(key).or_insert(next));
            }
        }
    }
}
