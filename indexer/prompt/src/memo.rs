//! A memory of beginnings of texts: what was encoded once is not encoded again, and comes with what was made of its ids.
//!
//! ```text
//! text ─▶ parts, cut where it is proven that nothing reaches across ─▶ key of each beginning ─┬─ found ─────────────▶ ids,
//!         parts.rs (by proof.rs)                                       chain.rs               └─ else encode, keep ─▶ folded
//!                                                                                                store.rs
//! ```
//!
//! Cuts depend on the text alone, a few bytes around them at most, so texts that begin alike are cut alike; and a key
//! names everything from the beginning of the text to the end of a part. So a conversation whose last turn is new, or a
//! text that grew, is encoded from its last common part on, whoever sent the rest before.
//!
//! What is kept is not the ids but what the caller *folds* them into, from left to right ([`Fold`]), with the state in
//! which the folding stood. For a router these are block keys: a tenth of the memory, and no hashing on a hit.
//!
//! A [`Memo`] is shared by all requests and all models. Nothing in it can be reached but by the text that it came from
//! under the same model, tenant and fold; it keeps no text and no ids. `docs/decisions/0006-prefix-memo.md` argues that
//! this is exact.

mod chain;
mod cuts;
mod definition;
mod parts;
mod proof;
mod splits;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chain::{Chain, Key, Secret};
use store::{ShareId, Store};

use crate::prepared::PromptTokens;
use crate::tokenizer::{Encode, EncodeError, SpecialTokens};

pub use cuts::{CutRule, NewlineCuts};
pub use parts::Cuts;
pub(crate) use parts::Parts;
pub use proof::{Obstacle, Place};

/// Something that token ids are folded into, from left to right, a few at a time. Equal ids in any parts give equal
/// parts together: `fold(a ++ b)` is `fold(a)`, then `fold(b)` from where that ended.
pub trait Fold {
    /// Where the folding stands.
    type State: Clone + Send + Sync;
    /// What some ids add to the result.
    type Part: Send + Sync;

    /// Writes what tells this fold from all others of its type: two that write the same give the same for the same ids.
    fn identify(&self, name: &mut Vec<u8>);

    fn begin(&self) -> Self::State;

    fn fold(&self, state: &mut Self::State, ids: &[u32]) -> Self::Part;

    /// Bytes that both own outside of themselves.
    fn owned_bytes(state: &Self::State, part: &Self::Part) -> usize;
}

/// A memory of folded beginnings, shared by all requests.
pub struct Memo<F: Fold> {
    secret: Secret,
    store: Store<Remembered<F>>,
    counters: Counters,
    part_bytes_min: usize,
    is_off: bool,
}

/// What is kept of a part.
struct Remembered<F: Fold> {
    part: F::Part,
    /// After the part.
    state: F::State,
    /// Tokens from the beginning of the text to the end of the part, with those that the tokenizer puts before it.
    tokens: usize,
}

/// The result of folding all ids of a text.
pub struct Folded<F: Fold> {
    remembered: Vec<Arc<Remembered<F>>>,
    last: F::Part,
    tokens: usize,
    /// See [`PromptTokens::whole`].
    pub whole: bool,
}

/// Whose requests share a memory. Tenants find nothing of each other, not even by the time that an answer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenant<'a> {
    /// Requests without a salt.
    Common,
    Salted(&'a str),
}

/// What a memo did since the start, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoStats {
    pub parts_found: u64,
    pub parts_encoded: u64,
    /// Bytes of text that needed no encoding.
    pub bytes_found: u64,
    /// Bytes of text that did, with those behind the last cut of each text.
    pub bytes_encoded: u64,
    pub parts_held: usize,
    /// Bytes of memory that those take, roughly.
    pub bytes_held: usize,
    /// Parts dropped for others.
    pub parts_dropped: u64,
}

#[derive(Default)]
struct Counters {
    parts_found: AtomicU64,
    parts_encoded: AtomicU64,
    bytes_found: AtomicU64,
    bytes_encoded: AtomicU64,
}

/// A text to be folded, and the model that it is for.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a> {
    pub(crate) text: &'a str,
    pub(crate) special: SpecialTokens,
    pub(crate) encoder: &'a dyn Encode,
    pub(crate) parts: &'a Parts,
    /// Never the same for two loaded models.
    pub(crate) generation: u64,
}

// === impl Memo ===

impl<F: Fold> Memo<F> {
    /// Holds at most `limit_bytes`; 0 turns it off. `random` must be new for each process and stay in it.
    pub fn new(random: [u8; 16], limit_bytes: usize) -> Self {
        Self::with_parts_of(parts::PART_BYTES_MIN, random, limit_bytes)
    }

    /// With parts of another size, for tests and measurements.
    pub fn with_parts_of(part_bytes_min: usize, random: [u8; 16], limit_bytes: usize) -> Self {
        Memo {
            secret: Secret::new(random),
            store: Store::new(limit_bytes),
            counters: Counters::default(),
            part_bytes_min,
            is_off: limit_bytes == 0,
        }
    }

    pub fn stats(&self) -> MemoStats {
        let usage = self.store.usage();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MemoStats {
            parts_found: read(&self.counters.parts_found),
            parts_encoded: read(&self.counters.parts_encoded),
            bytes_found: read(&self.counters.bytes_found),
            bytes_encoded: read(&self.counters.bytes_encoded),
            parts_held: usage.entries,
            bytes_held: usage.bytes,
            parts_dropped: usage.evicted,
        }
    }

