//! What an emulated server is made of. The binary's flags and the library's configuration are the same struct.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::core::{EngineConfig, Seed, Timing};
use crate::text::OutputVocabulary;
use crate::version::VllmVersion;
use crate::wire::HashForm;

/// Defaults, with the reasons for the timing ones in `README.md`.
mod defaults {
    use super::{Ipv4Addr, SocketAddr, Timing, VllmVersion};

    pub(super) const HTTP: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    pub(super) const VERSION: VllmVersion = VllmVersion::new(32, 0);
    pub(super) const MODEL: &str = "tiny";
    pub(super) const BLOCK_SIZE: usize = 16;
    pub(super) const BLOCKS: usize = 4096;
    pub(super) const RANKS: u32 = 1;
    pub(super) const SPEEDUP: f64 = 1.0;
    pub(super) const PREFILL_TOKENS_PER_SECOND: f64 = Timing::CALIBRATED.prefill_tokens_per_second;
    pub(super) const STEP_MS: f64 = Timing::CALIBRATED.step_overhead.as_micros() as f64 / 1e3;
    pub(super) const DECODE_US: f64 = Timing::CALIBRATED.decode_cost.as_micros() as f64;
    /// Part of the calibration: how much prefill stands between two tokens of everyone else.
    pub(super) const MAX_BATCHED_TOKENS: usize = 1024;
    pub(super) const MAX_SEQS: usize = 256;
    pub(super) const MAX_TOKENS: usize = 16;
    pub(super) const BUFFER_STEPS: usize = 10_000;
    pub(super) const REQUESTS_KEPT: usize = 1000;
}

/// Configuration of one emulated server.
#[derive(Debug, Clone, Args)]
pub struct EmulatorConfig {
    /// Address of the HTTP server; port 0 takes a free one.
    #[arg(long, default_value_t = defaults::HTTP)]
    pub http: SocketAddr,
    /// Where rank 0 publishes its events; rank r uses port + r, port 0 takes a free one for each. Always bound.
    #[arg(long)]
    pub events: Option<String>,
    /// Where rank 0 answers replay requests, likewise.
    #[arg(long, requires = "events")]
    pub replay: Option<String>,
    /// All ranks publish and answer on the sockets of rank 0, as behind a forwarder; each still counts its own batches.
    #[arg(long, requires = "events")]
    pub one_socket: bool,
    /// First frame of event messages.
    #[arg(long, default_value = "")]
    pub topic: String,
    /// Batches kept for replay.
    #[arg(long, default_value_t = defaults::BUFFER_STEPS)]
    pub buffer_steps: usize,
    /// Release whose edges are shown.
    #[arg(long, default_value_t = defaults::VERSION)]
    pub vllm_version: VllmVersion,
    /// Send whole 32-byte block hashes instead of integers.
    #[arg(long)]
    pub byte_hashes: bool,
    /// Text that block hashes start from. Without it: fixed from 0.29 on, new with every start before.
    #[arg(long)]
    pub hash_seed: Option<String>,
    /// Name of the model served.
    #[arg(long, default_value = defaults::MODEL)]
    pub model: String,
    /// Name of a LoRA adapter; repeat it for more.
    #[arg(long = "lora")]
    pub loras: Vec<String>,
    /// Directory with tokenizer.json and tokenizer_config.json. Without it only token-id prompts are served.
    #[arg(long)]
    pub tokenizer: Option<PathBuf>,
    /// Tokens per block.
    #[arg(long, default_value_t = defaults::BLOCK_SIZE)]
    pub block_size: usize,
    /// Blocks of each rank, one of which is kept back as in the real engine.
    #[arg(long, default_value_t = defaults::BLOCKS)]
    pub blocks: usize,
    /// Data-parallel ranks, each with a cache of its own.
    #[arg(long, default_value_t = defaults::RANKS)]
    pub ranks: u32,
    /// Divides all waits.
    #[arg(long, default_value_t = defaults::SPEEDUP)]
    pub speedup: f64,
    /// Speed of computing uncached prompt tokens.
    #[arg(long, default_value_t = defaults::PREFILL_TOKENS_PER_SECOND)]
    pub prefill_tokens_per_second: f64,
    /// Cost of every step, in milliseconds.
    #[arg(long, default_value_t = defaults::STEP_MS)]
    pub step_ms: f64,
    /// Cost of each decoding sequence in a step, in microseconds.
    #[arg(long, default_value_t = defaults::DECODE_US)]
    pub decode_us: f64,
    /// Token budget of a step.
    #[arg(long, default_value_t = defaults::MAX_BATCHED_TOKENS)]
    pub max_batched_tokens: usize,
    /// Sequences running at once, per rank.
    #[arg(long, default_value_t = defaults::MAX_SEQS)]
    pub max_seqs: usize,
    /// Context length; at most what the blocks hold, which is also the default.
    #[arg(long)]
    pub max_model_len: Option<usize>,
    /// Output tokens of a request that names no max_tokens.
    #[arg(long, default_value_t = defaults::MAX_TOKENS)]
    pub default_max_tokens: usize,
    /// Requests kept for GET /emulator/requests.
    #[arg(long, default_value_t = defaults::REQUESTS_KEPT)]
    pub requests_kept: usize,
    /// Leave `prompt_tokens_details` out of the usage, as a server without --enable-prompt-tokens-details does.
    #[arg(long)]
    pub no_prompt_tokens_details: bool,
    /// What generated text is made of.
    #[arg(long, value_enum, default_value_t)]
    pub output: OutputVocabulary,
    /// Serve the render endpoints from 0.30 on, as a server with --enable-scale-out does; older ones always do.
    #[arg(long)]
    pub scale_out: bool,
}

