//! The block keys of one prompt. In: tokens after a root. Out: a chain of keys per layout of blocks in use. Computed once,
//! outside every lock: the lookup and the speculation of a decision both go by it.
//!
//! Tokens may come in parts: [`KeyPlan::extend`] makes the keys of the blocks that a part completes, and
//! [`KeyPlan::join`] puts those of all parts together. So who has seen the beginning of a prompt before can keep its
//! keys and the [`KeyState`] behind it, and hash what is new only.

use std::num::NonZeroU32;

use crate::key::{BlockKey, KeyHasher, Namespace};

/// What makes the blocks of some streams: tokens per block, and in the upper bits how many tokens behind a block its key
/// covers as well. Half a word, for lookups compare it for each stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Layout(NonZeroU32);

/// How to make the keys of prompts: taken under the index's lock, used outside of it.
#[derive(Clone, Debug)]
pub struct KeyPlan {
    pub(crate) hasher: KeyHasher,
    /// Layouts in use, each once.
    pub(crate) layouts: Vec<Layout>,
}

/// Keys of all whole blocks of a prompt, for each of some layouts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptKeys {
    tokens: usize,
    chains: Vec<Chain>,
}

/// Keys for one layout, first block first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chain {
    layout: Layout,
    keys: Vec<BlockKey>,
}

/// Keys of a prompt's first blocks as plain numbers, for another process with the same secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRun {
    /// Tokens per block.
    pub block_size: u32,
    /// Tokens behind a block that its key covers.
    pub ahead: u32,
    /// First block first.
    pub keys: Vec<u64>,
}

/// Where the making of keys stands after some tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// For each layout, the key of the last whole block.
    parents: Box<[BlockKey]>,
    /// The last tokens, as many as some layout has from the first block that is not whole on.
    pending: Box<[u32]>,
    tokens: usize,
}

/// Keys of the blocks that some tokens completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// Tokens of the prompt before these, and with these.
    before: usize,
    after: usize,
    /// Those of the first layout, then those of the second, and so on.
    keys: Box<[BlockKey]>,
}

// === impl KeyPlan ===

impl KeyPlan {
    /// The keys of a prompt in its namespace.
    #[must_use]
    pub fn keys(&self, namespace: &Namespace<'_>, tokens: &[u32]) -> PromptKeys {
        let root = self.hasher.root(namespace);
        let chain =
            |layout: &Layout| Chain { layout: *layout, keys: self.chain(root, tokens, *layout).collect() };
        PromptKeys { tokens: tokens.len(), chains: self.layouts.iter().map(chain).collect() }
    }

    /// The state before the first token.
    #[must_use]
    pub fn begin(&self, namespace: &Namespace<'_>) -> KeyState {
        let root = self.hasher.root(namespace);
        KeyState { parents: self.layouts.iter().map(|_| root).collect(), pending: Box::default(), tokens: 0 }
    }

    /// The keys of the blocks that `tokens` complete. `state` must come from this plan and is that after them then.
    #[must_use]
    pub fn extend(&self, state: &mut KeyState, tokens: &[u32]) -> KeyPart {
        let (before, after) = (state.tokens, state.tokens + tokens.len());
        let open = [&state.pending, tokens].concat();
        let first_open = before - state.pending.len();
        let count = self.layouts.iter().map(|layout| layout.completed(before, after)).sum();
        let mut keys = Vec::with_capacity(count);
        for (layout, parent) in self.layouts.iter().zip(&mut state.parents) {
            let blocks = open.get(layout.begun(before) - first_open..).unwrap_or_default();
            keys.extend(self.chain(*parent, blocks, *layout));
            if layout.completed(before, after) > 0 {
                *parent = keys.last().copied().unwrap_or(*parent);
            }
        }
        let pending = self.layouts.iter().map(|layout| after - layout.begun(after)).max().unwrap_or_default();
        state.pending = open.get(open.len() - pending..).unwrap_or_default().into();
        state.tokens = after;
        KeyPart { before, after, keys: keys.into() }
    }

    /// The keys of a prompt whose tokens came in `parts`, all of them, each made by this plan from the state behind the
    /// one before.
    #[must_use]
    pub fn join<'a>(&self, parts: impl Iterator<Item = &'a KeyPart> + Clone) -> PromptKeys {
        let tokens = parts.clone().last().map_or(0, |part| part.after);
        let chain = |(place, layout): (usize, &Layout)| {
            let earlier = self.layouts.get(..place).unwrap_or_default();
            let mut keys = Vec::with_capacity(layout.whole(tokens));
            for part in parts.clone() {
                let begin = earlier.iter().map(|layout| part.count(*layout)).sum();
                keys.extend_from_slice(part.keys.get(begin..begin + part.count(*layout)).unwrap_or_default());
            }
            Chain { layout: *layout, keys }
        };
        PromptKeys { tokens, chains: self.layouts.iter().enumerate().map(chain).collect() }
    }

    /// Writes what makes the keys of a prompt besides its tokens: plans and namespaces that write the same give the same
    /// keys.
    pub fn identify(&self, namespace: &Namespace<'_>, name: &mut Vec<u8>) {
        // The root stands for the hasher's secret, the names beside it for themselves: a root has 64 bits only.
        name.extend(self.hasher.root(namespace).0.to_le_bytes());
        name.extend(self.layouts.len().to_le_bytes());
        for layout in &self.layouts {
            name.extend(layout.size().to_le_bytes());
            name.extend(layout.ahead().to_le_bytes());
        }
        for part in [Some(namespace.model), namespace.lora, namespace.salt] {
            name.push(part.is_some().into());
            name.extend(part.unwrap_or_default().len().to_le_bytes());
            name.extend(part.unwrap_or_default().as_bytes());
        }
    }

    fn chain<'a>(
        &'a self,
        root: BlockKey,
        tokens: &'a [u32],
        layout: Layout,
    ) -> impl Iterator<Item = BlockKey> + 'a {
        let ahead = index(layout.ahead());
        let whole = tokens.len().saturating_sub(ahead);
        let blocks = tokens.get(..whole).unwrap_or_default().chunks_exact(layout.width());
        let plain = (ahead == 0).then(|| self.hasher.plain(layout.width()));
        blocks.enumerate().scan(root, move |parent, (at, block)| {
            *parent = match plain {
                Some(plain) => plain.block(*parent, block),
                None => {
                    let end = (at + 1) * layout.width();
                    let behind = tokens.get(end..end + ahead).unwrap_or_default();
                    self.hasher.block_ahead(*parent, block, behind)
                }
            };
            Some(*parent)
        })
    }
}

