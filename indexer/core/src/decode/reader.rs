//! A MessagePack reader over a slice: no allocation, no recursion. Each call moves on by one value or its head.

use std::hint::select_unpredictable;

/// Why a value could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    /// The bytes end before the value does.
    Truncated,
    /// Another type than wanted, or bytes that are not MessagePack.
    WrongType,
}

/// The head of a value. Lengths are in bytes (`Str`, `Bin`, `Ext`) or elements (`Array`) or entries (`Map`), and are
/// never more than the bytes that are left, so they are safe to allocate by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Head {
    Nil,
    Bool,
    Uint(u64),
    /// Below zero.
    Negative(i64),
    Float(f64),
    Str(usize),
    Bin(usize),
    Ext(usize),
    Array(usize),
    Map(usize),
}

/// A position in a payload. Copying it remembers the position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

/// How an id is written.
#[derive(Clone, Copy, Debug)]
struct Form {
    /// In bytes, with the marker.
    length: usize,
    is_known: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes between this earlier position and `later`.
    pub(super) fn until(self, later: Reader<'_>) -> &'a [u8] {
        let length = self.rest.len().saturating_sub(later.rest.len());
        self.rest.get(..length).unwrap_or_default()
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], ReadError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(ReadError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let (chunk, rest) = self.rest.split_first_chunk().ok_or(ReadError::Truncated)?;
        self.rest = rest;
        Ok(*chunk)
    }

    fn u8(&mut self) -> Result<u8, ReadError> {
        self.chunk().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Result<u16, ReadError> {
        self.chunk().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, ReadError> {
        self.chunk().map(u32::from_be_bytes)
    }

    /// The next value if it is a number in eight bytes, as nearly all hashes are.
    #[inline]
    pub(super) fn long_uint(&mut self) -> Option<u64> {
        let [0xcf, rest @ ..] = self.rest else { return None };
        let (number, rest) = rest.split_first_chunk()?;
        self.rest = rest;
        Some(u64::from_be_bytes(*number))
    }

    /// Reads the head of the next value. After `Str`, `Bin` and `Ext` the body follows, to be taken; after `Array` and
    /// `Map` the elements.
    pub(super) fn head(&mut self) -> Result<Head, ReadError> {
        let marker = self.u8()?;
        Ok(match marker {
            0x00..=0x7f => Head::Uint(u64::from(marker)),
            0x80..=0x8f => self.map(usize::from(marker & 0x0f))?,
            0x90..=0x9f => self.array(usize::from(marker & 0x0f))?,
            0xa0..=0xbf => self.sized(usize::from(marker & 0x1f), Head::Str)?,
            0xc0 => Head::Nil,
            0xc1 => return Err(ReadError::WrongType),
            0xc2 | 0xc3 => Head::Bool,
            0xc4 => self.u8().map(usize::from).and_then(|length| self.sized(length, Head::Bin))?,
            0xc5 => self.u16().map(usize::from).and_then(|length| self.sized(length, Head::Bin))?,
            0xc6 => self.u32().map(wide).and_then(|length| self.sized(length, Head::Bin))?,
            // An extension's length does not count its type byte.
            0xc7 => self
                .u8()
                .map(usize::from)
                .and_then(|length| self.sized(length.saturating_add(1), Head::Ext))?,
            0xc8 => self
                .u16()
                .map(usize::from)
                .and_then(|length| self.sized(length.saturating_add(1), Head::Ext))?,
            0xc9 => {
                self.u32().map(wide).and_then(|length| self.sized(length.saturating_add(1), Head::Ext))?
            }
            0xca => Head::Float(f64::from(f32::from_bits(self.u32()?))),
            0xcb => Head::Float(f64::from_bits(self.chunk().map(u64::from_be_bytes)?)),
            0xcc => Head::Uint(u64::from(self.u8()?)),
            0xcd => Head::Uint(u64::from(self.u16()?)),
            0xce => Head::Uint(u64::from(self.u32()?)),
            0xcf => Head::Uint(self.chunk().map(u64::from_be_bytes)?),
            0xd0 => signed(i64::from(self.chunk().map(i8::from_be_bytes)?)),
            0xd1 => signed(i64::from(self.chunk().map(i16::from_be_bytes)?)),
            0xd2 => signed(i64::from(self.chunk().map(i32::from_be_bytes)?)),
            0xd3 => signed(self.chunk().map(i64::from_be_bytes)?),
            0xd4..=0xd8 => self.sized((1 << (marker - 0xd4)) + 1, Head::Ext)?,
            0xd9 => self.u8().map(usize::from).and_then(|length| self.sized(length, Head::Str))?,
            0xda => self.u16().map(usize::from).and_then(|length| self.sized(length, Head::Str))?,
            0xdb => self.u32().map(wide).and_then(|length| self.sized(length, Head::Str))?,
            0xdc => self.u16().map(usize::from).and_then(|count| self.array(count))?,
            0xdd => self.u32().map(wide).and_then(|count| self.array(count))?,
            0xde => self.u16().map(usize::from).and_then(|count| self.map(count))?,
            0xdf => self.u32().map(wide).and_then(|count| self.map(count))?,
            0xe0..=0xff => Head::Negative(i64::from(marker.cast_signed())),
        })
    }

    /// Every element takes a byte at least.
    fn array(&self, count: usize) -> Result<Head, ReadError> {
        self.sized(count, Head::Array)
    }

    fn map(&self, count: usize) -> Result<Head, ReadError> {
        self.sized(count.saturating_mul(2), |_| Head::Map(count))
    }

    fn sized(&self, length: usize, head: impl FnOnce(usize) -> Head) -> Result<Head, ReadError> {
        if length > self.rest.len() { Err(ReadError::Truncated) } else { Ok(head(length)) }
    }

    /// Steps over one value, however deep: what is still to come is counted, not recursed into.
    pub(super) fn skip(&mut self) -> Result<(), ReadError> {
        let mut values = 1_usize;
        while values > 0 {
            values -= 1;
            match self.head()? {
                Head::Str(length) | Head::Bin(length) | Head::Ext(length) => {
                    self.take(length)?;
                }
                Head::Array(count) => values = values.saturating_add(count),
                Head::Map(count) => values = values.saturating_add(count.saturating_mul(2)),
                Head::Nil | Head::Bool | Head::Uint(_) | Head::Negative(_) | Head::Float(_) => {}
            }
        }
        Ok(())
    }

    /// A string that is only compared with known ones, as its bytes.
    pub(super) fn name(&mut self) -> Result<&'a [u8], ReadError> {
        match self.head()? {
            Head::Str(length) => self.take(length),
            _ => Err(ReadError::WrongType),
        }
    }

    pub(super) fn str(&mut self) -> Result<&'a str, ReadError> {
        self.opt_str()?.ok_or(ReadError::WrongType)
    }

    /// `None` for nil.
    pub(super) fn opt_str(&mut self) -> Result<Option<&'a str>, ReadError> {
        match self.head()? {
            Head::Nil => Ok(None),
            Head::Str(length) => {
                std::str::from_utf8(self.take(length)?).map(Some).map_err(|_| ReadError::WrongType)
            }
            _ => Err(ReadError::WrongType),
        }
    }

