//! Whose turn it is to be asked, where engines are asked at the same time and some do not answer. Pure.

use std::collections::HashSet;
use std::net::SocketAddr;

use super::Endpoint;

/// Engines that are being asked, each once.
#[derive(Debug)]
pub struct Rota {
    under_way: HashSet<SocketAddr>,
    /// How many were asked so far: who is first in the next round.
    turn: usize,
    /// Asked at the same time.
    limit: usize,
}

// === impl Rota ===

impl Rota {
    pub fn new(limit: usize) -> Self {
        Self { under_way: HashSet::new(), turn: 0, limit }
    }

    /// Those to ask now: who is due, is not being asked, and has room beside those who are. Where more engines hang than
    /// there is room for, all get their turns.
    pub fn begin(&mut self, endpoints: &[Endpoint], is_due: impl Fn(&Endpoint) -> bool) -> Vec<Endpoint> {
        let count = endpoints.len();
        let first = self.turn.checked_rem(count).unwrap_or(0);
        let mut begun = Vec::new();
        for endpoint in endpoints.iter().cycle().skip(first).take(count) {
            let has_room = self.under_way.len() < self.limit;
            if has_room && is_due(endpoint) && self.under_way.insert(endpoint.spec.address) {
                self.turn = self.turn.wrapping_add(1);
                begun.push(endpoint.clone());
            }
        }
        begun
    }

    /// It has answered, or has not in time.
    pub fn end(&mut self, address: SocketAddr) {
        self.under_way.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{EndpointSpec, Fleet, Observation, Snapshot};

    fn fleet(hosts: u8) -> Snapshot {
        let specs = (0..hosts).map(|host| EndpointSpec::plain(([10, 0, 0, host], 80)));
        let mut fleet = Fleet::new(1);
        fleet.apply(Observation::Listed { source: 0, endpoints: specs.collect() });
        fleet.snapshot()
    }

    fn hosts(begun: &[Endpoint]) -> Vec<u8> {
        let host = |endpoint: &Endpoint| match endpoint.spec.address {
            SocketAddr::V4(address) => address.ip().octets()[3],
            SocketAddr::V6(_) => unreachable!(),
        };
        begun.iter().map(host).collect()
    }

    #[test]
    fn who_is_being_asked_is_not_asked_again_and_keeps_nobody_waiting() {
        let (fleet, mut rota) = (fleet(4), Rota::new(10));
        let begun = rota.begin(&fleet.endpoints, |_| true);
        assert_eq!(hosts(&begun), [0, 1, 2, 3]);
        rota.end(begun[2].spec.address);
        assert_eq!(hosts(&rota.begin(&fleet.endpoints, |_| true)), [2]);
        rota.end(begun[2].spec.address);
        assert!(rota.begin(&fleet.endpoints, |_| false).is_empty());
        assert!(rota.begin(&[], |_| true).is_empty());
    }

    #[test]
    fn where_there_is_room_for_some_all_get_their_turns() {
        let (fleet, mut rota) = (fleet(5), Rota::new(2));
        let mut asked = Vec::new();
        for _ in 0..5 {
            let begun = rota.begin(&fleet.endpoints, |_| true);
            assert_eq!(begun.len(), 2);
            asked.extend(hosts(&begun));
            begun.iter().for_each(|endpoint| rota.end(endpoint.spec.address));
        }
        asked.sort_unstable();
        assert_eq!(asked, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
    }
}
