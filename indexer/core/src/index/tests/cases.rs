//! Single situations, most of them from defects that were seen in other routers.

use super::*;

const PROMPT: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

fn text(text: &str) -> RawExtra {
    RawExtra::Text(text.into())
}

#[test]
fn s7_the_parent_of_a_block_in_an_event_is_the_block_before_it() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10, 11, 12, 13], &PROMPT[..8]));
    assert_eq!(hit(&index, A, &PROMPT), 8);
    assert_eq!(hit(&index, A, &[1, 2, 5, 6, 9]), 2, "first and third block");
}

#[test]
fn s8_a_removal_of_one_holder_keeps_the_other() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10, 11], &PROMPT[..4]));
    store(&mut index, B, stored(None, &[10, 11], &PROMPT[..4]));
    remove(&mut index, A, &[10, 11]);
    assert_eq!(hit(&index, A, &PROMPT), 0);
    assert_eq!(hit(&index, B, &PROMPT), 4);
}

#[test]
fn s11_equal_tokens_at_another_place_are_another_block() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10, 11], &[1, 2, 1, 2]));
    assert_eq!(hit(&index, A, &[1, 2, 1, 2, 1, 2, 9]), 4);
    remove(&mut index, A, &[11]);
    assert_eq!(hit(&index, A, &[1, 2, 1, 2, 9]), 2);
    assert_eq!(hit(&index, A, &[3, 4, 1, 2, 9]), 0);
}

#[test]
fn c2_a_cleared_cache_gives_no_hits_whatever_was_stored_more_than_once() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10, 11], &PROMPT[..4]));
    store(&mut index, A, stored(None, &[10, 11], &PROMPT[..4]));
    store(&mut index, B, stored(None, &[10], &PROMPT[..2]));
    let batch = Batch { events: vec![Event::Cleared], ..Batch::default() };
    assert!(index.apply(A, &batch, Origin::Published), "told that it emptied the cache");
    assert_eq!(hit(&index, A, &PROMPT), 0);
    assert_eq!(hit(&index, B, &PROMPT), 2);
    assert_eq!(index.stats().removals.engine_cleared, 2);
}

#[test]
fn c4_events_of_a_removed_stream_add_nothing() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10, 11], &PROMPT[..4]));
    index.remove_stream(A);
    for _ in 0..1000 {
        store(&mut index, A, stored(None, &[10, 11], &PROMPT[..4]));
    }
    let stats = index.stats();
    assert_eq!((stats.blocks, stats.references, stats.streams), (0, 0, 1));
    assert_eq!((stats.skipped.unknown_stream, stats.removals.endpoint_gone), (1000, 2));
}

#[test]
fn c13_an_unknown_hash_in_a_removal_does_not_stop_the_known_ones() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10], &PROMPT[..2]));
    remove(&mut index, A, &[99, 10, 98]);
    assert_eq!(hit(&index, A, &PROMPT), 0);
    assert_eq!(index.stats().unknown_removals, 2);
}

#[test]
fn c17_ranks_of_one_endpoint_are_streams_of_their_own() {
    let mut index = index();
    for rank in [A, B] {
        store(&mut index, rank, stored(None, &[10], &PROMPT[..2]));
    }
    remove(&mut index, A, &[10]);
    assert_eq!((hit(&index, A, &PROMPT), hit(&index, B, &PROMPT)), (0, 2));
}

#[test]
fn c18_an_adapter_named_in_the_extra_keys_is_no_media_item() {
    let mut index = index();
    let adapter = Stored {
        lora_name: Some("a".into()),
        has_lora_id: true,
        extra_keys: vec![vec![text("a")], vec![text("a")]],
        ..stored(None, &[10, 11], &PROMPT[..4])
    };
    store(&mut index, A, adapter);
    let lora = Namespace { lora: Some("a"), ..BASE };
    assert_eq!(hit_in(&index, &lora, A, &PROMPT), 4);
    assert_eq!(hit(&index, A, &PROMPT), 0);
}

#[test]
fn c19_base_model_and_adapter_share_no_block() {
    let mut index = index();
    let adapter = Stored { lora_name: Some("a".into()), ..stored(None, &[10], &PROMPT[..2]) };
    store(&mut index, A, adapter);
    store(&mut index, B, stored(None, &[20], &PROMPT[..2]));
    let lora = Namespace { lora: Some("a"), ..BASE };
    assert_eq!((hit(&index, A, &PROMPT), hit_in(&index, &lora, A, &PROMPT)), (0, 2));
    assert_eq!((hit(&index, B, &PROMPT), hit_in(&index, &lora, B, &PROMPT)), (2, 0));
}

