//! A JSON reader that allocates nothing for what it skips: slices of the text in, slices of the text out.
//!
//! It accepts exactly the texts of RFC 8259 up to [`JSON_DEPTH_MAX`] levels. Skipping a value is a loop with one bit per
//! level, so no input can exhaust the stack. Members come in the order of the text; who reads an object lets the last
//! of equal keys win, as engines do.

use std::borrow::Cow;

use crate::limits::JSON_DEPTH_MAX;

/// Why a text cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// Not JSON.
    #[error("no JSON at byte {at}")]
    Syntax {
        /// Offset of the first byte that does not fit.
        at: usize,
    },
    /// Nested too deep.
    #[error("JSON nested deeper than {JSON_DEPTH_MAX} levels at byte {at}")]
    Depth {
        /// Offset of the bracket that is too deep.
        at: usize,
    },
}

/// One value, as it stands in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Raw<'a> {
    /// The value without white space around it.
    pub(crate) text: &'a str,
    /// A string in it, or a key, escapes one half of a surrogate pair: no Unicode text.
    pub(crate) lone_surrogate: bool,
}

/// A string that escapes one half of a surrogate pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoneSurrogate;

impl<'a> Raw<'a> {
    pub(crate) fn is_null(&self) -> bool {
        self.text == "null"
    }

    pub(crate) fn is_array(&self) -> bool {
        self.text.starts_with('[')
    }

    pub(crate) fn is_object(&self) -> bool {
        self.text.starts_with('{')
    }

    pub(crate) fn is_string(&self) -> bool {
        self.text.starts_with('"')
    }

