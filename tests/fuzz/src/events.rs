//! KV event payloads. Input: one payload.
//!
//! Decoding is a function of the bytes, and what comes out is bounded by what went in: an engine, or whoever took its
//! port, cannot make the indexer hold more than it sent.

use warmpath_kv::{Event, decode_batch};

/// Checks one payload.
pub fn check(input: &[u8]) {
    let decoded = decode_batch(input);
    // By their words: a time that is no number equals nothing, not even itself.
    assert_eq!(format!("{decoded:?}"), format!("{:?}", decode_batch(input)));
    let Ok(batch) = decoded else { return };
    let came_out: usize = batch.events.iter().map(bytes_at_least).sum();
    assert!(came_out <= input.len(), "{came_out} bytes' worth of {} bytes", input.len());
}

/// Bytes of the payload that an event takes at least: one for its type, one for each hash and token, and its texts.
fn bytes_at_least(event: &Event) -> usize {
    let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
    1 + match event {
        Event::Stored(stored) => {
            let extra: usize = stored.extra_keys.iter().map(Vec::len).sum();
            let texts = text(&stored.lora_name) + text(&stored.cache_salt);
            stored.hashes.len() + stored.tokens.len() + extra + texts
        }
        Event::Removed(removed) => removed.hashes.len(),
        Event::Cleared => 0,
    }
}
