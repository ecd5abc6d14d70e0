use super::*;

mod model;
mod table;

/// A batch that says only which one it is, and from a million on when it was made: a second for each million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbered(pub(super) u64);

const SECOND: u64 = 1_000_000;

impl Weight for Numbered {
    fn bytes(&self) -> usize {
        100
    }

    fn made_at(&self) -> Option<f64> {
        let seconds = self.0 / SECOND;
        (seconds > 0).then_some(seconds as f64)
    }
}

/// A sequencer, its clock, and what it said last.
pub(super) struct Bench {
    pub(super) sequencer: Sequencer<Numbered>,
    pub(super) now: Millis,
    pub(super) actions: VecDeque<Action<Numbered>>,
}

impl Bench {
    pub(super) fn new(has_replay: bool) -> Self {
        Self::with(SequencerConfig { has_replay, ..SequencerConfig::default() })
    }

    pub(super) fn with(config: SequencerConfig) -> Self {
        let now = Millis(1_000);
        Self { sequencer: Sequencer::new(config, now), now, actions: VecDeque::new() }
    }

    /// Takes an input; what to do then, in short.
    pub(super) fn input(&mut self, input: Input<Numbered>) -> Vec<String> {
        self.sequencer.admit(input, self.now, &mut self.actions);
        self.actions.drain(..).map(|action| short(&action)).collect()
    }

    pub(super) fn published(&mut self, seq: u64) -> Vec<String> {
        self.input(Input::Published { seq, batch: Numbered(seq) })
    }

    /// Published, and made at this second of the engine's clock.
    fn published_at(&mut self, seq: u64, second: u64) -> Vec<String> {
        self.input(Input::Published { seq, batch: Numbered(second * SECOND + seq) })
    }

    pub(super) fn replayed(&mut self, seq: u64) -> Vec<String> {
        self.input(Input::Replayed { seq, batch: Numbered(seq) })
    }

    pub(super) fn after(&mut self, ms: u64) -> Vec<String> {
        self.now = self.now.plus(ms);
        self.input(Input::Tick)
    }

    /// Connected, with batches 0 to 2 applied.
    pub(super) fn live(has_replay: bool) -> Self {
        let mut bench = Self::new(has_replay);
        bench.input(Input::Connected);
        if has_replay {
            bench.input(Input::ReplayEnded);
        }
        for seq in 0..3 {
            assert_eq!(bench.published(seq), [format!("apply {seq}")]);
        }
        assert_eq!(bench.trust(), "live");
        bench
    }

    /// Batches up to `last` were applied by another, and saved.
    pub(super) fn resumed(last: u64) -> Self {
        let now = Millis(1_000);
        let sequencer = Sequencer::resume(SequencerConfig::default(), now, last);
        Self { sequencer, now, actions: VecDeque::new() }
    }

    pub(super) fn trust(&self) -> String {
        let trust = self.sequencer.trust();
        format!("{} {}", trust.name(), trust.reason()).trim_end().to_owned()
    }
}

pub(super) fn short(action: &Action<Numbered>) -> String {
    match action {
        Action::Apply { seq, batch, origin } => {
            assert_eq!(*seq % SECOND, batch.0 % SECOND);
            match origin {
                Origin::Published => format!("apply {seq}"),
                Origin::Replayed => format!("restore {seq}"),
            }
        }
        Action::Clear(cause) => format!("clear {cause:?}"),
        Action::AskReplay { from } => format!("ask {from}"),
        Action::DropReplay => "drop replay".to_owned(),
        Action::Compare { seq, .. } => format!("compare {seq}"),
    }
}

#[test]
fn c7_a_gap_asks_the_replay_for_what_is_missing() {
    let mut bench = Bench::live(true);
    assert_eq!(bench.published(8), ["ask 3"]);
    assert_eq!(bench.trust(), "recovering");
    let stats = bench.sequencer.stats();
    assert_eq!((stats.gaps, stats.missing_batches), (1, 5));
}

#[test]
fn c9_all_of_a_replay_is_applied_in_order_before_the_batch_that_showed_the_gap() {
    let mut bench = Bench::live(true);
    assert_eq!(bench.published(53), ["ask 3"]);
    for seq in 3..53 {
        assert_eq!(bench.replayed(seq), [format!("restore {seq}")]);
    }
    assert_eq!(bench.published(54), [""; 0]);
    assert_eq!(bench.input(Input::ReplayEnded), ["apply 53", "apply 54"]);
    assert_eq!(bench.trust(), "live");
    assert_eq!(bench.sequencer.last_applied(), Some(54));
}

