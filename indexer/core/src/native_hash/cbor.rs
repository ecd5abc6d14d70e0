//! Canonical CBOR of what is hashed: shortest heads, definite lengths.

use super::{Block, NativeKey};

const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const NULL: u8 = 0xf6;

pub(super) fn block((parent, tokens, keys): Block<'_>, out: &mut Vec<u8>) {
    head(ARRAY, 3, out);
    bytes(parent.bytes(), out);
    head(ARRAY, length(tokens.len()), out);
    for token in tokens {
        head(UNSIGNED, u64::from(*token), out);
    }
    match keys {
        None => out.push(NULL),
        Some(keys) => tuple(keys, out),
    }
}

pub(super) fn text(text: &str, out: &mut Vec<u8>) {
    head(TEXT, length(text.len()), out);
    out.extend(text.as_bytes());
}

fn bytes(bytes: &[u8], out: &mut Vec<u8>) {
    head(BYTES, length(bytes.len()), out);
    out.extend(bytes);
}

fn tuple(keys: &[NativeKey], out: &mut Vec<u8>) {
    head(ARRAY, length(keys.len()), out);
    for each in keys {
        match each {
            NativeKey::Text(value) => text(value, out),
            NativeKey::Bytes(value) => bytes(value, out),
            NativeKey::Int(value) => match u64::try_from(*value) {
                Ok(value) => head(UNSIGNED, value, out),
                Err(_) => head(NEGATIVE, !value.cast_unsigned(), out),
            },
            NativeKey::Tuple(keys) => tuple(keys, out),
        }
    }
}

/// A value's type and its number: itself, or its length.
fn head(major: u8, number: u64, out: &mut Vec<u8>) {
    let major = major << 5;
    if let Ok(number) = u8::try_from(number) {
        if number < 24 {
            out.push(major | number);
        } else {
            out.extend([major | 24, number]);
        }
    } else if let Ok(number) = u16::try_from(number) {
        out.push(major | 25);
        out.extend(number.to_be_bytes());
    } else if let Ok(number) = u32::try_from(number) {
        out.push(major | 26);
        out.extend(number.to_be_bytes());
    } else {
        out.push(major | 27);
        out.extend(number.to_be_bytes());
    }
}

fn length(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