    /// Whether the next value is a map.
    pub(super) fn at_map(&self) -> bool {
        matches!(self.rest.first(), Some(0x80..=0x8f | 0xde | 0xdf))
    }

    /// Whether the next value is nil.
    pub(super) fn at_nil(&self) -> bool {
        self.rest.first() == Some(&0xc0)
    }

    /// `count` token ids. With bigram keys (SGLang with speculative decoding) an element is a pair whose first is the
    /// id.
    pub(super) fn tokens(&mut self, count: usize) -> Result<Vec<u32>, ReadError> {
        let mut tokens = vec![0; count];
        let (pairs, odd) = tokens.as_chunks_mut();
        for pair in pairs {
            *pair = match self.short_ids() {
                Some(ids) => ids,
                None => [self.token()?, self.token()?],
            };
        }
        for token in odd {
            *token = self.token()?;
        }
        Ok(tokens)
    }

    /// Two ids in the forms of nearly all: up to 127, in two bytes, in four. Which of the forms they have is not branched
    /// on: common and rare ids come mixed, and every other guess would be wrong. `None`: another form, or the end is near;
    /// then nothing is read.
    #[inline]
    fn short_ids(&mut self) -> Option<[u32; 2]> {
        let [one, near, _, middle, _, far, ..] = self.rest.first_chunk::<10>()?;
        let one = Form::of(*one);
        // The second one's marker is one of three, which are all read before it is known which.
        let other = select_unpredictable(
            one.length == Form::LONG,
            *far,
            select_unpredictable(one.length == Form::TINY, *near, *middle),
        );
        let other = Form::of(other);
        let first = self.rest.first_chunk()?;
        let second = self.rest.get(one.length..)?.first_chunk()?;
        if !(one.is_known && other.is_known) {
            return None;
        }
        let ids = [one.read(first), other.read(second)];
        self.rest = self.rest.get(one.length + other.length..)?;
        Some(ids)
    }

    fn token(&mut self) -> Result<u32, ReadError> {
        let id = match self.head()? {
            Head::Uint(id) => id,
            Head::Array(count @ 1..) => {
                let Head::Uint(id) = self.head()? else { return Err(ReadError::WrongType) };
                for _ in 1..count {
                    self.skip()?;
                }
                id
            }
            _ => return Err(ReadError::WrongType),
        };
        u32::try_from(id).map_err(|_| ReadError::WrongType)
    }
}

// === impl Form ===

impl Form {
    /// The marker is the id.
    const TINY: usize = 1;
    /// Behind the marker, in two bytes.
    const SHORT: usize = 3;
    /// Behind the marker, in four.
    const LONG: usize = 5;

    #[inline]
    fn of(marker: u8) -> Self {
        let (is_tiny, is_long) = (marker < 0x80, marker == 0xce);
        let length = Self::SHORT + 2 * usize::from(is_long) - 2 * usize::from(is_tiny);
        Self { length, is_known: is_tiny || is_long || marker == 0xcd }
    }

    /// The id of this form at the beginning of `bytes`.
    #[inline]
    fn read(self, bytes: &[u8; Self::LONG]) -> u32 {
        let [marker, id @ ..] = bytes;
        let long = u32::from_be_bytes(*id);
        let short = select_unpredictable(self.length == Self::SHORT, long >> 16, long);
        select_unpredictable(self.length == Self::TINY, u32::from(*marker), short)
    }
}

/// `usize` holds 32 bits on every platform this is built for; elsewhere the length check refuses the value.
fn wide(length: u32) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

fn signed(value: i64) -> Head {
    u64::try_from(value).map_or(Head::Negative(value), Head::Uint)
}

#[cfg(test)]
mod tests;