    /// Folds the ids of a text, of which only what is new is encoded.
    pub(crate) fn fold(
        &self,
        text: Text<'_>,
        tenant: Tenant<'_>,
        fold: &F,
    ) -> Result<Folded<F>, EncodeError> {
        let Some(frame) = text.parts.frame(text.special).filter(|_| !self.is_off) else {
            let ids = text.encoder.encode(text.text, text.special)?;
            return Ok(Folded::of(fold, &PromptTokens::whole(ids)));
        };
        let mut chain = Chain::begin(&self.secret, &scope(text.generation, &frame.before, tenant, fold));
        let share = match tenant {
            Tenant::Common => ShareId::UNSALTED,
            Tenant::Salted(salt) => ShareId::salted(self.name_of(salt)),
        };
        let encode = |part: &str, is_first: bool| text.parts.encode(text.encoder, part, is_first);
        let mut remembered: Vec<Arc<Remembered<F>>> =
            Vec::with_capacity(text.text.len() / self.part_bytes_min.max(1));
        let mut rest = text.text;
        let (mut begin, mut found, mut bytes_encoded) = (0, 0, 0);
        while let Some(end) = text.parts.end(text.text, begin, self.part_bytes_min) {
            let Some((part, behind)) = rest.split_at_checked(end - begin) else { break };
            let key = chain.take(part.as_bytes());
            if let Some(known) = self.store.find(key) {
                found += 1;
                remembered.push(known);
            } else {
                let ids = encode(part, begin == 0)?;
                bytes_encoded += part.len();
                let new = Arc::new(Remembered::after(remembered.last(), fold, &frame.before, &ids));
                self.store.insert(key, share, new.clone(), new.bytes());
                remembered.push(new);
            }
            (rest, begin) = (behind, end);
        }
        let mut ids = encode(rest, begin == 0)?;
        bytes_encoded += rest.len();
        ids.extend(&frame.after);
        let last = Remembered::after(remembered.last(), fold, &frame.before, &ids);
        self.counters.add(found, remembered.len(), text.text.len(), bytes_encoded);
        Ok(Folded { remembered, last: last.part, tokens: last.tokens, whole: true })
    }

    fn name_of(&self, salt: &str) -> Key {
        Chain::begin(&self.secret, b"share").take(salt.as_bytes())
    }
}

/// Everything besides the text that the result depends on, and the tenant. No two combinations give the same bytes.
fn scope<F: Fold>(generation: u64, before: &[u32], tenant: Tenant<'_>, fold: &F) -> Vec<u8> {
    let mut scope = generation.to_le_bytes().to_vec();
    scope.extend(before.len().to_le_bytes());
    scope.extend(before.iter().flat_map(|id| id.to_le_bytes()));
    match tenant {
        Tenant::Common => scope.push(0),
        Tenant::Salted(salt) => {
            scope.push(1);
            scope.extend(salt.len().to_le_bytes());
            scope.extend(salt.as_bytes());
        }
    }
    fold.identify(&mut scope);
    scope
}

impl<F: Fold> std::fmt::Debug for Memo<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memo").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

// === impl Remembered ===

impl<F: Fold> Remembered<F> {
    /// Folds the `ids` of the part after `previous`; those of a text's first part come after `before`.
    fn after(previous: Option<&Arc<Self>>, fold: &F, before: &[u32], ids: &[u32]) -> Self {
        match previous {
            Some(previous) => {
                let mut state = previous.state.clone();
                let part = fold.fold(&mut state, ids);
                Remembered { part, state, tokens: previous.tokens + ids.len() }
            }
            None => {
                let ids = [before, ids].concat();
                let mut state = fold.begin();
                let part = fold.fold(&mut state, &ids);
                Remembered { part, state, tokens: ids.len() }
            }
        }
    }

    fn bytes(&self) -> usize {
        // An `Arc` has two counters.
        2 * size_of::<usize>() + size_of::<Self>() + F::owned_bytes(&self.state, &self.part)
    }
}

// === impl Folded ===

impl<F: Fold> Folded<F> {
    /// Folds ids that are known already.
    pub fn of(fold: &F, tokens: &PromptTokens) -> Self {
        let last = fold.fold(&mut fold.begin(), tokens.ids.as_slice());
        Folded { remembered: Vec::new(), last, tokens: tokens.ids.len(), whole: tokens.whole }
    }

    /// Number of ids.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// What was made of the ids, in their order.
    pub fn parts(&self) -> impl Iterator<Item = &F::Part> + Clone {
        self.remembered.iter().map(|remembered| &remembered.part).chain([&self.last])
    }
}

// === impl Counters ===

impl Counters {
    /// Once per text: requests share these lines of memory.
    fn add(&self, found: usize, parts: usize, bytes: usize, bytes_encoded: usize) {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        self.parts_found.fetch_add(count(found), Ordering::Relaxed);
        self.parts_encoded.fetch_add(count(parts.saturating_sub(found)), Ordering::Relaxed);
        self.bytes_found.fetch_add(count(bytes.saturating_sub(bytes_encoded)), Ordering::Relaxed);
        self.bytes_encoded.fetch_add(count(bytes_encoded), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
