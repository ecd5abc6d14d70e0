//! What is measured. Each part builds what it needs, checks that all contestants answer alike, and reports.

pub(crate) mod churn;
pub(crate) mod lookups;
pub(crate) mod memory;
pub(crate) mod readers;
pub(crate) mod replay;
pub(crate) mod writes;

use crate::contestant::{self, Contestant, Setting};
use crate::workload::Workload;

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// A hundredth of everything: to see that it works.
    pub(crate) is_quick: bool,
}

// === impl Effort ===

impl Effort {
    fn scaled(self, count: usize) -> usize {
        if self.is_quick { count.div_ceil(100) } else { count }
    }
}

/// Tokens of a block wherever nothing else is said.
const BLOCK_SIZE: usize = 16;

/// All contestants, holding the same.
fn holding(workload: &Workload, workers: usize) -> Vec<Box<dyn Contestant>> {
    let setting = Setting { workers, block_size: BLOCK_SIZE };
    let mut all: Vec<_> = (0..contestant::COUNT).map(|which| contestant::one(which, setting)).collect();
    for one in &mut all {
        contestant::apply_all(&mut **one, workload.changes());
    }
    all
}
