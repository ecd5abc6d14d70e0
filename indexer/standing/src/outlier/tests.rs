use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const CONFIG: Outliers = Outliers { failures: 3, eject_ms: 5000 };

/// When, and what.
type Event = (u64, Heard);

fn after(heard: &[Event]) -> Outlier {
    let mut outlier = Outlier::default();
    for (at, heard) in heard {
        outlier.hear(*heard, CONFIG, Millis(*at));
    }
    outlier
}

#[test]
fn every_transition() {
    use Heard::{Answered, Failed, Picked};
    let ejected = [(0, Failed), (0, Failed), (0, Failed)];
    let probed = [ejected.as_slice(), &[(5000, Picked)]].concat();
    let table: [(&[Event], Event, Standing); 11] = [
        (&[], (0, Failed), Standing::Trusted { failures: 1 }),
        (&[(0, Failed)], (0, Answered), Standing::Trusted { failures: 0 }),
        (&[(0, Failed)], (0, Picked), Standing::Trusted { failures: 1 }),
        (&ejected[..2], (0, Failed), Standing::Ejected { until: Millis(5000), times: 1 }),
        (&ejected, (1, Answered), Standing::Ejected { until: Millis(5000), times: 1 }),
        (&ejected, (1, Failed), Standing::Ejected { until: Millis(5000), times: 1 }),
        (&ejected, (4999, Picked), Standing::Ejected { until: Millis(5000), times: 1 }),
        (&ejected, (5000, Picked), Standing::Probed { since: Millis(5000), times: 1 }),
        (&probed, (5001, Answered), Standing::Trusted { failures: 0 }),
        (&probed, (5001, Failed), Standing::Ejected { until: Millis(15_001), times: 2 }),
        (&probed, (16_000, Picked), Standing::Probed { since: Millis(16_000), times: 1 }),
    ];
    for (history, last, expected) in table {
        let history = [history, &[last]].concat();
        assert_eq!(after(&history).standing(), expected, "{history:?}");
    }
    for (history, back_at, expected) in [
        (ejected.as_slice(), 70, Standing::Ejected { until: Millis(70), times: 1 }),
        (&probed, 5001, Standing::Ejected { until: Millis(5001), times: 1 }),
        (&[(0, Failed)], 1, Standing::Trusted { failures: 1 }),
    ] {
        let mut outlier = after(history);
        outlier.come_back(Millis(back_at));
        assert_eq!(outlier.standing(), expected, "{history:?}, then back at {back_at}");
    }
}

#[test]
fn one_probe_at_a_time() {
    let mut outlier = after(&[(0, Heard::Failed), (0, Heard::Failed), (0, Heard::Failed)]);
    assert!(!outlier.admits(Millis(4999)) && outlier.admits(Millis(5000)));
    outlier.hear(Heard::Picked, CONFIG, Millis(5000));
    assert!(!outlier.admits(Millis(5001)));
    assert!(outlier.admits(Millis(5000 + PROBE_PATIENCE_MS)), "the probe was lost");
}

/// It answers every other request: never several failures in a row, and yet half of all.
#[test]
fn one_that_fails_half_of_its_requests_is_ejected() {
    let mut outlier = Outlier::default();
    let changes = (0..8).filter(|turn| {
        let heard = if turn % 2 == 0 { Heard::Failed } else { Heard::Answered };
        outlier.hear(heard, CONFIG, Millis(turn * 100))
    });
    assert_eq!(changes.count(), 1);
    assert_eq!(outlier.standing().name(), "ejected");
}

#[test]
fn a_failure_now_and_then_ejects_nobody() {
    let mut outlier = Outlier::default();
    for turn in 0..1000 {
        let heard = if turn % 5 == 0 { Heard::Failed } else { Heard::Answered };
        outlier.hear(heard, CONFIG, Millis(turn * 100));
        assert!(outlier.admits(Millis(turn * 100)), "{turn}");
    }
}

#[test]
fn it_can_be_switched_off() {
    let off = Outliers { failures: 0, eject_ms: 5000 };
    let mut outlier = Outlier::default();
    assert!((0..100).all(|at| !outlier.hear(Heard::Failed, off, Millis(at))));
    assert!(outlier.admits(Millis(100)));
}

proptest! {
    /// Whatever happens, it comes back: after the longest time out somebody may be sent there, and one answer ends it.
    #[test]
    fn nobody_is_out_for_ever(events in vec((0u64..3000, 0usize..3), 0..200)) {
        let (mut outlier, mut now) = (Outlier::default(), Millis(0));
        for (later, what) in events {
            now = now.plus(later);
            outlier.hear([Heard::Answered, Heard::Failed, Heard::Picked][what], CONFIG, now);
        }
        now = now.plus(CONFIG.eject_ms * u64::from(TIMES_MAX));
        prop_assert!(outlier.admits(now));
        outlier.hear(Heard::Picked, CONFIG, now);
        outlier.hear(Heard::Answered, CONFIG, now);
        prop_assert_eq!(outlier.standing(), Standing::Trusted { failures: 0 });
    }

    /// What is told about ejection is what the standing says.
    #[test]
    fn changes_are_told(events in vec((0u64..3000, 0usize..3), 0..200)) {
        let (mut outlier, mut now, mut is_out) = (Outlier::default(), Millis(0), false);
        for (later, what) in events {
            now = now.plus(later);
            is_out ^= outlier.hear([Heard::Answered, Heard::Failed, Heard::Picked][what], CONFIG, now);
            prop_assert_eq!(is_out, !matches!(outlier.standing(), Standing::Trusted { .. }));
        }
    }
}
