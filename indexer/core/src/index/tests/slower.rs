//! Blocks in host memory, on disks and in stores.

use super::*;

const PROMPT: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

fn in_medium(medium: Medium, stored: Stored) -> Stored {
    Stored { medium, ..stored }
}

/// By hash alone, as the offloading connector tells.
fn placeholder(medium: Medium, hashes: &[u64]) -> Stored {
    Stored { medium, block_size: 0, ..stored(None, hashes, &[]) }
}

fn remove_from(index: &mut Index, medium: Medium, hashes: &[u64]) {
    apply(index, A, vec![Event::Removed(Removed { medium, ..removed(hashes) })]);
}

/// Tokens held in the main pool, and with slower media.
fn both(index: &Index) -> (u32, u32) {
    (hit(index, A, &PROMPT), hit_with_slower(index, A, &PROMPT))
}

#[test]
fn c24_a_block_that_moves_to_the_host_is_a_slower_hit_and_its_removal_there_ends_it() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10, 11, 12], &PROMPT[..6]));
    store(&mut index, A, placeholder(Medium::Cpu, &[11, 12]));
    assert_eq!(both(&index), (6, 6));
    remove(&mut index, A, &[12, 11]);
    assert_eq!(both(&index), (2, 6), "a cheaper hit");
    remove_from(&mut index, Medium::Disk, &[12]);
    assert_eq!(both(&index), (2, 6), "another medium");
    remove_from(&mut index, Medium::Cpu, &[12]);
    assert_eq!(both(&index), (2, 4));
    remove(&mut index, A, &[10]);
    assert_eq!(both(&index), (0, 0));
    remove_from(&mut index, Medium::Cpu, &[11]);
    let stats = index.stats();
    assert_eq!((stats.references, stats.blocks, stats.unknown_removals), (0, 0, 1));
    assert_eq!((stats.admissions.slower, stats.removals.slower), (2, 2));
}

/// C26: what is not told of is not known.
#[test]
fn c26_an_engine_that_tells_of_its_main_pool_only_has_no_slower_hits() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10, 11], &PROMPT[..4]));
    assert_eq!(both(&index), (4, 4));
    assert_eq!(index.stream_stats(A).map(|s| (s.slower_blocks, s.has_other_media)), Some((0, false)));
}

#[test]
fn a_prompt_may_go_on_in_the_main_pool_behind_blocks_that_are_elsewhere() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10, 11, 12, 13], &PROMPT[..8]));
    store(&mut index, A, placeholder(Medium::Cpu, &[10]));
    store(&mut index, A, placeholder(Medium::Storage, &[12]));
    remove(&mut index, A, &[10, 12]);
    assert_eq!(both(&index), (0, 8));
    let mut hits = Hits::default();
    index.hits(&index.key_plan().keys(&BASE, &PROMPT), &mut hits);
    assert_eq!((hits.as_slice(), hits.slower()), (&[][..], &[Hit { stream: A, tokens: 8 }][..]));
}

#[test]
fn a_block_in_two_media_is_held_until_both_have_removed_it() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10], &PROMPT[..2]));
    store(&mut index, A, placeholder(Medium::Cpu, &[10]));
    store(&mut index, A, placeholder(Medium::Cpu, &[10]));
    store(&mut index, A, placeholder(Medium::Disk, &[10]));
    remove(&mut index, A, &[10]);
    for (medium, left) in [(Medium::Cpu, 2), (Medium::Disk, 2), (Medium::Cpu, 0)] {
        remove_from(&mut index, medium, &[10]);
        assert_eq!(both(&index), (0, left), "{medium:?}");
    }
}

