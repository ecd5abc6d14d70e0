use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A window of samples with these milliseconds per token.
fn window(paces: &[f64]) -> SpeedWindow {
    let mut window = SpeedWindow::default();
    for pace in paces {
        window.note(1000, pace * 1000.0, Millis(0));
    }
    window
}

fn learn(windows: &mut [SpeedWindow]) -> Vec<f64> {
    let fellows: Vec<_> = windows.iter_mut().map(|window| (window.pace(Millis(0)), 1.0)).collect();
    slownesses(&fellows)
}

#[test]
fn nothing_known_is_the_capacity() {
    assert_eq!(slownesses(&[(None, 1.0), (None, 2.0)]), [1.0, 0.5]);
    let only = Pace { ms_per_token: 9.0, samples: 64 };
    assert_eq!(slownesses(&[(Some(only), 1.0), (None, 1.0)]), [1.0, 1.0], "nobody to compare with");
}

#[test]
fn the_slow_one_of_four_is_found() {
    let mut windows = [0.1, 0.1, 0.1, 0.3].map(|pace| window(&[pace; 40]));
    let learnt = learn(&mut windows);
    assert_eq!(learnt[..3], [1.0; 3]);
    assert!((2.0..3.0).contains(&learnt[3]), "{learnt:?}");
}

#[test]
fn little_evidence_says_little() {
    let mut windows = [window(&[0.1; 40]), window(&[0.1; 40]), window(&[0.8; 2])];
    let learnt = learn(&mut windows);
    assert!(learnt[2] < 1.6, "{learnt:?}");
}

/// One that is as fast as its capacity weight says is neither slow nor fast; what it falls short of, counts.
#[test]
fn capacity_is_what_an_endpoint_is_measured_by() {
    let pace = |ms_per_token| Some(Pace { ms_per_token, samples: 64 });
    assert_eq!(slownesses(&[(pace(0.1), 1.0), (pace(0.1), 1.0), (pace(0.05), 2.0)]), [1.0, 1.0, 0.5]);
    let [_, _, slower] = slownesses(&[(pace(0.1), 1.0), (pace(0.1), 1.0), (pace(0.2), 2.0)])[..] else {
        panic!("three")
    };
    assert!((1.0..2.0).contains(&slower), "{slower}");
}

#[test]
fn short_requests_and_old_times_say_nothing() {
    let mut window = SpeedWindow::default();
    window.note(WORK_TOKENS_MIN - 1, 500.0, Millis(0));
    window.note(1000, f64::NAN, Millis(0));
    assert_eq!(window.pace(Millis(0)), None);
    window.note(1000, 100.0, Millis(0));
    assert_eq!(window.pace(Millis(SAMPLE_AGE_MAX_MS)), Some(Pace { ms_per_token: 0.1, samples: 1 }));
    assert_eq!(window.pace(Millis(SAMPLE_AGE_MAX_MS + 1)), None);
}

proptest! {
    #[test]
    fn it_is_bounded_and_finite_whatever_comes(
        windows in vec(vec(1e-6..1e6f64, 0..80), 0..10),
        capacities in vec(0.1..10.0f64, 10),
    ) {
        let fellows: Vec<_> = windows
            .iter()
            .zip(&capacities)
            .map(|(paces, capacity)| (window(paces).pace(Millis(0)), *capacity))
            .collect();
        for (slowness, (_, capacity)) in slownesses(&fellows).into_iter().zip(&fellows) {
            let factor = slowness * capacity;
            prop_assert!((1.0 / SLOWNESS_MAX - 1e-9..=SLOWNESS_MAX + 1e-9).contains(&factor), "{}", factor);
        }
    }

    /// A fifth of the requests waits a hundred times as long, for whatever reason: nobody is taken for slow.
    #[test]
    fn outliers_move_nobody(noise in vec(0.9..1.1f64, 160), bad in vec(prop::bool::weighted(0.2), 160)) {
        let paces: Vec<f64> =
            noise.iter().zip(&bad).map(|(noise, bad)| 0.1 * noise * if *bad { 100.0 } else { 1.0 }).collect();
        let mut windows: Vec<SpeedWindow> = paces.chunks(40).map(window).collect();
        for slowness in learn(&mut windows) {
            prop_assert!((0.95..1.05).contains(&slowness), "{}", slowness);
        }
    }

    /// What all fellows share says nothing about any of them.
    #[test]
    fn the_unit_does_not_matter(paces in vec(0.01..1.0f64, 4), unit in 0.01..100.0f64) {
        let of = |unit: f64| {
            let mut windows: Vec<_> = paces.iter().map(|pace| window(&[pace * unit; 40])).collect();
            learn(&mut windows)
        };
        for (a, b) in of(1.0).into_iter().zip(of(unit)) {
            prop_assert!((a - b).abs() < 1e-6, "{} {}", a, b);
        }
    }

    /// Who is slower is never taken for faster.
    #[test]
    fn slowness_follows_the_pace(paces in vec(0.01..1.0f64, 2..8)) {
        let mut windows: Vec<_> = paces.iter().map(|pace| window(&[*pace; 40])).collect();
        let learnt = learn(&mut windows);
        for (a, pace_a) in learnt.iter().zip(&paces) {
            for (b, pace_b) in learnt.iter().zip(&paces) {
                prop_assert!(pace_a > pace_b || a <= b, "{:?} {:?}", paces, learnt);
            }
        }
    }
}