#[test]
fn c10_after_a_replay_that_fails_nothing_old_is_applied_behind_something_new() {
    let mut bench = Bench::live(true);
    assert_eq!(bench.published(5), ["ask 3"]);
    for attempt in 1..3 {
        assert_eq!(bench.after(5_000), ["drop replay"], "attempt {attempt}");
        assert_eq!(bench.trust(), "recovering");
        assert_eq!(bench.after(500 * attempt), ["ask 3"]);
    }
    assert_eq!(bench.after(5_000), ["drop replay", "clear EventsLost", "apply 5"]);
    assert_eq!(bench.trust(), "degraded replay_failed");
    // The answer comes after all.
    assert_eq!(bench.replayed(3), [""; 0]);
    assert_eq!(bench.input(Input::ReplayEnded), [""; 0]);
    assert_eq!(bench.sequencer.last_applied(), Some(5));
}

#[test]
fn c1_a_number_that_falls_is_a_restart_with_and_without_replay() {
    let mut bench = Bench::live(true);
    assert_eq!(bench.published(0), ["clear Restarted", "ask 0"]);
    assert_eq!(bench.replayed(0), ["restore 0"]);
    assert_eq!(bench.input(Input::ReplayEnded), [""; 0]);
    assert_eq!(bench.published(1), ["apply 1"]);
    assert_eq!(bench.trust(), "live");

    let mut bench = Bench::live(false);
    assert_eq!(bench.published(0), ["clear Restarted", "apply 0"]);
    assert_eq!(bench.trust(), "live");
    assert_eq!(bench.sequencer.stats().restarts, 1);
}

/// What was made before the last batch is of the same process, whatever its number.
#[test]
fn a_batch_that_comes_twice_or_late_is_no_restart() {
    for has_replay in [true, false] {
        let mut bench = Bench::live(has_replay);
        for (seq, second) in [(3, 10), (4, 11), (5, 12)] {
            assert_eq!(bench.published_at(seq, second), [format!("apply {seq}")]);
        }
        assert_eq!(bench.published_at(5, 12), [""; 0], "twice");
        assert_eq!(bench.published_at(4, 11), [""; 0], "late");
        assert_eq!(bench.published_at(6, 13), ["apply 6"]);
        assert_eq!((bench.sequencer.stats().duplicates, bench.trust().as_str()), (2, "live"));
        // Another process at that number: its batch was made later. And a first number is always a beginning.
        assert_eq!(bench.published_at(5, 20)[0], "clear Restarted");
        bench.published_at(6, 21);
        assert_eq!(
            bench.published_at(0, 20).last().map(String::as_str),
            Some(if has_replay { "ask 0" } else { "apply 0" })
        );
    }
}

#[test]
fn a_batch_that_comes_after_its_successor_fills_the_gap() {
    let mut bench = Bench::live(true);
    bench.published_at(3, 10);
    assert_eq!(bench.published_at(5, 12), ["ask 4"]);
    assert_eq!(bench.published_at(4, 11), [""; 0]);
    assert_eq!(bench.input(Input::ReplayEnded), ["apply 4", "apply 5"]);
    assert_eq!((bench.sequencer.stats().restarts, bench.trust().as_str()), (0, "live"));
}

#[test]
fn a_restart_while_a_replay_runs_begins_the_replay_anew() {
    let mut bench = Bench::live(true);
    assert_eq!(bench.published(8), ["ask 3"]);
    assert_eq!(bench.replayed(3), ["restore 3"]);
    assert_eq!(bench.published(1), ["drop replay", "clear Restarted", "ask 0"]);
    assert_eq!(bench.replayed(0), ["restore 0"]);
    assert_eq!(bench.input(Input::ReplayEnded), ["apply 1"]);
}

#[test]
fn what_a_replay_brought_is_not_applied_again_when_it_is_published() {
    let mut bench = Bench::new(true);
    bench.input(Input::Connected);
    for seq in 0..4 {
        bench.replayed(seq);
    }
    bench.input(Input::ReplayEnded);
    assert_eq!(bench.published(2), [""; 0]);
    assert_eq!(bench.published(3), [""; 0]);
    assert_eq!(bench.published(4), ["apply 4"]);
    assert_eq!(bench.sequencer.stats().duplicates, 2);
    assert_eq!(bench.sequencer.stats().restarts, 0);
}

