//! What a prompt consists of, without its tokens: a chain of ids, one for each whole block.
//!
//! Two prompts share a block exactly if they share its id, and then they share everything before it: an id is made of
//! the id before it and of what is in the block. That is what engines do with hashes of tokens, at the cost of one
//! multiplication a block.

use std::sync::Arc;

/// A prompt of known length, cut into blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Tokens in all.
    pub tokens: u32,
    /// The whole blocks.
    pub chain: Arc<[u64]>,
    /// The texts that it is made of, by name, each with its length in tokens: for who needs words.
    pub texts: Arc<[(u64, u32)]>,
}

/// Puts a prompt together from stretches of text.
#[derive(Debug)]
pub struct PromptBuilder {
    block_tokens: u32,
    tokens: u32,
    chain: Vec<u64>,
    texts: Vec<(u64, u32)>,
    /// What the block that is not whole yet has so far, with the chain before it.
    open: u64,
}

/// Where every chain begins.
const ROOT: u64 = 0x9E37_79B9_7F4A_7C15;

// === impl PromptBuilder ===

impl PromptBuilder {
    /// An empty prompt for engines with this many tokens in a block.
    pub fn new(block_tokens: u32) -> Self {
        Self {
            block_tokens: block_tokens.max(1),
            tokens: 0,
            chain: Vec::new(),
            texts: Vec::new(),
            open: ROOT,
        }
    }

    /// Appends the first `tokens` tokens of the text that `content` names.
    #[must_use]
    pub fn text(mut self, content: u64, tokens: u32) -> Self {
        self.texts.push((content, tokens));
        let mut from = 0;
        while from < tokens {
            let room = self.block_tokens - self.tokens % self.block_tokens;
            let taken = room.min(tokens - from);
            self.open = mix(mix(self.open, content), u64::from(from) << 32 | u64::from(taken));
            self.tokens += taken;
            from += taken;
            if taken == room {
                self.chain.push(self.open);
            }
        }
        self
    }

    /// The prompt.
    pub fn build(self) -> Prompt {
        Prompt { tokens: self.tokens, chain: self.chain.into(), texts: self.texts.into() }
    }
}

/// Of two numbers one that looks random.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut x = a.rotate_left(23) ^ b.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x = (x ^ (x >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x = (x ^ (x >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x ^ (x >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(a: &Prompt, b: &Prompt) -> usize {
        a.chain.iter().zip(b.chain.iter()).take_while(|(a, b)| a == b).count()
    }

    #[test]
    fn prompts_share_the_whole_blocks_of_what_they_share() {
        let prompt = |own| PromptBuilder::new(16).text(1, 100).text(own, 60).build();
        let (a, b) = (prompt(7), prompt(8));
        assert_eq!((a.tokens, a.chain.len()), (160, 10));
        assert_eq!(shared(&a, &b), 6);
        assert_eq!(shared(&a, &prompt(7)), 10);
        assert_eq!(shared(&a, &PromptBuilder::new(16).text(1, 90).build()), 5);
    }

    #[test]
    fn the_same_text_in_another_place_is_another_block() {
        let a = PromptBuilder::new(16).text(1, 16).text(2, 16).build();
        let b = PromptBuilder::new(16).text(2, 16).text(1, 16).build();
        assert!(a.chain.iter().all(|id| !b.chain.contains(id)));
    }
}
