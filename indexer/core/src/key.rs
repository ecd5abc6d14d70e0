//! Block keys: our own chained hash of token blocks. In: tokens, parent key, extras. Out: a [`BlockKey`].
//!
//! Engines' hashes are opaque to us (algorithm, seed and encoding differ by version and may be random per process), so
//! blocks are keyed by a hash of our own over what the events tell. The hash is SipHash-1-3 under a secret 128-bit key:
//! a pseudo-random function, so nobody can craft prompts whose keys collide with a popular prefix. A collision could
//! only misdirect a request, never mix up content: the engine checks its own hash.
//!
//! The byte layout is specified, with test vectors, in `docs/block-keys.md`.

use crate::sip::Sip13;

/// First four bytes of what is hashed for a root.
const KIND_ROOT: u32 = 0;
/// First four bytes of what is hashed for a block.
const KIND_BLOCK: u32 = 1;

/// Key of a block and of everything before it in its namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// The tokens behind the block, where the engine's hash covers them: a block serves only prompts that go on so.
    Ahead(Box<[u32]>),
}

/// Computes block keys under one secret key.
#[derive(Clone)]
pub struct KeyHasher {
    secret: [u8; 16],
    empty: Sip13,
}

/// Computes the keys of blocks of one size that have no extras: what all of them begin with is hashed once.
#[derive(Clone, Copy)]
pub(crate) struct PlainBlocks {
    begun: Sip13,
}

// === impl KeyHasher ===

impl KeyHasher {
    /// `key`: secret and random; indexers that exchange block keys must share it.
    #[must_use]
    pub fn new(key: [u8; 16]) -> Self {
        Self { secret: key, empty: Sip13::new(key) }
    }

    pub(crate) fn secret(&self) -> [u8; 16] {
        self.secret
    }

    /// The parent of a namespace's first blocks.
    #[must_use]
    pub fn root(&self, namespace: &Namespace<'_>) -> BlockKey {
        let mut bytes = KIND_ROOT.to_le_bytes().to_vec();
        push_sized(&mut bytes, namespace.model.as_bytes());
        for part in [namespace.lora, namespace.salt] {
            match part {
                Some(name) => {
                    bytes.push(1);
                    push_sized(&mut bytes, name.as_bytes());
                }
                None => bytes.push(0),
            }
        }
        let mut hasher = self.empty;
        let rest = hasher.bytes(&bytes);
        BlockKey(hasher.finish(rest))
    }

    /// The key of the block that holds `tokens` after `parent`. The number of tokens is part of the key, so chains of
    /// different block sizes never meet.
    #[must_use]
    pub fn block(&self, parent: BlockKey, tokens: &[u32], extras: &[Extra]) -> BlockKey {
        self.block_with(parent, tokens, extras, &[])
    }

    /// The same of a block whose only extra is that these tokens come behind it, if there are any.
    pub(crate) fn block_ahead(&self, parent: BlockKey, tokens: &[u32], ahead: &[u32]) -> BlockKey {
        self.block_with(parent, tokens, &[], ahead)
    }

    /// For blocks of so many tokens.
    pub(crate) fn plain(&self, tokens: usize) -> PlainBlocks {
        let mut begun = self.empty;
        begun.word(pair(KIND_BLOCK, length(tokens)));
        PlainBlocks { begun }
    }

    #[inline]
    fn block_with(&self, parent: BlockKey, tokens: &[u32], extras: &[Extra], ahead: &[u32]) -> BlockKey {
        let plain = self.plain(tokens.len());
        if extras.is_empty() && ahead.is_empty() {
            return plain.block(parent, tokens);
        }
        let (mut hasher, odd) = plain.tokens(parent, tokens);
        // What is left of the tokens is not a whole word, so the extras follow in the middle of one.
        let mut bytes: Vec<u8> = odd.iter().flat_map(|token| token.to_le_bytes()).collect();
        for extra in extras {
            push_extra(&mut bytes, extra);
        }
        if !ahead.is_empty() {
            push_ahead(&mut bytes, ahead);
        }
        let rest = hasher.bytes(&bytes);
        BlockKey(hasher.finish(rest))
    }
}

// === impl PlainBlocks ===

impl PlainBlocks {
    /// The key of the block that holds `tokens`, as many as these blocks have, after `parent`.
    #[inline(always)]
    pub(crate) fn block(self, parent: BlockKey, tokens: &[u32]) -> BlockKey {
        match self.tokens(parent, tokens) {
            (hasher, [last, ..]) => BlockKey(hasher.finish(&last.to_le_bytes())),
            (hasher, []) => BlockKey(hasher.finish(&[])),
        }
    }

    /// With all tokens hashed but an odd one, which is returned.
    #[inline(always)]
    fn tokens(self, parent: BlockKey, tokens: &[u32]) -> (Sip13, &[u32]) {
        let mut hasher = self.begun;
        hasher.word(parent.0);
        let (pairs, odd) = tokens.as_chunks::<2>();
        for [first, second] in pairs {
            hasher.word(pair(*first, *second));
        }
        (hasher, odd)
    }
}

// === impl Extra ===

impl Extra {
    /// Bytes of memory, with what it owns.
    pub(crate) fn bytes(&self) -> usize {
        let owned = match self {
            Self::Media { id, .. } => id.len(),
            Self::Embeddings(bytes) | Self::Unknown(bytes) => bytes.len(),
            Self::Ahead(tokens) => size_of_val(&**tokens),
        };
        size_of::<Self>() + owned
    }
}

/// Deliberately silent about the key.
impl std::fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyHasher").finish_non_exhaustive()
    }
}

fn push_extra(bytes: &mut Vec<u8>, extra: &Extra) {
    match extra {
        Extra::Media { id, offset: None } => {
            bytes.push(1);
            push_sized(bytes, id.as_bytes());
        }
        Extra::Media { id, offset: Some(offset) } => {
            bytes.push(2);
            push_sized(bytes, id.as_bytes());
            bytes.extend(offset.to_le_bytes());
        }
        Extra::Embeddings(digest) => {
            bytes.push(3);
            push_sized(bytes, digest);
        }
        Extra::Unknown(unknown) => {
            bytes.push(4);
            push_sized(bytes, unknown);
        }
        Extra::Ahead(tokens) => push_ahead(bytes, tokens),
    }
}

fn push_ahead(bytes: &mut Vec<u8>, tokens: &[u32]) {
    bytes.push(5);
    bytes.extend(length(size_of_val(tokens)).to_le_bytes());
    bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
}

fn push_sized(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend(length(part.len()).to_le_bytes());
    bytes.extend(part);
}

/// Two u32, one after the other, as the word that their bytes make.
fn pair(first: u32, second: u32) -> u64 {
    u64::from(first) | u64::from(second) << 32
}

/// Lengths are bounded far below 2^32 by the decoder and the request limits; saturating keeps the layout total.
fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