#[test]
fn long_after_a_replay_a_number_it_brought_is_a_restart() {
    let mut bench = Bench::new(true);
    bench.input(Input::Connected);
    for seq in 0..4 {
        bench.replayed(seq);
    }
    bench.input(Input::ReplayEnded);
    bench.now = bench.now.plus(10_001);
    assert_eq!(bench.published(0), ["clear Restarted", "ask 0"]);
}

#[test]
fn a_replay_that_begins_later_than_asked_drops_what_is_held() {
    let mut bench = Bench::live(true);
    assert_eq!(bench.published(9), ["ask 3"]);
    assert_eq!(bench.replayed(7), ["clear EventsLost", "restore 7"]);
    assert_eq!(bench.replayed(8), ["restore 8"]);
    assert_eq!(bench.input(Input::ReplayEnded), ["apply 9"]);
    assert_eq!(bench.trust(), "degraded buffer_too_short");
    assert_eq!(bench.sequencer.stats().lost_batches, 4);
}

#[test]
fn a_hole_in_the_middle_of_a_replay_is_asked_for_again() {
    let mut bench = Bench::new(true);
    assert_eq!(bench.input(Input::Connected), ["ask 0"]);
    assert_eq!(bench.replayed(0), ["restore 0"]);
    assert_eq!(bench.replayed(3), [""; 0]);
    assert_eq!(bench.replayed(4), [""; 0]);
    assert_eq!(bench.input(Input::ReplayEnded), ["ask 1"]);
    assert_eq!(bench.replayed(1), ["restore 1"]);
    assert_eq!(bench.replayed(2), ["restore 2"]);
    assert_eq!(bench.replayed(3), ["restore 3"]);
    assert_eq!(bench.replayed(4), ["restore 4"]);
    assert_eq!(bench.input(Input::ReplayEnded), [""; 0]);
    assert_eq!(bench.trust(), "live");
    assert_eq!(bench.sequencer.stats().lost_batches, 0);
}

#[test]
fn as_long_as_a_replay_brings_something_new_it_is_asked_again() {
    let mut bench = Bench::new(true);
    bench.input(Input::Connected);
    for seq in 0..20 {
        assert_eq!(bench.replayed(seq), [format!("restore {seq}")]);
        assert_eq!(bench.replayed(seq + 100), [""; 0]);
        assert_eq!(bench.input(Input::ReplayEnded), [format!("ask {}", seq + 1)]);
    }
}

#[test]
fn a_lost_tail_is_found_by_probing_an_idle_stream() {
    let mut bench = Bench::live(true);
    assert_eq!(bench.after(4_999), [""; 0]);
    assert_eq!(bench.after(1), ["ask 2"]);
    assert_eq!(bench.trust(), "live");
    assert_eq!(bench.replayed(2), [""; 0]);
    assert_eq!(bench.replayed(3), ["restore 3"]);
    assert_eq!(bench.input(Input::ReplayEnded), [""; 0]);
    assert_eq!(bench.sequencer.stats().tail_batches, 1);
    assert_eq!(bench.published(4), ["apply 4"]);
}

#[test]
fn a_probe_that_is_answered_with_nothing_shows_a_restart() {
    let mut bench = Bench::live(true);
    bench.after(5_000);
    assert_eq!(bench.input(Input::ReplayEnded), ["clear Restarted", "ask 0"]);
}

#[test]
fn batches_published_while_a_probe_runs_are_applied_at_once() {
    let mut bench = Bench::live(true);
    bench.after(5_000);
    assert_eq!(bench.published(3), ["apply 3"]);
    assert_eq!(bench.replayed(2), [""; 0]);
    assert_eq!(bench.replayed(3), [""; 0]);
    assert_eq!(bench.input(Input::ReplayEnded), [""; 0]);
    assert_eq!(bench.sequencer.stats().tail_batches, 0);
}

#[test]
fn a_probe_without_answer_changes_nothing() {
    let mut bench = Bench::live(true);
    bench.after(5_000);
    assert_eq!(bench.after(5_000), ["drop replay"]);
    assert_eq!(bench.trust(), "live");
    assert_eq!(bench.sequencer.stats().probes_failed, 1);
    assert_eq!(bench.published(3), ["apply 3"]);
}

