//! Saves the images of the streams that are live, again and again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use warmpath_kv::{StreamId, Trust};

use super::format;
use super::metrics::MirrorMetrics;
use super::secret::Secret;
use super::store::{Store, StoreError, StreamName};
use crate::ingest::{Ingest, StreamStatus};

/// Streams in a row that cannot be saved, after which a round ends: it is not them, then.
const FAILURES_MAX: usize = 3;
/// Between two lines in the log about what the mirror does, however often that changes: it is on no request's way.
const LOG_PAUSE: Duration = Duration::from_secs(5);
/// Longest time for the last round, when the program ends.
const LAST_ROUND_MAX: Duration = Duration::from_secs(3);

/// See the module's documentation.
#[derive(Debug)]
pub struct Saver<S> {
    store: S,
    ingest: Arc<Ingest>,
    /// Of the block keys in use here.
    secret: Secret,
    interval: Duration,
    metrics: MirrorMetrics,
    /// What was saved from here of each stream.
    seen: HashMap<StreamId, Seen>,
    /// Rounds so far: each begins with another stream.
    rounds: usize,
    /// Where the next round looks for names of images that have expired.
    next_name: usize,
    state: Told,
    told_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The last batch.
    seq: u64,
    at: Instant,
}

/// What the log was last told, so that it is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Saving,
    /// For this reason.
    Failing(&'static str),
    Foreign,
}

// === impl Saver ===

impl<S: Store> Saver<S> {
    pub fn new(
        store: S,
        ingest: Arc<Ingest>,
        secret: Secret,
        interval: Duration,
        metrics: MirrorMetrics,
    ) -> Self {
        Self {
            store,
            ingest,
            secret,
            interval,
            metrics,
            seen: HashMap::new(),
            rounds: 0,
            next_name: 0,
            state: Told::Nothing,
            told_at: None,
        }
    }

