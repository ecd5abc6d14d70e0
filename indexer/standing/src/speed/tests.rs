use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A window of samples with these milliseconds per token.
fn window(paces: &[f64]) -> SpeedWindow {
    let mut window = SpeedWindow::default();
    for pace in paces {
        window.note(seen(WORK, *pace), Millis(0));
    }
    window
}

/// So much that a microsecond is nothing.
const WORK: u64 = 1_000_000_000;

/// A first token that was seen here, at these milliseconds per token.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
fn seen(work_tokens: u64, pace: f64) -> FirstToken {
    FirstToken { work_tokens, ttft_us: (pace * work_tokens as f64 * 1000.0) as u64, by: None }
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
    window.note(seen(WORK_TOKENS_MIN - 1, 2.0), Millis(0));
    window.note(seen(1000, 0.0), Millis(0));
    assert_eq!(window.pace(Millis(0)), None);
    window.note(seen(1000, 0.1), Millis(0));
    assert_eq!(window.pace(Millis(SAMPLE_AGE_MAX_MS)), Some(Pace { ms_per_token: 0.1, samples: 1 }));
    assert_eq!(window.pace(Millis(SAMPLE_AGE_MAX_MS + 1)), None);
}

/// What several indexers saw between them is the same window at each of them, in whatever order they hear it.
#[test]
fn those_who_tell_each_other_agree() {
    let peer = |id| NonZeroU32::new(id);
    let times: Vec<(u64, FirstToken)> =
        (0..90).map(|at| (at * 500, seen(1000, 0.1 + (at % 7) as f64 / 100.0))).collect();
    let mut paces = Vec::new();
    for own in 0..3 {
        let mut window = SpeedWindow::default();
        let (mine, heard): (Vec<_>, Vec<_>) = times.iter().copied().partition(|(at, _)| at / 500 % 3 == own);
        for (at, token) in heard.iter().rev().chain(&mine) {
            let seer = at / 500 % 3;
            let by = (seer != own).then(|| peer(seer as u32 + 1)).flatten();
            let token = FirstToken { by, ttft_us: token.ttft_us + at, ..*token };
            window.note(token, Millis(*at));
            window.note(token, Millis(*at + u64::from(by.is_some())));
        }
        paces.push(window.pace(Millis(45_000)).unwrap());
    }
    assert_eq!(paces[0].samples, SAMPLES_MAX);
    assert!(paces.iter().all(|pace| (pace.ms_per_token - paces[0].ms_per_token).abs() < 0.02), "{paces:?}");
}

/// A peer that begins anew tells all that it saw again; one that is silent is forgotten with time.
#[test]
fn what_a_peer_told_is_forgotten_alone() {
    let (mut window, peer) = (SpeedWindow::default(), NonZeroU32::new(7));
    window.note(seen(1000, 0.1), Millis(1000));
    for number in 0..10 {
        window.note(FirstToken { by: peer, ttft_us: 900_000 + number, work_tokens: 1000 }, Millis(2000));
    }
    assert_eq!(window.pace(Millis(2000)).map(|pace| pace.samples), Some(11));
    assert_eq!(window.own().count(), 1);
    window.forget(peer.unwrap());
    assert_eq!(window.pace(Millis(2000)), Some(Pace { ms_per_token: 0.1, samples: 1 }));
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
