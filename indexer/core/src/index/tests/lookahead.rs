//! Engines whose hashes cover tokens behind their block (some drafters of vLLM 0.33).

use super::*;

const PROMPT: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

/// Blocks of two tokens, with the one token behind each.
fn ahead(parent: Option<u64>, hashes: &[u64], tokens: &[u32], ahead: &[u32]) -> Stored {
    let lookahead = ahead.iter().map(|token| vec![*token]).collect();
    Stored { lookahead, ..stored(parent, hashes, tokens) }
}

/// The drafter needs what the engine computes for the last block, so that one is computed again.
#[test]
fn a_hit_ends_one_block_before_the_last_that_is_found() {
    let mut index = index();
    store(&mut index, A, ahead(None, &[10, 11, 12], &PROMPT[..6], &[3, 5, 7]));
    assert_eq!(hit(&index, A, &PROMPT), 4);
    assert_eq!(hit(&index, A, &PROMPT[..7]), 4, "the token behind the third block is there");
    assert_eq!(hit(&index, A, &PROMPT[..6]), 2, "and here it is not");
    assert_eq!(hit(&index, A, &PROMPT[..4]), 0);
    assert_eq!(index.stream_stats(A).and_then(|stats| stats.block_size), Some(2));
}

#[test]
fn a_block_serves_only_prompts_that_go_on_as_its_hash_says() {
    let mut index = index();
    store(&mut index, A, ahead(None, &[10, 11, 12], &PROMPT[..6], &[3, 5, 7]));
    assert_eq!(hit(&index, A, &[1, 2, 3, 4, 9, 9, 9, 9]), 0, "the second block is another one here");
    // The same tokens under several hashes, each for one way to go on.
    store(&mut index, A, ahead(Some(10), &[21, 22], &[3, 4, 9, 9], &[9, 9]));
    assert_eq!(hit(&index, A, &[1, 2, 3, 4, 9, 9, 9, 9]), 4);
    remove(&mut index, A, &[11]);
    assert_eq!(hit(&index, A, &PROMPT), 0);
    assert_eq!(hit(&index, A, &[1, 2, 3, 4, 9, 9, 9, 9]), 4, "the other one stays");
}

#[test]
fn streams_with_and_without_tokens_ahead_are_both_found() {
    let mut index = index();
    store(&mut index, A, ahead(None, &[10, 11, 12], &PROMPT[..6], &[3, 5, 7]));
    store(&mut index, B, stored(None, &[10, 11, 12], &PROMPT[..6]));
    assert_eq!((hit(&index, A, &PROMPT), hit(&index, B, &PROMPT)), (4, 6));
}

#[test]
fn picked_endpoints_are_expected_to_hold_blocks_with_tokens_ahead() {
    let mut index = index();
    store(&mut index, A, ahead(None, &[1], &[77, 77], &[7]));
    let keys = index.key_plan().keys(&BASE, &PROMPT);
    index.speculate(A, &keys, Millis(100));
    assert_eq!(hit(&index, A, &PROMPT), 6);
    store(&mut index, A, ahead(None, &[10, 11], &PROMPT[..4], &[3, 5]));
    index.expire(Millis(100));
    assert_eq!(hit(&index, A, &PROMPT), 2);
}

#[test]
fn a_block_aside_keeps_its_tokens_ahead() {
    let mut index = index();
    store(&mut index, A, ahead(Some(10), &[11, 12], &PROMPT[2..6], &[5, 7]));
    store(&mut index, A, ahead(None, &[10], &PROMPT[..2], &[3]));
    assert_eq!(hit(&index, A, &PROMPT), 4);
}

#[test]
fn blocks_with_other_numbers_of_tokens_ahead_give_no_hits() {
    let mut index = index();
    store(&mut index, A, ahead(None, &[10], &PROMPT[..2], &[3]));
    let two = Stored { lookahead: vec![vec![5, 6]], ..stored(Some(10), &[11], &PROMPT[2..4]) };
    store(&mut index, A, two);
    assert_eq!(index.stats().skipped.block_size, 1);
    let last_has_none =
        Stored { lookahead: vec![vec![5], vec![]], ..stored(Some(10), &[11, 12], &PROMPT[2..6]) };
    store(&mut index, A, last_has_none);
    assert_eq!(hit(&index, A, &PROMPT), 2);
    let many = Stored { lookahead: vec![vec![0; 65]], ..stored(None, &[20], &PROMPT[..2]) };
    store(&mut index, A, many);
    assert_eq!(index.stats().skipped.token_mismatch, 1);
}