#[test]
fn when_a_replay_that_failed_works_again_the_history_is_fetched() {
    let mut bench = Bench::new(true);
    bench.input(Input::Connected);
    bench.published(7);
    for pause in [5_000, 500, 5_000, 1_000] {
        bench.after(pause);
    }
    assert_eq!(bench.after(5_000), ["drop replay", "clear EventsLost", "apply 7"]);
    assert_eq!(bench.after(5_000), ["ask 7"]);
    assert_eq!(bench.replayed(7), [""; 0]);
    assert_eq!(bench.input(Input::ReplayEnded), ["clear Restarted", "ask 0"]);
    for seq in 0..7 {
        bench.replayed(seq);
    }
    // Numbers of this connection still only rise.
    assert_eq!(bench.published(7), ["drop replay", "clear Restarted", "ask 0"]);
    for seq in 0..8 {
        bench.replayed(seq);
    }
    bench.input(Input::ReplayEnded);
    assert_eq!(bench.trust(), "live");
}

#[test]
fn every_new_connection_may_be_a_restart() {
    let mut bench = Bench::live(true);
    assert_eq!(bench.input(Input::Disconnected), [""; 0]);
    assert_eq!(bench.trust(), "stale disconnected");
    assert_eq!(bench.published(3), [""; 0], "of the closed connection");
    assert_eq!(bench.input(Input::Connected), ["ask 2"]);
    assert_eq!(bench.trust(), "stale unproven");
    assert_eq!(bench.replayed(2), ["compare 2"]);
    assert_eq!(bench.input(Input::Compared { is_same: false }), ["drop replay", "clear Restarted", "ask 0"]);
    assert_eq!(bench.trust(), "recovering");
    assert_eq!(bench.input(Input::ReplayEnded), [""; 0]);
    assert_eq!(bench.trust(), "live");

    let mut bench = Bench::live(false);
    bench.input(Input::Disconnected);
    assert_eq!(bench.input(Input::Connected), ["clear Restarted"]);
    assert_eq!(bench.published(40), ["apply 40"]);
    assert_eq!(bench.trust(), "degraded joined_late");
}

/// Behind a proxy that keeps the connection, the next process may come right after the one before was read.
#[test]
fn numbers_of_a_connection_rise_whatever_was_disproven_on_it() {
    for has_batch in [true, false] {
        let mut bench = Bench::live(true);
        bench.input(Input::Disconnected);
        assert_eq!(bench.input(Input::Connected), ["ask 2"]);
        assert_eq!(bench.published(5), [""; 0], "waits");
        if has_batch {
            assert_eq!(bench.replayed(2), ["compare 2"]);
            let disproven = bench.input(Input::Compared { is_same: false });
            assert_eq!(disproven, ["drop replay", "clear Restarted", "ask 0"]);
        } else {
            assert_eq!(bench.input(Input::ReplayEnded), ["clear Restarted", "ask 0"]);
        }
        for seq in 0..=5 {
            bench.replayed(seq);
        }
        bench.input(Input::ReplayEnded);
        assert_eq!(bench.trust(), "live");
        assert_eq!(bench.published(0), ["clear Restarted", "ask 0"]);
        assert_eq!(bench.trust(), "recovering");
    }
}

/// A network that blinks costs nothing: the engine shows the last batch, and what came after it.
#[test]
fn the_same_process_is_known_by_its_last_batch() {
    let mut bench = Bench::live(true);
    bench.input(Input::Disconnected);
    assert_eq!(bench.input(Input::Connected), ["ask 2"]);
    assert_eq!(bench.published(5), [""; 0], "waits");
    assert_eq!(bench.replayed(2), ["compare 2"]);
    assert_eq!(bench.input(Input::Compared { is_same: true }), [""; 0]);
    assert_eq!(bench.replayed(3), ["restore 3"]);
    assert_eq!(bench.replayed(4), ["restore 4"]);
    assert_eq!(bench.input(Input::ReplayEnded), ["apply 5"]);
    assert_eq!(bench.trust(), "live");
    assert_eq!(bench.sequencer.stats().resumed, 1);
}