#[test]
fn c20_an_adapter_is_known_by_its_name_never_by_its_number() {
    let mut index = index();
    let named = |hash| Stored {
        lora_name: Some("a".into()),
        has_lora_id: true,
        ..stored(None, &[hash], &PROMPT[..2])
    };
    store(&mut index, A, named(10));
    store(&mut index, B, named(20));
    assert_eq!(index.stats().blocks, 1, "one key for both");

    let unnamed = Stored { has_lora_id: true, ..stored(None, &[30], &PROMPT[..2]) };
    store(&mut index, A, unnamed);
    assert_eq!(hit(&index, A, &PROMPT), 0);
    assert_eq!(index.stats().skipped.unnamed_lora, 1);
}

#[test]
fn c21_a_prompt_shorter_than_a_block_hits_nothing() {
    let mut index = index();
    let tokens: Vec<u32> = (0..784).collect();
    store(&mut index, A, Stored { block_size: 784, ..stored(None, &[10], &tokens) });
    assert_eq!(hit(&index, A, &tokens[..500]), 0);
    assert_eq!(hit(&index, A, &tokens), 0, "the last token is always computed");
    assert_eq!(hit(&index, A, &(0..785).collect::<Vec<_>>()), 784);
    assert_eq!(index.stream_stats(A).and_then(|stats| stats.block_size), Some(784));
}

/// SGLang's pages often have one token.
#[test]
fn blocks_of_one_token_are_blocks_like_others() {
    let mut index = index();
    store(&mut index, A, Stored { block_size: 1, ..stored(None, &[1, 2, 3], &PROMPT[..3]) });
    store(&mut index, A, Stored { block_size: 1, ..stored(Some(3), &[4], &PROMPT[3..4]) });
    assert_eq!((hit(&index, A, &PROMPT), hit(&index, A, &PROMPT[..3])), (4, 2));
    remove(&mut index, A, &[2]);
    assert_eq!(hit(&index, A, &PROMPT), 1);
}

#[test]
fn c29_and_c30_the_engines_hashes_do_not_matter() {
    let mut index = index();
    store(&mut index, A, stored(None, &[0xdead, 0xbeef], &PROMPT[..4]));
    store(&mut index, B, stored(None, &[7, u64::MAX], &PROMPT[..4]));
    assert_eq!((hit(&index, A, &PROMPT), hit(&index, B, &PROMPT)), (4, 4));
    assert_eq!(index.stats().blocks, 2);
    // A child of a block that was never told of is kept aside, and so are its children.
    store(&mut index, A, stored(Some(0xabcd), &[1, 2], &PROMPT[4..8]));
    store(&mut index, A, stored(Some(2), &[3], &PROMPT[..2]));
    assert_eq!(index.stats().aside.blocks, 3);
    assert_eq!(index.stats().blocks, 2);
}

#[test]
fn a_block_stored_three_times_is_held_until_it_is_removed_three_times() {
    let mut index = index();
    for _ in 0..3 {
        store(&mut index, A, stored(None, &[10], &PROMPT[..2]));
    }
    for held in [2, 2, 0] {
        remove(&mut index, A, &[10]);
        assert_eq!(hit(&index, A, &PROMPT), held);
    }
    assert_eq!(index.stats().admissions.stored, 1);
    assert_eq!(index.stats().removals.engine_removed, 1);
}

#[test]
fn copies_beyond_the_cap_leave_no_more_than_the_cap_behind() {
    let mut index = index();
    for _ in 0..1000 {
        store(&mut index, A, stored(None, &[10], &PROMPT[..2]));
    }
    assert_eq!(index.stats().skipped.copies, 1000 - u64::from(references::COPIES_MAX));
    for _ in 0..references::COPIES_MAX {
        assert_eq!(hit(&index, A, &PROMPT), 2);
        remove(&mut index, A, &[10]);
    }
    assert_eq!(hit(&index, A, &PROMPT), 0);
    assert_eq!(index.stats().references, 0);
}

