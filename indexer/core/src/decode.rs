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
use reader::{Head, ReadError, Reader, text};

/// Largest payload accepted, in bytes. An engine step of 64k tokens takes about 0.5 MiB; decoded, a hostile payload
/// grows at most some twenty-fold.
pub const PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// Events that room is made for before they are read.
const EVENTS_AT_FIRST: usize = 16;

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
    let events_at_first = Vec::with_capacity(events.min(EVENTS_AT_FIRST));
    let mut batch = Batch { ts, events: events_at_first, ..Batch::default() };
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
        Head::Map(entries) => {
            let (name, left) = find_type(reader, entries)?;
            (name, Body::Map(left))
        }
        _ => return Err(ReadError::WrongType),
    };
    match name {
        b"BlockStored" => stored::read(reader, body, problems).map(|stored| Some(Event::Stored(stored))),
        b"BlockRemoved" => removed::read(reader, body, problems).map(|removed| Some(Event::Removed(removed))),
        _ => {
            *reader = start;
            reader.skip()?;
            Ok((name == b"AllBlocksCleared").then_some(Event::Cleared))
        }
    }
}

/// How an event's fields are laid out, and how many follow. The map may still hold its `type`.
#[derive(Clone, Copy)]
enum Body {
    Array(usize),
    Map(usize),
}

/// The value of `type`, wherever it stands in the map, and how many entries are still to be read: encoders put it first, and
/// then those behind it.
fn find_type<'a>(reader: &mut Reader<'a>, entries: usize) -> Result<(&'a [u8], usize), ReadError> {
    let mut ahead = *reader;
    for left in (0..entries).rev() {
        if ahead.name()? == b"type" {
            let name = ahead.name()?;
            let is_first = left + 1 == entries;
            if is_first {
                *reader = ahead;
            }
            return Ok((name, if is_first { left } else { entries }));
        }
        ahead.skip()?;
    }
    Err(ReadError::WrongType)
}

fn read_hashes(reader: &mut Reader<'_>) -> Result<Vec<EngineHash>, ReadError> {
    let Head::Array(count @ 0..=BLOCKS_PER_EVENT_MAX) = reader.head()? else {
        return Err(ReadError::WrongType);
    };
    let mut hashes = Vec::with_capacity(count);
    for _ in 0..count {
        hashes.push(read_hash(reader)?.ok_or(ReadError::WrongType)?);
    }
    Ok(hashes)
}

/// `None` for nil.
#[inline]
fn read_hash(reader: &mut Reader<'_>) -> Result<Option<EngineHash>, ReadError> {
    if let Some(bits) = reader.long_uint() {
        return Ok(Some(EngineHash(bits)));
    }
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

#[inline]
fn read_opt_u32(reader: &mut Reader<'_>) -> Result<Option<u32>, ReadError> {
    if let Some(short) = reader.short_uint() {
        return Ok(Some(u32::from(short)));
    }
    match reader.head()? {
        Head::Nil => Ok(None),
        Head::Uint(value) => u32::try_from(value).map(Some).map_err(|_| ReadError::WrongType),
        _ => Err(ReadError::WrongType),
    }
}

/// The `medium` that follows: the main pool where none is named.
fn read_medium(reader: &mut Reader<'_>) -> Result<Medium, ReadError> {
    Ok(match reader.opt_name()? {
        None | Some(b"GPU") => Medium::Gpu,
        Some(name) => Medium::by_name(text(name)?),
    })
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
