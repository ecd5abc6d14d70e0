//! [`::fastokens`]: byte-pair encoding, about a hundred times as fast as the reference on byte-level models.
//!
//! It refuses models that it does not know (anything but byte-pair encoding, Metaspace pre-tokenizers, gaps in the ids).
//! Every thread that encodes keeps a cache of words of its own, 2 to 64 MB.

use std::sync::Once;
use std::thread;

use ::fastokens::Tokenizer;
use serde_json::Value as Json;

use super::{Encode, EncodeError, SpecialTokens};

/// A tokenizer.json, loaded. Loading takes 0.7 to 2 s.
pub(super) struct Fastokens {
    tokenizer: Tokenizer,
}

// === impl Fastokens ===

impl Fastokens {
    /// `json` is the content of a tokenizer.json.
    pub(super) fn load(json: &[u8]) -> Result<Self, String> {
        stay_on_the_calling_thread();
        let json: Json = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let mut tokenizer = Tokenizer::from_json(json).map_err(|error| error.to_string())?;
        // The engine sets both per call, so what the file says of them must not apply.
        tokenizer.set_truncation(None);
        tokenizer.set_padding(None);
        Ok(Fastokens { tokenizer })
    }
}

impl Encode for Fastokens {
    fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, EncodeError> {
        self.tokenizer
            .encode_with_special_tokens(text, special == SpecialTokens::Add)
            .map_err(|error| EncodeError(error.to_string()))
    }
}

/// Keeps the library from spreading texts of 64 kB and more over worker threads, for the life of the process.
///
/// Whoever calls an encoder counts its threads; workers beside them would take cores from the event thread and the
/// runtime, and each would warm a cache of its own. The library sizes its pool once, when it is first asked for, by the
/// cores on which the asking thread may run; its only other setting is an environment variable, which a program cannot
/// set safely once it has threads. So a thread bound to one core asks first. Where that fails the ids are the same and
/// long texts use more cores.
///
/// Models whose split pattern the library does not know go through rayon's global pool for such texts, which the
/// variable `RAYON_NUM_THREADS` bounds.
fn stay_on_the_calling_thread() {
    static ASKED: Once = Once::new();
    ASKED.call_once(|| {
        let asking = thread::Builder::new().name("encoder-setup".into()).spawn(|| {
            bind_to_one_core();
            ::fastokens::fanout::threads()
        });
        // Only a panic of the library is lost here; loading would meet it again.
        drop(asking.map(thread::JoinHandle::join));
    });
}

#[cfg(target_os = "linux")]
fn bind_to_one_core() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let Some(core) = (0..CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)) else { return };
    let mut one = CpuSet::new();
    one.set(core);
    // A failure leaves the library at its default: see above.
    let _ = sched_setaffinity(None, &one);
}

#[cfg(not(target_os = "linux"))]
fn bind_to_one_core() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_encoded_on_the_calling_thread() {
        stay_on_the_calling_thread();
        assert_eq!(::fastokens::fanout::threads(), 1);
    }
}
