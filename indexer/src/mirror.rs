//! What this indexer knows of the engines' caches, saved outside of it, so that the next one starts warm.
//!
//! ```text
//! event thread ─▶ StreamImage ─▶ bytes ─▶ Store ─▶ bytes ─▶ StreamImage ─▶ index, before anything is connected
//!                     every interval, by one of the indexers       at the start, within a deadline
//! ```
//!
//! In: the streams of [`Ingest`](crate::ingest::Ingest) that are live. Out: one image per stream in a [`Store`]
//! ([`Saver`]), and at the start what a store has ([`load`]). Nothing here is on the way of a request: a store that is
//! slow, full or gone costs a fresh indexer its warm start, and nothing else.
//!
//! Nothing of an image is believed until the engine itself has shown the batch that the image ends with
//! ([`warmpath_kv::Sequencer::resume`]), so an image of a dead process, or of an old one, cannot do harm.
//!
//! An image holds no tokens. Its block keys are made with a secret that the indexers of one store share: the first one
//! to come makes it. Those without a store come to one by [`secret`].

mod format;
mod gather;
mod load;
mod memory;
pub mod metrics;
mod peers;
mod redis;
mod room;
mod saver;
mod secret;
mod serve;
mod store;
#[cfg(test)]
mod tests;

pub use format::{FormatError, Saved, encode};
pub use gather::{Sources, gather, gather_from};
pub use load::{Loaded, load};
pub use memory::MemoryStore;
pub use metrics::MirrorMetrics;
pub use peers::Peers;
pub use redis::{RedisAccess, RedisStore};
pub use room::Room;
pub use saver::Saver;
pub use secret::{Claim, DatedSecret, Keyring, Secret};
pub use serve::ImageService;
pub use store::{Agreed, Forgotten, Store, StoreError, StreamName};
