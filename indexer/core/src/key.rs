//! Block keys: our own chained hash of token blocks. In: tokens, parent key, extras. Out: a [`BlockKey`].
//!
//! Engines' hashes are opaque to us (algorithm, seed and encoding differ by version and may be random per process), so
//! blocks are keyed by a hash of our own over what the events tell. The hash is SipHash-1-3 under a secret 128-bit key:
//! a pseudo-random function, so nobody can craft prompts whose keys collide with a popular prefix. A collision could
//! only misdirect a request, never mix up content: the engine checks its own hash.
//!
//! The byte layout is specified, with test vectors, in `docs/block-keys.md`.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

/// First four bytes of what is hashed for a root.
const KIND_ROOT: u32 = 0;
/// First four bytes of what is hashed for a block.
const KIND_BLOCK: u32 = 1;

/// Key of a block and of everything before it in its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey(pub u64);

/// What separates chains of equal tokens: two namespaces never share a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Namespace<'a> {
    /// Base model, by the name the fleet gives it.
    pub model: &'a str,
    /// LoRA adapter, by its name; ids depend on the order of loading and mean nothing elsewhere.
    pub lora: Option<&'a str>,
    /// The tenant's `cache_salt`.
    pub salt: Option<&'a str>,
}

/// What a block depends on besides its tokens and its parent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Extra {
    /// A media item whose placeholder tokens lie in the block: the engine's identifier, and where the item begins
    /// relative to the block (may be negative; not told before vLLM 0.19).
    Media { id: Box<str>, offset: Option<i64> },
    /// Digest of the prompt embeddings that stand for the block's tokens.
    Embeddings(Box<[u8]>),
    /// Something this version does not know, as its MessagePack bytes.
    Unknown(Box<[u8]>),
}

/// Computes block keys under one secret key.
#[derive(Clone)]
pub struct KeyHasher {
    empty: SipHasher13,
}

// === impl KeyHasher ===

impl KeyHasher {
    /// `key`: secret and random; indexers that exchange block keys must share it.
    #[must_use]
    pub fn new(key: [u8; 16]) -> Self {
        Self { empty: SipHasher13::new_with_key(&key) }
    }

    /// The parent of a namespace's first blocks.
    #[must_use]
    pub fn root(&self, namespace: &Namespace<'_>) -> BlockKey {
        let mut hasher = self.empty;
        hasher.write(&KIND_ROOT.to_le_bytes());
        write_bytes(&mut hasher, namespace.model.as_bytes());
        for part in [namespace.lora, namespace.salt] {
            match part {
                Some(name) => {
                    hasher.write(&[1]);
                    write_bytes(&mut hasher, name.as_bytes());
                }
                None => hasher.write(&[0]),
            }
        }
        BlockKey(hasher.finish())
    }

    /// The key of the block that holds `tokens` after `parent`. The number of tokens is part of the key, so chains of
    /// different block sizes never meet.
    #[must_use]
    pub fn block(&self, parent: BlockKey, tokens: &[u32], extras: &[Extra]) -> BlockKey {
        let mut hasher = self.empty;
        hasher.write(&(u64::from(KIND_BLOCK) | u64::from(length(tokens.len())) << 32).to_le_bytes());
        hasher.write(&parent.0.to_le_bytes());
        // Two ids at a time: whole words are the fast path of SipHash, and the bytes are the same.
        let (pairs, rest) = tokens.as_chunks::<2>();
        for [first, second] in pairs {
            hasher.write(&(u64::from(*first) | u64::from(*second) << 32).to_le_bytes());
        }
        for token in rest {
            hasher.write(&token.to_le_bytes());
        }
        for extra in extras {
            write_extra(&mut hasher, extra);
        }
        BlockKey(hasher.finish())
    }
}

/// Deliberately silent about the key.
impl std::fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyHasher").finish_non_exhaustive()
    }
}

fn write_extra(hasher: &mut SipHasher13, extra: &Extra) {
    match extra {
        Extra::Media { id, offset: None } => {
            hasher.write(&[1]);
            write_bytes(hasher, id.as_bytes());
        }
        Extra::Media { id, offset: Some(offset) } => {
            hasher.write(&[2]);
            write_bytes(hasher, id.as_bytes());
            hasher.write(&offset.to_le_bytes());
        }
        Extra::Embeddings(digest) => {
            hasher.write(&[3]);
            write_bytes(hasher, digest);
        }
        Extra::Unknown(bytes) => {
            hasher.write(&[4]);
            write_bytes(hasher, bytes);
        }
    }
}

fn write_bytes(hasher: &mut SipHasher13, bytes: &[u8]) {
    hasher.write(&length(bytes.len()).to_le_bytes());
    hasher.write(bytes);
}

/// Lengths are bounded far below 2^32 by the decoder and the request limits; saturating keeps the layout total.
fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
