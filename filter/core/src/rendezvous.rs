//! What orders endpoints for a key: everybody who knows the same endpoints has the same order, without a word between them.
//!
//! Rendezvous (highest random weight) hashing: the endpoint with the largest `mix(hash(endpoint) ^ key)` comes first, and
//! one that goes moves only what it had.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

/// The key is fixed, so that every worker and every indexer has the same orders.
pub(crate) fn hash(endpoint: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(endpoint.as_bytes());
    hasher.finish()
}

/// A bijection that spreads every bit over all (the finaliser of SplitMix64).
pub(crate) fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
