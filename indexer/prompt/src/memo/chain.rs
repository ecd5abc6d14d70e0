//! Names for the beginnings of texts: a text is taken in part by part, and after each part there is a [`Key`] for all that
//! was taken in so far. Whoever finds something under a key may take it for the same beginning.
//!
//! ```text
//! scope ─▶ SipHash-1-3 ◀─ (length, NH of each 1 kB) of part 1 ◀─ … of part 2 ◀─ …
//!                      └─▶ key 1                     └─▶ key 2
//! ```
//!
//! Each kilobyte becomes 128 bits by NH, the universal hash of UMAC and VMAC: for two different texts of the same length,
//! chosen by somebody who does not know the secret, these bits are equal with a probability of at most 2^-64. What is
//! chained is small, so a pseudo-random function can do it: SipHash-1-3 with 128 bits of output. A collision would give a
//! prompt the ids of another and so misdirect it; nothing else depends on a key, and none leaves the process.

use std::hash::Hasher;

use siphasher::sip::SipHasher13 as Sip64;
use siphasher::sip128::{Hasher128, SipHasher13};

/// Bytes of text that one run of NH takes; there must be as many of key.
const BLOCK_BYTES: usize = 1024;
const BLOCK_WORDS: usize = BLOCK_BYTES / 8;

/// What is not known outside of the process.
pub(super) struct Secret {
    sip: [u8; 16],
    nh: Box<[u64; BLOCK_WORDS]>,
}

/// A scope and the parts of a text that were taken in.
#[derive(Clone)]
pub(super) struct Chain<'s> {
    secret: &'s Secret,
    taken: SipHasher13,
}

/// The name of everything that a chain has taken in. Looks random to whoever does not know the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key(pub(super) u128);

// === impl Secret ===

impl Secret {
    pub(super) fn new(random: [u8; 16]) -> Self {
        // SipHash of a counter: the two uses of the random bytes, and every word, are independent of each other.
        let word = |counter: usize| {
            let mut sip = Sip64::new_with_key(&random);
            sip.write_usize(counter);
            sip.finish()
        };
        let nh = Box::new(std::array::from_fn(word));
        let sip = (u128::from(word(BLOCK_WORDS)) << 64) | u128::from(word(BLOCK_WORDS + 1));
        Self { sip: sip.to_le_bytes(), nh }
    }

    fn universal(&self, block: &[u8]) -> u128 {
        let (pairs, rest) = block.as_chunks::<16>();
        let (keys, _) = self.nh.as_chunks::<2>();
        // Several sums at a time, as an addition with carry waits for the one before it.
        let (fours, others) = pairs.as_chunks::<4>();
        let (fours_of_keys, _) = keys.as_chunks::<4>();
        let mut sums = [0_u128; 4];
        for (pairs, keys) in fours.iter().zip(fours_of_keys) {
            for ((sum, pair), keys) in sums.iter_mut().zip(pairs).zip(keys) {
                *sum = sum.wrapping_add(product(pair, keys));
            }
        }
        // A rest is filled up with zeros; the length tells it from one that ends in zeros.
        let mut last = [0; 16];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        let last = (!rest.is_empty()).then_some(&last);
        let keys = keys.get(fours.len() * 4..).unwrap_or_default();
        let sum = sums.into_iter().fold(0, u128::wrapping_add);
        let others = others.iter().chain(last).zip(keys);
        others.fold(sum, |sum, (pair, keys)| sum.wrapping_add(product(pair, keys)))
    }
}

/// Of the two words of a pair, each added to its key.
#[inline]
fn product(pair: &[u8; 16], [first, second]: &[u64; 2]) -> u128 {
    let words = u128::from_le_bytes(*pair);
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the pair")]
    let (low, high) = (words as u64, (words >> 64) as u64);
    u128::from(low.wrapping_add(*first)) * u128::from(high.wrapping_add(*second))
}

// === impl Chain ===

