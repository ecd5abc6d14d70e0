//! Ports for the servers under test.
//!
//! They are taken from below the range that the kernel gives to outgoing connections, and each is claimed for as long
//! as its [`Port`] lives by a UDP socket on the same number: TCP stays free for the server, and no other case, nor
//! another run on the same machine, takes it meanwhile. So a server can be stopped and started again on its port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context as _, Result, bail};

const FIRST: u16 = 18_000;
/// Linux hands out 32768 and above by default.
const COUNT: u16 = 12_000;

/// Where servers under test listen, unless a case is about addresses.
pub const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A port of a loopback address that nobody else takes while this lives.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    _claim: UdpSocket,
}

impl Port {
    /// A free port on 127.0.0.1.
    pub fn claim() -> Result<Self> {
        Self::claim_on(LOOPBACK)
    }

    /// A free port of this address.
    pub fn claim_on(ip: IpAddr) -> Result<Self> {
        Self::claim_row(ip, 1)?.pop().context("an empty row of ports")
    }

    /// `count` free ports of this address with consecutive numbers.
    pub fn claim_row(ip: IpAddr, count: u16) -> Result<Vec<Self>> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // Runs side by side start at different places; the claims make it safe, this only makes it quick.
        let start = std::process::id().wrapping_mul(97);
        for _ in 0..COUNT / count.max(1) {
            let offset = NEXT.fetch_add(count, Ordering::Relaxed);
            let slot = (start.wrapping_add(u32::from(offset)) % u32::from(COUNT)) as u16;
            let row: Option<Vec<Self>> = (0..count).map(|i| Self::try_claim(ip, FIRST + slot + i)).collect();
            if let Some(row) = row {
                return Ok(row);
            }
        }
        bail!("{ip} has no {count} free ports in a row from {FIRST} on")
    }

    fn try_claim(ip: IpAddr, number: u16) -> Option<Self> {
        let address = SocketAddr::new(ip, number);
        let claim = UdpSocket::bind(address).ok()?;
        TcpListener::bind(address).ok()?;
        Some(Self { address, _claim: claim })
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.address.port()
    }
}

/// `ip:port`, IPv6 in brackets.
impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_port_is_given_out_once_and_is_free_for_tcp() {
        let port = Port::claim().unwrap();
        assert!(Port::try_claim(LOOPBACK, port.number()).is_none());
        TcpListener::bind(port.to_string()).unwrap();
    }

    #[test]
    fn a_row_is_consecutive() {
        let row = Port::claim_row(LOOPBACK, 3).unwrap();
        assert_eq!(row[2].number(), row[0].number() + 2);
    }
}
