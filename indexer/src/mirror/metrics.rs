//! Counters of the mirror.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByReason {
    pub reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByResult {
    pub result: &'static str,
}

/// What became of an image at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restore {
    /// Its stream holds what it says, once the engine has proven to be the same.
    Restored,
    /// It contradicts itself or another one, or there is no room.
    Refused,
    /// Of another secret.
    Foreign,
    Unreadable,
    /// Its endpoint has not come within the time of the warm-up.
    Unclaimed,
}

/// Metrics of [`super`].
#[derive(Clone, Debug, Default)]
pub struct MirrorMetrics {
    pub saves: Family<ByResult, Counter>,
    pub saved_bytes: Counter,
    pub forgotten: Counter,
    pub given: Counter,
    pub taken: Counter,
    pub errors: Family<ByReason, Counter>,
    pub restores: Family<ByResult, Counter>,
    pub reachable: Gauge,
    pub foreign_secret: Gauge,
}

// === impl MirrorMetrics ===

impl MirrorMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "mirror_saves",
            "Images of streams, by what became of them (saved, elsewhere, failed)",
            self.saves.clone(),
        );
        registry.register("mirror_saved_bytes", "Bytes of the images saved", self.saved_bytes.clone());
        registry.register(
            "mirror_names_forgotten",
            "Names of streams taken out of the mirror because their images had expired",
            self.forgotten.clone(),
        );
        registry.register(
            "mirror_errors",
            "Rounds of saving, and loads, that met an error of the mirror, by its reason (late, unreachable, denied, full, read_only, foreign, refused)",
            self.errors.clone(),
        );
        registry.register(
            "mirror_restores",
            "Images found at the start, by what became of them (restored, refused, foreign, unreadable, unclaimed)",
            self.restores.clone(),
        );
        registry.register(
            "peer_images_given",
            "Images of streams given to other indexers that started",
            self.given.clone(),
        );
        registry.register(
            "peer_images_taken",
            "Images of streams that other indexers gave at the start, because they were fresher than the mirror's",
            self.taken.clone(),
        );
        registry.register(
            "mirror_reachable",
            "Whether the mirror answered last time",
            self.reachable.clone(),
        );
        registry.register(
            "mirror_foreign_secret",
            "Whether the mirror's block keys are of another secret, so that nothing is saved",
            self.foreign_secret.clone(),
        );
    }

    pub fn count_saved(&self, result: &'static str) {
        self.saves.get_or_create(&ByResult { result }).inc();
    }

    pub fn count_error(&self, reason: &'static str) {
        self.errors.get_or_create(&ByReason { reason }).inc();
    }

    pub fn count_restored(&self, restore: Restore, images: usize) {
        if images > 0 {
            self.restores.get_or_create(&ByResult { result: restore.name() }).inc_by(images as u64);
        }
    }
}

// === impl Restore ===

impl Restore {
    fn name(self) -> &'static str {
        match self {
            Self::Restored => "restored",
            Self::Refused => "refused",
            Self::Foreign => "foreign",
            Self::Unreadable => "unreadable",
            Self::Unclaimed => "unclaimed",
        }
    }
}
