//! Which prompts differ in a short early span only. Pure, and bounded in memory and time.
//!
//! Of each model a few heads (first bytes of prompts) are kept as references. A new prompt is
//!
//! - the same as a reference, where it has its beginning for long enough;
//! - volatile, where the two diverge, and after at most [`SPAN_BYTES_MAX`] bytes are equal again for
//!   [`EQUAL_BYTES_MIN`]: an anchor is taken from the reference and looked for in the prompt, so the span may differ in
//!   length;
//! - new otherwise: it replaces the reference that was met longest ago.
//!
//! Two heads that alternate, or one that changes at midnight, are no harm: caches hold them. So a reference is named only
//! when spans that were never seen before outweigh those that come again. Users whose names stand there are told from a
//! nonce by nothing else: many who come for the first time, one after the other, are named until they come again.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

/// Bytes of a prompt that are looked at.
const HEAD_BYTES: usize = 8192;
/// Heads kept of a model: 64 KiB.
const REFERENCES_MAX: usize = 8;
/// Longest span that may differ: two lines with a clock, identifiers and a signature fit.
const SPAN_BYTES_MAX: usize = 256;
/// Bytes by which the place is found where two heads are equal again: too many to be so by chance.
const ANCHOR_BYTES: usize = 32;
/// Bytes that must be equal behind the span, so that there is something to lose: some hundred tokens.
const EQUAL_BYTES_MIN: usize = 512;
/// Prompts with this much in common begin alike: what differs later is what a conversation is about.
const SAME_BYTES_MIN: usize = 1024;
/// New spans after which a reference is named: more than the users of a small deployment, whose names may stand there.
const NAMED_FROM: u64 = 32;
/// Spans of a reference that are remembered at least, to tell new ones from those that come again: the users of a large
/// deployment, taking turns. Twice as many at most, with their table about 20 bytes each: 80 KiB of a reference.
const SPANS_MIN: usize = 2048;

/// What a prompt is to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    New,
    Same,
    /// Its span was never seen before. `named`: its reference is named from now on.
    Volatile {
        named: Option<Found>,
    },
}

/// Where the prompts of a reference differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) offset: usize,
    /// The longest.
    pub(super) span: usize,
    /// Prompts with a span that was never seen before.
    pub(super) fresh: u64,
}

/// The references of one model.
#[derive(Debug, Default)]
pub(super) struct Heads {
    references: Vec<Reference>,
    hasher: RandomState,
    turn: u64,
}

#[derive(Debug)]
struct Reference {
    head: Vec<u8>,
    /// When it was met last.
    met: u64,
    found: Option<Found>,
    /// Prompts whose beginning came again.
    repeated: u64,
    seen: Spans,
    is_named: bool,
}

/// Hashes of the spans that were met last, in two generations: who is met moves to the young one, and when that is full,
/// the old one goes and the young one is old.
#[derive(Debug, Default)]
struct Spans {
    young: HashSet<u64>,
    old: HashSet<u64>,
}

/// How two heads are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Likeness {
    Same,
    /// They differ from `offset` on; the second is like the first again after `span` bytes.
    Apart {
        offset: usize,
        span: usize,
    },
    Different,
}

// === impl Heads ===

impl Heads {
    pub(super) fn see(&mut self, text: &[u8]) -> Sight {
        self.turn += 1;
        let head = text.get(..HEAD_BYTES).unwrap_or(text);
        let mut apart = None;
        for (number, reference) in self.references.iter_mut().enumerate() {
            match likeness(&reference.head, head) {
                Likeness::Same => {
                    reference.met = self.turn;
                    reference.repeated += 1;
                    return Sight::Same;
                }
                Likeness::Apart { offset, span } => {
                    apart.get_or_insert((number, offset, span));
                }
                Likeness::Different => {}
            }
        }
        let Some((number, offset, span)) = apart else {
            self.keep(head);
            return Sight::New;
        };
        let differing = head.get(offset..offset + span).unwrap_or_default();
        let hash = self.hasher.hash_one(differing);
        match self.references.get_mut(number) {
            Some(reference) => reference.meet(self.turn, offset, span, hash),
            None => Sight::New,
        }
    }