/// A value that cannot work.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A count that must be at least 1, or a speed that must be above 0.
    #[error("{field} is {value}: give a number above 0")]
    NotPositive {
        /// Its flag.
        field: &'static str,
        /// What it was.
        value: f64,
    },
    /// Fewer than two blocks.
    #[error("blocks is {0}: at least 2 are needed, because one is kept back")]
    TooFewBlocks(usize),
    /// An event or replay address without a port.
    #[error("{field} is {value:?}: give an address such as tcp://127.0.0.1:5557")]
    Address {
        /// Its flag.
        field: &'static str,
        /// What it was.
        value: String,
    },
}

impl Default for EmulatorConfig {
    fn default() -> Self {
        Self {
            http: defaults::HTTP,
            events: None,
            replay: None,
            one_socket: false,
            topic: String::new(),
            buffer_steps: defaults::BUFFER_STEPS,
            vllm_version: defaults::VERSION,
            byte_hashes: false,
            hash_seed: None,
            model: defaults::MODEL.to_owned(),
            loras: Vec::new(),
            tokenizer: None,
            block_size: defaults::BLOCK_SIZE,
            blocks: defaults::BLOCKS,
            ranks: defaults::RANKS,
            speedup: defaults::SPEEDUP,
            prefill_tokens_per_second: defaults::PREFILL_TOKENS_PER_SECOND,
            step_ms: defaults::STEP_MS,
            decode_us: defaults::DECODE_US,
            max_batched_tokens: defaults::MAX_BATCHED_TOKENS,
            max_seqs: defaults::MAX_SEQS,
            max_model_len: None,
            default_max_tokens: defaults::MAX_TOKENS,
            requests_kept: defaults::REQUESTS_KEPT,
            no_prompt_tokens_details: false,
            output: OutputVocabulary::default(),
            scale_out: false,
        }
    }
}

impl EmulatorConfig {
    /// Checks what the types cannot.
    pub fn check(&self) -> Result<(), ConfigError> {
        let positive = [
            ("block-size", self.block_size as f64),
            ("ranks", f64::from(self.ranks)),
            ("speedup", self.speedup),
            ("prefill-tokens-per-second", self.prefill_tokens_per_second),
            ("max-batched-tokens", self.max_batched_tokens as f64),
            ("max-seqs", self.max_seqs as f64),
            ("default-max-tokens", self.default_max_tokens as f64),
            // Without any cost a step would take no time and never end.
            ("step-ms", self.step_ms),
        ];
        for (field, value) in positive {
            if !(value.is_finite() && value > 0.0) {
                return Err(ConfigError::NotPositive { field, value });
            }
        }
        if self.blocks < 2 {
            return Err(ConfigError::TooFewBlocks(self.blocks));
        }
        for (field, address) in [("events", &self.events), ("replay", &self.replay)] {
            if let Some(value) = address.as_ref().filter(|value| rank_address(value, 0).is_none()) {
                return Err(ConfigError::Address { field, value: value.clone() });
            }
        }
        Ok(())
    }

