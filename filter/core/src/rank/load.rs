//! Policies that go by load, or by nothing.

use super::{Candidate, Figure, Fit, blend};

/// Its distance from whose turn it is.
pub(super) fn in_turn(count: usize, turn: u64) -> Vec<Figure> {
    let count = count.max(1) as u64;
    (0..count).map(|index| Figure::of(((index + count - turn % count) % count) as f64, 0.0)).collect()
}

/// Two of them at random before the others, by active sequences.
pub(super) fn better_of_two(candidates: &[Candidate], random: &mut dyn FnMut() -> u64) -> Vec<Figure> {
    let count = candidates.len().max(1) as u64;
    let first = random() % count;
    // Any of the others, each as likely.
    let second = (first + 1 + random() % (count - 1).max(1)) % count;
    (0..)
        .zip(candidates)
        .map(|(index, candidate)| Figure {
            tier: u8::from(index != first && index != second),
            cost: candidate.load(),
            second: 0.0,
        })
        .collect()
}

/// One point for the queue and one for KV memory; equals by active sequences.
pub(super) fn least(candidates: &[Candidate]) -> Vec<Figure> {
    let queue = blend::queue_scores(candidates);
    candidates
        .iter()
        .zip(queue)
        .map(|(candidate, queue)| Figure::of(-(queue + blend::kv_score(candidate)), candidate.load()))
        .collect()
}

/// Tokens of the request that it would compute, times the sequences that its batch would have.
pub(super) fn new_times_batch(candidates: &[Candidate], fits: &[Fit]) -> Vec<Figure> {
    let of = |(candidate, fit): (&Candidate, &Fit)| {
        let batch = f64::from(candidate.active_sequences) + 1.0;
        Figure::of(fit.uncached_tokens as f64 * batch / candidate.share(), candidate.queued_tokens as f64)
    };
    candidates.iter().zip(fits).map(of).collect()
}
