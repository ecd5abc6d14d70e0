//! vLLM releases as far as their edges differ.

use std::fmt;
use std::str::FromStr;

/// A release, `0.MINOR` with the patch number where it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct VllmVersion {
    minor: u16,
    patch: u16,
}

/// The releases whose encodings are known.
const OLDEST: VllmVersion = VllmVersion::new(9, 0);
const NEWEST_MINOR: u16 = 33;

/// A version that cannot be emulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("vllm version {0:?} is not known: give 0.9 to 0.{NEWEST_MINOR}, such as 0.32 or 0.10.2")]
pub struct UnknownVersion(String);

impl VllmVersion {
    /// Version `0.minor.patch`.
    pub const fn new(minor: u16, patch: u16) -> Self {
        Self { minor, patch }
    }

    /// Whether this release is `0.minor.0` or newer.
    pub fn since(self, minor: u16) -> bool {
        self.minor >= minor
    }

    /// How its events are encoded, and which fields they have.
    pub fn encoding(self) -> EventEncoding {
        match self {
            v if v.since(24) => EventEncoding::Maps,
            _ => EventEncoding::Arrays,
        }
    }

    /// Number of fields of `BlockStored` after its type name.
    pub fn stored_fields(self) -> usize {
        match self {
            v if v.since(33) => 15,
            v if v.since(30) => 14,
            v if v.since(29) => 13,
            v if v.since(26) => 12,
            v if v.since(22) => 11,
            v if v.since(20) => 9,
            v if v.since(17) => 8,
            v if v.since(14) => 7,
            v if v >= Self::new(10, 2) => 6,
            _ => 5,
        }
    }

    /// Number of fields of `BlockRemoved` after its type name.
    pub fn removed_fields(self) -> usize {
        match self {
            v if v.since(29) => 5,
            v if v.since(26) => 4,
            v if v.since(20) => 3,
            v if v >= Self::new(10, 2) => 2,
            _ => 1,
        }
    }

    /// Whether replay answers carry the topic.
    pub fn replays_topic(self) -> bool {
        self.since(26)
    }

    /// Whether two processes have equal digests without being told to.
    pub fn has_fixed_seed(self) -> bool {
        self.since(29)
    }

    /// Whether blocks without content are reused before cached ones.
    pub fn reuses_empty_first(self) -> bool {
        self.since(24)
    }

    /// Whether `kv_cache_report_mode` is understood.
    pub fn reports_hits(self) -> bool {
        self.since(26)
    }

    /// Whether messages of the role `developer` become system messages for templates that do not know the role.
    pub fn converts_developer(self) -> bool {
        self.since(23)
    }

    /// Whether requests may name a session.
    pub fn has_sessions(self) -> bool {
        self.since(30)
    }
}

/// Outer shape of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventEncoding {
    /// Arrays of a fixed length per release, nil where unset.
    Arrays,
    /// Maps; optional fields that are unset are left out.
    Maps,
}

impl FromStr for VllmVersion {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownVersion(text.to_owned());
        let mut parts = text.trim_start_matches('v').split('.');
        let mut number = || parts.next().map(str::parse::<u16>).transpose().map_err(|_| unknown());
        let (major, minor, patch) = (number()?, number()?, number()?);
        let version = match (major, minor) {
            (Some(0), Some(minor)) => Self::new(minor, patch.unwrap_or(0)),
            _ => return Err(unknown()),
        };
        if version < OLDEST || version.minor > NEWEST_MINOR {
            return Err(unknown());
        }
        Ok(version)
    }
}

impl fmt::Display for VllmVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0.{}.{}", self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_parse_with_or_without_patch() {
        let parsed = |text: &str| text.parse::<VllmVersion>();
        assert_eq!(parsed("0.32"), Ok(VllmVersion::new(32, 0)));
        assert_eq!(parsed("v0.10.2"), Ok(VllmVersion::new(10, 2)));
        assert_eq!(parsed("0.32").unwrap().to_string(), "0.32.0");
        for bad in ["", "1.0", "0.8", "0.34", "0", "0.x", "newest"] {
            assert_eq!(parsed(bad), Err(UnknownVersion(bad.to_owned())));
        }
    }

    #[test]
    fn edges_change_at_their_release() {
        let (old, new) = (VllmVersion::new(23, 0), VllmVersion::new(24, 0));
        assert_eq!((old.encoding(), new.encoding()), (EventEncoding::Arrays, EventEncoding::Maps));
        assert!(!VllmVersion::new(25, 0).replays_topic() && VllmVersion::new(26, 0).replays_topic());
        assert_eq!(
            (VllmVersion::new(10, 0).removed_fields(), VllmVersion::new(10, 2).removed_fields()),
            (1, 2)
        );
    }
}