#[test]
fn blocks_told_with_their_tokens_find_their_place_by_them() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10], &PROMPT[..2]));
    store(&mut index, A, in_medium(Medium::Cpu, stored(None, &[10, 11], &PROMPT[..4])));
    store(&mut index, A, in_medium(Medium::Disk, stored(Some(11), &[12], &PROMPT[4..6])));
    assert_eq!(both(&index), (2, 6));
    // The main pool's own blocks may follow one that is elsewhere.
    store(&mut index, A, stored(Some(12), &[13], &PROMPT[6..8]));
    assert_eq!(both(&index), (2, 8));
    let other = in_medium(Medium::Cpu, Stored { block_size: 3, ..stored(None, &[90], &[1, 2, 3]) });
    store(&mut index, A, other);
    let short = in_medium(Medium::Cpu, stored(None, &[90], &[1]));
    store(&mut index, A, short);
    let skipped = index.stats().skipped;
    assert_eq!((skipped.block_size, skipped.token_mismatch), (1, 1));
}

#[test]
fn blocks_elsewhere_wait_for_their_place_as_others_do() {
    let mut index = index();
    store(&mut index, A, stored(None, &[90], &[9, 9]));
    store(&mut index, A, in_medium(Medium::Cpu, stored(Some(10), &[11], &PROMPT[2..4])));
    store(&mut index, A, placeholder(Medium::Disk, &[12]));
    store(&mut index, A, stored(Some(11), &[12], &PROMPT[4..6]));
    assert_eq!((both(&index), index.stats().aside.blocks), ((0, 0), 2));
    store(&mut index, A, stored(None, &[10], &PROMPT[..2]));
    assert_eq!((both(&index), index.stats().aside.blocks), ((2, 6), 0));
    remove(&mut index, A, &[12]);
    assert_eq!(both(&index), (2, 6), "on disk as well");
}

/// Blocks in a slower medium do not show that what is before them is in the main pool.
#[test]
fn what_waits_in_a_slower_medium_shows_nothing_of_the_main_pool() {
    let mut index = index();
    store(&mut index, A, stored(None, &[90], &[9, 9]));
    store(&mut index, A, in_medium(Medium::Cpu, stored(Some(10), &[11], &PROMPT[2..4])));
    let keys = index.key_plan().keys(&BASE, &PROMPT);
    assert_eq!(index.recognize(A, &keys, &[EngineHash(10), EngineHash(11)]), 0);
    store(&mut index, A, stored(Some(10), &[11], &PROMPT[2..4]));
    assert_eq!(index.recognize(A, &keys, &[EngineHash(10), EngineHash(11)]), 1);
    assert_eq!(both(&index), (4, 4));
}

/// LMCache stores several of the engine's blocks under one hash.
#[test]
fn a_hash_may_stand_for_several_blocks() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10], &PROMPT[..2]));
    let chunk = |parent, hash, tokens| {
        in_medium(Medium::Cpu, Stored { block_size: 4, ..stored(parent, &[hash], tokens) })
    };
    store(&mut index, A, chunk(None, 70, &PROMPT[..4]));
    store(&mut index, A, chunk(Some(70), 71, &PROMPT[4..8]));
    assert_eq!(both(&index), (2, 8));
    assert_eq!(both_of(&index, &PROMPT[..7]), (2, 6), "the half of one counts");
    let narrow = in_medium(Medium::Cpu, stored(Some(71), &[72], &[8, 9]));
    store(&mut index, A, narrow);
    assert_eq!(index.stats().skipped.block_size, 1);
    remove_from(&mut index, Medium::Cpu, &[70]);
    assert_eq!(both(&index), (2, 2));
    remove_from(&mut index, Medium::Cpu, &[71]);
    assert_eq!((index.stats().references, index.stats().unknown_removals), (1, 0));
}

fn both_of(index: &Index, prompt: &[u32]) -> (u32, u32) {
    (hit(index, A, prompt), hit_with_slower(index, A, prompt))
}