#[test]
fn a_hit_never_reaches_the_last_token() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10, 11], &PROMPT[..4]));
    assert_eq!(hit(&index, A, &PROMPT[..5]), 4);
    assert_eq!(hit(&index, A, &PROMPT[..4]), 2);
    assert_eq!(hit(&index, A, &PROMPT[..2]), 0);
    assert_eq!(hit(&index, A, &[]), 0);
}

#[test]
fn a_stream_is_known_to_have_another_medium_until_its_engine_restarts() {
    let has = |index: &Index, stream| index.stream_stats(stream).unwrap().has_other_media;
    let told = Stored { medium: Medium::Cpu, ..stored(None, &[10], &PROMPT[..2]) };
    let taken = Removed { medium: Medium::Cpu, ..removed(&[10]) };
    for event in [Event::Stored(Box::new(told)), Event::Removed(taken)] {
        let mut index = index();
        store(&mut index, A, stored(None, &[10], &PROMPT[..2]));
        assert!(!has(&index, A));
        apply(&mut index, A, vec![event, Event::Cleared]);
        assert_eq!((has(&index, A), has(&index, B)), (true, false), "it outlives the main pool");
        index.clear(A, ClearCause::Restarted);
        assert!(!has(&index, A));
    }
}

#[test]
fn a_salt_separates_tenants_and_goes_on_through_the_chain() {
    let mut index = index();
    let salted =
        Stored { extra_keys: vec![vec![text("tenant")], vec![]], ..stored(None, &[10, 11], &PROMPT[..4]) };
    store(&mut index, A, salted);
    store(&mut index, A, stored(Some(11), &[12], &PROMPT[4..6]));
    let tenant = Namespace { salt: Some("tenant"), ..BASE };
    assert_eq!(hit_in(&index, &tenant, A, &PROMPT), 6);
    assert_eq!(hit(&index, A, &PROMPT), 0);
    let other = Namespace { lora: Some("tenant"), ..BASE };
    assert_eq!(hit_in(&index, &other, A, &PROMPT), 0);
}

#[test]
fn a_salt_may_stand_behind_adapter_and_media_or_in_a_field_of_its_own() {
    let mut index = index();
    let media = RawExtra::Media { id: "image".into(), offset: 0 };
    let behind = Stored {
        lora_name: Some("a".into()),
        extra_keys: vec![vec![text("a"), text("tenant")]],
        ..stored(None, &[10], &PROMPT[..2])
    };
    let field = Stored { cache_salt: Some("tenant".into()), ..stored(None, &[20], &PROMPT[..2]) };
    store(&mut index, A, behind);
    store(&mut index, B, field);
    let both = Namespace { lora: Some("a"), salt: Some("tenant"), ..BASE };
    assert_eq!(hit_in(&index, &both, A, &PROMPT), 2);
    assert_eq!(hit_in(&index, &Namespace { salt: Some("tenant"), ..BASE }, B, &PROMPT), 2);

    let with_media = Stored { extra_keys: vec![vec![media, text("tenant")]], ..stored(None, &[30], &[8, 8]) };
    store(&mut index, A, with_media);
    assert_eq!(
        hit_in(&index, &Namespace { salt: Some("tenant"), ..BASE }, A, &[8, 8, 8]),
        0,
        "another image"
    );
}

#[test]
fn blocks_with_media_are_not_those_without() {
    let mut index = index();
    let media = |id: &str, offset| RawExtra::Media { id: id.into(), offset };
    for (hash, extras) in [(10, media("one", 0)), (11, media("two", 0)), (12, media("one", 1))] {
        store(
            &mut index,
            A,
            Stored { extra_keys: vec![vec![extras]], ..stored(None, &[hash], &PROMPT[..2]) },
        );
    }
    assert_eq!(hit(&index, A, &PROMPT), 0);
    assert_eq!(index.stats().blocks, 3);
}

#[test]
fn only_trusted_streams_give_hits() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10], &PROMPT[..2]));
    for (trust, held) in [
        (Trust::Live, 2),
        (Trust::Recovering, 2),
        (Trust::Degraded(crate::stream::DegradedBy::JoinedLate), 2),
        (Trust::Stale(crate::stream::StaleBy::Disconnected), 0),
        (Trust::Silent, 0),
    ] {
        index.set_trust(A, trust);
        assert_eq!(hit(&index, A, &PROMPT), held, "{trust:?}");
    }
}

