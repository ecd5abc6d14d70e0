//! How patient a sequencer is.

/// How patient a sequencer is. All times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequencerConfig {
    /// Whether the engine's replay socket is known.
    pub has_replay: bool,
    /// Longest wait for the next answer of a replay. An engine at work answers with its next step or after 100 ms.
    pub replay_timeout_ms: u64,
    /// Wait before a replay is asked again; grows with each attempt.
    pub retry_ms: u64,
    /// Attempts without progress after which what is missing counts as lost.
    pub attempts_max: u32,
    /// Silence after which a live stream is probed.
    pub probe_ms: u64,
    /// Silence from the start after which a stream is called silent.
    pub silent_ms: u64,
    /// How long after a replay published batches may still be ones that it brought already.
    pub overlap_ms: u64,
    /// Most batches that wait for a replay. Beyond it the newest are dropped, and asked for afterwards.
    pub waiting_max: usize,
    /// Most bytes that wait for a replay.
    pub waiting_bytes_max: usize,
}

// === impl SequencerConfig ===

impl Default for SequencerConfig {
    fn default() -> Self {
        Self {
            has_replay: true,
            replay_timeout_ms: 5_000,
            retry_ms: 500,
            attempts_max: 3,
            probe_ms: 5_000,
            silent_ms: 10_000,
            overlap_ms: 10_000,
            waiting_max: 16_384,
            waiting_bytes_max: 64 << 20,
        }
    }
}
