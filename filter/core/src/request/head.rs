//! What a prompt begins with: where no indexer answers, requests with the same beginning go to the same endpoint.

use crate::limits::HEAD_BYTES;

/// The first bytes of a prompt, [`HEAD_BYTES`] at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head(Vec<u8>);

impl Head {
    /// One that begins so.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut head = Self::default();
        head.push(bytes);
        head
    }

    /// So it goes on.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let room = HEAD_BYTES.saturating_sub(self.0.len());
        self.0.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