impl<'s> Chain<'s> {
    /// Chains of different scopes have nothing in common.
    pub(super) fn begin(secret: &'s Secret, scope: &[u8]) -> Self {
        let mut chain = Chain { secret, taken: SipHasher13::new_with_key(&secret.sip) };
        chain.taken.write_usize(scope.len());
        chain.taken.write(scope);
        chain
    }

    /// Takes in the next part; the key names everything up to its end, and where parts ended.
    pub(super) fn take(&mut self, part: &[u8]) -> Key {
        self.taken.write_usize(part.len());
        for block in part.chunks(BLOCK_BYTES) {
            self.taken.write_u128(self.secret.universal(block));
        }
        Key(self.taken.finish128().as_u128())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn keys(secret: &Secret, scope: &[u8], parts: &[&[u8]]) -> Vec<Key> {
        let mut chain = Chain::begin(secret, scope);
        parts.iter().map(|part| chain.take(part)).collect()
    }

    #[test]
    fn a_key_depends_on_secret_scope_every_byte_every_length_and_every_place_of_a_part() {
        let secret = Secret::new([1; 16]);
        let text: Vec<u8> = (0..2500_u32).map(|place| (place % 251) as u8).collect();
        let last = |parts: &[&[u8]]| *keys(&secret, b"scope", parts).last().unwrap();
        let mut seen = HashSet::from([last(&[&text])]);
        for place in 0..text.len() {
            let mut other = text.clone();
            other[place] ^= 0x80;
            assert!(seen.insert(last(&[&other])), "byte {place}");
            assert!(seen.insert(last(&[&text[..place]])), "length {place}");
            assert!(seen.insert(last(&[&text[..place], &text[place..]])), "parted at {place}");
        }
        assert!(seen.insert(last(&[b"a"])));
        assert!(seen.insert(last(&[b"a\0"])), "zeros are not padding");
        assert!(seen.insert(keys(&secret, b"other", &[&text])[0]));
        assert!(seen.insert(keys(&Secret::new([2; 16]), b"scope", &[&text])[0]));
    }

    /// Pairs are summed by fours, but the sum is that of all, each with its own key.
    #[test]
    fn the_sum_is_that_of_the_definition() {
        let secret = Secret::new([5; 16]);
        let text: Vec<u8> = (0..BLOCK_BYTES).map(|place| (place * 7 % 253) as u8).collect();
        for length in 0..=BLOCK_BYTES {
            let mut filled = text[..length].to_vec();
            filled.resize(length.next_multiple_of(16), 0);
            let words: Vec<u64> =
                filled.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
            let sum = words.chunks(2).zip(secret.nh.chunks(2)).fold(0_u128, |sum, (words, keys)| {
                let [first, second] = [0, 1].map(|at| u128::from(words[at].wrapping_add(keys[at])));
                sum.wrapping_add(first * second)
            });
            assert_eq!(secret.universal(&text[..length]), sum, "{length}");
        }
    }

    #[test]
    fn beginnings_have_their_keys_whatever_follows() {
        let secret = Secret::new([7; 16]);
        let short = keys(&secret, b"", &[b"one", b"two"]);
        let long = keys(&secret, b"", &[b"one", b"two", b"three"]);
        assert_eq!(long[..2], short);
    }

    /// Blocks that are swapped or moved by a word must not cancel out, as they would in a plain sum.
    #[test]
    fn the_order_of_words_and_blocks_counts() {
        let secret = Secret::new([3; 16]);
        let (a, b) = ([b'a'; BLOCK_BYTES], [b'b'; BLOCK_BYTES]);
        assert_ne!(keys(&secret, b"", &[&[a, b].concat()]), keys(&secret, b"", &[&[b, a].concat()]));
        let words = |order: [u8; 4]| order.map(|letter| [letter; 8]).concat();
        let orders = [*b"abcd", *b"badc", *b"cdab", *b"dcba", *b"acbd"];
        let all: HashSet<_> = orders.map(|order| keys(&secret, b"", &[&words(order)])[0]).into();
        assert_eq!(all.len(), orders.len());
    }
}
