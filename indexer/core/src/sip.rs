//! SipHash-1-3 by words. The keys of blocks are hashed by the thousand per request, and token ids make whole words, so
//! the state stays in registers; a streaming implementation over bytes takes three times as long.

/// The state after some whole words. Copying it forks the input.
#[derive(Clone, Copy)]
pub(crate) struct Sip13 {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
    words: u64,
}

impl Sip13 {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        let key = u128::from_le_bytes(key);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of the key")]
        let (k0, k1) = (key as u64, (key >> 64) as u64);
        Self {
            v0: k0 ^ 0x736f_6d65_7073_6575,
            v1: k1 ^ 0x646f_7261_6e64_6f6d,
            v2: k0 ^ 0x6c79_6765_6e65_7261,
            v3: k1 ^ 0x7465_6462_7974_6573,
            words: 0,
        }
    }

    /// Takes eight bytes, as a little-endian word.
    #[inline]
    pub(crate) fn word(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.v0 ^= word;
        self.words = self.words.wrapping_add(1);
    }

    /// Takes bytes; a rest of less than a word may only come at the very end, and is returned.
    pub(crate) fn bytes<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        rest
    }

    /// The hash, with `rest` (less than eight bytes) as the end of the input.
    #[inline]
    pub(crate) fn finish(mut self, rest: &[u8]) -> u64 {
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        // Only the lowest byte of the length counts, and whole words add nothing below their eights.
        let [length, ..] = self.words.wrapping_mul(8).to_le_bytes();
        let rest_length = u8::try_from(rest.len()).unwrap_or(7);
        last[7] = length.wrapping_add(rest_length);
        self.word(u64::from_le_bytes(last));
        self.v2 ^= 0xff;
        for _ in 0..3 {
            self.round();
        }
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }

    #[inline]
    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use siphasher::sip::SipHasher13;

    use super::*;

    fn hash(key: [u8; 16], input: &[u8]) -> u64 {
        let mut sip = Sip13::new(key);
        let rest = sip.bytes(input);
        sip.finish(rest)
    }

    #[test]
    fn inputs_longer_than_a_byte_can_count_are_hashed_right() {
        for length in 240..280 {
            let input = vec![7; length];
            assert_eq!(
                hash([1; 16], &input),
                SipHasher13::new_with_key(&[1; 16]).hash(&input),
                "{length} bytes"
            );
        }
    }

    proptest! {
        #[test]
        fn it_is_siphash_1_3(key: [u8; 16], input in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(hash(key, &input), SipHasher13::new_with_key(&key).hash(&input));
        }
    }
}
