//! Images ↔ bytes: the message `StreamImage` of `warmpath.v1`.

use prost::Message;
use thiserror::Error;
use warmpath_kv::event::GroupKind;
use warmpath_kv::index::image::{
    GroupImage, HoldImage, MediumImage, PerGroup, PoolImage, SlowerImage, StreamImage,
};
use warmpath_kv::{KeyHasher, Namespace};
use warmpath_proto::v1;

use super::secret::Secret;
use super::store::StreamName;
use crate::ingest::{Digest, Taken};

/// The one that is written, and the highest that is read.
const FORMAT: u32 = 1;

/// An image, and where it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    pub name: StreamName,
    /// The batch up to which it is, and the digest of its payload.
    pub last_seq: u64,
    pub last_digest: Digest,
    /// When the engine made that batch, by its own clock, in microseconds since 1970; 0: not known. Of two images of a
    /// stream, the one with the later time is the fresher one, whichever process of the engine they are of.
    pub last_made_us: u64,
    /// See [`secret_check`].
    pub secret_check: u64,
    pub image: StreamImage,
}

/// Why bytes are no image.
#[derive(Debug, Error)]
pub enum FormatError {
    #[error("not an image: {0}")]
    Unreadable(#[from] prost::DecodeError),
    #[error("an image of format {0}; this version reads up to {FORMAT}")]
    Newer(u32),
    #[error("an image without {0}")]
    Missing(&'static str),
}

/// Tells secrets apart without telling them.
pub(super) fn secret_check(hasher: &KeyHasher) -> u64 {
    hasher.root(&Namespace { model: "warmpath mirror", lora: None, salt: None }).0
}

/// The image as bytes.
pub fn encode(name: &StreamName, taken: Taken, secret: Secret) -> Vec<u8> {
    let Taken { seq, digest, made_us, gathered } = taken;
    let saved = Saved {
        name: name.clone(),
        last_seq: seq,
        last_digest: digest,
        last_made_us: made_us,
        secret_check: secret_check(&KeyHasher::new(secret)),
        image: gathered.image(),
    };
    to_wire(saved).encode_to_vec()
}

pub(super) fn decode(bytes: &[u8]) -> Result<Saved, FormatError> {
    let wire = v1::StreamImage::decode(bytes)?;
    match wire.format {
        0 => Err(FormatError::Missing("its format")),
        FORMAT => from_wire(wire),
        newer => Err(FormatError::Newer(newer)),
    }
}

// --- to the wire ---

pub(super) fn to_wire(saved: Saved) -> v1::StreamImage {
    let Saved { name, last_seq, last_digest, last_made_us, secret_check, image } = saved;
    v1::StreamImage {
        format: FORMAT,
        endpoint: name.endpoint,
        rank: name.rank,
        model: image.model.into(),
        last_seq,
        last_digest: last_digest.to_vec(),
        last_made_us,
        secret_check,
        block_size: image.block_size,
        ahead: image.ahead,
        has_other_media: image.has_other_media,
        groups: image.groups.iter().map(group_to_wire).collect(),
        lengths: image.lengths,
        keys: image.keys,
        main: Some(pool_to_wire(image.main)),
        slower: image.slower.map(|slower| v1::SlowerMedia {
            pool: Some(pool_to_wire(slower.pool)),
            media: slower
                .media
                .iter()
                .map(|medium| v1::Medium { parts: medium.parts, tells_removals: medium.tells_removals })
                .collect(),
            ageing: slower
                .ageing
                .iter()
                .map(|(medium, hash)| v1::AgeingCopy { medium: *medium, hash: *hash })
                .collect(),
        }),
    }
}

fn group_to_wire(group: &GroupImage) -> v1::KvGroup {
    let kind = match group.kind {
        GroupKind::Full => v1::kv_group::Kind::Full(true),
        GroupKind::SlidingWindow { tokens } => v1::kv_group::Kind::SlidingWindow(tokens),
        GroupKind::Recurrent | GroupKind::Other => v1::kv_group::Kind::Other(true),
    };
    v1::KvGroup {
        index: group.index,
        kind: Some(kind),
        block_size: group.block_size,
        recurrent: group.kind == GroupKind::Recurrent,
    }
}

fn pool_to_wire(pool: PoolImage) -> v1::KvPool {
    let hold = |hold: HoldImage| v1::KvHold {
        chain: hold.chain,
        leading: hold.leading,
        scattered: hold.scattered,
        others: hold.others,
    };
    let unplaced = |(hash, copies): (u64, PerGroup)| v1::UnplacedCopies { hash, copies: copies.to_vec() };
    let spare = |(chain, offset, copies): (u32, u32, PerGroup)| v1::SpareCopies {
        chain,
        offset,
        copies: copies.to_vec(),
    };
    v1::KvPool {
        hashes: pool.hashes,
        chains: pool.chains,
        offsets: pool.offsets,
        copies: pool.copies,
        holds: pool.holds.into_iter().map(hold).collect(),
        unplaced: pool.unplaced.into_iter().map(unplaced).collect(),
        spare: pool.spare.into_iter().map(spare).collect(),
    }
}

// --- from the wire ---

fn from_wire(wire: v1::StreamImage) -> Result<Saved, FormatError> {
    let slower = wire.slower.map(|slower| {
        let media = slower.media.iter();
        let media = media.map(|seen| MediumImage { parts: seen.parts, tells_removals: seen.tells_removals });
        Ok::<_, FormatError>(SlowerImage {
            pool: pool_from_wire(slower.pool)?,
            media: media.collect(),
            ageing: slower.ageing.iter().map(|copy| (copy.medium, copy.hash)).collect(),
        })
    });
    Ok(Saved {
        name: StreamName { endpoint: wire.endpoint, rank: wire.rank },
        last_seq: wire.last_seq,
        last_digest: digest_from_wire(&wire.last_digest)?,
        last_made_us: wire.last_made_us,
        secret_check: wire.secret_check,
        image: StreamImage {
            model: wire.model.into(),
            block_size: wire.block_size,
            ahead: wire.ahead,
            has_other_media: wire.has_other_media,
            groups: wire.groups.iter().map(group_from_wire).collect::<Result<_, _>>()?,
            lengths: wire.lengths,
            keys: wire.keys,
            main: pool_from_wire(wire.main)?,
            slower: slower.transpose()?,
        },
    })
}

fn digest_from_wire(bytes: &[u8]) -> Result<Digest, FormatError> {
    bytes.try_into().map_err(|_| FormatError::Missing("the digest of its last batch"))
}

fn group_from_wire(group: &v1::KvGroup) -> Result<GroupImage, FormatError> {
    let kind = match group.kind {
        Some(v1::kv_group::Kind::Full(_)) => GroupKind::Full,
        Some(v1::kv_group::Kind::SlidingWindow(tokens)) => GroupKind::SlidingWindow { tokens },
        Some(v1::kv_group::Kind::Other(_)) if group.recurrent => GroupKind::Recurrent,
        Some(v1::kv_group::Kind::Other(_)) => GroupKind::Other,
        None => return Err(FormatError::Missing("the kind of a group")),
    };
    Ok(GroupImage { index: group.index, kind, block_size: group.block_size })
}

fn pool_from_wire(pool: Option<v1::KvPool>) -> Result<PoolImage, FormatError> {
    let pool = pool.ok_or(FormatError::Missing("a pool"))?;
    let hold = |hold: v1::KvHold| HoldImage {
        chain: hold.chain,
        leading: hold.leading,
        scattered: hold.scattered,
        others: hold.others,
    };
    let unplaced = |one: v1::UnplacedCopies| Ok::<_, FormatError>((one.hash, per_group(&one.copies)?));
    let spare = |one: v1::SpareCopies| Ok::<_, FormatError>((one.chain, one.offset, per_group(&one.copies)?));
    Ok(PoolImage {
        hashes: pool.hashes,
        chains: pool.chains,
        offsets: pool.offsets,
        copies: pool.copies,
        holds: pool.holds.into_iter().map(hold).collect(),
        unplaced: pool.unplaced.into_iter().map(unplaced).collect::<Result<_, _>>()?,
        spare: pool.spare.into_iter().map(spare).collect::<Result<_, _>>()?,
    })
}

fn per_group(copies: &[u8]) -> Result<PerGroup, FormatError> {
    copies.try_into().map_err(|_| FormatError::Missing("a group's copies"))
}
