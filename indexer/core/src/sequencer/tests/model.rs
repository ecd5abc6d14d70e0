//! Random engines, losses and restarts under a virtual clock. Whatever happens, what was applied since the last clear
//! must be what the engine did, in order, up to where the sequencer says it is; and once the engine is left in peace,
//! everything it did must have been applied.

use proptest::prelude::*;

use super::*;

/// What befalls an engine or its connection.
#[derive(Clone, Debug)]
enum Happening {
    /// Batches are published and received.
    Publish(u8),
    /// Batches are published and lost on the way.
    Lose(u8),
    /// The replay is asked, if a question is open, and answers; of the answers these (by position) are lost.
    Answer(Vec<usize>),
    /// The open question is never answered.
    Wait(u16),
    /// Another process, counting from 0; the connection breaks, and comes back.
    Restart,
    /// The connection breaks, and comes back.
    Reconnect,
    /// Another indexer goes on where this one is.
    Resume,
}

/// The engine and the wire. A batch's number in all, over restarts, is what it carries.
struct World {
    bench: Bench,
    /// Global number of the first batch of this incarnation.
    born: u64,
    /// Batches made in this incarnation.
    made: u64,
    /// Batches the replay buffer keeps.
    keeps: u64,
    question: Option<u64>,
    /// Global numbers applied since the last clear.
    applied: Vec<u64>,
}

impl World {
    fn new(has_replay: bool, keeps: u64) -> Self {
        let config = SequencerConfig { has_replay, waiting_max: 8, ..SequencerConfig::default() };
        let mut world =
            Self { bench: Bench::with(config), born: 0, made: 0, keeps, question: None, applied: Vec::new() };
        world.input(Input::Connected);
        world
    }

    fn input(&mut self, input: Input<Numbered>) {
        let mut actions = VecDeque::new();
        self.bench.sequencer.admit(input, self.bench.now, &mut actions);
        while let Some(action) = actions.pop_front() {
            match action {
                Action::Compare { batch, .. } => {
                    let is_same = self.applied.last() == Some(&batch.0);
                    self.bench.sequencer.admit(Input::Compared { is_same }, self.bench.now, &mut actions);
                }
                Action::Apply { seq, batch, .. } => {
                    assert!(batch.0 >= seq, "a batch of the future");
                    if let Some(last) = self.applied.last() {
                        assert_eq!(batch.0, last + 1, "applied out of order, or with a hole");
                    }
                    self.applied.push(batch.0);
                }
                Action::Clear(_) => self.applied.clear(),
                Action::AskReplay { from } => self.question = Some(from),
                Action::DropReplay => self.question = None,
            }
        }
    }

    fn publish(&mut self) {
        let seq = self.made;
        self.made += 1;
        self.input(Input::Published { seq, batch: Numbered(self.born + seq) });
    }

    fn answer(&mut self, lost: &[usize]) {
        let Some(from) = self.question else { return };
        let from = from.max(self.made.saturating_sub(self.keeps));
        for (position, seq) in (from..self.made).enumerate() {
            // The first answer of a replay always gets through: the queue that overflows is empty then.
            if position > 0 && lost.contains(&position) {
                continue;
            }
            self.input(Input::Replayed { seq, batch: Numbered(self.born + seq) });
            if self.question.is_none() {
                return;
            }
        }
        self.question = None;
        self.input(Input::ReplayEnded);
    }

    /// What is saved of a stream is exact where it is live, and only then.
    fn resume(&mut self) {
        let sequencer = &mut self.bench.sequencer;
        if sequencer.trust() != Trust::Live {
            return;
        }
        let Some(last) = sequencer.last_applied() else { return };
        *sequencer = Sequencer::resume(sequencer.config, self.bench.now, last);
        self.question = None;
        self.input(Input::Connected);
    }

    fn wait(&mut self, ms: u64) {
        let mut left = ms;
        while left > 0 {
            let step = left.min(50);
            self.bench.now = self.bench.now.plus(step);
            left -= step;
            self.input(Input::Tick);
        }
    }

