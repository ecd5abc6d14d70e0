//! Hexadecimal fixtures, for tests.

/// Bytes of hexadecimal digits.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digit = |digit: &u8| {
        char::from(*digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok()).expect("a digit")
    };
    text.as_bytes()
        .chunks(2)
        .map(|pair| pair.iter().map(digit).fold(0, |byte, digit| byte << 4 | digit))
        .collect()
}
