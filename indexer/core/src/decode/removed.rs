//! The fields of `BlockRemoved`.

use crate::event::{Medium, Problems, Removed};

use super::reader::{ReadError, Reader};
use super::{Body, read_hashes, read_is_remote, read_medium, read_opt_u32};

#[derive(Clone, Copy)]
enum Field {
    Hashes,
    Medium,
    Group,
    Locality,
    /// Known, but nothing here depends on it.
    Unused,
    Unknown,
}

/// Array order after the type name.
const ORDER: [Field; 5] = [Field::Hashes, Field::Medium, Field::Group, Field::Locality, Field::Unused];

fn by_name(name: &[u8]) -> Field {
    match name {
        b"block_hashes" => Field::Hashes,
        b"medium" => Field::Medium,
        b"group_idx" => Field::Group,
        b"locality" => Field::Locality,
        b"type" | b"ownership" | b"session_id" => Field::Unused,
        _ => Field::Unknown,
    }
}

pub(super) fn read(
    reader: &mut Reader<'_>,
    body: Body,
    problems: &mut Problems,
) -> Result<Removed, ReadError> {
    let mut hashes = None;
    let mut removed = Removed::default();
    let (mut is_remote, mut unknown) = (false, 0);
    let fields = match body {
        Body::Array(count) | Body::Map(count) => count,
    };
    for position in 0..fields {
        let field = match body {
            Body::Array(_) => ORDER.get(position).copied().unwrap_or(Field::Unknown),
            Body::Map(_) => by_name(reader.name()?),
        };
        match field {
            Field::Hashes => hashes = Some(read_hashes(reader)?),
            Field::Medium => removed.medium = read_medium(reader)?,
            Field::Group => removed.group = read_opt_u32(reader)?,
            Field::Locality => is_remote = read_is_remote(reader)?,
            Field::Unused => reader.skip()?,
            Field::Unknown => {
                unknown += 1;
                reader.skip()?;
            }
        }
    }
    removed.hashes = hashes.ok_or(ReadError::WrongType)?;
    if is_remote {
        removed.medium = Medium::Remote;
    }
    problems.unknown_fields += unknown;
    Ok(removed)
}