    /// The inside of one rank; `boot` tells starts apart where the release has no fixed seed.
    pub fn engine(&self, boot: u64) -> EngineConfig {
        let seed = match &self.hash_seed {
            Some(text) => Seed::from_text(text),
            None if self.vllm_version.has_fixed_seed() => Seed::from_text("fixed"),
            None => Seed::from_text(&format!("boot {boot}")),
        };
        EngineConfig {
            block_size: self.block_size,
            blocks: self.blocks,
            max_batched_tokens: self.max_batched_tokens,
            max_seqs: self.max_seqs,
            max_model_len: self.context_len(),
            timing: Timing {
                step_overhead: Duration::from_secs_f64(self.step_ms / 1e3),
                prefill_tokens_per_second: self.prefill_tokens_per_second,
                decode_cost: Duration::from_secs_f64(self.decode_us / 1e6),
            },
            seed,
            reuses_empty_first: self.vllm_version.reuses_empty_first(),
        }
    }

    /// Tokens of prompt and output that one request may have.
    pub(crate) fn context_len(&self) -> usize {
        let held = self.blocks.saturating_sub(1) * self.block_size;
        self.max_model_len.map_or(held, |limit| limit.min(held))
    }

    pub(crate) fn hash_form(&self) -> HashForm {
        if self.byte_hashes { HashForm::Bytes } else { HashForm::Integers }
    }
}

/// The address of a rank: port + rank, or a free port where the port is 0.
pub(crate) fn rank_address(address: &str, rank: u32) -> Option<String> {
    let (host, port) = address.strip_prefix("tcp://")?.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let port = match port {
        0 => 0,
        _ => port.checked_add(u16::try_from(rank).ok()?)?,
    };
    Some(format!("tcp://{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_each_other_unless_ports_are_free_to_choose() {
        assert_eq!(rank_address("tcp://127.0.0.1:5557", 2).as_deref(), Some("tcp://127.0.0.1:5559"));
        assert_eq!(rank_address("tcp://*:0", 2).as_deref(), Some("tcp://*:0"));
        for bad in ["127.0.0.1:5557", "tcp://127.0.0.1", "tcp://127.0.0.1:many"] {
            assert_eq!(rank_address(bad, 0), None, "{bad}");
        }
        assert_eq!(rank_address("tcp://127.0.0.1:65535", 1), None, "no port is left");
    }

    #[test]
    fn a_bad_value_is_named_with_its_remedy() {
        let check = |change: fn(&mut EmulatorConfig)| {
            let mut config = EmulatorConfig::default();
            change(&mut config);
            config.check().map_err(|error| error.to_string())
        };
        assert_eq!(check(|_| {}), Ok(()));
        let refused = |change| check(change).unwrap_err();
        assert_eq!(refused(|c| c.speedup = 0.0), "speedup is 0: give a number above 0");
        assert_eq!(refused(|c| c.step_ms = f64::NAN), "step-ms is NaN: give a number above 0");
        assert_eq!(refused(|c| c.blocks = 1), "blocks is 1: at least 2 are needed, because one is kept back");
        let address = refused(|c| c.events = Some("5557".to_owned()));
        assert_eq!(address, "events is \"5557\": give an address such as tcp://127.0.0.1:5557");
    }

    #[test]
    fn starts_differ_where_the_release_has_no_fixed_seed() {
        let seed = |minor, boot| {
            let config =
                EmulatorConfig { vllm_version: VllmVersion::new(minor, 0), ..EmulatorConfig::default() };
            config.engine(boot).seed
        };
        assert_ne!(seed(28, 1), seed(28, 2));
        assert_eq!(seed(29, 1), seed(29, 2));
        let told = EmulatorConfig {
            hash_seed: Some("0".into()),
            vllm_version: VllmVersion::new(16, 0),
            ..EmulatorConfig::default()
        };
        assert_eq!(told.engine(1).seed, told.engine(2).seed);
    }
}