// === impl Layout ===

impl Layout {
    const SIZE_BITS: u32 = 25;
    /// Drafters look a few tokens ahead.
    const AHEAD_MAX: u32 = 64;

    /// `ahead` is 0 but for engines with some drafters. `None`: blocks of more tokens than any context has, or too many
    /// ahead.
    pub(crate) fn new(size: NonZeroU32, ahead: u32) -> Option<Self> {
        let fits = size.get() >> Self::SIZE_BITS == 0 && ahead <= Self::AHEAD_MAX;
        fits.then(|| Self(size | ahead << Self::SIZE_BITS))
    }

    /// Tokens per block.
    pub(crate) fn size(self) -> u32 {
        self.0.get() & ((1 << Self::SIZE_BITS) - 1)
    }

    /// Tokens behind a block that its key covers.
    pub(crate) fn ahead(self) -> u32 {
        self.0.get() >> Self::SIZE_BITS
    }

    /// [`size`](Self::size), which is above 0.
    pub(crate) fn width(self) -> usize {
        index(self.size()).max(1)
    }

    /// Blocks that are whole in so many tokens.
    fn whole(self, tokens: usize) -> usize {
        tokens.saturating_sub(index(self.ahead())) / self.width()
    }

    /// Where the first block begins that is not.
    fn begun(self, tokens: usize) -> usize {
        self.whole(tokens) * self.width()
    }

    /// Blocks that become whole between two numbers of tokens.
    fn completed(self, before: usize, after: usize) -> usize {
        self.whole(after) - self.whole(before)
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

    fn count(&self, layout: Layout) -> usize {
        layout.completed(self.before, self.after)
    }
}

// === impl PromptKeys ===

impl PromptKeys {
    /// Layouts, each with the keys of the blocks that a hit can cover: all but the one with the last token, which an
    /// engine always computes.
    pub(crate) fn reusable(&self) -> impl Iterator<Item = (Layout, &[BlockKey])> {
        let usable = self.tokens.saturating_sub(1);
        self.chains.iter().map(move |chain| {
            (chain.layout, chain.keys.get(..usable / chain.layout.width()).unwrap_or(&chain.keys))
        })
    }

    /// The keys of the first blocks, `blocks_max` of them at most for each layout.
    pub fn runs(&self, blocks_max: usize) -> impl Iterator<Item = KeyRun> + '_ {
        self.chains.iter().map(move |chain| KeyRun {
            block_size: chain.layout.size(),
            ahead: chain.layout.ahead(),
            keys: chain.keys.iter().take(blocks_max).map(|key| key.0).collect(),
        })
    }

    /// Of the keys that another told; what can be no layout of blocks is left out.
    #[must_use]
    pub fn of_runs(runs: impl IntoIterator<Item = KeyRun>) -> Self {
        let chains = runs.into_iter().filter_map(|run| {
            let layout = Layout::new(NonZeroU32::new(run.block_size)?, run.ahead)?;
            Some(Chain { layout, keys: run.keys.into_iter().map(BlockKey).collect() })
        });
        let chains: Vec<Chain> = chains.collect();
        let tokens = |chain: &Chain| chain.keys.len() * chain.layout.width() + index(chain.layout.ahead());
        Self { tokens: chains.iter().map(tokens).max().unwrap_or(0), chains }
    }

    /// The key of the first block that does not lie wholly in the first `tokens`, of the smallest blocks that there are
    /// keys for; of the last where all do. None: there is no whole block.
    #[must_use]
    pub fn first_behind(&self, tokens: u32) -> Option<u64> {
        let chain = self.chains.iter().filter(|chain| !chain.keys.is_empty());
        let chain = chain.min_by_key(|chain| (chain.layout.size(), chain.layout.ahead()))?;
        let block = index(tokens / chain.layout.size());
        chain.keys.get(block).or(chain.keys.last()).map(|key| key.0)
    }

    /// Keys of all layouts together.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chains.iter().map(|chain| chain.keys.len()).sum()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many layouts there are keys for.
    pub(crate) fn layouts(&self) -> usize {
        self.chains.len()
    }

    /// Keys of all whole blocks of this layout.
    pub(crate) fn of_layout(&self, layout: Layout) -> &[BlockKey] {
        self.chains.iter().find(|chain| chain.layout == layout).map_or(&[], |chain| &chain.keys)
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
