//! Whether an endpoint takes connections.
//!
//! ```text
//!  Good ──Refused──▶ Failing(1) ──Refused──▶ … ──Refused──▶ Avoided
//!   ▲                   │ Answered                             │ Answered
//!   └───────────────────┴──────────────────────────────────────┘
//! ```
//!
//! `Silent` changes nothing: a busy engine answers late, and that is no reason to avoid it.

/// How an attempt to ask an engine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// Something answered, whatever it said.
    Answered,
    /// No connection could be made.
    Refused,
    /// Connected, but no answer in time.
    Silent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Good,
    /// Refused this often in a row; still chosen.
    Failing(u32),
    /// Not chosen until it answers again.
    Avoided,
}

impl Health {
    /// The state after a contact, where `limit` refusals in a row lead to [`Health::Avoided`].
    pub fn after(self, contact: Contact, limit: u32) -> Self {
        match (self, contact) {
            (_, Contact::Answered) => Self::Good,
            (state, Contact::Silent) => state,
            (Self::Avoided, Contact::Refused) => Self::Avoided,
            (Self::Good, Contact::Refused) => Self::failing(1, limit),
            (Self::Failing(times), Contact::Refused) => Self::failing(times.saturating_add(1), limit),
        }
    }

    pub fn is_usable(self) -> bool {
        self != Self::Avoided
    }

    /// Its name in metrics, logs and the admin API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Failing(_) => "failing",
            Self::Avoided => "avoided",
        }
    }

    fn failing(times: u32, limit: u32) -> Self {
        if times >= limit { Self::Avoided } else { Self::Failing(times) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transition() {
        use Contact::*;
        use Health::*;
        let table = [
            (Good, Answered, Good),
            (Good, Silent, Good),
            (Good, Refused, Failing(1)),
            (Failing(1), Answered, Good),
            (Failing(1), Silent, Failing(1)),
            (Failing(1), Refused, Failing(2)),
            (Failing(2), Refused, Avoided),
            (Avoided, Refused, Avoided),
            (Avoided, Silent, Avoided),
            (Avoided, Answered, Good),
        ];
        for (state, contact, next) in table {
            assert_eq!(state.after(contact, 3), next, "{state:?} {contact:?}");
        }
        assert_eq!(Good.after(Refused, 1), Avoided);
    }
}
