//! The block keys of one prompt. In: tokens after a root. Out: a chain of keys per block size in use. Computed once,
//! outside every lock: the lookup and the speculation of a decision both go by it.

use std::num::NonZeroU32;

use crate::key::{BlockKey, KeyHasher, Namespace};

/// How to make the keys of prompts: taken under the index's lock, used outside of it.
#[derive(Clone, Debug)]
pub struct KeyPlan {
    pub(crate) hasher: KeyHasher,
    /// Sizes in use, each once.
    pub(crate) sizes: Vec<NonZeroU32>,
}

/// Keys of all whole blocks of a prompt, for each of some block sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptKeys {
    tokens: usize,
    chains: Vec<Chain>,
}

/// Keys for one block size, first block first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chain {
    size: NonZeroU32,
    keys: Vec<BlockKey>,
}

// === impl KeyPlan ===

impl KeyPlan {
    /// The keys of a prompt in its namespace.
    #[must_use]
    pub fn keys(&self, namespace: &Namespace<'_>, tokens: &[u32]) -> PromptKeys {
        let root = self.hasher.root(namespace);
        let chain = |size: &NonZeroU32| {
            let keys = tokens.chunks_exact(width(*size)).scan(root, |parent, block| {
                *parent = self.hasher.block(*parent, block, &[]);
                Some(*parent)
            });
            Chain { size: *size, keys: keys.collect() }
        };
        PromptKeys { tokens: tokens.len(), chains: self.sizes.iter().map(chain).collect() }
    }
}

// === impl PromptKeys ===

impl PromptKeys {
    /// Block sizes, each with the keys of the blocks that a hit can cover: all but the one with the last token, which
    /// an engine always computes.
    pub(crate) fn reusable(&self) -> impl Iterator<Item = (NonZeroU32, &[BlockKey])> {
        let usable = self.tokens.saturating_sub(1);
        self.chains.iter().map(move |chain| {
            (chain.size, chain.keys.get(..usable / width(chain.size)).unwrap_or(&chain.keys))
        })
    }

    /// Keys of all whole blocks of this size.
    pub(crate) fn of_size(&self, size: NonZeroU32) -> &[BlockKey] {
        self.chains.iter().find(|chain| chain.size == size).map_or(&[], |chain| &chain.keys)
    }
}

fn width(size: NonZeroU32) -> usize {
    usize::try_from(size.get()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_per_size_and_the_block_with_the_last_token_is_not_reusable() {
        let hasher = KeyHasher::new([1; 16]);
        let namespace = Namespace { model: "m", lora: None, salt: None };
        let (two, three) = (NonZeroU32::new(2).expect("2"), NonZeroU32::new(3).expect("3"));
        let plan = KeyPlan { hasher: hasher.clone(), sizes: vec![two, three] };
        let keys = plan.keys(&namespace, &[1, 2, 3, 4, 5, 6]);
        let first = hasher.block(hasher.root(&namespace), &[1, 2], &[]);
        let second = hasher.block(first, &[3, 4], &[]);
        assert_eq!(keys.of_size(two), [first, second, hasher.block(second, &[5, 6], &[])]);
        assert_eq!(keys.of_size(three).len(), 2);
        let reusable: Vec<_> = keys.reusable().map(|(size, keys)| (size.get(), keys.len())).collect();
        assert_eq!(reusable, [(2, 2), (3, 1)]);
        assert!(plan.keys(&namespace, &[]).reusable().all(|(_, keys)| keys.is_empty()));
    }
}
