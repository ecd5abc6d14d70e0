//! vLLM's own block hashes, where its algorithm and seed are known. In: seed, tokens, what else a block depends on.
//! Out: the digests whose last eight bytes its events carry.
//!
//! The index needs none of this: it goes by keys of its own. But who joined late does not hear of blocks that an engine
//! stored before; of a prompt that begins with such blocks, the engine's hashes of them can be computed, and so be found
//! again as the parents of what was told since: see [`Index::recognize`](crate::Index::recognize).
//!
//! A block's digest is one over an encoding of (parent digest, tuple of token ids, tuple of extra keys or None), the
//! first parent being the digest of the seed. `--prefix-caching-hash-algo` says which digest and encoding:
//!
//! - `sha256`, `xxhash` (XXH3 of 128 bits): pickle, protocol 5, as CPython writes it. What occurs twice as one object is written
//!   as a reference to the first; here everything is written out, so blocks with several media items come out wrong and
//!   match nothing.
//! - `sha256_cbor`, `xxhash_cbor`: canonical CBOR.
//!
//! The seed is `PYTHONHASHSEED` where set, else [`SEED_DEFAULT`] from vLLM 0.29 on for SHA-256, and random bytes otherwise.

use std::num::NonZeroU32;

use sha2::{Digest as _, Sha256};
use xxhash_rust::xxh3::xxh3_128;

use crate::event::EngineHash;

mod cbor;
mod pickle;

/// The seed of vLLM 0.29 and newer without `PYTHONHASHSEED`, where the digest is SHA-256.
pub const SEED_DEFAULT: &str = "vllm-none-hash";

/// How a block is encoded and hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeAlgorithm {
    Sha256,
    Sha256Cbor,
    Xxhash,
    XxhashCbor,
}

/// A whole digest. Events carry its last eight bytes, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NativeDigest {
    Sha256([u8; 32]),
    Xxh3([u8; 16]),
}

/// One of the keys that a block depends on besides parent and tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NativeKey {
    Text(Box<str>),
    Bytes(Box<[u8]>),
    Int(i64),
    Tuple(Box<[NativeKey]>),
}

/// How keys are written, by the version of vLLM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeKeyForm {
    /// Adapter name and salt as they are: 0.11 to 0.30.
    Plain,
    /// Each as a tuple that begins with what it is, and the adapter with its path: 0.31 and newer.
    Tagged,
}

/// What a prompt's blocks depend on besides their tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NativeNamespace<'a> {
    /// The adapter's name, and where the server loaded it from, which only the tagged form asks for.
    pub lora: Option<(&'a str, &'a str)>,
    pub salt: Option<&'a str>,
}

/// Computes the hashes of engines with one algorithm and seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeHasher {
    algorithm: NativeAlgorithm,
    form: NativeKeyForm,
    root: NativeDigest,
}

/// What is hashed for a block. `None` stands for no keys at all.
type Block<'a> = (&'a NativeDigest, &'a [u32], Option<&'a [NativeKey]>);

// === impl NativeAlgorithm ===

impl NativeAlgorithm {
    /// By its name in `--prefix-caching-hash-algo`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "sha256" => Some(Self::Sha256),
            "sha256_cbor" => Some(Self::Sha256Cbor),
            "xxhash" => Some(Self::Xxhash),
            "xxhash_cbor" => Some(Self::XxhashCbor),
            _ => None,
        }
    }

    /// vLLM gives it a seed of its own only where strangers cannot make blocks that collide.
    #[must_use]
    pub fn resists_collisions(self) -> bool {
        matches!(self, Self::Sha256 | Self::Sha256Cbor)
    }

    fn digest(self, bytes: &[u8]) -> NativeDigest {
        match self {
            Self::Sha256 | Self::Sha256Cbor => NativeDigest::Sha256(Sha256::digest(bytes).into()),
            Self::Xxhash | Self::XxhashCbor => NativeDigest::Xxh3(xxh3_128(bytes).to_be_bytes()),
        }
    }
}

// === impl NativeDigest ===