    fn happen(&mut self, happening: &Happening) {
        match happening {
            Happening::Publish(count) => (0..*count).for_each(|_| self.publish()),
            Happening::Lose(count) => self.made += u64::from(*count),
            Happening::Answer(lost) => self.answer(lost),
            Happening::Wait(ms) => self.wait(u64::from(*ms)),
            Happening::Restart => {
                self.born += self.made;
                self.made = 0;
                self.question = None;
                self.input(Input::Disconnected);
                self.input(Input::Connected);
            }
            Happening::Reconnect => {
                self.question = None;
                self.input(Input::Disconnected);
                self.input(Input::Connected);
            }
            Happening::Resume => self.resume(),
        }
        self.wait(50);
    }

    /// Peace: batches come, questions are answered, nothing is lost.
    fn settle(&mut self) {
        for _ in 0..200 {
            self.answer(&[]);
            self.wait(100);
        }
        self.publish();
        for _ in 0..200 {
            self.answer(&[]);
            self.wait(100);
        }
    }
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let one = prop_oneof![
        6 => (1_u8..5).prop_map(Happening::Publish),
        2 => (1_u8..5).prop_map(Happening::Lose),
        6 => proptest::collection::vec(0_usize..8, 0..3).prop_map(Happening::Answer),
        2 => (50_u16..7_000).prop_map(Happening::Wait),
        1 => Just(Happening::Restart),
        1 => Just(Happening::Reconnect),
        1 => Just(Happening::Resume),
    ];
    proptest::collection::vec(one, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn with_replay_all_is_applied_in_order_in_the_end(happenings in happenings(), keeps in 1_u64..30) {
        let mut world = World::new(true, keeps);
        for happening in &happenings {
            world.happen(happening);
        }
        world.settle();
        let end = world.born + world.made;
        prop_assert_eq!(world.applied.last().copied(), Some(end - 1));
        match world.bench.sequencer.trust() {
            Trust::Live => prop_assert_eq!(world.applied.first().copied(), Some(world.born)),
            Trust::Degraded(_) => prop_assert!(world.applied[0] > world.born),
            other => prop_assert!(false, "{other:?} in peace"),
        }
    }

    #[test]
    fn what_is_held_outlives_a_connection_for_as_long_as_its_last_batch_can_be_shown(
        happenings in happenings(), keeps in 1_u64..30, missed in 0_u64..30,
    ) {
        let mut world = World::new(true, keeps);
        for happening in &happenings {
            world.happen(happening);
        }
        world.settle();
        let held = world.applied.clone();
        world.input(Input::Disconnected);
        world.made += missed;
        world.input(Input::Connected);
        prop_assert!(!world.bench.sequencer.trust().is_scored(), "believed before it is proven");
        world.settle();
        prop_assert_eq!(world.applied.starts_with(&held), missed < keeps);
        prop_assert_eq!(world.applied.last().copied(), Some(world.born + world.made - 1));
    }

    #[test]
    fn nothing_of_another_process_is_believed(
        happenings in happenings(), made in 0_u64..60, keeps in 1_u64..30,
    ) {
        let mut world = World::new(true, keeps);
        for happening in &happenings {
            world.happen(happening);
        }
        world.settle();
        world.input(Input::Disconnected);
        world.born += world.made;
        world.made = made;
        world.input(Input::Connected);
        let born = world.born;
        for _ in 0..100 {
            let is_of_now = world.applied.iter().all(|batch| *batch >= born);
            prop_assert!(is_of_now || !world.bench.sequencer.trust().is_scored());
            world.answer(&[]);
            world.wait(100);
        }
        prop_assert!(world.applied.iter().all(|batch| *batch >= born));
    }

    #[test]
    fn without_replay_what_is_applied_since_the_last_clear_has_no_hole(happenings in happenings()) {
        let mut world = World::new(false, 0);
        for happening in &happenings {
            world.happen(happening);
        }
        world.settle();
        prop_assert_eq!(world.applied.last().copied(), Some(world.born + world.made - 1));
        if world.bench.sequencer.trust() == Trust::Live {
            prop_assert_eq!(world.applied.first().copied(), Some(world.born));
        }
    }
}
