//! Blocks, prompts and changes, as all contestants are told of them.

/// A block of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// What its tokens are made of: equal contents have equal tokens.
    pub(crate) content: u64,
    /// The engine's hash of it and of everything before it. The same at all workers, as of engines with one seed.
    pub(crate) hash: u64,
}

/// A change of a worker's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Blocks were stored, one after the other, after the one with the hash `parent`.
    Store { worker: u32, parent: Option<u64>, blocks: Vec<Block> },
    /// Blocks were evicted.
    Remove { worker: u32, hashes: Vec<u64> },
}

/// Most blocks of one event: an engine tells of a prompt as it computes it, 8,192 tokens of 16 at a time.
pub(crate) const EVENT_BLOCKS_MAX: usize = 512;

/// The blocks that have these contents, after `before`.
pub(crate) fn chain(before: Option<Block>, contents: impl IntoIterator<Item = u64>) -> Vec<Block> {
    let mut parent = before.map_or(0, |block| block.hash);
    let block = |content| {
        parent = mix(parent ^ mix(content));
        Block { content, hash: parent }
    };
    contents.into_iter().map(block).collect()
}

/// The changes that store `blocks` after `parent`, at most `most` of them at a time.
pub(crate) fn stores(worker: u32, parent: Option<u64>, blocks: &[Block], most: usize) -> Vec<Change> {
    let mut parent = parent;
    let store = |blocks: &[Block]| {
        let store = Change::Store { worker, parent, blocks: blocks.to_vec() };
        parent = blocks.last().map(|block| block.hash);
        store
    };
    blocks.chunks(most).map(store).collect()
}

/// The changes that evict `blocks`, the last of them first, at most `most` of them at a time.
pub(crate) fn removals(worker: u32, blocks: &[Block], most: usize) -> Vec<Change> {
    let remove = |blocks: &[Block]| Change::Remove {
        worker,
        hashes: blocks.iter().rev().map(|block| block.hash).collect(),
    };
    blocks.rchunks(most).map(remove).collect()
}

/// Appends the tokens of a block: as many as a block has, from a vocabulary of 131,072.
fn push_tokens(content: u64, size: usize, tokens: &mut Vec<u32>) {
    let token = |position| (mix(content ^ position << 48) >> 47) as u32;
    tokens.extend((0..size as u64).map(token));
}

/// The tokens of the blocks that each change stores; none of a removal.
pub(crate) fn tokens_of(changes: &[Change], size: usize) -> Vec<Vec<u32>> {
    let tokens = |change: &Change| {
        let Change::Store { blocks, .. } = change else { return Vec::new() };
        let mut tokens = Vec::with_capacity(blocks.len() * size);
        blocks.iter().for_each(|block| push_tokens(block.content, size, &mut tokens));
        tokens
    };
    changes.iter().map(tokens).collect()
}

/// The tokens of a prompt that consists of these blocks and one token more: an engine always computes the last token,
/// so that a hit never covers it.
pub(crate) fn prompt_tokens(blocks: &[Block], size: usize) -> Vec<u32> {
    let mut tokens = Vec::with_capacity(blocks.len() * size + 1);
    blocks.iter().for_each(|block| push_tokens(block.content, size, &mut tokens));
    tokens.push(0);
    tokens
}

/// A number that looks random, one to one (the finalizer of SplitMix64).
pub(crate) fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Numbers that look random, the same in every run.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

// === impl Random ===

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// From 0 to 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_goes_on_from_where_it_was() {
        let whole = chain(None, 0..10);
        let rest = chain(Some(whole[3]), 4..10);
        assert_eq!(whole[4..], rest);
        assert_ne!(whole[4].hash, chain(None, 4..5)[0].hash, "the parent is part of the hash");
    }

    #[test]
    fn stores_are_linked_and_removals_take_the_end_first() {
        let blocks = chain(None, 0..5);
        let stored = stores(7, None, &blocks, 2);
        let expected =
            |parent, blocks: &[Block]| Change::Store { worker: 7, parent, blocks: blocks.to_vec() };
        let links = [
            expected(None, &blocks[..2]),
            expected(Some(blocks[1].hash), &blocks[2..4]),
            expected(Some(blocks[3].hash), &blocks[4..]),
        ];
        assert_eq!(stored, links);
        let removed = removals(7, &blocks, 3);
        let hashes = |of: &[usize]| of.iter().map(|at| blocks[*at].hash).collect();
        let expected = [
            Change::Remove { worker: 7, hashes: hashes(&[4, 3, 2]) },
            Change::Remove { worker: 7, hashes: hashes(&[1, 0]) },
        ];
        assert_eq!(removed, expected);
    }

    #[test]
    fn tokens_are_of_the_vocabulary_and_of_the_content() {
        let tokens = prompt_tokens(&chain(None, [1, 2, 1]), 16);
        assert_eq!(tokens.len(), 49);
        assert_eq!(tokens[..16], tokens[32..48], "equal contents");
        assert_ne!(tokens[..16], tokens[16..32]);
        assert!(tokens.iter().all(|token| *token < 131_072));
    }

    #[test]
    fn shuffling_keeps_what_is_there() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(1).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
