//! Blocks behind blocks that are not known.

use super::*;

const PROMPT: [u32; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];

/// A stream that joined late: the third to fifth block are told of, the first two not.
fn joined_late() -> Index {
    let mut index = index();
    store(&mut index, A, stored(Some(11), &[12, 13], &PROMPT[4..8]));
    store(&mut index, A, stored(Some(13), &[14], &PROMPT[8..10]));
    index
}

fn aside(index: &Index) -> usize {
    assert_eq!(index.stats().aside.blocks, index.stream_stats(A).unwrap().aside);
    index.stats().aside.blocks
}

/// C15: after a restart of ours, children of unknown blocks are kept, not dropped.
#[test]
fn c15_blocks_behind_an_unknown_one_get_their_place_when_it_is_told() {
    let mut index = joined_late();
    assert_eq!((hit(&index, A, &PROMPT), aside(&index)), (0, 3));
    store(&mut index, A, stored(None, &[10], &PROMPT[..2]));
    assert_eq!((hit(&index, A, &PROMPT), aside(&index)), (2, 3), "the second is not known");
    store(&mut index, A, stored(Some(10), &[11], &PROMPT[2..4]));
    assert_eq!((hit(&index, A, &PROMPT), aside(&index)), (10, 0));
    let stats = index.stats();
    assert_eq!((stats.aside, stats.skipped.unknown_parent), (AsideStats { attached: 3, ..stats.aside }, 0));
    assert_eq!((stats.references, stats.blocks, stats.aside.bytes), (5, 5, 0));
}

#[test]
fn a_parent_may_come_in_the_middle_of_an_event() {
    let mut index = joined_late();
    store(&mut index, A, stored(None, &[10, 11, 15], &[1, 2, 3, 4, 99, 99]));
    assert_eq!((hit(&index, A, &PROMPT), hit(&index, A, &[1, 2, 3, 4, 99, 99, 9])), (10, 6));
}

#[test]
fn an_event_that_begins_behind_an_unknown_block_may_go_on_behind_a_known_one() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10, 11], &PROMPT[..4]));
    remove(&mut index, A, &[10]);
    store(&mut index, A, stored(Some(10), &[11, 12], &PROMPT[2..6]));
    store(&mut index, A, stored(None, &[10], &PROMPT[..2]));
    assert_eq!((hit(&index, A, &PROMPT), aside(&index)), (6, 0));
}

#[test]
fn a_removed_block_is_not_held_when_its_place_is_known_and_neither_is_its_memory() {
    let mut index = joined_late();
    store(&mut index, A, stored(Some(11), &[12], &PROMPT[4..6]));
    remove(&mut index, A, &[13]);
    remove(&mut index, A, &[12]);
    assert_eq!((aside(&index), index.stats().references), (3, 2), "others wait behind the removed one");
    store(&mut index, A, stored(None, &[10, 11], &PROMPT[..4]));
    assert_eq!(hit(&index, A, &PROMPT), 6);
    assert_eq!(index.stats().unknown_removals, 0);
    remove(&mut index, A, &[12]);
    assert_eq!(hit(&index, A, &PROMPT), 4, "the copy stored twice is gone as well");

    let mut index = joined_late();
    remove(&mut index, A, &[12, 13]);
    assert_eq!(aside(&index), 3);
    remove(&mut index, A, &[14]);
    let stats = index.stats();
    assert_eq!(
        (stats.aside.blocks, stats.aside.bytes, stats.references, stats.unknown_removals),
        (0, 0, 0, 0)
    );
}

#[test]
fn a_clear_drops_what_is_aside() {
    for cause in [ClearCause::EngineCleared, ClearCause::Restarted, ClearCause::EventsLost] {
        let mut index = joined_late();
        index.clear(A, cause);
        assert_eq!((aside(&index), index.stats().aside.bytes, index.stats().references), (0, 0, 0));
        store(&mut index, A, stored(None, &[10, 11], &PROMPT[..4]));
        assert_eq!(hit(&index, A, &PROMPT), 4);
    }
}

