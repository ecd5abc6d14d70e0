//! Every default, with the reason for its number.

/// Loopback: the filter is in the same pod or on the same host unless told otherwise.
pub const GRPC: &str = "127.0.0.1:50051";
/// Loopback: `/state` names every endpoint.
pub const ADMIN: &str = "127.0.0.1:9091";

/// The rule that was bad on none of the loads tried.
pub const POLICY: &str = "cost";

/// Fresh enough to see traffic that other gateways send; an engine answers in a few milliseconds, so this costs it
/// well under 1 % of a core.
pub const SCRAPE_INTERVAL_MS: u64 = 500;
/// A busy engine's HTTP loop can be late by a scheduler step or two; more than this is not worth waiting for.
pub const SCRAPE_TIMEOUT_MS: u64 = 1_000;
/// Adapters are loaded and engines replaced by hand or by a rollout, which takes longer than this.
pub const IDENTITY_INTERVAL_MS: u64 = 10_000;
/// Three refused connections are 1.5 s: longer than a listener's restart, shorter than a user's patience.
pub const SCRAPE_FAILURES_TO_AVOID: u32 = 3;

/// Five in a row are no chance: where one request in ten fails, that is one of 100,000.
pub const OUTLIER_FAILURES: u32 = 5;
/// Long enough for a process to be replaced in part, short enough that a mistake of ours costs little.
pub const EJECT_MS: u64 = 5_000;

/// An engine's first requests compile and warm up what later ones use; most of it is done in this time.
pub const SLOW_START_MS: u64 = 10_000;
/// What a hop between zones takes, about a millisecond, and that it has a price.
pub const OTHER_ZONE_TOKENS: f64 = 64.0;
/// That of a reference endpoint.
pub const CAPACITY: f64 = 1.0;

/// About 2 KiB each with eight candidates: some MB for what a person looks at.
pub const RECEIPTS: usize = 1024;

/// Longer than the longest silence of a healthy request: the filter renews a lease three times in it.
pub const RESERVATION_MS: u64 = 30_000;
/// An engine stores a block when it has computed it: queueing plus prefill, rarely more than this.
pub const SPECULATIVE_MS: u64 = 15_000;

/// Loading a token's keys and values from host memory takes some percent of the time of computing them, from a disk or a
/// store more, and not all engines load back all that they have.
pub const SLOWER_MEDIA: f64 = 0.8;

/// vLLM's default since 0.10.2.
pub const BLOCK_HASH: &str = "sha256";

/// How often a DNS name is looked up.
pub const DNS_REFRESH_MS: u64 = 5_000;
/// Six answers at that pace: where a resolver names half of the endpoints in each, one in a hundred is left out by all.
pub const DNS_GRACE_MS: u64 = 30_000;

/// One fleet in a Redis of its own.
pub const MIRROR_PREFIX: &str = "warmpath";
/// Far less than an engine's replay buffer lasts (10,000 steps), so that what came after an image can be had.
pub const MIRROR_INTERVAL_MS: u64 = 10_000;
/// Longer than any outage of all indexers after which an engine's replay buffer still reaches back to an image.
pub const MIRROR_EXPIRY_MS: u64 = 3_600_000;
/// For some megabytes over a network; nobody waits for it but the one who saves.
pub const MIRROR_TIMEOUT_MS: u64 = 1_000;

/// The filter sends bodies of up to 16 MiB; JSON text of that size fits with its framing.
pub const MAX_MESSAGE_BYTES: usize = 20 << 20;
/// Prompts waiting per tokenizer thread. One of 3,000 tokens takes 0.2 ms with a fast encoder and 5 to 20 ms with the
/// reference: a longer queue of the slow kind would far outlast the 50 ms of the filter.
pub const TOKENIZER_QUEUE_PER_THREAD: usize = 32;
/// About 1 byte per token: twice as much text as the caches of a hundred replicas hold (some 500,000 tokens each).
pub const PROMPT_MEMO_BYTES: usize = 128 << 20;
/// 512 replicas with 256 sequences each, twice over; about 100 bytes each.
pub const RESERVATIONS: usize = 1 << 18;
/// About 60 bytes each at most: 600 MB, for the block references of some hundred replicas.
pub const INDEX_BLOCKS: usize = 10_000_000;

/// An engine replays thousands of batches a second; what has not come in this time will not come soon.
pub const WARMUP_MS: u64 = 10_000;
/// Scores take milliseconds; this leaves most of a pod's 30 s grace period for the network to notice.
pub const DRAIN_MS: u64 = 10_000;

/// What an operator reads in production.
pub const LOG_LEVEL: &str = "info";
