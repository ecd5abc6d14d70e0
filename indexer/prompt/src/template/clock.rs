//! The engine's wall clock, which some templates print (`strftime_now`).

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// The time that the engine's template would see: its local time, which carries no zone. Injected, so that rendering is a pure function.
pub trait Clock: Send + Sync {
    fn now(&self) -> DateTime;
}

/// The system's clock in a given zone; engines run in UTC unless their container says otherwise.
#[derive(Clone, Debug)]
pub struct SystemClock {
    zone: TimeZone,
}

/// A clock that stands still, for tests and for reproducing a rendering.
#[derive(Clone, Debug)]
pub struct FixedClock(pub DateTime);

// === impl SystemClock ===

impl SystemClock {
    /// In the zone of this machine.
    pub fn local() -> Self {
        SystemClock { zone: TimeZone::system() }
    }

    pub fn in_zone(zone: TimeZone) -> Self {
        SystemClock { zone }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> DateTime {
        Timestamp::now().to_zoned_datetime(self.zone.clone()).datetime()
    }
}

impl Clock for FixedClock {
    fn now(&self) -> DateTime {
        self.0
    }
}
