//! Whose batch it is, told without decoding it: one socket may carry the batches of several ranks, each with numbers of its own.

use super::reader::{Head, ReadError, Reader};

/// Whether the batch of this payload may be of the rank: it names it, or none. What is no batch may be anybody's.
///
/// The rank is the last value of a payload, nearly always in one byte, so nearly always this is a look at the last few.
#[must_use]
pub fn may_be_of_rank(payload: &[u8], rank: u32) -> bool {
    if ends_with(payload, rank) {
        return true;
    }
    told_rank(payload).is_none_or(|told| told == rank)
}

/// The data-parallel rank that a batch names. `None`: it names none, or is no batch. Steps over all events.
#[must_use]
pub fn told_rank(payload: &[u8]) -> Option<u32> {
    read(&mut Reader::new(payload)).ok().flatten()
}

fn read(reader: &mut Reader<'_>) -> Result<Option<u32>, ReadError> {
    let Head::Array(3..) = reader.head()? else { return Ok(None) };
    reader.skip()?;
    reader.skip()?;
    match reader.head()? {
        Head::Uint(rank) => Ok(u32::try_from(rank).ok()),
        _ => Ok(None),
    }
}

/// The payload ends with the rank as a number of one byte, which is not the end of a longer number.
fn ends_with(payload: &[u8], rank: u32) -> bool {
    /// Markers of whole numbers, and their bytes without it.
    const LONGER: [(u8, usize); 8] =
        [(0xcc, 1), (0xd0, 1), (0xcd, 2), (0xd1, 2), (0xce, 4), (0xd2, 4), (0xcf, 8), (0xd3, 8)];
    let Some((last, before)) = payload.split_last() else { return false };
    let is_longer = |(marker, bytes): &(u8, usize)| {
        before.len().checked_sub(*bytes).and_then(|at| before.get(at)).is_some_and(|byte| byte == marker)
    };
    *last < 0x80
        && u32::from(*last) == rank
        && payload.first() == Some(&0x93)
        && !LONGER.iter().any(is_longer)
}
