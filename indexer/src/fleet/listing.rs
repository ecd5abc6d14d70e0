//! What one source names, and what it named a moment ago. Pure.
//!
//! ```text
//!               left out                       left out
//!   ┌───────┐ ────────────▶ ┌───────────────┐ ───────────▶ ┌────────────────┐
//!   │ Named │               │ Absent, once  │              │ Absent, n times │──▶ gone: n is the source's limit,
//!   └───────┘ ◀──────────── └───────────────┘              └────────────────┘    or its engine refuses connections
//!       ▲         named                              named         │
//!       └──────────────────────────────────────────────────────────┘
//! ```
//!
//! An answer of a resolver may be a part of the truth: cut to what fits into a packet, a choice of some, or the moment
//! between two steps of a rollout. What is known of an endpoint's cache takes minutes to learn again, so one answer
//! without it proves nothing. Where it is really gone its engine says so, by taking no connections any more.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::{Contact, EndpointSpec};

/// Addresses of one source, absent ones included: as many as the filter takes in a set.
pub(super) const ADDRESSES_MAX: usize = 4096;
/// Answers without an endpoint after which its engine's refusal of connections is enough: what one of them left out by
/// chance is in the next.
const CONFIRMED: u32 = 2;

/// What a source named, by address.
#[derive(Debug)]
pub(super) struct Listing {
    entries: BTreeMap<SocketAddr, (EndpointSpec, Presence)>,
    /// Answers in a row without an endpoint after which it is gone; at least 1.
    absences_max: u32,
}

/// Whether an endpoint is in the answers of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Named,
    Absent {
        /// In a row that left it out.
        answers: u32,
        /// Its engine has refused a connection since, and none was made after that.
        refuses: bool,
    },
}

/// What is heard of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Named,
    LeftOut,
    Contact(Contact),
}

// === impl Listing ===

impl Listing {
    pub(super) fn new() -> Self {
        Self { entries: BTreeMap::new(), absences_max: 1 }
    }

    /// Takes in an answer. Of two that name one address, the first counts.
    pub(super) fn answer(&mut self, named: Vec<EndpointSpec>, absences_max: u32) {
        self.absences_max = absences_max.max(1);
        let mut before = std::mem::take(&mut self.entries);
        for spec in named {
            let known = before.remove(&spec.address);
            let presence = known.and_then(|(_, it)| it.after(Word::Named, self.absences_max));
            self.entries.entry(spec.address).or_insert((spec, presence.unwrap_or(Presence::Named)));
        }
        for (address, (spec, presence)) in before {
            if self.entries.len() < ADDRESSES_MAX
                && let Some(presence) = presence.after(Word::LeftOut, self.absences_max)
            {
                self.entries.insert(address, (spec, presence));
            }
        }
    }

    /// Takes in how an engine was reached. True: it is gone by that.
    pub(super) fn contacted(&mut self, address: SocketAddr, contact: Contact) -> bool {
        let Some((_, presence)) = self.entries.get_mut(&address) else { return false };
        if let Some(after) = presence.after(Word::Contact(contact), self.absences_max) {
            *presence = after;
            return false;
        }
        self.entries.remove(&address);
        true
    }

    pub(super) fn named(&self) -> impl Iterator<Item = &EndpointSpec> {
        self.entries.values().filter(|(_, presence)| *presence == Presence::Named).map(|(spec, _)| spec)
    }

    /// Those that are kept although the last answer left them out.
    pub(super) fn absent(&self) -> impl Iterator<Item = &EndpointSpec> {
        self.entries.values().filter(|(_, presence)| *presence != Presence::Named).map(|(spec, _)| spec)
    }
}

// === impl Presence ===

impl Presence {
    /// None: it is gone. `max`: answers in a row without it after which it is.
    fn after(self, word: Word, max: u32) -> Option<Self> {
        let absent = |answers: u32, refuses: bool| {
            let is_gone = answers >= max || refuses && answers >= CONFIRMED;
            (!is_gone).then_some(Self::Absent { answers, refuses })
        };
        match (self, word) {
            (_, Word::Named) => Some(Self::Named),
            (Self::Named, Word::LeftOut) => absent(1, false),
            (Self::Absent { answers, refuses }, Word::LeftOut) => absent(answers.saturating_add(1), refuses),
            (Self::Absent { answers, .. }, Word::Contact(Contact::Refused)) => absent(answers, true),
            (Self::Absent { answers, .. }, Word::Contact(Contact::Answered)) => absent(answers, false),
            // A busy engine answers late; and those that are named have their health.
            (state, Word::Contact(_)) => Some(state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transition() {
        use Contact::{Answered, Refused, Silent};
        use Presence::Named;
        let absent = |answers, refuses| Presence::Absent { answers, refuses };
        let heard = Word::Contact;
        let table = [
            (Named, Word::Named, Some(Named)),
            (Named, Word::LeftOut, Some(absent(1, false))),
            (Named, heard(Refused), Some(Named)),
            (Named, heard(Silent), Some(Named)),
            (Named, heard(Answered), Some(Named)),
            (absent(1, false), Word::Named, Some(Named)),
            (absent(1, false), heard(Refused), Some(absent(1, true))),
            (absent(1, true), heard(Silent), Some(absent(1, true))),
            (absent(1, true), heard(Answered), Some(absent(1, false))),
            (absent(1, true), Word::Named, Some(Named)),
            (absent(1, true), Word::LeftOut, None),
            (absent(1, false), Word::LeftOut, Some(absent(2, false))),
            (absent(2, false), heard(Silent), Some(absent(2, false))),
            (absent(2, false), heard(Answered), Some(absent(2, false))),
            (absent(2, false), heard(Refused), None),
            (absent(2, false), Word::Named, Some(Named)),
            (absent(2, false), Word::LeftOut, Some(absent(3, false))),
            (absent(3, false), Word::LeftOut, None),
        ];
        for (state, word, next) in table {
            assert_eq!(state.after(word, 4), next, "{state:?} {word:?}");
        }
        assert_eq!(
            Named.after(Word::LeftOut, 1),
            None,
            "whoever names all that there is is believed at once"
        );
    }

    #[test]
    fn a_resolver_that_answers_with_ever_new_addresses_fills_no_memory() {
        let specs = |from: u32, count: u32| {
            (from..from + count).map(|host| EndpointSpec::plain((host.to_be_bytes(), 1))).collect::<Vec<_>>()
        };
        let mut listing = Listing::new();
        let many = ADDRESSES_MAX as u32;
        for round in 0..4 {
            listing.answer(specs(round * many, many - 3), 100);
            assert_eq!(listing.named().count(), ADDRESSES_MAX - 3);
            assert!(listing.absent().count() <= 3);
        }
    }
}