    pub(super) fn named(&self) -> impl Iterator<Item = Found> {
        self.references
            .iter()
            .filter(|reference| reference.is_volatile())
            .filter_map(|reference| reference.found)
    }

    /// Takes a head as a reference, in place of the one met longest ago where there are enough.
    fn keep(&mut self, head: &[u8]) {
        if head.len() < EQUAL_BYTES_MIN {
            return;
        }
        let reference = Reference {
            head: head.to_vec(),
            met: self.turn,
            found: None,
            repeated: 0,
            seen: Spans::default(),
            is_named: false,
        };
        if self.references.len() < REFERENCES_MAX {
            self.references.push(reference);
        } else if let Some(oldest) = self.references.iter_mut().min_by_key(|reference| reference.met) {
            *oldest = reference;
        }
    }
}

// === impl Reference ===

impl Reference {
    /// A prompt that differs from it in this span.
    fn meet(&mut self, turn: u64, offset: usize, span: usize, hash: u64) -> Sight {
        self.met = turn;
        if !self.seen.meet(hash) {
            self.repeated += 1;
            return Sight::Same;
        }
        let found = self.found.get_or_insert(Found { offset, span, fresh: 0 });
        // Two nonces may begin alike: the first byte that differs is the earliest of all.
        let end = (offset + span).max(found.offset + found.span);
        found.offset = found.offset.min(offset);
        found.span = end - found.offset;
        found.fresh += 1;
        let found = *found;
        let was_named = self.is_named;
        self.is_named = self.is_volatile();
        Sight::Volatile { named: Some(found).filter(|_| self.is_named && !was_named) }
    }

    fn is_volatile(&self) -> bool {
        self.found.is_some_and(|found| found.fresh >= NAMED_FROM && found.fresh > self.repeated)
    }
}

// === impl Spans ===

impl Spans {
    /// Whether it is new.
    fn meet(&mut self, hash: u64) -> bool {
        if self.young.contains(&hash) {
            return false;
        }
        if self.young.len() == SPANS_MIN {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(hash);
        !self.old.remove(&hash)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

fn likeness(reference: &[u8], head: &[u8]) -> Likeness {
    let offset = reference.iter().zip(head).take_while(|(a, b)| a == b).count();
    if offset == reference.len() && offset == head.len() {
        return Likeness::Same;
    }
    match span(reference, head, offset) {
        Some(span) => Likeness::Apart { offset, span },
        None if offset >= SAME_BYTES_MIN => Likeness::Same,
        None => Likeness::Different,
    }
}

/// Length of what differs in `head` from `offset` on, where both are equal again soon and for long enough.
fn span(reference: &[u8], head: &[u8], offset: usize) -> Option<usize> {
    let at = offset + SPAN_BYTES_MAX;
    let anchor = reference.get(at..at + ANCHOR_BYTES)?;
    let searched = head.get(offset..)?;
    let searched = searched.get(..2 * SPAN_BYTES_MAX + ANCHOR_BYTES).unwrap_or(searched);
    let found = offset + searched.windows(ANCHOR_BYTES).position(|window| window == anchor)?;
    let behind = reference.get(at..at + EQUAL_BYTES_MIN)?;
    if head.get(found..found + EQUAL_BYTES_MIN)? != behind {
        return None;
    }
    // Back from the anchor to the end of what differs.
    let (before, before_found) = (reference.get(offset..at)?, head.get(offset..found)?);
    let equal = before.iter().rev().zip(before_found.iter().rev()).take_while(|(a, b)| a == b).count();
    Some(before_found.len() - equal)
}

#[cfg(test)]
mod tests;