#[test]
fn many_blocks_get_their_places_in_slices() {
    let mut index = limited(IndexLimits { attached_max: 4, ..IndexLimits::default() });
    let tokens: Vec<u32> = (0..41).collect();
    let hashes: Vec<u64> = (1..20).collect();
    store(&mut index, A, stored(Some(0), &hashes, &tokens[2..40]));
    store(&mut index, A, stored(None, &[0], &tokens[..2]));
    assert_eq!((hit(&index, A, &tokens), aside(&index)), (10, 15));
    apply(&mut index, A, vec![]);
    assert_eq!((hit(&index, A, &tokens), aside(&index)), (18, 11), "with the next batch");
    index.expire(Millis(0));
    assert_eq!((hit(&index, A, &tokens), aside(&index)), (26, 7), "and with time");
    // The block that the rest is behind goes, so they wait on for it.
    remove(&mut index, A, &[16]);
    index.expire(Millis(0));
    assert_eq!((hit(&index, A, &tokens), aside(&index)), (32, 3));
    store(&mut index, A, stored(Some(15), &[16], &tokens[32..34]));
    assert_eq!((hit(&index, A, &tokens), aside(&index)), (40, 0));
    assert_eq!(index.stats().aside.attached, 19);
}

#[test]
fn many_blocks_behind_the_same_one_are_sliced_as_well() {
    let mut index = limited(IndexLimits { attached_max: 4, ..IndexLimits::default() });
    for hash in 1..=10 {
        store(&mut index, A, stored(Some(0), &[hash], &[7, u32::try_from(hash).expect("small")]));
    }
    store(&mut index, A, stored(None, &[0], &[7, 7]));
    for left in [6, 2, 0] {
        assert_eq!(aside(&index), left);
        index.expire(Millis(0));
    }
    assert!((1..=10).all(|last| hit(&index, A, &[7, 7, 7, last, 9]) == 4));
}

/// Bytes that one block of two tokens takes.
fn block_bytes() -> usize {
    joined_late().stats().aside.bytes / 3
}

#[test]
fn at_the_limit_of_a_stream_its_oldest_blocks_are_dropped() {
    let limits = IndexLimits { stream_aside_bytes_max: 2 * block_bytes(), ..IndexLimits::default() };
    let mut index = limited(limits);
    store(&mut index, A, stored(Some(9), &[10, 11, 12], &PROMPT[2..8]));
    assert_eq!((aside(&index), index.stats().skipped.unknown_parent), (2, 1));
    assert_eq!(index.stats().references, 2);
    store(&mut index, A, stored(None, &[9], &PROMPT[..2]));
    assert_eq!(aside(&index), 2, "the one behind it is gone, so the others wait on");
    store(&mut index, A, stored(Some(9), &[10], &PROMPT[2..4]));
    assert_eq!((hit(&index, A, &PROMPT), aside(&index)), (8, 0));
}

#[test]
fn at_the_limit_of_all_the_oldest_block_of_any_stream_is_dropped() {
    let limits = IndexLimits { aside_bytes_max: 3 * block_bytes(), ..IndexLimits::default() };
    let mut index = limited(limits);
    store(&mut index, A, stored(Some(9), &[10, 11], &PROMPT[2..6]));
    store(&mut index, B, stored(Some(9), &[10, 11, 12], &PROMPT[2..8]));
    let aside = |stream| index.stream_stats(stream).unwrap().aside;
    assert_eq!((aside(A), aside(B)), (0, 3));
    assert_eq!((index.stats().skipped.unknown_parent, index.stats().references), (2, 3));
    index.remove_stream(B);
    assert_eq!((index.stats().aside.bytes, index.stats().references), (0, 0));
}

#[test]
fn memory_of_what_was_aside_is_given_back() {
    let mut index = index();
    for hash in 0..10_000_u64 {
        let token = u32::try_from(hash).expect("small");
        store(&mut index, A, stored(Some(9), &[100 + hash], &[token, token]));
    }
    let most = index.stats().aside.bytes;
    remove(&mut index, A, &(0..9_990_u64).map(|hash| 100 + hash).collect::<Vec<_>>());
    assert_eq!((aside(&index), index.stats().aside.bytes), (10, most / 1000));
    let stream = index.streams.by_id(A).expect("a stream");
    assert!(stream.aside.capacity() < 200 && stream.pool.capacity() < 200, "tables are small again");
}

