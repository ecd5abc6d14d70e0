//! Answers of engines, from which the filter reads token counts and the id of a response as they pass by. Input: 8 bytes
//! that say how the answer is cut, then the answer.
//!
//! What is read may depend on the bytes alone, not on how the network cut them.

use warmpath_core::response::{IdReader, ResponseKey};
use warmpath_core::usage::{Tail, Usage};

/// Checks one answer.
pub fn check(input: &[u8]) {
    let Some((cuts, answer)) = input.split_first_chunk::<8>() else { return };
    let whole = read([answer]);
    for longest in [1, 7, 64, 1024, 8192] {
        assert_eq!(read(Chunks { rest: answer, longest, state: u64::from_le_bytes(*cuts) | 1 }), whole);
    }
    if let Some(cached) = whole.0.cached_tokens {
        let digits = cached.to_string();
        assert!(answer.windows(digits.len()).any(|w| w == digits.as_bytes()), "{cached} is invented");
    }
}

fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Usage, Option<ResponseKey>) {
    let (mut tail, mut id) = (Tail::default(), IdReader::Seeking(Vec::new()));
    for chunk in chunks {
        tail.push(chunk);
        // As the filter does it: only what is wanted is fetched.
        id.push(chunk.get(..id.wanted()).unwrap_or(chunk));
    }
    (tail.usage(), id.key())
}

/// Pieces of 1 to `longest` bytes.
struct Chunks<'a> {
    rest: &'a [u8],
    longest: usize,
    state: u64,
}

impl<'a> Iterator for Chunks<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let length = 1 + usize::try_from(self.state >> 33).unwrap_or_default() % self.longest;
        let (chunk, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        (!chunk.is_empty()).then_some(chunk)
    }
}
