//! The replicas of the loads. Where their constants come from: docs/benchmarks.md, "The lab".

use std::time::Duration;

use crate::replica::{ReplicaSpec, Timing};

/// Of the first published run: a 14B model, block 16.
pub fn fourteen_b() -> ReplicaSpec {
    ReplicaSpec {
        block_tokens: 16,
        blocks: 8191,
        max_batched_tokens: 1024,
        max_seqs: 256,
        timing: Timing {
            step_overhead: Duration::from_millis(10),
            prefill_tokens_per_second: 6500.0,
            decode_cost: Duration::from_micros(250),
        },
    }
}

/// Of the second published run: a 7B model on a card of 24 GB, block 64.
pub fn seven_b() -> ReplicaSpec {
    ReplicaSpec {
        block_tokens: 64,
        blocks: 92_800 / 64,
        max_batched_tokens: 2048,
        max_seqs: 256,
        timing: Timing {
            step_overhead: Duration::from_millis(26),
            prefill_tokens_per_second: 5400.0,
            decode_cost: Duration::from_micros(700),
        },
    }
}

/// For traces with long prompts: a large card, and this many tokens of cache.
pub fn large_card(cache_tokens: u32) -> ReplicaSpec {
    ReplicaSpec {
        block_tokens: 64,
        blocks: cache_tokens / 64,
        max_batched_tokens: 8192,
        max_seqs: 256,
        timing: Timing {
            step_overhead: Duration::from_millis(15),
            prefill_tokens_per_second: 8000.0,
            decode_cost: Duration::from_micros(200),
        },
    }
}