#[test]
fn streams_with_different_block_sizes_are_all_found() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10, 11], &PROMPT[..4]));
    store(&mut index, B, Stored { block_size: 4, ..stored(None, &[20, 21], &PROMPT[..8]) });
    assert_eq!((hit(&index, A, &PROMPT), hit(&index, B, &PROMPT)), (4, 8));
    store(&mut index, A, Stored { block_size: 4, ..stored(Some(11), &[12], &PROMPT[4..8]) });
    assert_eq!(index.stats().skipped.block_size, 1);
    // After a restart the engine may have another one.
    index.clear(A, ClearCause::Restarted);
    store(&mut index, A, Stored { block_size: 4, ..stored(None, &[12], &PROMPT[..4]) });
    assert_eq!(hit(&index, A, &PROMPT), 4);
}

#[test]
fn tokens_that_do_not_fill_the_blocks_are_skipped_and_so_are_placeholders() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10, 11], &PROMPT[..3]));
    store(&mut index, A, Stored { block_size: 0, ..stored(None, &[12], &[]) });
    let skipped = index.stats().skipped;
    assert_eq!((skipped.token_mismatch, skipped.placeholder), (2, 1));
    assert_eq!(index.stats().references, 0);
}

#[test]
fn one_hash_for_two_blocks_keeps_the_first() {
    let mut index = index();
    store(&mut index, A, stored(None, &[10], &[1, 2]));
    store(&mut index, A, stored(None, &[10], &[3, 4]));
    assert_eq!((hit(&index, A, &[1, 2, 9]), hit(&index, A, &[3, 4, 9])), (2, 0));
    assert_eq!(index.stats().skipped.conflicting_hash, 1);
}

/// C34: at the limit, new blocks are refused, so the early root that everyone uses is never the one to go.
#[test]
fn c34_a_full_index_keeps_the_prefix_that_came_first() {
    let limits = IndexLimits { references_max: 10, ..IndexLimits::default() };
    let mut index = limited(limits);
    store(&mut index, A, stored(None, &[1, 2], &PROMPT[..4]));
    for hash in 100..1100 {
        store(&mut index, B, stored(None, &[hash], &[u32::try_from(hash).expect("small"), 0]));
    }
    assert_eq!(hit(&index, A, &PROMPT), 4);
    assert_eq!(index.stats().references, 10);
    assert_eq!(index.stats().skipped.capacity, 1000 - 8);
    remove(&mut index, B, &[100]);
    store(&mut index, A, stored(Some(2), &[3, 4], &PROMPT[4..8]));
    assert_eq!(hit(&index, A, &PROMPT), 6, "room for one");
}

/// Engines evict the ends of prompts first, but one that does not must not fill the memory with beginnings.
#[test]
fn blocks_that_nobody_holds_any_more_are_bounded_as_well() {
    let limits = IndexLimits {
        references_max: 4,
        stream_references_max: 4,
        speculative_max: 2,
        ..IndexLimits::default()
    };
    let mut index = limited(limits);
    let mut hash = 0;
    let mut told = 0;
    for round in 0..20_u32 {
        let parent = (hash > 0).then_some(hash);
        hash += 1;
        store(&mut index, A, stored(parent, &[hash], &[round, round]));
        told += 1;
        if index.stats().skipped.capacity > 0 {
            break;
        }
        if let Some(parent) = parent {
            remove(&mut index, A, &[parent]);
        }
    }
    assert_eq!((index.stats().blocks, told), (10, 11), "two for each reference and one for each speculation");
    assert_eq!(index.stats().skipped.capacity, 1);
    store(&mut index, B, stored(None, &[7], &[90, 90]));
    assert_eq!(hit(&index, B, &[90, 90, 9]), 0, "no room for other blocks");
    let keys = index.key_plan().keys(&BASE, &[90, 90, 91, 91, 9]);
    index.speculate(A, &keys, Millis(100));
    assert_eq!(index.stats().skipped.speculative_capacity, 1);
    remove(&mut index, A, &[10]);
    assert_eq!(index.stats().blocks, 0);
    store(&mut index, B, stored(None, &[8], &[90, 90]));
    assert_eq!(hit(&index, B, &[90, 90, 9]), 2);
}

#[test]
fn one_stream_cannot_take_the_room_of_the_others() {
    let limits = IndexLimits { stream_references_max: 5, ..IndexLimits::default() };
    let mut index = limited(limits);
    for hash in 100..200 {
        store(&mut index, B, stored(None, &[hash], &[u32::try_from(hash).expect("small"), 0]));
    }
    store(&mut index, A, stored(None, &[1, 2], &PROMPT[..4]));
    assert_eq!(index.stats().references, 7);
    assert_eq!(hit(&index, A, &PROMPT), 4);
}

