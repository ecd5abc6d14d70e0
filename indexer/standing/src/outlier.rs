//! Takes an endpoint that keeps failing out of the choice, and tries it again. Pure: time is an argument.
//!
//! ```text
//!            too many failures            Picked, once its time is over
//!  Trusted ─────────────────────▶ Ejected ───────────────────────────▶ Probed
//!     ▲                             ▲                                   │  │
//!     │                             └────────────── Failed, for longer ─┘  │
//!     └────────────────────────────────────────────────────── Answered ────┘
//! ```
//!
//! An ejected endpoint whose process refused connections and takes them again is tried at once ([`Outlier::come_back`]): what
//! ejected it is gone.
//!
//! Too many are several in a row, or half of those of late: an endpoint that answers now and then is found too. One
//! that is probed takes one request at a time. What ends while an endpoint is ejected was sent before, and says nothing
//! new. That somebody is always left to choose is for who chooses: see `decide::candidates`.

use serde::Serialize;
use warmpath_kv::Millis;

use super::fading::Fading;

/// Failures and answers count half after this long.
const HALF_LIFE_MS: f64 = 10_000.0;
/// Share of failures, of those of late, that is too many.
const SHARE_MAX: f64 = 0.5;
/// The longest time out, in times of the first one.
const TIMES_MAX: u32 = 12;
/// A probe of which nothing was heard for this long is given up, and another one may go.
const PROBE_PATIENCE_MS: u64 = 10_000;
/// What is left of failures that nobody needs to know of any more.
const FAILURES_FORGOTTEN: f64 = 0.01;
/// More than all that can come in a few half-lives.
const COUNT_MAX: f64 = 1e9;

/// When an endpoint is taken out of the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Outliers {
    /// Failures in a row, or so many that are half of those of late; 0: never.
    pub failures: u32,
    /// For how long, the first time; twice as long each further time.
    pub eject_ms: u64,
}

/// What is heard of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It began to answer a request.
    Answered,
    /// It failed one, or could not be reached.
    Failed,
    /// A request was sent to it.
    Picked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Trusted {
        /// In a row.
        failures: u32,
    },
    Ejected {
        until: Millis,
        /// In a row, without an answer between.
        times: u32,
    },
    Probed {
        since: Millis,
        times: u32,
    },
}

/// One endpoint's standing, and what it goes by.
#[derive(Clone, Debug)]
pub(super) struct Outlier {
    standing: Standing,
    failed: Fading,
    answered: Fading,
}

// === impl Outlier ===

impl Outlier {
    pub(super) fn standing(&self) -> Standing {
        self.standing
    }

    /// Whether a request may be sent to it.
    pub(super) fn admits(&self, now: Millis) -> bool {
        match self.standing {
            Standing::Trusted { .. } => true,
            Standing::Ejected { until, .. } => now >= until,
            Standing::Probed { since, .. } => now.since(since) >= PROBE_PATIENCE_MS,
        }
    }

    /// Whether a failure of late counts for anything: until it does not, each answer is held against it.
    pub(super) fn has_failed_lately(&self, now: Millis) -> bool {
        let is_clean = matches!(self.standing, Standing::Trusted { failures: 0 });
        !is_clean || self.failed.at(now, HALF_LIFE_MS) > FAILURES_FORGOTTEN
    }

    /// Somebody else has found it out; true: it was trusted here.
    pub(super) fn take_ejection(&mut self, until: Millis, times: u32) -> bool {
        let was_trusted = !self.is_out();
        if was_trusted {
            self.standing = Standing::Ejected { until, times: times.max(1) };
        }
        was_trusted
    }

    /// It refused connections for a while and takes them again, so it is another process: where it is ejected it may be
    /// tried at once.
    pub(super) fn come_back(&mut self, now: Millis) {
        if let Standing::Ejected { times, .. } | Standing::Probed { times, .. } = self.standing {
            self.standing = Standing::Ejected { until: now, times };
        }
    }

    /// Takes in what was heard; true: that changes whether it is ejected.
    pub(super) fn hear(&mut self, heard: Heard, config: Outliers, now: Millis) -> bool {
        let before = self.is_out();
        match heard {
            Heard::Answered => self.answered = self.answered.plus(1.0, COUNT_MAX, now, HALF_LIFE_MS),
            Heard::Failed => self.failed = self.failed.plus(1.0, COUNT_MAX, now, HALF_LIFE_MS),
            Heard::Picked => {}
        }
        self.standing = self.after(heard, config, now);
        if before && !self.is_out() {
            // It begins anew: what it failed before must not eject it at its next failure.
            (self.failed, self.answered) = (Fading::default(), Fading::default());
        }
        before != self.is_out()
    }

    /// The only place that says what follows from what is heard.
    fn after(&self, heard: Heard, config: Outliers, now: Millis) -> Standing {
        let ejected = |times: u32| Standing::Ejected {
            until: now.plus(
                config
                    .eject_ms
                    .saturating_mul(1 << (times - 1).min(8))
                    .min(config.eject_ms.saturating_mul(TIMES_MAX.into())),
            ),
            times,
        };
        match (self.standing, heard) {
            (Standing::Trusted { .. }, Heard::Answered) => Standing::Trusted { failures: 0 },
            (Standing::Trusted { failures }, Heard::Failed) => {
                let failures = failures.saturating_add(1);
                if self.is_too_much(failures, config, now) {
                    ejected(1)
                } else {
                    Standing::Trusted { failures }
                }
            }
            (Standing::Ejected { until, times }, Heard::Picked) if now >= until => {
                Standing::Probed { since: now, times }
            }
            (Standing::Probed { times, .. }, Heard::Picked) => Standing::Probed { since: now, times },
            (Standing::Probed { .. }, Heard::Answered) => Standing::Trusted { failures: 0 },
            (Standing::Probed { times, .. }, Heard::Failed) => ejected(times.saturating_add(1)),
            (standing, _) => standing,
        }
    }

    fn is_too_much(&self, in_a_row: u32, config: Outliers, now: Millis) -> bool {
        if config.failures == 0 {
            return false;
        }
        let (failed, answered) = (self.failed.at(now, HALF_LIFE_MS), self.answered.at(now, HALF_LIFE_MS));
        in_a_row >= config.failures
            || (failed >= f64::from(config.failures) && failed >= SHARE_MAX * (failed + answered))
    }

    fn is_out(&self) -> bool {
        !matches!(self.standing, Standing::Trusted { .. })
    }
}

impl Default for Outlier {
    fn default() -> Self {
        Self {
            standing: Standing::Trusted { failures: 0 },
            failed: Fading::default(),
            answered: Fading::default(),
        }
    }
}

impl Standing {
    /// Its name in the admin API and in logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trusted { .. } => "trusted",
            Self::Ejected { .. } => "ejected",
            Self::Probed { .. } => "probed",
        }
    }
}

#[cfg(test)]
mod tests;
