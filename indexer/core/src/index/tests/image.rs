//! An index that is saved, restored, and told the rest of a random history, beside one that heard all of it.

use proptest::prelude::*;

use super::super::image::{ImageError, StreamImage};
use super::*;

const BLOCK: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    /// The prompt's blocks from `from` on come to a medium; to the window group as well, or to it alone.
    Store {
        stream: StreamId,
        medium: Medium,
        prompt: Vec<u32>,
        from: usize,
        groups: Groups,
    },
    /// A block comes to a medium, told by its hash alone.
    Offload {
        stream: StreamId,
        prompt: Vec<u32>,
        medium: Medium,
    },
    Evict {
        stream: StreamId,
        prompt: Vec<u32>,
        medium: Medium,
        is_window: bool,
    },
    Clear(StreamId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Groups {
    Full,
    Window,
    Both,
}

const WINDOW: Group = Group { index: Some(1), kind: Some(GroupKind::SlidingWindow { tokens: 3 }) };
const FULL: Group = Group { index: Some(0), kind: Some(GroupKind::Full) };

fn hash(prefix: &[u32]) -> u64 {
    prefix
        .iter()
        .fold(7, |hash: u64, token| (hash ^ u64::from(*token + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The stream [`B`] has two groups, [`A`] has one.
fn take(index: &mut Index, step: &Step) {
    match step {
        Step::Store { stream, medium, prompt, from, groups } => {
            let blocks = prompt.len() / BLOCK;
            let from = (*from).min(blocks);
            let parent = (from > 0).then(|| hash(&prompt[..from * BLOCK]));
            let is_known = parent.is_none_or(|parent| {
                index.streams.by_id(*stream).is_some_and(|stream| stream.place(EngineHash(parent)).is_some())
            });
            if !is_known {
                return;
            }
            let hashes: Vec<_> = (from + 1..=blocks).map(|end| hash(&prompt[..end * BLOCK])).collect();
            let told = stored(parent, &hashes, &prompt[from * BLOCK..blocks * BLOCK]);
            let told = Stored { medium: *medium, ..told };
            let events: Vec<_> = match (*stream, groups) {
                (A, _) => vec![told],
                (_, Groups::Full) => vec![Stored { group: FULL, ..told }],
                (_, Groups::Window) => vec![Stored { group: WINDOW, ..told }],
                (_, Groups::Both) => {
                    vec![Stored { group: FULL, ..told.clone() }, Stored { group: WINDOW, ..told }]
                }
            };
            apply(index, *stream, events.into_iter().map(|told| Event::Stored(Box::new(told))).collect());
        }
        Step::Offload { stream, prompt, medium } => {
            let told = stored(None, &[hash(&prompt[..prompt.len() / BLOCK * BLOCK])], &[]);
            store(index, *stream, Stored { medium: *medium, block_size: 0, ..told });
        }
        Step::Evict { stream, prompt, medium, is_window } => {
            let group = (*stream == B).then_some(u32::from(*is_window));
            let gone = removed(&[hash(&prompt[..prompt.len() / BLOCK * BLOCK])]);
            apply(index, *stream, vec![Event::Removed(Removed { medium: *medium, group, ..gone })]);
        }
        Step::Clear(stream) => apply(index, *stream, vec![Event::Cleared]),
    }
}

/// By way of images, and under other ids meanwhile.
fn saved(index: &Index) -> Index {
    let images = [B, A].map(|id| (StreamId(id.0 + 100), image(index, id)));
    assert!(index.gather(StreamId(7)).is_none(), "no such stream");
    let restored = Index::restore(index.secret(), &images, IndexLimits::default());
    assert_eq!(restored.refused, []);
    let mut restored = restored.index;
    for stream in [A, B] {
        assert!(!restored.rename_stream(StreamId(9), stream), "no such stream");
        assert!(restored.rename_stream(StreamId(stream.0 + 100), stream));
        assert!(restored.stream_stats(stream).is_some_and(|stats| !stats.trust.is_scored()));
        restored.set_trust(stream, Trust::Live);
    }
    restored
}

fn image(index: &Index, id: StreamId) -> StreamImage {
    index.gather(id).expect("a whole stream").image()
}

fn compare(index: &Index, restored: &Index) {
    for prompt in [[0, 0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1, 0, 1, 0]] {
        for stream in [A, B] {
            let both = |index| (hit(index, stream, &prompt), hit_with_slower(index, stream, &prompt));
            assert_eq!(both(restored), both(index), "{prompt:?}");
        }
    }
    for stream in [A, B] {
        let copies = |index: &Index| {
            let mut copies: Vec<_> = index.copies(stream).collect();
            copies.sort_unstable();
            copies
        };
        assert_eq!(copies(restored), copies(index));
        let known =
            |index: &Index| index.stream_stats(stream).map(|stats| StreamStats { evicted: 0, ..stats });
        assert_eq!(known(restored), known(index), "but for what was counted since the start");
    }
    let sizes = |index: &Index| (index.stats().references, index.stats().streams);
    assert_eq!(sizes(restored), sizes(index));
    assert!(restored.stats().blocks <= index.stats().blocks, "what nobody holds is left out");
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let prompt = || proptest::collection::vec(0_u32..2, 2..10);
    let stream = || prop_oneof![Just(A), Just(B)];
    let slower = || prop_oneof![Just(Medium::Cpu), Just(Medium::Disk)];
    let medium = || prop_oneof![4 => Just(Medium::Gpu), 1 => slower()];
    let groups = || prop_oneof![1 => Just(Groups::Full), 1 => Just(Groups::Window), 3 => Just(Groups::Both)];
    let one = prop_oneof![
        8 => (stream(), medium(), prompt(), 0_usize..4, groups()).prop_map(
            |(stream, medium, prompt, from, groups)| Step::Store { stream, medium, prompt, from, groups }
        ),
        2 => (stream(), prompt(), slower())
            .prop_map(|(stream, prompt, medium)| Step::Offload { stream, prompt, medium }),
        10 => (stream(), prompt(), medium(), any::<bool>()).prop_map(
            |(stream, prompt, medium, is_window)| Step::Evict { stream, prompt, medium, is_window }
        ),
        1 => stream().prop_map(Step::Clear),
    ];
    proptest::collection::vec(one, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_restored_index_goes_on_like_the_one_that_was_saved(before in steps(), after in steps()) {
        let mut index = index();
        before.iter().for_each(|step| take(&mut index, step));
        let mut restored = saved(&index);
        compare(&index, &restored);
        for step in &after {
            take(&mut index, step);
            take(&mut restored, step);
            compare(&index, &restored);
        }
        let again = saved(&restored);
        compare(&restored, &again);
        for stream in [A, B] {
            restored.remove_stream(stream);
        }
        prop_assert_eq!((restored.stats().blocks, restored.stats().references), (0, 0));
    }
}

fn warm() -> Index {
    let mut index = index();
    store(&mut index, A, stored(None, &[1, 2, 3], &[1, 2, 3, 4, 5, 6]));
    store(&mut index, A, stored(Some(1), &[5], &[9, 9]));
    remove(&mut index, A, &[1]);
    store(&mut index, B, stored(None, &[1, 2], &[1, 2, 3, 4]));
    index
}

#[test]
fn an_image_holds_what_the_stream_holds_and_nothing_of_others() {
    let of_a = image(&warm(), A);
    assert_eq!(of_a.lengths, [3, 1]);
    assert_eq!(of_a.main.hashes, [2, 3, 5]);
    assert_eq!(image(&warm(), B).lengths, [2], "without the blocks that only the other stream holds");
}

#[test]
fn a_stream_with_blocks_aside_has_no_image() {
    let mut index = warm();
    store(&mut index, B, stored(Some(77), &[78], &[1, 1]));
    assert!(index.gather(A).is_some());
    assert!(index.gather(B).is_none());
}

type Damage = fn(&mut StreamImage);

#[test]
fn an_image_that_contradicts_itself_is_left_out_and_leaves_nothing_behind() {
    let damages: [Damage; 9] = [
        |image| image.lengths[0] += 1,
        |image| image.keys.push(1),
        |image| image.main.chains[0] = 900,
        |image| image.main.offsets[0] = 900,
        |image| image.main.copies[0] = 0,
        |image| image.main.copies.push(1),
        |image| image.main.hashes[1] = image.main.hashes[0],
        |image| image.main.holds[0].leading = 900,
        |image| image.main.holds.clear(),
    ];
    let other = image(&warm(), B);
    for (at, damage) in damages.iter().enumerate() {
        let mut image = image(&warm(), A);
        damage(&mut image);
        let images = [(B, other.clone()), (A, image)];
        let restored = Index::restore([9; 16], &images, IndexLimits::default());
        assert!(
            matches!(restored.refused[..], [(1, ImageError::Damaged(_))]),
            "{at}: {:?}",
            restored.refused
        );
        let mut index = restored.index;
        assert_eq!(
            (index.stats().references, index.stats().streams, index.stats().blocks),
            (2, 1, 2),
            "{at}"
        );
        index.set_trust(B, Trust::Live);
        assert_eq!(hit(&index, B, &[1, 2, 3, 4, 5]), 4);
        index.remove_stream(B);
        assert_eq!((index.stats().references, index.stats().blocks), (0, 0), "{at}");
    }
}

/// Each process, and each time, has its own way of cutting prompts into chains.
#[test]
fn images_of_other_times_and_other_indexers_fit_together() {
    let long: Vec<u32> = (1..=10).collect();
    let mut one = index();
    store(&mut one, A, stored(None, &[1, 2, 3, 4, 5], &long));
    let mut other = index();
    store(&mut other, B, stored(None, &[1, 2, 9], &[1, 2, 3, 4, 90, 91]));
    store(&mut other, B, stored(Some(2), &[3, 4], &long[4..8]));
    let images = [(A, image(&one, A)), (B, image(&other, B))];
    for order in [[0, 1], [1, 0]] {
        let images = order.map(|at: usize| images[at].clone());
        let restored = Index::restore([9; 16], &images, IndexLimits::default());
        assert_eq!(restored.refused, []);
        let mut index = restored.index;
        for stream in [A, B] {
            index.set_trust(stream, Trust::Live);
        }
        let asked: Vec<u32> = (1..=11).collect();
        assert_eq!((hit(&index, A, &asked), hit(&index, B, &asked)), (10, 8));
        assert_eq!(hit(&index, B, &[1, 2, 3, 4, 90, 91, 92]), 6);
        assert_eq!(index.stats().blocks, 6, "each block once");
        store(&mut index, B, stored(Some(4), &[5], &long[8..]));
        assert_eq!(hit(&index, B, &asked), 10);
        for stream in [A, B] {
            index.remove_stream(stream);
        }
        assert_eq!((index.stats().blocks, index.stats().references), (0, 0));
    }
}

#[test]
fn a_damaged_image_spoils_no_other() {
    let mut damaged = image(&warm(), A);
    damaged.main.offsets[0] = 900;
    let images = [(A, damaged), (B, image(&warm(), B))];
    let mut restored = Index::restore([9; 16], &images, IndexLimits::default());
    assert_eq!(restored.refused.len(), 1);
    restored.index.set_trust(B, Trust::Live);
    assert_eq!(hit(&restored.index, B, &[1, 2, 3, 4, 5]), 4);
    assert_eq!(restored.index.stats().blocks, 2);
}

#[test]
fn images_that_come_twice_or_are_too_large_are_left_out() {
    let images = [(B, image(&warm(), B)), (A, image(&warm(), A))];
    let small = IndexLimits { references_max: 4, ..IndexLimits::default() };
    let restored = Index::restore([9; 16], &images, small);
    assert_eq!(restored.refused, [(1, ImageError::TooLarge { references: 3, room: 2 })]);
    let restored = Index::restore([9; 16], &[images[0].clone(), images[0].clone()], IndexLimits::default());
    assert_eq!(restored.refused, [(1, ImageError::Damaged("a stream twice"))]);
}

/// The one who looks keeps its handle, whatever secret the index is under by now.
#[test]
fn an_index_that_becomes_another_shows_that_one_to_all_who_look() {
    let other = || {
        let mut other = Index::new(KeyHasher::new([3; 16]), IndexLimits::default());
        other.add_stream(B, "m");
        other.set_trust(B, Trust::Live);
        store(&mut other, B, stored(None, &[7], &[5, 6]));
        other
    };
    let (mut index, others_reader) = (index(), other().reader());
    store(&mut index, A, stored(None, &[1, 2], &[1, 2, 3, 4]));
    let (reader, stale) = (index.reader(), index.key_plan().keys(&BASE, &[1, 2, 3, 4, 0]));
    let before = index.become_other(other());
    assert_eq!(reader.secret_check(), others_reader.secret_check());
    assert_eq!((hit(&index, B, &[5, 6, 0]), hit(&index, A, &[1, 2, 3, 4, 0])), (2, 0));
    let mut hits = Hits::default();
    reader.hits(&stale, &mut hits);
    assert_eq!(hits.tokens(A), 0, "keys of before are nobody's");
    assert!(reader.stream(A).is_none() && reader.stream(B).is_some());
    assert_eq!(hit(&before, A, &[1, 2, 3, 4, 0]), 4, "and the other is what it was");
    // It goes on by its own secret.
    store(&mut index, B, stored(Some(7), &[8], &[7, 8]));
    assert_eq!(hit(&index, B, &[5, 6, 7, 8, 0]), 4);
}