    /// Runs until `stop`, then saves a last time: who starts in its place finds what it knew.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            // Not all at the same time, and not always the same one first.
            let pause = self.interval.mul_f64(rand::random_range(0.75..1.25));
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
            let turn = self.interval.mul_f64(0.7);
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.round(turn) => {}
            }
        }
        if tokio::time::timeout(LAST_ROUND_MAX, self.round(Duration::ZERO)).await.is_err() {
            tracing::warn!("the mirror was too slow for a last save");
        }
    }

    /// Saves every stream that has changed, unless another indexer has taken the turn. `turn`: how long others leave it;
    /// zero: whoever has it.
    pub async fn round(&mut self, turn: Duration) {
        match self.try_round(turn).await {
            Ok(true) => {
                self.metrics.reachable.set(1);
                self.metrics.foreign_secret.set(0);
                if self.tell(Told::Saving) {
                    tracing::info!("saving to the mirror");
                }
            }
            Ok(false) => {
                self.metrics.reachable.set(1);
                self.metrics.foreign_secret.set(1);
                if self.tell(Told::Foreign) {
                    tracing::warn!(
                        "the mirror was begun by an indexer with other block keys while this one could not reach it: \
                         this one does not save, until it is restarted"
                    );
                }
            }
            Err(error) => {
                let reason = error.reason();
                self.metrics.reachable.set(0);
                self.metrics.count_saved("failed");
                self.metrics.count_error(reason);
                if self.tell(Told::Failing(reason)) {
                    tracing::warn!(
                        reason,
                        %error,
                        hint = hint(reason),
                        "the mirror does not take images; requests are not affected"
                    );
                }
            }
        }
    }

    /// `false`: the store's secret is another one.
    async fn try_round(&mut self, turn: Duration) -> Result<bool, StoreError> {
        let agreed = self.store.agree(self.secret).await?;
        if agreed.secret != self.secret {
            return Ok(false);
        }
        if agreed.is_new {
            self.seen.clear();
        }
        let mut streams = self.ingest.status();
        self.seen.retain(|id, _| streams.iter().any(|stream| stream.id == *id));
        // One that cannot be saved must not keep the others from it.
        let first = self.rounds.checked_rem(streams.len()).unwrap_or_default();
        streams.rotate_left(first);
        self.rounds = self.rounds.wrapping_add(1);
        let mut failed = None;
        let mut in_a_row = 0;
        for stream in streams {
            match self.save(stream, turn).await {
                Ok(()) => in_a_row = 0,
                Err(error) => {
                    failed = Some(error);
                    in_a_row += 1;
                }
            }
            if in_a_row == FAILURES_MAX {
                break;
            }
        }
        if failed.is_none() && !turn.is_zero() {
            self.forget_expired().await;
        }
        failed.map_or(Ok(true), Err)
    }

    /// Streams come and go with every rollout; their names would stay for ever.
    async fn forget_expired(&mut self) {
        match self.store.forget_expired(self.next_name).await {
            Ok(forgotten) => {
                self.next_name = forgotten.next;
                self.metrics.forgotten.inc_by(forgotten.names as u64);
            }
            Err(error) => {
                self.metrics.count_error(error.reason());
                tracing::debug!(%error, "names of images that have expired stay for now");
            }
        }
    }

    async fn save(&mut self, stream: StreamStatus, turn: Duration) -> Result<(), StoreError> {
        let Some(last) = stream.last_seq.filter(|_| stream.trust == Trust::Live) else { return Ok(()) };
        // An image of an idle stream is saved again before it expires.
        let lasts = self.store.expiry() / 2;
        let is_saved = |seen: &Seen| seen.seq == last && seen.at.elapsed() < lasts;
        let name = StreamName { endpoint: stream.endpoint, rank: stream.rank };
        if self.seen.get(&stream.id).is_some_and(is_saved) && self.store.has_image(&name).await? {
            return Ok(());
        }
        if !turn.is_zero() && !self.store.take_turn(&name, turn).await? {
            self.metrics.count_saved("elsewhere");
            return Ok(());
        }
        let Some(taken) = self.ingest.image(stream.id).await else { return Ok(()) };
        let (seq, secret, named) = (taken.seq, self.secret, name.clone());
        let encoded = tokio::task::spawn_blocking(move || format::encode(&named, taken, secret)).await;
        let image = match encoded {
            Ok(image) => image,
            Err(error) => {
                self.metrics.count_saved("failed");
                tracing::error!(stream = %name, %error, "making an image broke down, a defect; it is not saved");
                return Ok(());
            }
        };
        let bytes = image.len() as u64;
        self.store.save(&name, Bytes::from(image)).await?;
        self.seen.insert(stream.id, Seen { seq, at: Instant::now() });
        self.metrics.count_saved("saved");
        self.metrics.saved_bytes.inc_by(bytes);
        Ok(())
    }

    /// Whether this is news, and the log may be told of it by now.
    fn tell(&mut self, state: Told) -> bool {
        let may = self.told_at.is_none_or(|at| at.elapsed() >= LOG_PAUSE);
        if state == self.state || !may {
            return false;
        }
        self.state = state;
        self.told_at = Some(Instant::now());
        true
    }
}

/// What an operator could look at.
fn hint(reason: &str) -> &'static str {
    match reason {
        "late" => "raise mirror.timeout_ms above the time of a round trip with some megabytes",
        "unreachable" => "check the address, TLS and the network, or wait for the failover",
        "denied" => "check mirror.username, the password, and the rights of the user (ACL) on {prefix}:*",
        "disk" => "look at the disk of Redis, and at its log: it takes nothing that it cannot keep",
        "full" => "raise Redis' maxmemory, or choose a policy that evicts keys with an expiry (volatile-ttl)",
        "read_only" => "the address leads to a replica: name the master, or `sentinels`",
        "foreign" => "another program uses this prefix: choose another mirror.prefix",
        _ => "",
    }
}
