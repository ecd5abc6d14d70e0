//! What befalls an engine.

use rand::Rng as _;
use rand_pcg::Pcg64Mcg;

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The process is killed and started again on the same ports.
    Kill,
    /// The engine restarts inside its process: its sockets close for so many milliseconds.
    Restart { down_ms: u64 },
    /// The process is held for so many milliseconds.
    Pause { ms: u64 },
    /// So many batches are lost on the way, and others follow.
    Drop { batches: u32 },
    /// So many batches are sent twice.
    Duplicate { batches: u32 },
    /// So many batches are sent after the one that follows them.
    Reorder { batches: u32 },
    /// So many batches come late.
    Delay { batches: u32, ms: u64 },
    /// The cache is emptied.
    Reset,
    /// Batches are lost, and so many questions for them get no answer.
    Unanswered { batches: u32, questions: u32 },
    /// The last batches are lost, and nothing follows.
    Tail,
    /// Batches are lost on the way and from the replay buffer, and later the cache is emptied.
    Lose { batches: u32 },
}

// === impl Fault ===

impl Fault {
    /// A random one.
    pub fn choose(random: &mut Pcg64Mcg, may_be_slow: bool) -> Self {
        let batches = random.random_range(1..60);
        let ms = random.random_range(1..400);
        match random.random_range(0..if may_be_slow { 24 } else { 20 }) {
            0..3 => Self::Kill,
            3..6 => Self::Restart { down_ms: ms },
            6..9 => Self::Pause { ms: ms * 3 },
            9..14 => Self::Drop { batches },
            14..16 => Self::Duplicate { batches },
            16 => Self::Reorder { batches },
            17 | 18 => Self::Delay { batches, ms },
            19 => Self::Reset,
            20 => Self::Unanswered { batches, questions: random.random_range(1..3) },
            21 | 22 => Self::Tail,
            _ => Self::Lose { batches },
        }
    }

    /// Its kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "killed",
            Self::Restart { .. } => "restarted in place",
            Self::Pause { .. } => "paused",
            Self::Drop { .. } => "batches lost on the way",
            Self::Duplicate { .. } => "batches sent twice",
            Self::Reorder { .. } => "batches in another order",
            Self::Delay { .. } => "batches late",
            Self::Reset => "cache emptied",
            Self::Unanswered { .. } => "replay without answer",
            Self::Tail => "last batches lost",
            Self::Lose { .. } => "batches lost for good",
        }
    }
}
