//! A request and its way through the rank.

use std::time::Duration;

use super::hash::{self, Digest, ExtraKey, Seed};
use super::pool::BlockId;

/// Identifies a request within one rank; chosen by the caller, unique among the requests alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// An adapter as the engine knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lora {
    /// The number given when it was loaded; local to the process.
    pub id: u64,
    /// Its name, as requests use it for the model.
    pub name: String,
}

/// One prompt to serve.
#[derive(Debug, Clone)]
pub struct Request {
    /// Unique among the requests alive in the rank.
    pub id: RequestId,
    /// When it reached the rank.
    pub arrived: Duration,
    /// The prompt; never empty.
    pub prompt: Vec<u32>,
    /// The tokens that will be generated, all known beforehand; never empty.
    pub output: Vec<u32>,
    /// Tenant salt.
    pub salt: Option<String>,
    /// Adapter.
    pub lora: Option<Lora>,
    /// Per full block the digest of its prompt embeddings; empty for a prompt of tokens.
    pub embeds: Vec<Vec<u8>>,
    /// Session named by the client.
    pub session: Option<String>,
    /// False for requests that need every prompt position computed (`prompt_logprobs`): they store but do not read.
    pub reads_cache: bool,
    /// Publish the blocks of a hit once more, as if stored (`kv_cache_report_mode: full`).
    pub reports_hits: bool,
}

impl Request {
    /// A plain request.
    pub fn new(id: RequestId, arrived: Duration, prompt: Vec<u32>, output: Vec<u32>) -> Self {
        Self {
            id,
            arrived,
            prompt,
            output,
            salt: None,
            lora: None,
            embeds: Vec::new(),
            session: None,
            reads_cache: true,
            reports_hits: false,
        }
    }

    /// Extra keys of block `index`.
    fn extra_keys(&self, index: usize) -> Vec<ExtraKey> {
        let mut keys = Vec::new();
        keys.extend(self.lora.as_ref().map(|lora| ExtraKey::Lora(lora.name.clone())));
        if index == 0 {
            keys.extend(self.salt.clone().map(ExtraKey::Salt));
        }
        keys.extend(self.embeds.get(index).cloned().map(ExtraKey::Embeds));
        keys
    }
}

/// A block of a sequence that is full of known tokens.
#[derive(Debug, Clone)]
pub(super) struct FullBlock {
    pub(super) digest: Digest,
    pub(super) tokens: Vec<u32>,
    pub(super) extra: Vec<ExtraKey>,
}

/// A request inside the scheduler.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) request: Request,
    /// How many of the output tokens exist.
    pub(super) generated: usize,
    /// How many tokens have their KV entries, or will at the end of the step in flight.
    pub(super) computed: usize,
    /// The physical blocks held, first to last.
    pub(super) blocks: Vec<BlockId>,
    /// How many of `blocks` are in the prefix cache.
    pub(super) cached_blocks: usize,
    /// The hit of its first admission.
    pub(super) hit: Option<usize>,
    full: Vec<FullBlock>,
}

impl Sequence {
    pub(super) fn new(request: Request) -> Self {
        Self {
            request,
            generated: 0,
            computed: 0,
            blocks: Vec::new(),
            cached_blocks: 0,
            hit: None,
            full: Vec::new(),
        }
    }

    /// Tokens known: the prompt and what was generated.
    pub(super) fn len(&self) -> usize {
        self.request.prompt.len() + self.generated
    }

    /// Whether it still computes its prompt, or recomputes after a preemption.
    pub(super) fn prefills(&self) -> bool {
        self.computed + 1 < self.len() || self.generated == 0
    }

    /// The full blocks of the known tokens, hashing those that filled since the last call.
    pub(super) fn full_blocks(&mut self, block_size: usize, seed: &Seed) -> &[FullBlock] {
        while (self.full.len() + 1) * block_size <= self.len() {
            let index = self.full.len();
            let tokens: Vec<u32> = self.tokens().skip(index * block_size).take(block_size).collect();
            let extra = self.request.extra_keys(index);
            let parent = self.full.last().map_or(seed.root(), |block| block.digest);
            self.full.push(FullBlock { digest: hash::chain(&parent, &tokens, &extra), tokens, extra });
        }
        &self.full
    }

    fn tokens(&self) -> impl Iterator<Item = u32> {
        self.request.prompt.iter().chain(self.request.output.iter().take(self.generated)).copied()
    }
}
