//! A block size that was guessed, before the first event.

use super::*;

const PROMPT: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

fn keys(index: &Index) -> PromptKeys {
    index.key_plan().keys(&BASE, &PROMPT)
}

fn speculate(index: &mut Index, stream: StreamId) {
    let keys = keys(index);
    index.speculate(stream, &keys, Millis(1000));
}

#[test]
fn what_a_pick_will_bring_is_expected_before_any_event() {
    let mut index = index();
    speculate(&mut index, A);
    assert_eq!(hit(&index, A, &PROMPT), 0, "nothing is known of its blocks");
    index.guess_block_size(A, 2);
    index.guess_block_size(B, 2);
    speculate(&mut index, A);
    assert_eq!((hit(&index, A, &PROMPT), hit(&index, B, &PROMPT)), (8, 0));
    assert_eq!(
        index.reader().stream(A).map(|stream| (stream.block_size, stream.has_told)),
        Some((Some(2), false))
    );
    assert_eq!(
        index.stream_stats(A).and_then(|stats| stats.block_size),
        None,
        "a guess is not what events told"
    );

    // The guess was right: what was expected goes over into what is held.
    store(&mut index, A, stored(None, &[1, 2], &[1, 2, 3, 4]));
    assert_eq!(hit(&index, A, &PROMPT), 8);
    assert_eq!(index.reader().stream(A).map(|stream| stream.has_told), Some(true));
    index.expire(Millis(1000));
    assert_eq!(hit(&index, A, &PROMPT), 4, "what never came is forgotten as ever");
}

#[test]
fn a_wrong_guess_leaves_nothing_once_an_event_has_told() {
    for told in [2, 4] {
        let mut index = index();
        index.guess_block_size(A, 3);
        speculate(&mut index, A);
        assert_eq!(hit(&index, A, &PROMPT), 6);
        let tokens: Vec<u32> = (1..=told).collect();
        store(&mut index, A, Stored { block_size: told, ..stored(None, &[1], &tokens) });
        assert_eq!(hit(&index, A, &PROMPT), told);
        assert_eq!(index.stats().speculative_blocks, 0);
        remove(&mut index, A, &[1]);
        assert_eq!((hit(&index, A, &PROMPT), index.stats().blocks), (0, 0));
        // No later guess is above an event.
        index.guess_block_size(A, 3);
        speculate(&mut index, A);
        assert_eq!(hit(&index, A, &PROMPT), 8);
    }
}

#[test]
fn a_guess_may_change_and_outlives_what_is_forgotten() {
    let mut index = index();
    index.guess_block_size(A, 3);
    speculate(&mut index, A);
    index.guess_block_size(A, 4);
    assert_eq!((hit(&index, A, &PROMPT), index.stats().blocks), (0, 0));
    speculate(&mut index, A);
    assert_eq!(hit(&index, A, &PROMPT), 8);
    index.clear(A, ClearCause::Restarted);
    assert_eq!(
        (hit(&index, A, &PROMPT), index.stats().blocks),
        (0, 0),
        "of a dead process nothing is expected"
    );
    speculate(&mut index, A);
    assert_eq!(hit(&index, A, &PROMPT), 8, "until it tells, it is taken to be as it was");
    index.guess_block_size(A, 0);
    assert_eq!((hit(&index, A, &PROMPT), index.stats().blocks), (0, 0));
}

#[test]
fn what_is_expected_of_a_stream_that_is_not_trusted_does_not_count() {
    let mut index = index();
    index.guess_block_size(A, 2);
    index.set_trust(A, Trust::Silent);
    speculate(&mut index, A);
    assert_eq!(hit(&index, A, &PROMPT), 0);
    index.set_trust(A, Trust::Live);
    assert_eq!(hit(&index, A, &PROMPT), 8);
}
