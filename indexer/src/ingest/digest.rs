//! The last batch applied, as it is, or as its digest: what an engine has to show to be known again.

use sha2::{Digest as _, Sha256};

use super::frames::RawBatch;

/// The first bytes of SHA-256 over a secret and a payload. A payload holds prompts, so it is saved nowhere.
pub type Digest = [u8; 16];

#[derive(Debug)]
pub(super) enum LastBatch {
    Raw(RawBatch),
    /// Applied by an earlier process.
    Digest(Digest),
}

// === impl LastBatch ===

impl LastBatch {
    /// Whether it is this one. `secret`: of the block keys.
    pub(super) fn is(&self, batch: &RawBatch, secret: [u8; 16]) -> bool {
        match self {
            Self::Raw(last) => last == batch,
            Self::Digest(last) => *last == digest(batch, secret),
        }
    }

    pub(super) fn digest(&self, secret: [u8; 16]) -> Digest {
        match self {
            Self::Raw(batch) => digest(batch, secret),
            Self::Digest(digest) => *digest,
        }
    }
}

fn digest(batch: &RawBatch, secret: [u8; 16]) -> Digest {
    let whole = Sha256::new().chain_update(secret).chain_update(&batch.0[..]).finalize();
    let mut first = Digest::default();
    first.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
    first
}
