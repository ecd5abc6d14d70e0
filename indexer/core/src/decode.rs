//! Event payload (MessagePack) → [`Batch`]. Pure and lenient.
//!
//! The outer value is an array `[ts, events]` or `[ts, events, rank]`. One event is an array whose first element is
//! the type and whose other elements are the fields in a fixed order (vLLM up to 0.23, older SGLang), or a map with
//! the type under `type` (vLLM 0.24 and newer, newer SGLang): told apart per event by what is there, never by
//! configuration. Only hashes, tokens and block size are demanded of `BlockStored`, only hashes of `BlockRemoved`.
//!
//! An event that is not known or does not read is skipped and counted in [`Problems`]. An error is returned only
//! where the bytes are no batch at all; then nothing of it can be used.

use thiserror::Error;

use crate::event::{Batch, EngineHash, Event, Medium, Problems};

mod rank;
mod reader;
mod removed;
mod stored;

pub use rank::{may_be_of_rank, told_rank};
use reader::{Head, ReadError, Reader};

/// Largest payload accepted, in bytes. An engine step of 64k tokens takes about 0.5 MiB; decoded, a hostile payload
/// grows at most some twenty-fold.
pub const PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// Most blocks in one event: four million tokens in blocks of 16.
const BLOCKS_PER_EVENT_MAX: usize = 1 << 18;

/// The bytes are no event batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    #[error("event payload of {bytes} bytes, at most {PAYLOAD_BYTES_MAX} are read")]
    TooLarge { bytes: usize },
    #[error("event payload ends in the middle of a value")]
    Truncated,
    #[error("event payload is not an array of a time, a list of events and a rank")]
    NotABatch,
}

/// Decodes the payload of one message.
///
/// # Errors
/// Where the payload is too large, cut off, or not a batch. Single events that cannot be read are no error.
pub fn decode_batch(payload: &[u8]) -> Result<Batch, DecodeError> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(DecodeError::TooLarge { bytes: payload.len() });
    }
    let mut reader = Reader::new(payload);
    Ok(read_batch(&mut reader)?)
}

/// When the engine made the batch of this payload, by its own clock: the time that a batch begins with. `None` where there is
/// none, or none above 0.
#[must_use]
pub fn made_at(payload: &[u8]) -> Option<f64> {
    let mut reader = Reader::new(payload);
    let Ok(Head::Array(2..)) = reader.head() else { return None };
    let Ok(Head::Float(seconds)) = reader.head() else { return None };
    (seconds > 0.0).then_some(seconds)
}

fn read_batch(reader: &mut Reader<'_>) -> Result<Batch, ReadError> {
    let Head::Array(elements @ 2..) = reader.head()? else { return Err(ReadError::WrongType) };
    let ts = match reader.head()? {
        Head::Float(seconds) => seconds,
        // Whole seconds lose nothing below 2^53.
        Head::Uint(seconds) => u32::try_from(seconds).map_or(0.0, f64::from),
        Head::Nil => 0.0,
        _ => return Err(ReadError::WrongType),
    };
    let events = match reader.head()? {
        Head::Array(events) => events,
        Head::Nil => 0,
        _ => return Err(ReadError::WrongType),
    };
    let mut batch = Batch { ts, ..Batch::default() };
    for _ in 0..events {
        let start = *reader;
        match read_event(reader, &mut batch.problems) {
            Ok(Some(event)) => batch.events.push(event),
            Ok(None) => batch.problems.unknown_events += 1,
            // Known where the event began, so step over it whole. Cut-off bytes make that fail as they must.
            Err(ReadError::WrongType) => {
                batch.problems.malformed_events += 1;
                *reader = start;
                reader.skip()?;
            }
            Err(ReadError::Truncated) => return Err(ReadError::Truncated),
        }
    }
    if elements > 2 {
        let start = *reader;
        batch.rank = match reader.head()? {
            Head::Uint(rank) => u32::try_from(rank).ok(),
            _ => None,
        };
        // Whatever the third and further elements are, they must be complete.
        *reader = start;
        for _ in 2..elements {
            reader.skip()?;
        }
    }
    Ok(batch)
}

