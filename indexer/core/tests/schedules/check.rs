//! What must hold of a stream at any time, and once it is left in peace.

use warmpath_kv::{Hits, Index, Namespace, SequencerConfig, Trust};

use crate::cache::{self, Copies};
use crate::rank::Rank;
use crate::rng::Rng;

/// At any time.
pub(crate) fn always(
    rank: &Rank,
    index: &Index,
    config: &SequencerConfig,
    rng: &mut Rng,
) -> Result<(), String> {
    let trust = rank.is_believed();
    let applied = &rank.follower.applied;
    let mixed = applied.windows(2).find(|pair| pair[0].0 != pair[1].0 || pair[0].1 + 1 != pair[1].1);
    if let Some(pair) = mixed {
        return Err(format!("{:?} was applied after {:?}", pair[1], pair[0]));
    }
    let last = applied.last();
    // What is held of a process that is gone may wait for a proof, and counts for nothing meanwhile.
    if let Some((process, _)) = last.filter(|(process, _)| trust.is_scored() && *process < rank.known) {
        return Err(format!("process {process} is believed, although {} is known", rank.known));
    }
    let (process, batches) = last.map_or((rank.known, 0), |(process, seq)| (*process, seq + 1));
    let process = rank.process_of(process);
    let (truth, seed) = (process.state(batches), process.seed);

    let held: Copies = index.copies(rank.follower.id).map(|(hash, copies)| (hash.0, copies)).collect();
    let is_exact = trust == Trust::Live;
    let is_true = held.iter().all(|(hash, copies)| truth.get(hash).is_some_and(|true_| copies <= true_));
    if is_exact && held != *truth || !is_true {
        return Err(format!("{trust:?} after {last:?}: held {held:?}, true {truth:?}"));
    }

    for _ in 0..3 {
        let prompt: Vec<u32> = (0..rng.below(10)).map(|_| u32::from(rng.one_in(3))).collect();
        let hit = hit(rank, index, &prompt);
        let expected = if trust.is_scored() { cache::hit(truth, seed, &prompt) } else { 0 };
        if hit > expected || is_exact && hit != expected {
            return Err(format!("{trust:?}: {hit} tokens of {prompt:?}, in truth {expected}"));
        }
    }

    let waiting = rank.follower.sequencer.waiting();
    if waiting.batches > config.waiting_max || waiting.bytes > config.waiting_bytes_max {
        return Err(format!("{waiting:?} wait"));
    }
    Ok(())
}

/// In peace: all that was published is applied, and what can be known is known.
pub(crate) fn in_the_end(rank: &mut Rank, has_replay: bool) -> Result<(), String> {
    let trust = rank.is_believed();
    let process = rank.process();
    let (number, made, has_lost) = (process.number, process.made(), process.has_lost);
    let is_complete = has_replay && !has_lost;
    match trust {
        Trust::Live => {}
        Trust::Degraded(_) if !is_complete => {}
        // A buffer with a hole is asked for it again and again.
        Trust::Recovering if has_lost => return Ok(()),
        trust => {
            return Err(format!(
                "{trust:?} in peace, although all was {}",
                if is_complete { "kept" } else { "told" }
            ));
        }
    }
    let last = rank.follower.applied.last().copied();
    if last != made.checked_sub(1).map(|last| (number, last)) {
        return Err(format!("{last:?} in peace, of {made} batches of process {number}"));
    }
    Ok(())
}

fn hit(rank: &Rank, index: &Index, prompt: &[u32]) -> u32 {
    let keys = index.key_plan().keys(&Namespace { model: "m", lora: None, salt: None }, prompt);
    let mut hits = Hits::default();
    index.hits(&keys, &mut hits);
    hits.tokens(rank.follower.id)
}
