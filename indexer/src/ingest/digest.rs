//! The last batch applied, as it is, or as its digest: what an engine has to show to be known again.

use sha2::{Digest as _, Sha256};
use warmpath_kv::sequencer::Weight as _;

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
    /// Whether it is this one, made by the same process: it says when, and no other process wrote this then. `secret`: of
    /// the block keys.
    pub(super) fn is(&self, batch: &RawBatch, secret: [u8; 16]) -> bool {
        let is_same = match self {
            Self::Raw(last) => last == batch,
            Self::Digest(last) => *last == digest(batch, secret),
        };
        is_same && batch.made_at().is_some()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch of no events, made at this time.
    fn batch(seconds: f64) -> RawBatch {
        let mut payload = vec![0x92, 0xcb];
        payload.extend(seconds.to_be_bytes());
        payload.push(0x90);
        RawBatch(payload.into())
    }

    #[test]
    fn a_batch_is_known_again_by_all_of_it_and_its_time() {
        let secret = [7; 16];
        let digest = LastBatch::Digest(digest(&batch(5.0), secret));
        for last in [LastBatch::Raw(batch(5.0)), digest] {
            assert!(last.is(&batch(5.0), secret));
            assert!(!last.is(&batch(6.0), secret));
        }
    }

    #[test]
    fn a_batch_without_a_time_may_be_of_any_process() {
        let secret = [7; 16];
        assert!(!LastBatch::Raw(batch(0.0)).is(&batch(0.0), secret));
        assert!(!LastBatch::Digest(digest(&batch(0.0), secret)).is(&batch(0.0), secret));
    }
}