impl NativeDigest {
    /// As events carry it.
    #[must_use]
    pub fn engine_hash(&self) -> EngineHash {
        let last = self.bytes().last_chunk().copied().unwrap_or_default();
        EngineHash(u64::from_be_bytes(last))
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Sha256(bytes) => bytes,
            Self::Xxh3(bytes) => bytes,
        }
    }
}

// === impl NativeHasher ===

impl NativeHasher {
    #[must_use]
    pub fn new(algorithm: NativeAlgorithm, seed: &str, form: NativeKeyForm) -> Self {
        let mut bytes = Vec::new();
        match algorithm {
            NativeAlgorithm::Sha256 | NativeAlgorithm::Xxhash => pickle::text(seed, &mut bytes),
            NativeAlgorithm::Sha256Cbor | NativeAlgorithm::XxhashCbor => cbor::text(seed, &mut bytes),
        }
        Self { algorithm, form, root: algorithm.digest(&bytes) }
    }

    /// An adapter's hashes depend on where the server loaded it from.
    #[must_use]
    pub fn needs_adapter_path(&self) -> bool {
        self.form == NativeKeyForm::Tagged
    }

    /// The parent of the first blocks (vLLM's `NONE_HASH`).
    #[must_use]
    pub fn root(&self) -> NativeDigest {
        self.root
    }

    /// The digest of one block. `keys`: in vLLM's order, in the form of its version; none at all is another block than
    /// an empty list of them, which vLLM never has.
    #[must_use]
    pub fn block(&self, parent: &NativeDigest, tokens: &[u32], keys: &[NativeKey]) -> NativeDigest {
        self.block_into(parent, tokens, keys, &mut Vec::new())
    }

    /// The engine's hashes of a prompt's whole blocks, first block first.
    #[must_use]
    pub fn prompt(
        &self,
        namespace: &NativeNamespace<'_>,
        tokens: &[u32],
        block_size: NonZeroU32,
    ) -> Vec<EngineHash> {
        let mut keys: Vec<_> = namespace.lora.map(|lora| self.lora(lora)).into_iter().collect();
        let further = keys.clone();
        keys.extend(namespace.salt.map(|salt| self.salt(salt)));
        let mut bytes = Vec::new();
        let mut parent = self.root;
        let mut hashes = Vec::new();
        for block in tokens.chunks_exact(usize::try_from(block_size.get()).unwrap_or(usize::MAX)) {
            parent = self.block_into(&parent, block, &keys, &mut bytes);
            hashes.push(parent.engine_hash());
            if hashes.len() == 1 {
                // The salt is in the first block only.
                keys.clone_from(&further);
            }
        }
        hashes
    }

    fn block_into(
        &self,
        parent: &NativeDigest,
        tokens: &[u32],
        keys: &[NativeKey],
        bytes: &mut Vec<u8>,
    ) -> NativeDigest {
        bytes.clear();
        let block = (parent, tokens, (!keys.is_empty()).then_some(keys));
        match self.algorithm {
            NativeAlgorithm::Sha256 | NativeAlgorithm::Xxhash => pickle::block(block, bytes),
            NativeAlgorithm::Sha256Cbor | NativeAlgorithm::XxhashCbor => cbor::block(block, bytes),
        }
        self.algorithm.digest(bytes)
    }

    fn lora(&self, (name, path): (&str, &str)) -> NativeKey {
        match self.form {
            NativeKeyForm::Plain => NativeKey::text(name),
            NativeKeyForm::Tagged => NativeKey::Tuple(
                [NativeKey::text("lora"), NativeKey::text(name), NativeKey::text(path)].into(),
            ),
        }
    }

    fn salt(&self, salt: &str) -> NativeKey {
        match self.form {
            NativeKeyForm::Plain => NativeKey::text(salt),
            NativeKeyForm::Tagged => {
                NativeKey::Tuple([NativeKey::text("cache_salt"), NativeKey::text(salt)].into())
            }
        }
    }
}

// === impl NativeKey ===

impl NativeKey {
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }
}

#[cfg(test)]
mod tests;
