//! The block keys of one prompt. In: tokens after a root. Out: a chain of keys per block size in use. Computed once,
//! outside every lock: the lookup and the speculation of a decision both go by it.
//!
//! Tokens may come in parts: [`KeyPlan::extend`] makes the keys of the blocks that a part completes, and
//! [`KeyPlan::join`] puts those of all parts together. So who has seen the beginning of a prompt before can keep its
//! keys and the [`KeyState`] behind it, and hash what is new only.

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

/// Where the making of keys stands after some tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// For each size, the key of the last whole block.
    parents: Box<[BlockKey]>,
    /// The last tokens, as many as some size has in a block that is not whole.
    pending: Box<[u32]>,
    tokens: usize,
}

/// Keys of the blocks that some tokens completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// Tokens of the prompt before these, and with these.
    before: usize,
    after: usize,
    /// Those of the first size, then those of the second, and so on.
    keys: Box<[BlockKey]>,
}

// === impl KeyPlan ===

impl KeyPlan {
    /// The keys of a prompt in its namespace.
    #[must_use]
    pub fn keys(&self, namespace: &Namespace<'_>, tokens: &[u32]) -> PromptKeys {
        let root = self.hasher.root(namespace);
        let chain =
            |size: &NonZeroU32| Chain { size: *size, keys: self.chain(root, tokens, *size).collect() };
        PromptKeys { tokens: tokens.len(), chains: self.sizes.iter().map(chain).collect() }
    }

    /// The state before the first token.
    #[must_use]
    pub fn begin(&self, namespace: &Namespace<'_>) -> KeyState {
        let root = self.hasher.root(namespace);
        KeyState { parents: self.sizes.iter().map(|_| root).collect(), pending: Box::default(), tokens: 0 }
    }

    /// The keys of the blocks that `tokens` complete. `state` must come from this plan and is that after them then.
    #[must_use]
    pub fn extend(&self, state: &mut KeyState, tokens: &[u32]) -> KeyPart {
        let (before, after) = (state.tokens, state.tokens + tokens.len());
        let open = [&state.pending, tokens].concat();
        let first_open = before - state.pending.len();
        let mut keys = Vec::with_capacity(self.sizes.iter().map(|size| whole(before, after, *size)).sum());
        for (size, parent) in self.sizes.iter().zip(&mut state.parents) {
            let begun = before - before % width(*size);
            let blocks = open.get(begun - first_open..).unwrap_or_default();
            keys.extend(self.chain(*parent, blocks, *size));
            if whole(before, after, *size) > 0 {
                *parent = keys.last().copied().unwrap_or(*parent);
            }
        }
        let pending = self.sizes.iter().map(|size| after % width(*size)).max().unwrap_or_default();
        state.pending = open.get(open.len() - pending..).unwrap_or_default().into();
        state.tokens = after;
        KeyPart { before, after, keys: keys.into() }
    }

    /// The keys of a prompt whose tokens came in `parts`, all of them, each made by this plan from the state behind the
    /// one before.
    #[must_use]
    pub fn join<'a>(&self, parts: impl Iterator<Item = &'a KeyPart> + Clone) -> PromptKeys {
        let tokens = parts.clone().last().map_or(0, |part| part.after);
        let chain = |(place, size): (usize, &NonZeroU32)| {
            let earlier = self.sizes.get(..place).unwrap_or_default();
            let mut keys = Vec::with_capacity(tokens / width(*size));
            for part in parts.clone() {
                let begin = earlier.iter().map(|size| part.count(*size)).sum();
                keys.extend_from_slice(part.keys.get(begin..begin + part.count(*size)).unwrap_or_default());
            }
            Chain { size: *size, keys }
        };
        PromptKeys { tokens, chains: self.sizes.iter().enumerate().map(chain).collect() }
    }

    /// Writes what makes the keys of a prompt besides its tokens: plans and namespaces that write the same give the same
    /// keys.
    pub fn identify(&self, namespace: &Namespace<'_>, name: &mut Vec<u8>) {
        // The root stands for the hasher's secret, the names beside it for themselves: a root has 64 bits only.
        name.extend(self.hasher.root(namespace).0.to_le_bytes());
        name.extend(self.sizes.len().to_le_bytes());
        name.extend(self.sizes.iter().flat_map(|size| size.get().to_le_bytes()));
        for part in [Some(namespace.model), namespace.lora, namespace.salt] {
            name.push(part.is_some().into());
            name.extend(part.unwrap_or_default().len().to_le_bytes());
            name.extend(part.unwrap_or_default().as_bytes());
        }
    }

    fn chain(&self, root: BlockKey, tokens: &[u32], size: NonZeroU32) -> impl Iterator<Item = BlockKey> {
        tokens.chunks_exact(width(size)).scan(root, |parent, block| {
            *parent = self.hasher.block(*parent, block, &[]);
            Some(*parent)
        })
    }
}

// === impl KeyState ===

impl KeyState {
    /// Bytes of memory outside of itself.
    #[must_use]
    pub fn owned_bytes(&self) -> usize {
        size_of_val(&*self.parents) + size_of_val(&*self.pending)
    }
}

// === impl KeyPart ===

impl KeyPart {
    /// Bytes of memory outside of itself.
    #[must_use]
    pub fn owned_bytes(&self) -> usize {
        size_of_val(&*self.keys)
    }

    fn count(&self, size: NonZeroU32) -> usize {
        whole(self.before, self.after, size)
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

/// Blocks that become whole between two numbers of tokens.
fn whole(before: usize, after: usize, size: NonZeroU32) -> usize {
    after / width(size) - before / width(size)
}

fn width(size: NonZeroU32) -> usize {
    usize::try_from(size.get()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
