use std::path::Path;

use prost::Message;
use warmpath_kv::KeyHasher;
use warmpath_kv::event::GroupKind;
use warmpath_kv::index::image::{GroupImage, HoldImage, MediumImage, PoolImage, SlowerImage, StreamImage};
use warmpath_proto::v1;

use super::super::format::{FormatError, Saved, decode, secret_check, to_wire};
use super::name;

const GOLDEN: &str = "src/mirror/tests/image-v1.bin";

/// Something in every field.
pub(super) fn saved() -> Saved {
    let main = PoolImage {
        hashes: vec![u64::MAX, 7, 8],
        chains: vec![0, 0, 1],
        offsets: vec![0, 2, 0],
        copies: vec![1, 255, 2],
        holds: vec![
            HoldImage { chain: 0, leading: 1, scattered: vec![4], others: vec![0, 2, 2] },
            HoldImage { chain: 1, leading: 1, scattered: Vec::new(), others: Vec::new() },
        ],
        unplaced: vec![(99, [0, 1, 0, 0, 0, 0, 0, 3])],
        spare: vec![(1, 0, [1, 0, 0, 0, 0, 0, 0, 0])],
    };
    let slower = SlowerImage {
        pool: PoolImage {
            hashes: vec![5],
            chains: vec![1],
            offsets: vec![0],
            copies: vec![1],
            ..main.clone()
        },
        media: vec![MediumImage { parts: 4, tells_removals: true }, MediumImage::default()],
        ageing: vec![(1, 5)],
    };
    let group = |index, kind| GroupImage { index, kind, block_size: 16 };
    Saved {
        name: name(3),
        last_seq: 1 << 40,
        last_digest: *b"sixteen bytes of",
        last_made_us: 0,
        secret_check: secret_check(&KeyHasher::new([1; 16])),
        image: StreamImage {
            model: "Qwen/Qwen3-0.6B".into(),
            block_size: 16,
            ahead: 2,
            has_other_media: true,
            groups: vec![
                group(None, GroupKind::Full),
                group(Some(1), GroupKind::SlidingWindow { tokens: 512 }),
                group(Some(2), GroupKind::Other),
            ],
            lengths: vec![3, 1],
            keys: vec![1, u64::MAX - 1, 3, 1 << 63],
            main,
            slower: Some(slower),
        },
    }
}

pub(super) fn encoded(saved: Saved) -> Vec<u8> {
    to_wire(saved).encode_to_vec()
}

/// Of a format that this release does not know.
pub(super) fn newer() -> Vec<u8> {
    v1::StreamImage { format: 2, ..to_wire(saved()) }.encode_to_vec()
}

pub(super) fn golden() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(GOLDEN)).expect("committed")
}

/// Whoever is one release older or newer reads and writes these bytes. A change of them needs another format number.
#[test]
fn images_are_the_bytes_that_they_always_were() {
    if std::env::var_os("WARMPATH_REGENERATE").is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(GOLDEN), encoded(saved()))
            .expect("written");
    }
    assert_eq!(decode(&golden()).expect("an image"), saved());
    assert_eq!(encoded(saved()), golden());
}

/// The time came after the first images: those are without it, and one with it is read by who does not know it.
#[test]
fn an_image_tells_when_its_last_batch_was_made() {
    let timed = Saved { last_made_us: 1_700_000_000_000_001, ..saved() };
    assert_eq!(decode(&encoded(timed.clone())).expect("an image"), timed);
    assert!(encoded(timed).starts_with(&golden()), "after all that there was");
}

/// A release that does not know them takes groups of checkpoints for such as limit nothing.
#[test]
fn groups_of_checkpoints_are_others_to_older_releases() {
    let group = GroupImage { index: Some(3), kind: GroupKind::Recurrent, block_size: 528 };
    let mut recurrent = saved();
    recurrent.image.groups.push(group);
    assert_eq!(decode(&encoded(recurrent.clone())).expect("an image"), recurrent);
    let wire = to_wire(recurrent);
    let last = wire.groups.last().expect("just added");
    assert_eq!(last.kind, Some(v1::kv_group::Kind::Other(true)));
}

#[test]
fn what_a_newer_release_adds_is_skipped_and_what_it_changes_is_left_alone() {
    let mut more = golden();
    // Field 100, a varint, that no release knows yet.
    more.extend([0xa0, 0x06, 0x01]);
    assert_eq!(decode(&more).expect("an image"), saved());
    assert!(matches!(decode(&newer()), Err(FormatError::Newer(2))));
    assert!(matches!(decode(&[]), Err(FormatError::Missing(_))));
    for end in 1..golden().len() {
        // A part may be an image; then it is one that its lists tell, and the index looks at those.
        let _either = decode(&golden()[..end]);
    }
}
