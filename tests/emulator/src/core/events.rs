//! What a rank publishes about its cache, before any encoding.

use super::{Digest, ExtraKey, Lora};

/// One event, in the order in which the pool changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvEvent {
    /// Blocks entered the prefix cache.
    Stored(Stored),
    /// Physical blocks left it; the scheduler reports each in an event of its own.
    Removed(Vec<Digest>),
    /// The whole cache was dropped.
    Cleared,
}

/// A run of consecutive blocks of one prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// One digest per block, first to last.
    pub hashes: Vec<Digest>,
    /// The digest before the first of them; `None` at the beginning of a prompt.
    pub parent: Option<Digest>,
    /// The tokens of these blocks only: `hashes.len() * block_size` of them.
    pub tokens: Vec<u32>,
    /// Tokens per block.
    pub block_size: usize,
    /// The adapter that the request used.
    pub lora: Option<Lora>,
    /// Per block its extra keys; empty where it has none.
    pub extra_keys: Vec<Vec<ExtraKey>>,
    /// The session that the request named.
    pub session: Option<String>,
}
