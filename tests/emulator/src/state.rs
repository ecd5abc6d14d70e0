//! The truth about a server, for audits of whoever follows its events.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::core::{CachedBlock, Counters, Digest, ExtraKey, Snapshot};
use crate::requests::hex;
use crate::server::Shared;
use crate::wire::Encoder;

/// All ranks at about the same moment.
#[derive(Debug, Clone, Serialize)]
pub struct StateDump {
    /// By rank; empty while the server is down.
    pub ranks: Vec<RankDump>,
}

/// One rank.
#[derive(Debug, Clone, Serialize)]
pub struct RankDump {
    /// Its number.
    pub rank: usize,
    /// Sequences in steps.
    pub running: usize,
    /// Sequences not admitted.
    pub waiting: usize,
    /// Share of blocks held, 0 to 1.
    pub kv_usage: f64,
    /// Changes of the cache that wait for the next batch: an idle engine tells of a reset only then.
    pub unpublished: usize,
    /// Totals since the start.
    pub counters: Counters,
    /// Batches given to the publisher, silent ones included.
    pub batches: u64,
    /// Batches lost before the publisher, which never happens unless its queue overflows.
    pub batches_lost: u64,
    /// Tokens per block.
    pub block_size: usize,
    /// The multiset of cached blocks; parents come before their children.
    pub blocks: Vec<BlockDump>,
}

/// A cached block and how often it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDump {
    /// The hash as an integer, as most publishers send it.
    pub hash: u64,
    /// What comes before it.
    pub parent: ParentDump,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Its adapter.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lora: Option<String>,
    /// Its salt; first blocks only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub salt: Option<String>,
    /// The digest of its embeddings, in hex.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub embeds: Option<String>,
    /// Physical blocks that hold it.
    pub count: usize,
}

/// Where a block hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParentDump {
    /// It is the first of a prompt.
    Root,
    /// Behind the block at that position of the list.
    At(usize),
    /// Behind a block that was evicted: no lookup reaches it.
    Evicted,
}

/// Asks every rank.
pub(crate) async fn dump(shared: &Shared) -> StateDump {
    let mut ranks = Vec::new();
    for (rank, handle) in shared.ranks().iter().enumerate() {
        // A rank that is gone belongs to an incarnation that just ended.
        let Ok(snapshot) = handle.snapshot().await else { continue };
        let stats = handle.stats();
        ranks.push(RankDump {
            rank,
            running: snapshot.running,
            waiting: snapshot.waiting,
            kv_usage: snapshot.usage,
            unpublished: snapshot.unpublished,
            counters: snapshot.counters,
            batches: stats.batches,
            batches_lost: stats.batches_lost,
            block_size: shared.config.block_size,
            blocks: blocks(&snapshot),
        });
    }
    StateDump { ranks }
}

/// The cached blocks with parents before children.
pub(crate) fn blocks(snapshot: &Snapshot) -> Vec<BlockDump> {
    let mut children: HashMap<Digest, Vec<&CachedBlock>> = HashMap::new();
    let cached: std::collections::HashSet<Digest> =
        snapshot.cached.iter().map(|block| block.digest).collect();
    let mut ready = Vec::new();
    for block in &snapshot.cached {
        if block.parent == snapshot.root {
            ready.push((block, ParentDump::Root));
        } else if cached.contains(&block.parent) {
            children.entry(block.parent).or_default().push(block);
        } else {
            ready.push((block, ParentDump::Evicted));
        }
    }
    ready.sort_by_key(|(block, _)| block.digest);
    let mut out: Vec<BlockDump> = Vec::with_capacity(snapshot.cached.len());
    while let Some((block, parent)) = ready.pop() {
        let position = out.len();
        out.push(BlockDump::new(block, parent));
        let next = children.remove(&block.digest).unwrap_or_default();
        ready.extend(next.into_iter().map(|child| (child, ParentDump::At(position))));
    }
    out
}

impl BlockDump {
    fn new(block: &CachedBlock, parent: ParentDump) -> Self {
        let mut dump = Self {
            hash: Encoder::integer(&block.digest),
            parent,
            tokens: block.tokens.clone(),
            lora: None,
            salt: None,
            embeds: None,
            count: block.copies,
        };
        for key in &block.extra {
            match key {
                ExtraKey::Lora(name) => dump.lora = Some(name.clone()),
                ExtraKey::Salt(salt) => dump.salt = Some(salt.clone()),
                ExtraKey::Embeds(digest) => dump.embeds = Some(hex(digest)),
            }
        }
        dump
    }
}
