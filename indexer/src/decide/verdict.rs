//! How a decision came about, as it is told to gateways and counted.

use super::Reason;

/// How far the prefix index made the ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Scored,
    /// By the prompt's beginning alone, as what follows cannot be known.
    ScoredInPart(Reason),
    LoadOnly(Reason),
}

// === impl Verdict ===

impl Verdict {
    /// The prompt's blocks counted.
    pub fn is_scored(self) -> bool {
        matches!(self, Self::Scored | Self::ScoredInPart(_))
    }

    /// The value of the label `outcome`.
    pub fn outcome(self) -> &'static str {
        if self.is_scored() { "scored" } else { "load_only" }
    }

    /// The value of the label `reason`; empty where there is nothing to explain.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Scored => "",
            Self::ScoredInPart(reason) | Self::LoadOnly(reason) => reason.name(),
        }
    }
}
