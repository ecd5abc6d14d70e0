//! Pickle (protocol 5) of what is hashed, as CPython writes it: one frame, everything but numbers and None remembered.
//! Above 64 KiB CPython begins further frames; blocks of so many tokens do not come out as its own.

use super::{Block, NativeKey};

const PROTOCOL: [u8; 2] = [0x80, 5];
const FRAME: u8 = 0x95;
const STOP: u8 = b'.';
const NONE: u8 = b'N';
/// Behind each value that a later one could refer to.
const MEMOIZE: u8 = 0x94;
const MARK: u8 = b'(';
const TUPLE: u8 = b't';
const EMPTY_TUPLE: u8 = b')';
/// Tuples of one to three.
const SHORT_TUPLES: [u8; 3] = [0x85, 0x86, 0x87];

/// Of the frame's head: its mark, and the length of what follows.
const HEAD: usize = 1 + size_of::<u64>();

pub(super) fn block((parent, tokens, keys): Block<'_>, out: &mut Vec<u8>) {
    begin(out);
    bytes(parent.bytes(), out);
    elements(tokens.len(), tokens.iter(), |token, out| int(i64::from(*token), out), out);
    match keys {
        None => out.push(NONE),
        Some(keys) => tuple(keys, out),
    }
    out.extend([0x87, MEMOIZE]);
    end(out);
}

pub(super) fn text(value: &str, out: &mut Vec<u8>) {
    begin(out);
    string(value, out);
    end(out);
}

fn begin(out: &mut Vec<u8>) {
    out.extend(PROTOCOL);
    out.push(FRAME);
    out.extend([0; size_of::<u64>()]);
}

/// Ends the frame and writes its length where room was left.
fn end(out: &mut Vec<u8>) {
    out.push(STOP);
    let framed = out.len().saturating_sub(PROTOCOL.len() + HEAD);
    let length = u64::try_from(framed).unwrap_or(u64::MAX).to_le_bytes();
    if let Some(room) = out.get_mut(PROTOCOL.len() + 1..PROTOCOL.len() + HEAD) {
        room.copy_from_slice(&length);
    }
}

fn tuple(keys: &[NativeKey], out: &mut Vec<u8>) {
    let each = |key: &NativeKey, out: &mut Vec<u8>| match key {
        NativeKey::Text(value) => string(value, out),
        NativeKey::Bytes(value) => bytes(value, out),
        NativeKey::Int(value) => int(*value, out),
        NativeKey::Tuple(keys) => tuple(keys, out),
    };
    elements(keys.len(), keys.iter(), each, out);
}

fn elements<T>(
    count: usize,
    elements: impl Iterator<Item = T>,
    each: impl Fn(T, &mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    let Some(last) = count.checked_sub(1) else {
        out.push(EMPTY_TUPLE);
        return;
    };
    let short = SHORT_TUPLES.get(last);
    if short.is_none() {
        out.push(MARK);
    }
    for element in elements {
        each(element, out);
    }
    out.extend([*short.unwrap_or(&TUPLE), MEMOIZE]);
}

/// In the shortest of four forms: one byte, two, four signed, or as many as it takes.
fn int(value: i64, out: &mut Vec<u8>) {
    if let Ok(value) = u8::try_from(value) {
        out.extend([b'K', value]);
    } else if let Ok(value) = u16::try_from(value) {
        out.push(b'M');
        out.extend(value.to_le_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        out.push(b'J');
        out.extend(value.to_le_bytes());
    } else {
        let all = value.to_le_bytes();
        let fill = if value < 0 { 0xff } else { 0 };
        // Two's complement: the last byte kept must still show the sign.
        let mut kept = all.as_slice();
        while let [rest @ .., before, last] = kept
            && *last == fill
            && (*before ^ fill) & 0x80 == 0
        {
            kept = kept.get(..rest.len() + 1).unwrap_or_default();
        }
        out.extend([0x8a, u8::try_from(kept.len()).unwrap_or(u8::MAX)]);
        out.extend(kept);
    }
}

fn bytes(value: &[u8], out: &mut Vec<u8>) {
    sized(b'C', b'B', value, out);
}

fn string(value: &str, out: &mut Vec<u8>) {
    sized(0x8c, b'X', value.as_bytes(), out);
}

fn sized(short: u8, long: u8, value: &[u8], out: &mut Vec<u8>) {
    if let Ok(length) = u8::try_from(value.len()) {
        out.extend([short, length]);
    } else {
        out.push(long);
        out.extend(u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
    }
    out.extend(value);
    out.push(MEMOIZE);
}
