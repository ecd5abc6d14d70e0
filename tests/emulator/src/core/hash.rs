//! Block digests: a SHA-256 chain of our own. Real engines hash a pickle or CBOR of the same three things, so the
//! values differ from theirs while the relations (equal prefix, equal digest) are the same.

use sha2::{Digest as _, Sha256};

/// The digest of a block and of everything before it.
pub type Digest = [u8; 32];

/// Where a chain starts: the digest that stands for "no parent".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(Digest);

impl Seed {
    /// The seed made from a text, the same text giving the same digests in every process.
    pub fn from_text(text: &str) -> Self {
        Self(Sha256::new().chain_update(b"seed").chain_update(text.as_bytes()).finalize().into())
    }

    /// The digest that the first block of a prompt has as its parent.
    pub fn root(&self) -> Digest {
        self.0
    }
}

/// What besides its tokens makes a block different, in the order of the engine: adapter, salt, embeddings.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ExtraKey {
    /// The name of the LoRA adapter, in every block.
    Lora(String),
    /// The tenant's cache salt, in the first block only.
    Salt(String),
    /// The digest of the block's prompt embeddings.
    Embeds(Vec<u8>),
}

/// Digest of one full block. Every part is framed with its length, so that no two inputs share their bytes.
pub(super) fn chain(parent: &Digest, tokens: &[u32], extra: &[ExtraKey]) -> Digest {
    let mut hasher = Sha256::new();
    hasher.update(parent);
    hasher.update((tokens.len() as u64).to_le_bytes());
    for token in tokens {
        hasher.update(token.to_le_bytes());
    }
    for key in extra {
        let (tag, bytes): (u8, &[u8]) = match key {
            ExtraKey::Lora(name) => (1, name.as_bytes()),
            ExtraKey::Salt(salt) => (2, salt.as_bytes()),
            ExtraKey::Embeds(digest) => (3, digest),
        };
        hasher.update([tag]);
        hasher.update((bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    }
    hasher.finalize().into()
}
