//! A random schedule: some ranks and their streams in one index, with a virtual clock.

use warmpath_kv::{Index, IndexLimits, KeyHasher, Millis, SequencerConfig, StreamId, Trust};

use crate::check;
use crate::follower::{Follower, Neglect};
use crate::rank::{Rank, Turn};
use crate::rng::Rng;

/// How often streams see time pass, in milliseconds.
const TICK_MS: u64 = 50;
const RANKS_MAX: usize = 3;

/// What happened in a schedule, to see that all of it does happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) happenings: u64,
    pub(crate) batches: u64,
    pub(crate) applied: u64,
    pub(crate) replayed: u64,
    pub(crate) gaps: u64,
    pub(crate) restarts: u64,
    pub(crate) reconnects: u64,
    pub(crate) resumed: u64,
    pub(crate) tails: u64,
    pub(crate) lost: u64,
    pub(crate) failed_replays: u64,
    pub(crate) no_room: u64,
    pub(crate) rank_changes: u64,
    /// Comparisons of a live stream with the truth.
    pub(crate) exact: u64,
}

struct World {
    rng: Rng,
    now: Millis,
    index: Index,
    config: SequencerConfig,
    keeps: usize,
    neglect: Option<Neglect>,
    ranks: Vec<Rank>,
    streams: u32,
    tally: Tally,
}

/// Runs the schedule of the seed. The error says what did not hold, and after what.
pub(crate) fn run(seed: u64, neglect: Option<Neglect>) -> Result<Tally, String> {
    let mut world = World::new(seed, neglect);
    let happenings = 20 + world.rng.below(100);
    let mut trace = Vec::new();
    let outcome = world.live(happenings, &mut trace).and_then(|()| world.end());
    outcome.map(|()| world.tally).map_err(|why| {
        let told = trace.iter().rev().take(40).rev().cloned().collect::<Vec<_>>().join("\n  ");
        format!("{why}\n{:?}, buffer of {}; the last happenings:\n  {told}", world.config, world.keeps)
    })
}

// === impl World ===

impl World {
    fn new(seed: u64, neglect: Option<Neglect>) -> Self {
        let mut rng = Rng::new(seed);
        let config = SequencerConfig {
            has_replay: !rng.one_in(5),
            waiting_max: if rng.one_in(2) { 3 + rng.below(8) } else { 1_000 },
            waiting_bytes_max: if rng.one_in(4) { 1_500 } else { 1 << 20 },
            ..SequencerConfig::default()
        };
        let keeps = if rng.one_in(3) { 1 + rng.below(20) } else { 10_000 };
        let mut secret = [0; 16];
        secret.fill(u8::try_from(rng.below(256)).expect("a byte"));
        let mut world = Self {
            rng,
            now: Millis(1_000),
            index: Index::new(KeyHasher::new(secret), IndexLimits::default()),
            config,
            keeps,
            neglect,
            ranks: Vec::new(),
            streams: 0,
            tally: Tally::default(),
        };
        for _ in 0..1 + world.rng.below(RANKS_MAX) {
            world.add_rank();
        }
        world
    }

    fn add_rank(&mut self) {
        self.streams += 1;
        let id = StreamId(self.streams);
        let follower = Follower::new(id, self.config, self.neglect, self.now, &mut self.index);
        self.ranks.push(Rank::new(follower, self.keeps, &mut self.rng));
    }

    fn remove_rank(&mut self, at: usize) -> Result<(), String> {
        let rank = self.ranks.remove(at);
        self.count(&rank);
        self.index.remove_stream(rank.follower.id);
        match self.index.copies(rank.follower.id).next() {
            Some(left) => Err(format!("{left:?} is left of a stream that was removed")),
            None => Ok(()),
        }
    }

    fn live(&mut self, happenings: usize, trace: &mut Vec<String>) -> Result<(), String> {
        for _ in 0..happenings {
            let at = self.rng.below(self.ranks.len());
            let what = self.happen(at)?;
            self.tally.happenings += 1;
            trace.push(format!("{:>6} ms, rank {at}: {what}{}", self.now.0, self.told(at)));
            self.check()?;
        }
        Ok(())
    }

    /// How a rank's stream stands.
    fn told(&self, at: usize) -> String {
        let stands =
            |rank: &Rank| format!(", {:?}, next {:?}", rank.is_believed(), rank.follower.applied.last());
        self.ranks.get(at).map(stands).unwrap_or_default()
    }