#[test]
fn media_without_removals_age_and_others_do_not() {
    let limits = IndexLimits { unremoved_ms_max: 100, ..IndexLimits::default() };
    let mut index = limited(limits);
    store(&mut index, A, stored(None, &[10, 11], &PROMPT[..4]));
    index.expire(Millis(1000));
    store(&mut index, A, placeholder(Medium::Storage, &[10, 12]));
    store(&mut index, A, placeholder(Medium::Cpu, &[11, 13]));
    remove_from(&mut index, Medium::Cpu, &[13]);
    remove(&mut index, A, &[10, 11]);
    index.expire(Millis(1050));
    store(&mut index, A, placeholder(Medium::Storage, &[10]));
    index.expire(Millis(1100));
    assert_eq!(both(&index), (0, 4), "one of two copies is left");
    index.expire(Millis(1149));
    assert_eq!(both(&index), (0, 4));
    index.expire(Millis(1150));
    assert_eq!(both(&index), (0, 0));
    assert_eq!(index.stream_stats(A).map(|stats| stats.slower_blocks), Some(1), "the one whose medium tells");
    assert_eq!((index.stats().references, index.stats().unknown_removals), (1, 0));
}

#[test]
fn an_emptied_main_pool_leaves_the_slower_media_and_a_restart_does_not() {
    for cause in [ClearCause::EngineCleared, ClearCause::Restarted, ClearCause::EventsLost] {
        let mut index = index();
        store(&mut index, A, stored(None, &[10, 11], &PROMPT[..4]));
        store(&mut index, A, placeholder(Medium::Cpu, &[10]));
        index.clear(A, cause);
        let is_left = cause == ClearCause::EngineCleared;
        assert_eq!(both(&index), if is_left { (0, 2) } else { (0, 0) }, "{cause:?}");
        assert_eq!((index.stats().references, index.stats().blocks), if is_left { (1, 1) } else { (0, 0) });
        index.remove_stream(A);
        assert_eq!((index.stats().references, index.stats().blocks), (0, 0));
        index.add_stream(StreamId(7), "m");
        index.set_trust(StreamId(7), Trust::Live);
        store(&mut index, StreamId(7), stored(None, &[10], &PROMPT[..2]));
        assert_eq!(hit(&index, StreamId(7), &PROMPT), 2, "the slots are used again");
    }
}

#[test]
fn only_trusted_streams_give_slower_hits() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10], &PROMPT[..2]));
    store(&mut index, A, placeholder(Medium::Cpu, &[10]));
    remove(&mut index, A, &[10]);
    assert_eq!(both(&index), (0, 2));
    index.set_trust(A, Trust::Silent);
    assert_eq!(both(&index), (0, 0));
}

/// With several groups, a block elsewhere counts by its full-attention group.
#[test]
fn window_groups_of_slower_media_are_passed_over() {
    let mut index = index();
    let window = Group { index: Some(0), kind: Some(GroupKind::SlidingWindow { tokens: 3 }) };
    let full = Group { index: Some(1), kind: Some(GroupKind::Full) };
    store(&mut index, A, Stored { group: window, ..stored(None, &[10, 11], &PROMPT[..4]) });
    store(&mut index, A, Stored { group: full, ..stored(None, &[10, 11], &PROMPT[..4]) });
    store(&mut index, A, Stored { group: Group { kind: None, ..window }, ..placeholder(Medium::Cpu, &[10]) });
    store(&mut index, A, Stored { group: Group { kind: None, ..full }, ..placeholder(Medium::Cpu, &[11]) });
    for group in [0, 1] {
        let gone = Removed { group: Some(group), ..removed(&[11]) };
        apply(&mut index, A, vec![Event::Removed(gone)]);
    }
    assert_eq!(both(&index), (2, 4));
    let gone = Removed { medium: Medium::Cpu, group: Some(0), ..removed(&[11]) };
    apply(&mut index, A, vec![Event::Removed(gone)]);
    assert_eq!(both(&index), (2, 4));
    assert_eq!(index.stats().skipped.other_medium, 2);
}

#[test]
fn slower_media_share_the_stream_s_room() {
    let limits = IndexLimits { stream_references_max: 2, ..IndexLimits::default() };
    let mut index = limited(limits);
    store(&mut index, A, stored(None, &[10], &PROMPT[..2]));
    store(&mut index, A, placeholder(Medium::Cpu, &[11, 12]));
    assert_eq!((index.stats().references, index.stats().skipped.capacity), (2, 1));
}
