//! A MessagePack reader over a slice: no allocation, no recursion. Each call moves on by one value or its head.

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

/// How an id is written: by a marker below 0x80 that is the id, or by one that tells how many bytes of it come behind.
#[derive(Clone, Copy, Debug)]
struct Form {
    marker: u8,
    /// Behind the marker: 0, 1, 2 or 4; means nothing where the form is not known.
    bytes: u32,
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
    #[inline]
    pub(super) fn name(&mut self) -> Result<&'a [u8], ReadError> {
        if let [marker @ 0xa0..=0xbf, rest @ ..] = self.rest
            && let Some((name, rest)) = rest.split_at_checked(usize::from(marker & 0x1f))
        {
            self.rest = rest;
            return Ok(name);
        }
        self.any_name()
    }

    #[inline(never)]
    fn any_name(&mut self) -> Result<&'a [u8], ReadError> {
        match self.head()? {
            Head::Str(length) => self.take(length),
            _ => Err(ReadError::WrongType),
        }
    }

    /// The same; `None` for nil.
    #[inline]
    pub(super) fn opt_name(&mut self) -> Result<Option<&'a [u8]>, ReadError> {
        if self.take_nil() { Ok(None) } else { self.name().map(Some) }
    }

    pub(super) fn str(&mut self) -> Result<&'a str, ReadError> {
        self.opt_str()?.ok_or(ReadError::WrongType)
    }

    /// `None` for nil.
    #[inline]
    pub(super) fn opt_str(&mut self) -> Result<Option<&'a str>, ReadError> {
        self.opt_name()?.map(text).transpose()
    }

    /// The next value if it is a number in the marker itself.
    #[inline]
    pub(super) fn short_uint(&mut self) -> Option<u8> {
        let [number @ 0..=0x7f, rest @ ..] = self.rest else { return None };
        self.rest = rest;
        Some(*number)
    }

    /// Steps over the next value if it is nil. Returns whether it was.
    #[inline]
    pub(super) fn take_nil(&mut self) -> bool {
        let is_nil = self.at_nil();
        if is_nil {
            self.rest = self.rest.get(1..).unwrap_or_default();
        }
        is_nil
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
        // Not in its place in memory: read back from there for each id, it would be waited for.
        let mut reader = *self;
        let (pairs, odd) = tokens.as_chunks_mut();
        for pair in pairs {
            (*pair, reader) = match reader.short_ids() {
                Some(read) => read,
                None => reader.any_ids()?,
            };
        }
        for token in odd {
            *token = reader.token()?;
        }
        *self = reader;
        Ok(tokens)
    }

    /// Two ids in the forms of nearly all, and what follows them. Which of the forms they have is not branched on: they come
    /// mixed, and every other guess would be wrong. `None`: another form, or the end is near.
    #[inline(always)]
    fn short_ids(self) -> Option<([u32; 2], Self)> {
        let window = self.rest.first_chunk::<10>()?;
        // The second marker is taken from what was read with the first: read by itself, it would come later.
        let first = u64::from_le_bytes(*window.first_chunk()?);
        let [one, ..] = first.to_le_bytes();
        let one = Form::of(one);
        let [other, ..] = (first >> u8::BITS >> one.bits()).to_le_bytes();
        let other = Form::of(other);
        if !(one.is_known() & other.is_known()) {
            return None;
        }
        let behind = wide(1 + one.bytes);
        let ids = [one.id(window.get(1..)?)?, other.id(window.get(behind + 1..)?)?];
        let rest = self.rest.get(behind + 1 + wide(other.bytes)..)?;
        Some((ids, Self { rest }))
    }

    /// Two ids in any form, and what follows them.
    #[cold]
    #[inline(never)]
    fn any_ids(mut self) -> Result<([u32; 2], Self), ReadError> {
        Ok(([self.token()?, self.token()?], self))
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
    /// The lowest bits of 0xcc, 0xcd and 0xce are the powers of two that they stand for.
    #[inline(always)]
    fn of(marker: u8) -> Self {
        Self { marker, bytes: u32::from(marker >> 7) << (marker & 0b11) }
    }

    #[inline(always)]
    fn is_known(self) -> bool {
        (self.marker < 0x80) | (0xcc..=0xce).contains(&self.marker)
    }

    /// Behind the marker; less than 64 where the form is known.
    #[inline(always)]
    fn bits(self) -> u32 {
        u8::BITS * self.bytes % u64::BITS
    }

    /// The id of a known form, from what comes behind its marker.
    #[inline(always)]
    fn id(self, behind: &[u8]) -> Option<u32> {
        let bytes = u64::from(u32::from_be_bytes(*behind.first_chunk()?)) >> (u32::BITS - self.bits());
        let itself = self.marker & (self.marker >> 7).wrapping_sub(1);
        #[expect(clippy::cast_possible_truncation, reason = "made of 32 bits")]
        Some(bytes as u32 | u32::from(itself))
    }
}

/// The text of a string.
pub(super) fn text(bytes: &[u8]) -> Result<&str, ReadError> {
    std::str::from_utf8(bytes).map_err(|_| ReadError::WrongType)
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
