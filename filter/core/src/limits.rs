//! Every bound of the filter, with its reason. The indexer enforces the same limits on what the two exchange.

/// Largest body that is collected, unless configured: an 8 MiB prompt with escapes and a few pictures fits. The
/// proxy's own buffer limit must be larger, or it answers 413 while we wait for the rest.
pub const BODY_BYTES_DEFAULT: usize = 16 << 20;
/// Smallest configurable body limit: below it hardly any chat request could be read.
pub const BODY_BYTES_MIN: usize = 1 << 10;
/// Largest configurable body limit: a wasm memory is at most 4 GiB and a worker may hold many bodies.
pub const BODY_BYTES_MAX: usize = 256 << 20;

/// Nesting that the JSON reader follows; the width of its stack, and what other readers on the way allow.
pub const JSON_DEPTH_MAX: u32 = 128;

/// Bytes of `model`: as in the contract.
pub const MODEL_BYTES_MAX: usize = 512;
/// Bytes of `cache_salt`: as in the contract; engines take at most 1024 characters.
pub const CACHE_SALT_BYTES_MAX: usize = 1024;
/// Prompts of one completion request: as in the contract.
pub const PROMPTS_MAX: usize = 1024;
/// Token ids of one prompt: as in the contract; four times the longest context in use.
pub const TOKEN_IDS_MAX: usize = 1 << 22;
/// Sequences per prompt (`n`): as in the contract.
pub const SEQUENCES_MAX: u32 = 128;
/// Bytes of a text field that chooses how a prompt is rendered (`reasoning_effort`): longer ones are nonsense.
pub const SHORT_TEXT_BYTES_MAX: usize = 64;

/// Candidates taken from a ranking: the first choice and two for retries.
pub const CANDIDATES_MAX: usize = 3;
/// Bytes of an endpoint: a bracketed IPv6 address, a zone and a port, with room.
pub const ENDPOINT_BYTES_MAX: usize = 80;
/// Endpoints in a set: as in the contract.
pub const ENDPOINTS_MAX: usize = 4096;

/// Bytes of the prompt's head that choose an endpoint when no indexer answers: a system prompt's beginning, small
/// enough to hash in a microsecond.
pub const HEAD_BYTES: usize = 2048;

/// Last bytes of an answer that are kept to read `usage` from: engines write it last, followed by little.
pub const USAGE_TAIL_BYTES: usize = 4096;
/// First bytes of an answer in which its id is looked for: engines write it first, in a stream after an event's name.
pub const ANSWER_HEAD_BYTES: usize = 4096;

/// Wait for the indexer's answer, unless configured.
pub const TIMEOUT_MS_DEFAULT: u64 = 50;
/// Longest configurable wait: longer than any prefill that it could save.
pub const TIMEOUT_MS_MAX: u64 = 10_000;
/// Most ticks a second: finer ones cost more than they bring.
pub const TICK_MS_MIN: u64 = 5;

/// Pause between batches of reports, unless configured.
pub const REPORT_INTERVAL_MS_DEFAULT: u64 = 50;
/// Shortest configurable pause between reports.
pub const REPORT_INTERVAL_MS_MIN: u64 = 10;
/// Longest configurable pause between reports: loads that old mislead, and the indexer soon gives up a decision of which
/// it hears nothing.
pub const REPORT_INTERVAL_MS_MAX: u64 = 1_000;
/// Events in one report: as in the contract.
pub const REPORT_EVENTS_MAX: usize = 4096;
/// Events waiting to be reported; older ones are dropped. About 3 MiB, or seconds of any load while an indexer is away.
pub const REPORT_QUEUE_MAX: usize = 16_384;
/// Wait for a report's answer. Nothing waits for it but the next report.
pub const REPORT_TIMEOUT_MS: u64 = 250;

/// A decision is confirmed after this long, unless something else was told of it before. The indexer waits for that
/// only [`UNCONFIRMED_LEASE_MS`], as it cannot know whether its answer arrived.
pub const CONFIRM_AFTER_MS: u64 = 1_000;
/// How long a decision counts of which the indexer has heard nothing yet: a confirmation, which may be two report
/// intervals late and need a second attempt, arrives in half of it.
pub const UNCONFIRMED_LEASE_MS: u64 = 5_000;
/// A request that said nothing for this long renews its lease: a third of the indexer's 30 s.
pub const LEASE_RENEWAL_MS: u64 = 10_000;

/// A request whose body does not begin for this long goes on unread. Nobody uploads that slowly, but a proxy without
/// `allow_on_headers_stop_iteration` never shows a body while its headers are held.
pub const BODY_WAIT_MS: u64 = 5_000;

/// Decided requests that are judged together as to whether the proxy sent them where they should go.
pub const FOLLOWED_WINDOW: u32 = 64;
/// More than this part of them elsewhere is a mistake in the proxy's configuration: with two endpoints chance makes a half of
/// it. A route that leads a tenth of its requests into another cluster is none.
pub const ASTRAY_SHARE_DIVISOR: u32 = 4;

/// Bytes of a body from which on a missed deadline says nothing of the indexer: reading so much takes it tens of milliseconds, and
/// the next question may be a small one.
pub const SLOW_BODY_BYTES: usize = 1 << 20;
/// Failures in a row after which no indexer is asked for a while.
pub const CIRCUIT_FAILURES: u32 = 3;
/// Pause between probes while no indexer is asked.
pub const PROBE_INTERVAL_MS: u64 = 100;
/// Longest pause, reached when probes succeed and the requests after them fail again and again.
pub const PROBE_INTERVAL_MS_MAX: u64 = 3_200;

/// Share above the mean load that one endpoint may get from the fallback, unless configured.
pub const LOAD_FACTOR_DEFAULT: f64 = 1.25;
/// Largest configurable load factor: beyond it the bound is none.
pub const LOAD_FACTOR_MAX: f64 = 16.0;

/// A call that fails this close to its deadline failed by it: the proxy's timers count whole milliseconds.
pub const TIMER_SLACK_US: u64 = 2_000;
/// The same as a part of the timeout, where that is more: a proxy sets its timers by the time at which its event loop woke
/// up, which on a busy machine is some milliseconds before the call is made.
pub const TIMER_SLACK_DIVISOR: u64 = 10;