    /// The first byte of an array's first element; the closing bracket where it has none.
    pub(crate) fn first_inside(&self) -> Option<u8> {
        self.text.bytes().skip(1).find(|b| !b.is_ascii_whitespace())
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        match self.text {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// An integer written without fraction and exponent.
    pub(crate) fn as_i64(&self) -> Option<i64> {
        self.text.parse().ok()
    }

    /// The text of a string; none for other values.
    pub(crate) fn as_str(&self) -> Option<Result<Cow<'a, str>, LoneSurrogate>> {
        self.text.strip_prefix('"')?.strip_suffix('"').map(unescape)
    }
}

/// A place in a text. Cheap to copy; offsets are bytes.
#[derive(Clone, Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    lone_surrogate: bool,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0, lone_surrogate: false }
    }

    /// Offset of the next byte.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The next byte that is no white space, without taking it.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.byte() {
            if !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    /// Nothing but white space follows.
    pub(crate) fn finish(&mut self) -> Result<(), Fault> {
        if self.peek().is_none() { Ok(()) } else { Err(self.syntax()) }
    }

    /// Takes one value of any kind.
    pub(crate) fn value(&mut self) -> Result<Raw<'a>, Fault> {
        self.peek();
        let (from, before) = (self.at, std::mem::take(&mut self.lone_surrogate));
        self.skip()?;
        let raw = Raw { text: self.slice(from, self.at)?, lone_surrogate: self.lone_surrogate };
        self.lone_surrogate |= before;
        Ok(raw)
    }

    /// Takes an object; `member` gets each key, as it stands between its quotes, and must take the value.
    pub(crate) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &'a str) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.expect(b'{')?;
        if self.took(b'}') {
            return Ok(());
        }
        loop {
            self.peek();
            let from = self.at + 1;
            self.string()?;
            let key = self.slice(from, self.at - 1)?;
            self.expect(b':')?;
            member(self, key)?;
            if self.took(b'}') {
                return Ok(());
            }
            self.expect(b',')?;
        }
    }

    /// Takes an array; `element` gets the index of each element and must take it.
    pub(crate) fn array(
        &mut self,
        mut element: impl FnMut(&mut Self, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.expect(b'[')?;
        if self.took(b']') {
            return Ok(());
        }
        for index in 0.. {
            element(self, index)?;
            if self.took(b']') {
                break;
            }
            self.expect(b',')?;
        }
        Ok(())
    }

    /// Skips one value. `open` holds one bit per level, set for objects.
    fn skip(&mut self) -> Result<(), Fault> {
        let (mut open, mut depth) = (0u128, 0u32);
        loop {
            match self.peek().ok_or(self.syntax())? {
                bracket @ (b'{' | b'[') => {
                    if depth == JSON_DEPTH_MAX {
                        return Err(Fault::Depth { at: self.at });
                    }
                    self.at += 1;
                    let object = bracket == b'{';
                    (open, depth) = (open << 1 | u128::from(object), depth + 1);
                    if !self.took(if object { b'}' } else { b']' }) {
                        if object {
                            self.key()?;
                        }
                        continue;
                    }
                    (open, depth) = (open >> 1, depth - 1);
                }
                b'"' => self.string()?,
                b't' => self.literal("true")?,
                b'f' => self.literal("false")?,
                b'n' => self.literal("null")?,
                _ => self.number()?,
            }
            loop {
                if depth == 0 {
                    return Ok(());
                }
                let object = open & 1 == 1;
                if self.took(b',') {
                    if object {
                        self.key()?;
                    }
                    break;
                }
                self.expect(if object { b'}' } else { b']' })?;
                (open, depth) = (open >> 1, depth - 1);
            }
        }
    }

    fn key(&mut self) -> Result<(), Fault> {
        self.peek();
        self.string()?;
        self.expect(b':')
    }

    /// Takes a string with its quotes.
    fn string(&mut self) -> Result<(), Fault> {
        if self.byte() != Some(b'"') {
            return Err(self.syntax());
        }
        self.at += 1;
        loop {
            self.at = plain_run(self.text.as_bytes(), self.at);
            match self.byte() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                _ => return Err(self.syntax()),
            }
        }
    }

    /// Takes one escape, two of them where they are a surrogate pair.
    fn escape(&mut self) -> Result<(), Fault> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        match rest.get(1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => {
                let unit = utf16_unit(rest).ok_or(self.syntax())?;
                self.at += 6;
                match unit {
                    0xd800..=0xdbff => match rest.get(6..).and_then(utf16_unit) {
                        Some(0xdc00..=0xdfff) => self.at += 6,
                        _ => self.lone_surrogate = true,
                    },
                    0xdc00..=0xdfff => self.lone_surrogate = true,
                    _ => {}
                }
            }
            _ => return Err(self.syntax()),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Fault> {
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        if self.byte() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.byte(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let from = self.at;
        while self.byte().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == from { Err(self.syntax()) } else { Ok(()) }
    }

    fn literal(&mut self, word: &str) -> Result<(), Fault> {
        if self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            self.at += word.len();
            Ok(())
        } else {
            Err(self.syntax())
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Fault> {
        if self.took(byte) { Ok(()) } else { Err(self.syntax()) }
    }

    /// Takes `byte`, after white space, if it is next.
    fn took(&mut self, byte: u8) -> bool {
        let next = self.peek() == Some(byte);
        self.at += usize::from(next);
        next
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn slice(&self, from: usize, to: usize) -> Result<&'a str, Fault> {
        self.text.get(from..to).ok_or(self.syntax())
    }

    fn syntax(&self) -> Fault {
        Fault::Syntax { at: self.at }
    }
}

/// The text that an escaped string, without its quotes, stands for. The string must have been read by a [`Scanner`].
pub(crate) fn unescape(escaped: &str) -> Result<Cow<'_, str>, LoneSurrogate> {
    let Some(first) = escaped.find('\\') else { return Ok(Cow::Borrowed(escaped)) };
    let mut plain = String::with_capacity(escaped.len());
    plain.push_str(escaped.get(..first).unwrap_or_default());
    let mut rest = escaped.get(first..).unwrap_or_default();
    while let Some(escape) = rest.strip_prefix('\\') {
        let (char, length) = match escape.as_bytes().first() {
            Some(b'b') => ('\u{8}', 2),
            Some(b'f') => ('\u{c}', 2),
            Some(b'n') => ('\n', 2),
            Some(b'r') => ('\r', 2),
            Some(b't') => ('\t', 2),
            Some(b'u') => utf16_char(rest.as_bytes()).ok_or(LoneSurrogate)?,
            Some(other) => (char::from(*other), 2),
            None => break,
        };
        plain.push(char);
        rest = rest.get(length..).unwrap_or_default();
        let run = rest.find('\\').unwrap_or(rest.len());
        plain.push_str(rest.get(..run).unwrap_or_default());
        rest = rest.get(run..).unwrap_or_default();
    }
    Ok(Cow::Owned(plain))
}

/// The character of the one or two `\uXXXX` at the beginning, and their length in bytes.
fn utf16_char(bytes: &[u8]) -> Option<(char, usize)> {
    let first = utf16_unit(bytes)?;
    if let Some(char) = char::from_u32(u32::from(first)) {
        return Some((char, 6));
    }
    let second = utf16_unit(bytes.get(6..)?)?;
    let char = char::decode_utf16([first, second]).next()?.ok()?;
    Some((char, 12))
}

/// The unit of the `\uXXXX` at the beginning.
fn utf16_unit(bytes: &[u8]) -> Option<u16> {
    bytes.strip_prefix(b"\\u")?.get(..4)?.iter().try_fold(0u16, |unit, byte| {
        let digit = char::from(*byte).to_digit(16)?;
        Some(unit << 4 | u16::try_from(digit).ok()?)
    })
}

/// Offset of the first byte at or after `from` that ends a run of plain string bytes: a quote, a backslash or a control
/// character. Eight bytes at a time: most of a request is such runs.
fn plain_run(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let found = special_bytes(u64::from_le_bytes(*chunk));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|b| !matches!(b, b'"' | b'\\' | 0..0x20)) {
        at += 1;
    }
    at
}

/// The top bit of each byte that is a quote, a backslash or below 0x20; bits above the first such byte may be wrong.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const TOPS: u64 = u64::from_ne_bytes([0x80; 8]);
    let zero = |w: u64| w.wrapping_sub(ONES) & !w;
    let quote = zero(word ^ (ONES * b'"' as u64));
    let backslash = zero(word ^ (ONES * b'\\' as u64));
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (quote | backslash | control) & TOPS
}

#[cfg(test)]
mod tests;
