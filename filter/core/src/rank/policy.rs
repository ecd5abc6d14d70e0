//! How endpoints are ranked, by name and with parameters.

/// λ: price of a duplicated token under full cache pressure, in tokens. 2 to 4 was best where the cache is tight and
/// harmless elsewhere (docs/decisions/0003-cost-rule.md).
pub const LAMBDA_DEFAULT: f64 = 4.0;
/// μ: price of an active sequence, in tokens: what a running decode takes from a prefill beside it.
pub const MU_DEFAULT: f64 = 50.0;
/// θ: price of a token to compute for each sequence that waits at the endpoint: who comes behind them waits longer by it.
/// Without it, copies of a new hot prefix come too late; with 0.25 to 1, in time (docs/decisions/0013-tuning.md).
pub const BEHIND_DEFAULT: f64 = 0.5;
/// η: price of a token away from the home of its prompt, in tokens, where several decide; see [`super::home`].
/// docs/decisions/0013-tuning.md has the sweep.
pub const AGREE_DEFAULT: f64 = 8.0;

/// Share of the prompt that makes an endpoint a holder for [`Policy::Sticky`].
pub const STICKY_SHARE_DEFAULT: f64 = 0.8;
/// Tokens by which holders may be behind the others before [`Policy::Sticky`] lets go: 18 s at 15,928 tokens/s.
pub const STICKY_GATE_TOKENS_DEFAULT: u64 = 286_704;

/// How endpoints are ranked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// In turn, whatever their load.
    RoundRobin,
    /// Two at random, the one with fewer active sequences first.
    PowerOfTwo,
    /// Queue and KV use, one point each, as pickers score them that know no prefixes; caches are not looked at.
    LeastLoad,
    /// Most cached tokens, then least load.
    LongestPrefix,
    /// Weighted scores for prefix, queue, KV use and rest since the last cold request.
    Weighted {
        /// Its name: a preset's, or `weighted`.
        name: &'static str,
        /// The weights.
        blend: Blend,
    },
    /// Holders of most of the prompt only, unless they are far behind; among those the least tokens.
    Sticky(Sticky),
    /// Tokens to compute times sequences in the batch.
    NewTimesBatch,
    /// The sum of [`super::cost`].
    Cost(CostWeights),
}

/// Weights of the scores that [`Policy::Weighted`] adds up, each score 0 to 1; weights are 0 or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blend {
    /// Share of the prompt that is cached.
    pub prefix: f64,
    /// 1 for the shortest queue, 0 for the longest.
    pub queue: f64,
    /// Share of the KV memory that is not in use.
    pub kv: f64,
    /// Where nobody holds anything: 1 for who got no such request for the longest time, 0 for the last one.
    pub no_hit: f64,
}

/// Parameters of [`Policy::Sticky`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sticky {
    /// Share of the prompt that makes a holder, 0 to 1.
    pub share: f64,
    /// Tokens by which the least busy holder may be behind the least busy of the others.
    pub gate_tokens: u64,
}

/// Parameters of [`Policy::Cost`], each 0 or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostWeights {
    /// λ: price of a duplicated token under full cache pressure, in tokens.
    pub lambda: f64,
    /// μ: price of an active sequence, in tokens.
    pub mu: f64,
    /// κ: price of a token that KV memory has no room for, in tokens.
    pub memory: f64,
    /// θ: price of a token to compute for each sequence that waits there, in tokens.
    pub behind: f64,
    /// ρ: price of a token that was given lately. 0: endpoints that are idle now are equal, whoever worked before.
    pub recent: f64,
    /// η: price of a token away from the home of its prompt, where several decide, in tokens.
    pub agree: f64,
}

// === impl Policy ===

impl Policy {
    /// The cost rule with its default parameters.
    pub const COST: Self = Self::Cost(CostWeights::DEFAULT);

    /// Every name, for messages.
    pub const NAMES: [&'static str; 10] = [
        "round_robin",
        "power_of_two",
        "least_load",
        "longest_prefix",
        "weighted",
        "weighted_3_1_1",
        "weighted_3_2_2_2",
        "sticky",
        "new_times_batch",
        "cost",
    ];

    /// Its name in configuration, metrics and receipts.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::PowerOfTwo => "power_of_two",
            Self::LeastLoad => "least_load",
            Self::LongestPrefix => "longest_prefix",
            Self::Weighted { name, .. } => name,
            Self::Sticky(_) => "sticky",
            Self::NewTimesBatch => "new_times_batch",
            Self::Cost(_) => "cost",
        }
    }

    /// The policy of this name with its default parameters.
    pub fn by_name(name: &str) -> Option<Self> {
        let weighted = |name, blend| Self::Weighted { name, blend };
        Some(match name {
            "round_robin" => Self::RoundRobin,
            "power_of_two" => Self::PowerOfTwo,
            "least_load" => Self::LeastLoad,
            "longest_prefix" => Self::LongestPrefix,
            "weighted" => weighted("weighted", Blend::DEFAULT),
            "weighted_3_1_1" => weighted("weighted_3_1_1", Blend::PREFIX_3_1_1),
            "weighted_3_2_2_2" => weighted("weighted_3_2_2_2", Blend::PREFIX_3_2_2_2),
            "sticky" => Self::Sticky(Sticky::default()),
            "new_times_batch" => Self::NewTimesBatch,
            "cost" => Self::COST,
            _ => return None,
        })
    }
}

// === impl Blend ===

impl Blend {
    /// 3:2:2, prefix, queue and KV use.
    pub const DEFAULT: Self = Self { prefix: 3.0, queue: 2.0, kv: 2.0, no_hit: 0.0 };
    /// 3:1:1, prefix, queue and KV use.
    pub const PREFIX_3_1_1: Self = Self { prefix: 3.0, queue: 1.0, kv: 1.0, no_hit: 0.0 };
    /// 3:2:2:2, with cold requests to who got none for the longest time.
    pub const PREFIX_3_2_2_2: Self = Self { prefix: 3.0, queue: 2.0, kv: 2.0, no_hit: 2.0 };
}

impl Default for Blend {
    fn default() -> Self {
        Self::DEFAULT
    }
}

// === impl Sticky ===

impl Default for Sticky {
    fn default() -> Self {
        Self { share: STICKY_SHARE_DEFAULT, gate_tokens: STICKY_GATE_TOKENS_DEFAULT }
    }
}

// === impl CostWeights ===

impl CostWeights {
    /// What docs/decisions/0003-cost-rule.md gives reasons for.
    pub const DEFAULT: Self = Self {
        lambda: LAMBDA_DEFAULT,
        mu: MU_DEFAULT,
        memory: 1.0,
        behind: BEHIND_DEFAULT,
        recent: 0.0,
        agree: AGREE_DEFAULT,
    };
}

impl Default for CostWeights {
    fn default() -> Self {
        Self::DEFAULT
    }
}