mod groups {
    use super::*;

    fn of_group(stored: Stored, index: u32, kind: Option<GroupKind>) -> Stored {
        Stored { group: Group { index: Some(index), kind }, ..stored }
    }

    fn full(stored: Stored) -> Stored {
        of_group(stored, 1, Some(GroupKind::Full))
    }

    /// A window of five tokens: the two blocks before a boundary.
    fn window(stored: Stored) -> Stored {
        of_group(stored, 0, Some(GroupKind::SlidingWindow { tokens: 5 }))
    }

    #[test]
    fn a_hit_ends_where_the_window_group_has_the_blocks_before_it() {
        let mut index = index();
        // The window group names only the last two blocks, before the full group names all four.
        store(&mut index, A, window(stored(None, &[12, 13], &PROMPT[..8])));
        store(&mut index, A, full(stored(None, &[10, 11, 12, 13], &PROMPT[..8])));
        assert_eq!(hit(&index, A, &PROMPT), 8);
        assert_eq!(hit(&index, A, &PROMPT[..8]), 0, "at six tokens the window lacks the second block");
        let gone = Removed { group: Some(0), ..removed(&[12]) };
        apply(&mut index, A, vec![Event::Removed(gone)]);
        assert_eq!(hit(&index, A, &PROMPT), 0);
        assert_eq!(index.stream_stats(A).map(|stats| stats.blocks), Some(4));
    }

    /// Attention has ten blocks of the prompt, recurrent layers the states after six and after nine of another ending.
    #[test]
    fn a_hit_ends_at_a_checkpoint() {
        let mut index = index();
        let tokens: Vec<u32> = (0..21).collect();
        let hashes: Vec<u64> = (100..110).collect();
        let recurrent = |stored| of_group(stored, 0, Some(GroupKind::Recurrent));
        store(&mut index, A, full(stored(None, &hashes, &tokens[..20])));
        assert_eq!(hit(&index, A, &tokens), 20, "until the other group shows itself");
        // Two checkpoints of twelve blocks, one of which is no block of this prompt.
        store(&mut index, A, recurrent(stored(None, &[105, 999], &tokens[..12])));
        assert_eq!(hit(&index, A, &tokens), 12);
        assert_eq!(
            hit(&index, A, &tokens[..12]),
            0,
            "the last token is computed, so the checkpoint is too far"
        );
        // The state at the end of what was computed, told of before the block.
        store(&mut index, A, recurrent(stored(Some(109), &[110], &[20, 21])));
        store(&mut index, A, full(stored(Some(109), &[110], &[20, 21])));
        assert_eq!(hit(&index, A, &(0..30).collect::<Vec<u32>>()), 22);
        assert_eq!(hit(&index, A, &tokens), 12);
        let gone = Removed { group: Some(0), ..removed(&[105]) };
        apply(&mut index, A, vec![Event::Removed(gone)]);
        assert_eq!(hit(&index, A, &tokens), 0, "attention alone is of no use");
    }

    #[test]
    fn checkpoints_of_larger_blocks_are_found_by_their_boundaries() {
        let mut index = index();
        store(&mut index, A, full(stored(None, &[10, 11, 12, 13], &PROMPT[..8])));
        let blocks_of_four = Stored { block_size: 4, ..stored(None, &[11], &PROMPT[..4]) };
        store(&mut index, A, of_group(blocks_of_four, 0, Some(GroupKind::Recurrent)));
        assert_eq!(hit(&index, A, &PROMPT), 4);
    }

    #[test]
    fn near_the_beginning_a_window_needs_only_what_there_is() {
        let mut index = index();
        store(&mut index, A, full(stored(None, &[10, 11], &PROMPT[..4])));
        store(&mut index, A, window(stored(None, &[10], &PROMPT[..2])));
        assert_eq!(hit(&index, A, &PROMPT), 2);
    }

    #[test]
    fn a_block_that_only_the_window_group_holds_is_no_hit() {
        let mut index = index();
        store(&mut index, A, full(stored(None, &[10], &PROMPT[..2])));
        store(&mut index, A, window(stored(None, &[10], &PROMPT[..2])));
        let gone = Removed { group: Some(1), ..removed(&[10]) };
        apply(&mut index, A, vec![Event::Removed(gone)]);
        assert_eq!(hit(&index, A, &PROMPT), 0);
    }