/// The replay is asked for the proof again and again, then what is held goes.
#[test]
fn what_cannot_be_proven_is_given_up() {
    let mut bench = Bench::live(true);
    bench.input(Input::Disconnected);
    assert_eq!(bench.input(Input::Connected), ["ask 2"]);
    for _ in 0..2 {
        assert_eq!(bench.after(5_000), ["drop replay"]);
        assert_eq!(bench.trust(), "stale unproven");
        assert_eq!(bench.after(1_000), ["ask 2"]);
    }
    assert_eq!(bench.after(5_000), ["drop replay", "clear EventsLost"]);
    assert_eq!(bench.trust(), "degraded replay_failed");
}

/// The stream is never idle, so no probe would find out.
#[test]
fn a_busy_stream_whose_replay_answers_again_becomes_whole() {
    let mut bench = Bench::live(true);
    assert_eq!(bench.published(5), ["ask 3"]);
    for attempt in 1..3 {
        assert_eq!(bench.after(5_000), ["drop replay"]);
        assert_eq!(bench.after(500 * attempt), ["ask 3"]);
    }
    assert_eq!(bench.after(5_000), ["drop replay", "clear EventsLost", "apply 5"]);
    let mut seq = 6;
    let mut busy = |bench: &mut Bench, ms: u64| {
        let mut said = Vec::new();
        for _ in 0..ms / 100 {
            said.extend(bench.after(100));
            said.extend(bench.published(seq).into_iter().filter(|said| !said.starts_with("apply")));
            seq += 1;
        }
        said
    };
    assert_eq!(busy(&mut bench, 4_900), [""; 0]);
    assert_eq!(busy(&mut bench, 100), ["ask 54"]);
    // It still does not answer.
    assert_eq!(busy(&mut bench, 5_000), ["drop replay"]);
    assert_eq!(bench.trust(), "degraded replay_failed");
    assert_eq!(busy(&mut bench, 100), ["ask 105"]);
    assert_eq!(bench.replayed(105), [""; 0], "known");
    assert_eq!(bench.input(Input::ReplayEnded), ["clear Restarted", "ask 0"]);
    for seq in 0..107 {
        assert_eq!(bench.replayed(seq), [format!("restore {seq}")]);
    }
    assert_eq!(bench.input(Input::ReplayEnded), [""; 0]);
    assert_eq!(bench.trust(), "live");
    assert_eq!(bench.published(107), ["apply 107"]);
}

/// Without replay a late join is marked, not taken for an empty cache.
#[test]
fn c6_a_late_join_without_replay_is_degraded_until_the_cache_is_emptied() {
    let mut bench = Bench::new(false);
    bench.input(Input::Connected);
    assert_eq!(bench.published(17), ["apply 17"]);
    assert_eq!(bench.trust(), "degraded joined_late");
    assert_eq!(bench.published(18), ["apply 18"]);
    bench.input(Input::Emptied { seq: 18 });
    assert_eq!(bench.trust(), "live");
}

#[test]
fn a_loss_without_replay_drops_what_is_held() {
    let mut bench = Bench::live(false);
    assert_eq!(bench.published(5), ["clear EventsLost", "apply 5"]);
    assert_eq!(bench.trust(), "degraded lost_without_replay");
    bench.input(Input::Emptied { seq: 4 });
    assert_eq!(bench.trust(), "degraded lost_without_replay", "emptied before the loss");
}

#[test]
fn a_batch_that_does_not_decode_is_a_loss() {
    let mut bench = Bench::live(true);
    assert_eq!(bench.input(Input::Undecodable { seq: 2 }), ["clear EventsLost"]);
    assert_eq!(bench.trust(), "degraded undecodable");
    assert_eq!(bench.published(3), ["apply 3"]);
}

/// What follows such a batch in one go is applied after the loss, not forgotten with what came before.
#[test]
fn a_batch_that_does_not_decode_among_others_loses_what_came_before_it() {
    let mut bench = Bench::live(true);
    bench.published(4);
    bench.published(5);
    bench.replayed(3);
    bench.sequencer.admit(Input::ReplayEnded, bench.now, &mut bench.actions);
    let first = bench.actions.pop_front().map(|action| short(&action));
    assert_eq!(first.as_deref(), Some("apply 4"));
    assert_eq!(bench.input(Input::Undecodable { seq: 4 }), ["clear EventsLost", "apply 5"]);
}

