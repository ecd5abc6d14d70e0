//! Addresses as they are written in the configuration.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// A host name or IP address (IPv6 in brackets) with a port above 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    host: String,
    port: u16,
}

/// `tcp://host:port` of a ZeroMQ socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamAddress(HostPort);

/// Text that is not an address of the wanted form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnAddress;

// === impl HostPort ===

impl HostPort {
    /// `host` as it is written in an address: IPv6 in brackets.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// IPv6 without its brackets.
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for HostPort {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let (host, port) = text.rsplit_once(':').ok_or(NotAnAddress)?;
        let inside = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let bracketed = inside.is_some_and(|inside| inside.parse::<Ipv6Addr>().is_ok());
        let plain = is_host_name(host);
        match port.parse() {
            Ok(port) if port > 0 && (bracketed || plain) => Ok(Self::new(host, port)),
            _ => Err(NotAnAddress),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Serialize for HostPort {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Whether a resolver may know it: letters, digits, hyphens, dots, and the underscores of some clusters. No `*`, at which one
/// can listen only.
pub(super) fn is_host_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
}

// === impl StreamAddress ===

impl StreamAddress {
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self(HostPort::new(host, port))
    }

    pub fn at(host: IpAddr, port: u16) -> Self {
        match host {
            IpAddr::V4(v4) => Self::new(v4.to_string(), port),
            IpAddr::V6(v6) => Self::new(format!("[{v6}]"), port),
        }
    }

    pub fn host_port(&self) -> &HostPort {
        &self.0
    }

    /// The address of data-parallel rank `rank`, whose port is that much higher. None: there is no such port.
    pub fn of_rank(&self, rank: u32) -> Option<Self> {
        let port = u32::from(self.0.port).checked_add(rank)?;
        Some(Self(HostPort::new(self.0.host.clone(), u16::try_from(port).ok()?)))
    }
}

impl From<HostPort> for StreamAddress {
    fn from(address: HostPort) -> Self {
        Self(address)
    }
}

impl FromStr for StreamAddress {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        text.strip_prefix("tcp://").ok_or(NotAnAddress)?.parse().map(Self)
    }
}

impl fmt::Display for StreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp://{}", self.0)
    }
}

impl Serialize for StreamAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