#[test]
fn a_hash_aside_that_comes_with_another_parent_keeps_the_first() {
    let mut index = joined_late();
    store(&mut index, A, stored(Some(99), &[13, 55], &[0, 0, 0, 0]));
    assert_eq!((aside(&index), index.stats().skipped.conflicting_hash), (3, 1));
}

#[test]
fn a_full_index_keeps_no_block_aside() {
    let limits = IndexLimits { stream_references_max: 2, ..IndexLimits::default() };
    let mut index = limited(limits);
    store(&mut index, A, stored(Some(9), &[10, 11, 12], &PROMPT[2..8]));
    assert_eq!((aside(&index), index.stats().skipped.capacity), (2, 1));
}

/// Extras and groups stay with a block while it is aside.
#[test]
fn a_block_aside_keeps_its_extras_and_the_copies_of_other_groups() {
    let mut index = index();
    let media = RawExtra::Media { id: "image".into(), offset: 0 };
    let image = Stored { extra_keys: vec![vec![media.clone()]], ..stored(Some(10), &[11], &PROMPT[2..4]) };
    store(&mut index, A, image.clone());
    store(&mut index, A, stored(None, &[10], &PROMPT[..2]));
    assert_eq!((hit(&index, A, &PROMPT), aside(&index)), (2, 0), "text is not the image");
    store(&mut index, B, stored(None, &[20], &PROMPT[..2]));
    store(&mut index, B, Stored { parent: Some(EngineHash(20)), ..image });
    assert_eq!(index.stats().blocks, 2, "the same block");

    let full = |stored| Stored { group: Group { index: Some(1), kind: Some(GroupKind::Full) }, ..stored };
    let window = Group { index: Some(0), kind: Some(GroupKind::SlidingWindow { tokens: 3 }) };
    let mut index = limited(IndexLimits::default());
    store(&mut index, A, Stored { group: window, ..stored(Some(10), &[11], &PROMPT[2..4]) });
    store(&mut index, A, full(stored(Some(10), &[11], &PROMPT[2..4])));
    store(&mut index, A, full(stored(None, &[10], &PROMPT[..2])));
    assert_eq!(hit(&index, A, &PROMPT), 4);
    let gone = Removed { group: Some(0), ..removed(&[11]) };
    apply(&mut index, A, vec![Event::Removed(gone)]);
    assert_eq!(hit(&index, A, &PROMPT), 0);
}

mod recognized {
    use super::*;

    /// The engine's hashes of the prompt's five blocks.
    const HASHES: [EngineHash; 5] =
        [EngineHash(10), EngineHash(11), EngineHash(12), EngineHash(13), EngineHash(14)];

    fn recognize(index: &mut Index, prompt: &[u32]) -> u64 {
        let keys = index.key_plan().keys(&BASE, prompt);
        index.recognize(A, &keys, &HASHES)
    }

    #[test]
    fn what_an_engine_read_before_we_heard_of_it_is_held() {
        let mut index = joined_late();
        assert!(index.awaits(A) && !index.awaits(B));
        assert!(index.would_recognize(A, &HASHES) && !index.would_recognize(B, &HASHES));
        assert!(!index.would_recognize(A, &HASHES[..1]), "nothing waits behind the first");
        assert_eq!(recognize(&mut index, &PROMPT), 2);
        assert_eq!((hit(&index, A, &PROMPT), aside(&index)), (10, 0));
        assert_eq!(
            index.stats().admissions,
            Admissions { stored: 3, recognized: 2, ..Admissions::default() }
        );
        assert!(!index.awaits(A));
        remove(&mut index, A, &[11]);
        assert_eq!(hit(&index, A, &PROMPT), 2, "its removal shows");
        assert_eq!(recognize(&mut index, &PROMPT), 0, "for good");
    }

    #[test]
    fn what_was_removed_since_is_not_held_any_more() {
        for gone in [10, 11] {
            let mut index = joined_late();
            remove(&mut index, A, &[gone]);
            assert_eq!(recognize(&mut index, &PROMPT), 1);
            assert_eq!(hit(&index, A, &PROMPT), if gone == 10 { 0 } else { 2 });
            assert_eq!(aside(&index), 0, "places are known all the same");
            let parent = (gone == 11).then_some(10);
            let at = if gone == 11 { 2..4 } else { 0..2 };
            store(&mut index, A, stored(parent, &[gone], &PROMPT[at]));
            assert_eq!(hit(&index, A, &PROMPT), 10, "until it is stored again");
        }
    }

