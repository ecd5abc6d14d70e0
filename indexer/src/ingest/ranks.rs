//! Whose messages a socket carries. Each rank counts its own, so those of several in one sequence would look like gaps.

use warmpath_kv::{may_be_of_rank, told_rank};

/// Which of a socket's messages are a stream's. Messages that name no rank are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RankFilter {
    /// Those that name this rank: several are known to publish here.
    Only(u32),
    /// One rank should publish here. Which one that is, its first message tells and not our count of them: engines behind one
    /// balancer count on from each other.
    One(Told),
}

/// What the first message of a connection told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// There was none yet.
    Unheard,
    Rank(u32),
    /// No rank, so others are not expected to tell one.
    Nothing,
}

// === impl RankFilter ===

impl RankFilter {
    /// `shared`: the address is that of all ranks.
    pub(super) fn new(rank: u32, shared: bool) -> Self {
        if shared { Self::Only(rank) } else { Self::One(Told::Unheard) }
    }

    /// The next message may come from another process.
    pub(super) fn begin_anew(&mut self) {
        if let Self::One(told) = self {
            *told = Told::Unheard;
        }
    }

    /// Whether the message with this payload is the stream's.
    pub(super) fn admits(&mut self, payload: &[u8]) -> bool {
        match self {
            Self::Only(rank) | Self::One(Told::Rank(rank)) => may_be_of_rank(payload, *rank),
            Self::One(Told::Nothing) => true,
            Self::One(told) => {
                *told = told_rank(payload).map_or(Told::Nothing, Told::Rank);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time, no events, and a rank.
    fn of_rank(rank: u8) -> [u8; 4] {
        [0x93, 0xc0, 0x90, rank]
    }

    const OF_NONE: [u8; 3] = [0x92, 0xc0, 0x90];

    #[test]
    fn a_socket_of_all_ranks_gives_each_stream_its_own() {
        let mut second = RankFilter::new(1, true);
        assert!(!second.admits(&of_rank(0)));
        assert!(second.admits(&of_rank(1)));
        assert!(second.admits(&OF_NONE));
        second.begin_anew();
        assert!(!second.admits(&of_rank(0)));
    }

    #[test]
    fn a_socket_of_one_rank_is_that_of_the_first_message_s() {
        let mut filter = RankFilter::new(0, false);
        assert!(filter.admits(&of_rank(5)));
        assert!(!filter.admits(&of_rank(6)));
        assert!(filter.admits(&of_rank(5)));
        assert!(filter.admits(&OF_NONE));
        filter.begin_anew();
        assert!(filter.admits(&OF_NONE));
        assert!(filter.admits(&of_rank(6)), "ranks are not told here");
        filter.begin_anew();
        assert!(filter.admits(&of_rank(6)));
        assert!(!filter.admits(&of_rank(5)));
    }
}