    /// Before vLLM 0.22 the kinds are not told, and the first group need not be the full one.
    #[test]
    fn a_group_that_leaves_hashes_out_is_found_not_to_be_the_full_one() {
        let mut index = index();
        let windowed = |stored| of_group(stored, 0, None);
        let full = |stored| of_group(stored, 1, None);
        store(&mut index, A, windowed(stored(None, &[10], &PROMPT[..2])));
        store(&mut index, A, full(stored(None, &[10], &PROMPT[..2])));
        store(&mut index, A, windowed(stored(Some(10), &[13], &PROMPT[2..8])));
        store(&mut index, A, full(stored(Some(10), &[11, 12, 13], &PROMPT[2..8])));
        assert_eq!(hit(&index, A, &PROMPT), 8);
    }

    #[test]
    fn groups_beyond_those_tracked_are_counted() {
        let mut index = index();
        for group in 0..10 {
            store(&mut index, A, of_group(stored(None, &[10], &PROMPT[..2]), group, Some(GroupKind::Full)));
        }
        assert_eq!(index.stats().skipped.groups, 2);
        assert_eq!(hit(&index, A, &PROMPT), 2);
    }
}

mod speculation {
    use super::*;

    /// An index whose streams have told their block size.
    fn warm() -> Index {
        let mut index = index();
        for stream in [A, B] {
            store(&mut index, stream, stored(None, &[1], &[77, 77]));
        }
        index
    }

    #[test]
    fn speculative_blocks_count_until_their_time_is_over() {
        let mut index = warm();
        let keys = index.key_plan().keys(&BASE, &PROMPT);
        index.speculate(A, &keys, Millis(100));
        assert_eq!((hit(&index, A, &PROMPT), hit(&index, B, &PROMPT)), (8, 0));
        index.expire(Millis(99));
        assert_eq!(hit(&index, A, &PROMPT), 8);
        index.expire(Millis(100));
        assert_eq!(hit(&index, A, &PROMPT), 0);
        let stats = index.stats();
        assert_eq!(
            (stats.admissions.speculative, stats.removals.expired, stats.speculative_blocks),
            (4, 4, 0)
        );
    }

    #[test]
    fn what_was_stored_meanwhile_stays() {
        let mut index = warm();
        let keys = index.key_plan().keys(&BASE, &PROMPT);
        index.speculate(A, &keys, Millis(100));
        index.speculate(A, &keys, Millis(200));
        store(&mut index, A, stored(None, &[10, 11], &PROMPT[..4]));
        index.expire(Millis(100));
        assert_eq!(hit(&index, A, &PROMPT), 8, "the second speculation");
        index.expire(Millis(200));
        assert_eq!(hit(&index, A, &PROMPT), 4);
    }

    #[test]
    fn a_cleared_stream_loses_its_speculations() {
        let mut index = warm();
        let keys = index.key_plan().keys(&BASE, &PROMPT);
        index.speculate(A, &keys, Millis(100));
        index.speculate(B, &keys, Millis(100));
        index.clear(A, ClearCause::Restarted);
        store(&mut index, A, stored(None, &[1], &[77, 77]));
        assert_eq!((hit(&index, A, &PROMPT), hit(&index, B, &PROMPT)), (0, 8));
        index.remove_stream(B);
        assert_eq!(index.stats().speculative_blocks, 0);
        assert_eq!(index.stats().blocks, 1);
    }

    #[test]
    fn speculations_stop_at_their_limit() {
        let limits = IndexLimits { speculative_max: 3, ..IndexLimits::default() };
        let mut index = limited(limits);
        store(&mut index, A, stored(None, &[1], &[77, 77]));
        let keys = index.key_plan().keys(&BASE, &PROMPT);
        index.speculate(A, &keys, Millis(100));
        assert_eq!(hit(&index, A, &PROMPT), 6);
        assert_eq!(index.stats().skipped.speculative_capacity, 1);
    }

    #[test]
    fn without_a_known_block_size_nothing_is_speculated() {
        let mut index = index();
        let keys = index.key_plan().keys(&BASE, &PROMPT);
        index.speculate(A, &keys, Millis(100));
        index.speculate(StreamId(99), &keys, Millis(100));
        assert_eq!(index.stats().speculative_blocks, 0);
    }
}