/// The batches before the loss are applied after it became known.
#[test]
fn an_emptied_cache_before_a_known_loss_does_not_heal_it() {
    let mut bench = Bench::new(true);
    bench.input(Input::Connected);
    bench.published(0);
    bench.published(1);
    assert_eq!(bench.replayed(4), ["apply 0", "apply 1", "clear EventsLost", "restore 4"]);
    bench.input(Input::Undecodable { seq: 0 });
    bench.input(Input::Emptied { seq: 1 });
    bench.input(Input::ReplayEnded);
    assert_eq!(bench.trust(), "degraded buffer_too_short");
    bench.input(Input::Emptied { seq: 4 });
    assert_eq!(bench.trust(), "live");
}

#[test]
fn what_a_replay_no_longer_has_may_have_been_published_meanwhile() {
    let mut bench = Bench::new(true);
    assert_eq!(bench.input(Input::Connected), ["ask 0"]);
    for seq in 0..3 {
        assert_eq!(bench.published(seq), [""; 0]);
    }
    assert_eq!(bench.replayed(2), ["apply 0", "apply 1", "apply 2"]);
    assert_eq!(bench.replayed(3), ["restore 3"]);
    assert_eq!(bench.input(Input::ReplayEnded), [""; 0]);
    assert_eq!(bench.trust(), "live");
}

#[test]
fn a_stream_of_which_nothing_ever_came_is_silent() {
    let mut bench = Bench::new(false);
    assert_eq!(bench.trust(), "recovering");
    bench.after(9_999);
    assert_eq!(bench.trust(), "recovering");
    bench.after(1);
    assert_eq!(bench.trust(), "silent");
    bench.input(Input::Connected);
    bench.published(0);
    assert_eq!(bench.trust(), "live");
}

#[test]
fn an_engine_that_answers_neither_socket_stays_silent_while_it_is_asked_again() {
    let mut bench = Bench::new(true);
    bench.input(Input::Connected);
    for _ in 0..20 {
        bench.after(500);
    }
    for _ in 0..200 {
        bench.after(500);
        assert_eq!(bench.trust(), "silent");
    }
    assert!(bench.sequencer.stats().replays > 10);
}

#[test]
fn a_replay_that_ends_at_once_shows_a_fresh_engine_not_a_silent_one() {
    let mut bench = Bench::new(true);
    bench.input(Input::Connected);
    bench.input(Input::ReplayEnded);
    assert_eq!(bench.trust(), "live");
    assert_eq!(bench.after(5_000), ["ask 0"]);
    assert_eq!(bench.input(Input::ReplayEnded), [""; 0]);
    assert_eq!(bench.trust(), "live");
}

#[test]
fn what_finds_no_room_to_wait_is_asked_for_afterwards() {
    let mut bench = Bench::with(SequencerConfig { waiting_max: 2, ..SequencerConfig::default() });
    bench.input(Input::Connected);
    for seq in 5..9 {
        bench.published(seq);
    }
    assert_eq!(bench.sequencer.stats().waiting_dropped, 2);
    for seq in 0..5 {
        bench.replayed(seq);
    }
    assert_eq!(bench.input(Input::ReplayEnded), ["apply 5", "apply 6"]);
    assert_eq!(bench.published(9), ["ask 7"]);

    let mut bench = Bench::with(SequencerConfig { waiting_bytes_max: 250, ..SequencerConfig::default() });
    bench.input(Input::Connected);
    for seq in 5..9 {
        bench.published(seq);
    }
    assert_eq!(bench.sequencer.stats().waiting_dropped, 2);
}

/// Numbers come from outside: neither their distance nor the sum of such distances may overflow.
#[test]
fn absurd_numbers_are_counted_without_overflow() {
    for has_replay in [true, false] {
        let mut bench = Bench::live(has_replay);
        for _ in 0..4 {
            bench.published(u64::MAX - 1);
            bench.published(u64::MAX);
            bench.replayed(u64::MAX);
            bench.input(Input::ReplayEnded);
            for _ in 0..8 {
                bench.after(10_000);
            }
            bench.published(0);
            bench.input(Input::ReplayEnded);
        }
        let stats = bench.sequencer.stats();
        let lost = if has_replay { stats.lost_batches } else { stats.missing_batches };
        assert_eq!(lost, u64::MAX, "replay: {has_replay}, {stats:?}");
    }
}