/// `None`: the type is not known; the reader stands after the event all the same.
fn read_event(reader: &mut Reader<'_>, problems: &mut Problems) -> Result<Option<Event>, ReadError> {
    let start = *reader;
    let (name, body) = match reader.head()? {
        Head::Array(elements @ 1..) => (reader.name()?, Body::Array(elements - 1)),
        Head::Map(entries) => (find_type(*reader, entries)?, Body::Map(entries)),
        _ => return Err(ReadError::WrongType),
    };
    match name {
        b"BlockStored" => {
            stored::read(reader, body, problems).map(|stored| Some(Event::Stored(Box::new(stored))))
        }
        b"BlockRemoved" => removed::read(reader, body, problems).map(|removed| Some(Event::Removed(removed))),
        _ => {
            *reader = start;
            reader.skip()?;
            Ok((name == b"AllBlocksCleared").then_some(Event::Cleared))
        }
    }
}

/// How an event's fields are laid out, and how many follow. The map still holds its `type`.
#[derive(Clone, Copy)]
enum Body {
    Array(usize),
    Map(usize),
}

/// The value of `type`, wherever it stands in the map; encoders put it first.
fn find_type<'a>(mut reader: Reader<'a>, entries: usize) -> Result<&'a [u8], ReadError> {
    for _ in 0..entries {
        if reader.name()? == b"type" {
            return reader.name();
        }
        reader.skip()?;
    }
    Err(ReadError::WrongType)
}

fn read_hashes(reader: &mut Reader<'_>) -> Result<Vec<EngineHash>, ReadError> {
    let Head::Array(count @ 0..=BLOCKS_PER_EVENT_MAX) = reader.head()? else {
        return Err(ReadError::WrongType);
    };
    let mut hashes = Vec::with_capacity(count);
    for _ in 0..count {
        let hash = match reader.long_uint() {
            Some(bits) => EngineHash(bits),
            None => read_hash(reader)?.ok_or(ReadError::WrongType)?,
        };
        hashes.push(hash);
    }
    Ok(hashes)
}

/// `None` for nil.
fn read_hash(reader: &mut Reader<'_>) -> Result<Option<EngineHash>, ReadError> {
    Ok(match reader.head()? {
        Head::Nil => None,
        Head::Uint(bits) => Some(EngineHash(bits)),
        Head::Negative(value) => Some(EngineHash(value.cast_unsigned())),
        Head::Bin(length) => {
            let digest = reader.take(length)?;
            let mut last = [0; 8];
            for (to, from) in last.iter_mut().rev().zip(digest.iter().rev()) {
                *to = *from;
            }
            Some(EngineHash(u64::from_be_bytes(last)))
        }
        _ => return Err(ReadError::WrongType),
    })
}

fn read_opt_u32(reader: &mut Reader<'_>) -> Result<Option<u32>, ReadError> {
    match reader.head()? {
        Head::Nil => Ok(None),
        Head::Uint(value) => u32::try_from(value).map(Some).map_err(|_| ReadError::WrongType),
        _ => Err(ReadError::WrongType),
    }
}

/// The `medium` that follows: the main pool where none is named.
fn read_medium(reader: &mut Reader<'_>) -> Result<Medium, ReadError> {
    Ok(reader.opt_str()?.map_or(Medium::Gpu, Medium::by_name))
}

/// Whether the `locality` that follows says that the blocks lie elsewhere.
fn read_is_remote(reader: &mut Reader<'_>) -> Result<bool, ReadError> {
    Ok(reader.opt_str()?.is_some_and(|name| name.eq_ignore_ascii_case("REMOTE")))
}

impl From<ReadError> for DecodeError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Truncated => Self::Truncated,
            ReadError::WrongType => Self::NotABatch,
        }
    }
}

#[cfg(test)]
mod tests;
