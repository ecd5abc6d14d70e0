//! Clocks, samples, and what is said of them.

use std::time::{Duration, Instant};

/// Nanoseconds of single operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<u32>);

/// Where most of some samples lie, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spread {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) mean: f64,
}

// === impl Samples ===

impl Samples {
    pub(crate) fn push(&mut self, nanoseconds: u64) {
        self.0.push(u32::try_from(nanoseconds).unwrap_or(u32::MAX));
    }

    pub(crate) fn spread(mut self) -> Spread {
        self.0.sort_unstable();
        let sum: f64 = self.0.iter().map(|sample| f64::from(*sample)).sum();
        let mean = sum / self.0.len().max(1) as f64;
        Spread { p50: percentile(&self.0, 50.0), p99: percentile(&self.0, 99.0), mean }
    }
}

impl FromIterator<u64> for Samples {
    fn from_iter<I: IntoIterator<Item = u64>>(samples: I) -> Self {
        let mut all = Self::default();
        samples.into_iter().for_each(|sample| all.push(sample));
        all
    }
}

/// The smallest sample that at least so many percent do not exceed; 0 of none.
fn percentile(sorted: &[u32], percent: f64) -> f64 {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).map_or(0.0, |sample| f64::from(*sample))
}

/// The middle of some figures, one per round; of an even number, the mean of the middle two.
pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

/// Each figure's median over the rounds.
pub(crate) fn median_spread(rounds: &[Spread]) -> Spread {
    let of = |figure: fn(&Spread) -> f64| median(rounds.iter().map(figure));
    Spread { p50: of(|round| round.p50), p99: of(|round| round.p99), mean: of(|round| round.mean) }
}

/// Nanoseconds that `act` takes on the clock, and what it returns.
#[inline]
pub(crate) fn clocked<T>(act: impl FnOnce() -> T) -> (T, u64) {
    let begin = Instant::now();
    let result = act();
    let end = Instant::now();
    (result, nanoseconds(begin, end))
}

/// What the clock itself adds to each sample.
pub(crate) fn clock_cost() -> Spread {
    (0..100_000).map(|_| clocked(|| ()).1).collect::<Samples>().spread()
}

pub(crate) fn nanoseconds(begin: Instant, end: Instant) -> u64 {
    u64::try_from((end - begin).as_nanos()).unwrap_or(u64::MAX)
}

/// How long `act` keeps this thread on a CPU, and what it returns: for what takes so long that other programs get their
/// turns meanwhile.
pub(crate) fn worked<T>(act: impl FnOnce() -> T) -> (T, Duration) {
    let thread = rustix::thread::gettid();
    let before = cpu_time(thread);
    let result = act();
    (result, Duration::from_nanos(cpu_time(thread) - before))
}

/// CPU time of a thread of this process, in nanoseconds.
pub(crate) fn cpu_time(thread: rustix::thread::Pid) -> u64 {
    // How the kernel names the clock of a thread: its number, inverted, and the kind of clock.
    const SCHEDULED_OF_THREAD: i32 = 6;
    let clock = !thread.as_raw_nonzero().get() << 3 | SCHEDULED_OF_THREAD;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    #[expect(unsafe_code, reason = "no safe call takes the clock of another thread")]
    // SAFETY: `time` is a valid place for the answer.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(failed, 0, "the thread's clock can be read");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Keeps the calling thread on one CPU, where there is such a CPU.
pub(crate) fn pin(cpu: usize) {
    let mut only = rustix::thread::CpuSet::new();
    only.set(cpu);
    // Not fatal: the figures are noisier then.
    if rustix::thread::sched_setaffinity(None, &only).is_err() {
        eprintln!("could not keep a thread on CPU {cpu}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_sample_that_enough_others_do_not_exceed() {
        let sorted: Vec<u32> = (1..=200).collect();
        assert_eq!(percentile(&sorted, 50.0), 100.0);
        assert_eq!(percentile(&sorted, 99.0), 198.0);
        assert_eq!(percentile(&sorted, 100.0), 200.0);
        assert_eq!(percentile(&[7], 1.0), 7.0);
        assert_eq!(percentile(&[], 99.0), 0.0);
    }

    #[test]
    fn a_spread_does_not_depend_on_the_order_of_the_samples() {
        let rising: Samples = (1..=1000).collect();
        let falling: Samples = (1..=1000).rev().collect();
        let spread = rising.spread();
        assert_eq!(spread, falling.spread());
        assert_eq!(spread, Spread { p50: 500.0, p99: 990.0, mean: 500.5 });
    }

    #[test]
    fn a_sample_that_does_not_fit_counts_as_the_largest() {
        let samples: Samples = [u64::MAX, 1].into_iter().collect();
        assert_eq!(samples.spread().p99, f64::from(u32::MAX));
    }

    #[test]
    fn medians_are_of_each_figure_by_itself() {
        assert_eq!(median([]), 0.0);
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        let round = |p50, p99| Spread { p50, p99, mean: 0.0 };
        let rounds = [round(1.0, 9.0), round(2.0, 7.0), round(3.0, 8.0)];
        assert_eq!(median_spread(&rounds), round(2.0, 8.0));
    }
}
