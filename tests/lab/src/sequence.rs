//! A request inside a replica.

use crate::pool::BlockId;
use crate::prompt::mix;
use crate::replica::Job;

#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) job: Job,
    pub(crate) generated: u32,
    /// Tokens with KV entries, those of the step in flight included.
    pub(crate) computed: u32,
    pub(crate) blocks: Vec<BlockId>,
    pub(crate) cached_blocks: usize,
    pub(crate) hit: Option<u32>,
    /// Pool version and budget with which it last got no space.
    pub(crate) refused: Option<(u64, u32)>,
}

// === impl Sequence ===

impl Sequence {
    pub(crate) fn new(job: Job) -> Self {
        Self {
            job,
            generated: 0,
            computed: 0,
            blocks: Vec::new(),
            cached_blocks: 0,
            hit: None,
            refused: None,
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.job.prompt.tokens + self.generated
    }

    pub(crate) fn prefills(&self) -> bool {
        self.computed + 1 < self.len() || self.generated == 0
    }

    /// The id of a whole block. Blocks with tokens of the answer are like no other request's.
    pub(crate) fn block_id(&self, index: usize) -> u64 {
        let chain = &self.job.prompt.chain;
        chain.get(index).copied().unwrap_or_else(|| {
            let last = chain.last().copied().unwrap_or_default();
            mix(mix(last, self.job.id as u64), index as u64 + 1)
        })
    }
}
