//! Chains by their number, in pages: a vector would be copied to grow, with every lookup waiting for it, and would leave the
//! memory that it had behind.

use super::Chain;

/// Numbers of a page.
const PAGE: usize = 1024;

/// Chains of a page, one fewer: so it stays below 64 KiB, and an allocator that rounds up wastes nothing.
const CHAINS: usize = PAGE - 1;

#[derive(Debug, Default)]
pub(super) struct Pages {
    /// All but the last are full, and that one is not empty.
    pages: Vec<Vec<Chain>>,
}

// === impl Pages ===

impl Pages {
    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<&Chain> {
        self.pages.get(at / PAGE)?.get(at % PAGE)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Chain> {
        self.pages.get_mut(at / PAGE)?.get_mut(at % PAGE)
    }

    pub(super) fn last(&self) -> Option<&Chain> {
        self.pages.last()?.last()
    }

    /// The number behind the last chain's.
    pub(super) fn end(&self) -> usize {
        let Some((last, full)) = self.pages.split_last() else { return 0 };
        full.len() * PAGE + last.len()
    }

    /// Chains that memory is taken for.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.pages.iter().map(Vec::capacity).sum()
    }

    /// Adds a chain, and returns its number.
    pub(super) fn push(&mut self, chain: Chain) -> usize {
        match self.pages.last_mut() {
            Some(last) if last.len() < CHAINS => last.push(chain),
            _ => {
                let mut page = Vec::with_capacity(CHAINS);
                page.push(chain);
                self.pages.push(page);
            }
        }
        self.end() - 1
    }

    /// Takes the last chain away, and the page that it was alone in.
    pub(super) fn pop(&mut self) {
        if let Some(last) = self.pages.last_mut() {
            last.pop();
            if last.is_empty() {
                self.pages.pop();
                self.pages.shrink_to(self.pages.len() * 2);
            }
        }
    }
}