    fn happen(&mut self, at: usize) -> Result<&'static str, String> {
        let choice = self.rng.below(140);
        let amount = 1 + self.rng.below(5);
        let wait = TICK_MS * u64::try_from(1 + self.rng.below(140)).expect("few");
        if let 118 = choice {
            self.tally.rank_changes += 1;
            if self.ranks.len() > 1 && self.rng.one_in(2) || self.ranks.len() == RANKS_MAX {
                self.remove_rank(at)?;
                return Ok("the rank goes");
            }
            self.add_rank();
            return Ok("another rank comes");
        }
        let has_replay = self.config.has_replay;
        let World { rng, now, index, ranks, .. } = self;
        let rank = &mut ranks[at];
        let mut turn = Turn { index, now: *now, rng };
        let what = match choice {
            0..35 => {
                (0..amount).for_each(|_| rank.work(false, turn.rng));
                "works"
            }
            35..65 => {
                rank.read(amount, &mut turn);
                "messages are read"
            }
            65..80 => {
                rank.answer(false, turn.rng);
                "answers a question"
            }
            80..98 => {
                rank.read_answers(amount * 3, &mut turn);
                "answers are read"
            }
            98..108 => "time passes",
            108..110 => {
                rank.empty();
                "is emptied"
            }
            110..112 => {
                rank.crash();
                "crashes"
            }
            112..114 => {
                rank.boot(turn.rng);
                "boots"
            }
            114..116 => {
                rank.break_connection(turn.rng);
                "loses its connection"
            }
            116..118 => {
                rank.restart_silently(has_replay, &mut turn);
                "restarts behind its connection"
            }
            _ => {
                rank.catch_up(&mut turn);
                "has a good moment"
            }
        };
        self.pass(if let 98..108 = choice { wait } else { TICK_MS });
        Ok(what)
    }

    fn pass(&mut self, ms: u64) {
        let mut left = ms;
        while left > 0 {
            left -= TICK_MS;
            self.now = self.now.plus(TICK_MS);
            let World { rng, now, index, ranks, .. } = self;
            ranks.iter_mut().for_each(|rank| rank.tick(&mut Turn { index, now: *now, rng }));
        }
    }

    fn check(&mut self) -> Result<(), String> {
        for rank in &self.ranks {
            check::always(rank, &self.index, &self.config, &mut self.rng)
                .map_err(|why| format!("stream {}: {why}", rank.follower.id))?;
            self.tally.exact += u64::from(rank.is_believed() == Trust::Live);
        }
        Ok(())
    }

    /// Peace, a last batch of each, an emptied cache; and nothing is left when all streams are gone.
    fn end(&mut self) -> Result<(), String> {
        let has_replay = self.config.has_replay;
        self.ranks.iter_mut().for_each(|rank| rank.boot(&mut self.rng));
        self.settle(|_, _| ())?;
        self.settle(|rank, rng| rank.work(true, rng))?;
        for rank in &mut self.ranks {
            check::in_the_end(rank, has_replay)
                .map_err(|why| format!("stream {}: {why}", rank.follower.id))?;
        }
        self.settle(|rank, rng| {
            rank.empty();
            rank.work(true, rng);
        })?;
        if let Some(rank) = self.ranks.iter().find(|rank| rank.is_believed() != Trust::Live) {
            return Err(format!(
                "stream {} is {:?} after its cache was emptied",
                rank.follower.id,
                rank.is_believed()
            ));
        }
        while !self.ranks.is_empty() {
            self.remove_rank(0)?;
        }
        let stats = self.index.stats();
        if (stats.blocks, stats.references, stats.aside.blocks, stats.aside.bytes) != (0, 0, 0, 0) {
            return Err(format!("something is left of removed streams: {stats:?}"));
        }
        Ok(())
    }

    fn settle(&mut self, last: impl Fn(&mut Rank, &mut Rng)) -> Result<(), String> {
        self.quiet(600)?;
        for rank in &mut self.ranks {
            last(rank, &mut self.rng);
        }
        self.quiet(600)
    }

    /// All is answered and read at once, for this many turns of 50 ms.
    fn quiet(&mut self, turns: usize) -> Result<(), String> {
        for _ in 0..turns {
            let World { rng, now, index, ranks, .. } = self;
            for rank in ranks.iter_mut() {
                rank.catch_up(&mut Turn { index, now: *now, rng });
            }
            self.pass(TICK_MS);
        }
        self.check()
    }

    fn count(&mut self, rank: &Rank) {
        let (stats, tally) = (rank.follower.sequencer.stats(), &mut self.tally);
        tally.batches += rank.processes.iter().map(crate::engine::Process::made).sum::<u64>();
        tally.applied += stats.applied;
        tally.replayed += stats.replayed;
        tally.gaps += stats.gaps;
        tally.restarts += stats.restarts;
        tally.reconnects += stats.reconnects;
        tally.resumed += stats.resumed;
        tally.tails += stats.tail_batches;
        tally.lost += stats.lost_batches;
        tally.failed_replays += stats.replays_failed;
        tally.no_room += stats.waiting_dropped;
    }
}

// === impl Tally ===

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.happenings += other.happenings;
        self.batches += other.batches;
        self.applied += other.applied;
        self.replayed += other.replayed;
        self.gaps += other.gaps;
        self.restarts += other.restarts;
        self.reconnects += other.reconnects;
        self.resumed += other.resumed;
        self.tails += other.tails;
        self.lost += other.lost;
        self.failed_replays += other.failed_replays;
        self.no_room += other.no_room;
        self.rank_changes += other.rank_changes;
        self.exact += other.exact;
    }
}