    #[test]
    fn what_was_removed_after_it_was_told_is_not_taken_for_held() {
        let mut index = joined_late();
        store(&mut index, A, stored(None, &[10], &PROMPT[..2]));
        remove(&mut index, A, &[10]);
        assert_eq!(recognize(&mut index, &PROMPT), 1);
        assert_eq!(hit(&index, A, &PROMPT), 0);
    }

    #[test]
    fn a_prompt_that_parts_before_the_awaited_block_shows_nothing() {
        let mut index = joined_late();
        let keys = index.key_plan().keys(&BASE, &[1, 2, 9, 9, 9]);
        assert_eq!(index.recognize(A, &keys, &[EngineHash(10), EngineHash(77)]), 0);
        assert_eq!(aside(&index), 3);
        assert_eq!(recognize(&mut index, &PROMPT[..3]), 0, "ends before it");
        assert_eq!(index.recognize(StreamId(9), &keys, &HASHES), 0);
        assert_eq!(index.stats().blocks, 0);
    }

    #[test]
    fn a_prompt_that_ends_with_the_awaited_block_gives_the_others_their_place() {
        let mut index = joined_late();
        assert_eq!(recognize(&mut index, &PROMPT[..4]), 2);
        assert_eq!(hit(&index, A, &PROMPT), 10);
    }

    #[test]
    fn removals_that_could_not_be_remembered_end_what_blocks_aside_show() {
        let mut index = joined_late();
        for hash in 0..(1 << 16) + 1 {
            remove(&mut index, A, &[1000 + hash]);
        }
        assert_eq!(recognize(&mut index, &PROMPT), 0);
        store(&mut index, A, stored(Some(11), &[22], &[9, 9]));
        assert_eq!(recognize(&mut index, &PROMPT), 2, "a newer one");
        assert_eq!(hit(&index, A, &PROMPT), 10);
    }

    /// Of several groups, those with full attention held the whole prefix; of the others nothing is concluded, so a hit ends
    /// where they were heard of.
    #[test]
    fn of_several_groups_those_with_full_attention_are_recognized() {
        let of = |index, kind| Group { index: Some(index), kind: Some(kind) };
        let window = of(0, GroupKind::SlidingWindow { tokens: 3 });
        let joined_late = || {
            let mut index = index();
            let ends = stored(Some(11), &[12, 13], &PROMPT[4..8]);
            store(&mut index, A, Stored { group: of(1, GroupKind::Full), ..ends });
            store(&mut index, A, Stored { group: window, ..stored(Some(11), &[13], &PROMPT[4..8]) });
            assert!(index.awaits(A));
            index
        };
        let mut index = joined_late();
        let gone = Removed { group: Some(0), ..removed(&[11]) };
        apply(&mut index, A, vec![Event::Removed(gone)]);
        assert_eq!(recognize(&mut index, &PROMPT), 2);
        assert_eq!(hit(&index, A, &PROMPT), 8);
        assert_eq!(hit(&index, A, &PROMPT[..8]), 0, "where the window holds nothing");

        let mut index = joined_late();
        let gone = Removed { group: Some(1), ..removed(&[11]) };
        apply(&mut index, A, vec![Event::Removed(gone)]);
        assert_eq!(recognize(&mut index, &PROMPT), 1, "the second has gone from the group that counts");
        assert_eq!(hit(&index, A, &PROMPT), 0);
    }

    /// A removal of a group that was not heard of yet may be one of a group with full attention.
    #[test]
    fn what_an_unknown_group_removed_is_not_recognized() {
        let mut index = joined_late();
        let gone = Removed { group: Some(1), ..removed(&[11]) };
        apply(&mut index, A, vec![Event::Removed(gone)]);
        let other = Group { index: Some(1), kind: Some(GroupKind::Full) };
        store(&mut index, A, Stored { group: other, ..stored(None, &[90], &[9, 9]) });
        assert_eq!(recognize(&mut index, &PROMPT), 1);
        assert_eq!(hit(&index, A, &PROMPT), 2);
    }
}
