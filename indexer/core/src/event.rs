//! What an engine says about its cache: one [`Batch`] per message, one [`Event`] per change.
//!
//! These are the decoded, engine-independent shapes. Nothing here is interpreted: counting, groups and namespaces are
//! the index's business.

/// An engine's own hash of a block, as 64 bits: integers (signed or not) by their bit pattern, digests by their last
/// eight bytes, big-endian, which is what vLLM itself sends in the integer form. Meaningful only within one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineHash(pub u64);

/// One message of an engine: the changes of one engine step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// When the engine made it, in seconds since 1970 by the engine's clock; 0 where absent.
    pub ts: f64,
    /// The data-parallel rank the engine names. Only a hint: a stream is known by its connection.
    pub rank: Option<u32>,
    /// In the order they happened.
    pub events: Vec<Event>,
    /// What could not be read.
    pub problems: Problems,
}

/// What a decoder skipped in one batch. Never fatal: the other events stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    /// Events of a type that is not known here.
    pub unknown_events: u32,
    /// Events of a known type that lack a required field or hold a value of the wrong type.
    pub malformed_events: u32,
    /// Fields that are not known here, of events that were read.
    pub unknown_fields: u32,
}

/// One change of an engine's cache.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Blocks were entered.
    Stored(Box<Stored>),
    /// Blocks were evicted.
    Removed(Removed),
    /// The whole cache of the rank was emptied, all groups.
    Cleared,
}

/// Blocks entered in a cache: a stretch of one chain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored {
    /// The blocks, in chain order.
    pub hashes: Vec<EngineHash>,
    /// The block before the first of them; `None`: they begin a prompt.
    pub parent: Option<EngineHash>,
    /// Tokens of exactly these blocks, one after the other. Sliding-window groups leave hashes out but not tokens.
    pub tokens: Vec<u32>,
    /// Tokens per block; 0 in placeholders of offload connectors.
    pub block_size: u32,
    /// Adapter name (vLLM 0.14 and newer).
    pub lora_name: Option<Box<str>>,
    /// Whether an adapter was named by its local number; the number itself says nothing to others.
    pub has_lora_id: bool,
    /// One entry per hash, or none at all where no block has any.
    pub extra_keys: Vec<Vec<RawExtra>>,
    /// The tenant's salt where the engine names it as a field of its own (SGLang).
    pub cache_salt: Option<Box<str>>,
    pub medium: Medium,
    pub group: Group,
    /// The tokens behind each block that its hash covers as well (vLLM 0.33 with some drafters): one entry per hash, or
    /// none at all where there are no such tokens.
    pub lookahead: Vec<Vec<u32>>,
}

/// Blocks evicted. Each hash stands for one physical copy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Removed {
    pub hashes: Vec<EngineHash>,
    pub medium: Medium,
    /// `group_idx`.
    pub group: Option<u32>,
}

/// Where blocks lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Medium {
    /// The engine's main pool, also where it names none, and on a CPU build.
    #[default]
    Gpu,
    /// Host memory.
    Cpu,
    /// A disk or file system of the host.
    Disk,
    /// A store that outlives the host.
    Storage,
    /// Other hosts.
    Remote,
    /// A name not known here.
    Other,
}

/// Which of the engine's KV groups an event is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Group {
    /// `group_idx`; `None` where the engine has one group only (or is older than vLLM 0.20).
    pub index: Option<u32>,
    /// What the engine says it is; `None` before vLLM 0.22.
    pub kind: Option<GroupKind>,
}

/// Kinds of KV groups, as far as they matter for hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupKind {
    /// Every block of a prefix is needed.
    Full,
    /// The blocks of the last `tokens` before the boundary are needed.
    SlidingWindow { tokens: u32 },
    /// Recurrent state, of which checkpoints are kept: a block of such a group is the state at its end, and only that one is
    /// needed.
    Recurrent,
    /// Any other: which boundaries can be used is not told.
    Other,
}

/// One entry of `extra_keys`, before it is interpreted: position and type are all that tells a salt from an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawExtra {
    /// A bare string: adapter name, cache salt, or (before vLLM 0.19) the identifier of a media item.
    Text(Box<str>),
    /// `[identifier, offset]` of a media item.
    Media { id: Box<str>, offset: i64 },
    /// Digest of prompt embeddings.
    Bytes(Box<[u8]>),
    /// Anything else, as its MessagePack bytes.
    Unknown(Box<[u8]>),
}

// === impl Medium ===

impl Medium {
    /// All but the main pool.
    pub const SLOWER: [Self; 5] = [Self::Cpu, Self::Disk, Self::Storage, Self::Remote, Self::Other];

    /// By an engine's name for it. Names differ in case between connectors.
    #[must_use]
    pub fn by_name(name: &str) -> Self {
        const NAMES: [(&str, Medium); 9] = [
            ("GPU", Medium::Gpu),
            ("CPU", Medium::Cpu),
            ("CPU_PINNED", Medium::Cpu),
            ("DISK", Medium::Disk),
            ("FS", Medium::Disk),
            ("OBJ", Medium::Storage),
            ("STORAGE", Medium::Storage),
            ("EXTERNAL", Medium::Remote),
            ("REMOTE", Medium::Remote),
        ];
        let known = NAMES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
        known.map_or(Self::Other, |(_, medium)| *medium)
    }

    /// Its place among the slower ones; `None`: it is the main pool.
    pub(crate) fn slower(self) -> Option<usize> {
        Self::SLOWER.iter().position(|medium| *medium == self)
    }
}
