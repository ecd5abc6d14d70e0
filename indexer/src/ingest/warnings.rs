//! What the log says of streams that do not work, at most so often.

use warmpath_kv::Millis;

use super::StreamSpec;

/// Between two warnings about the same stream, in milliseconds: five minutes.
const PAUSE_MS: u64 = 300_000;

/// Lets one warning through per pause.
#[derive(Debug, Default)]
pub(super) struct RateLimit {
    last: Option<Millis>,
}

// === impl RateLimit ===

impl RateLimit {
    pub(super) fn admit(&mut self, now: Millis) -> bool {
        let may = self.last.is_none_or(|last| now.since(last) >= PAUSE_MS);
        if may {
            self.last = Some(now);
        }
        may
    }
}

/// Nothing has ever come.
pub(super) fn silent(spec: &StreamSpec, is_connected: bool) {
    let hint = if is_connected {
        "the socket is connected but publishes nothing; check that the engine runs with prefix caching and with \
         --kv-events-config '{\"enable_kv_cache_events\": true, \"publisher\": \"zmq\", …}', and that this is its event \
         port, not its replay port"
    } else {
        "no publisher answers at this address; check the port (rank r listens on port + r), and that the engine's \
         endpoint contains `*` (tcp://*:5557): with a plain address it connects instead of listening"
    };
    tracing::warn!(
        stream = %spec.id,
        endpoint = %spec.endpoint,
        rank = spec.rank,
        events = %spec.events,
        hint,
        "configured KV events never came; prefix hits of this endpoint are unknown"
    );
}

/// Something was lost for good.
pub(super) fn degraded(spec: &StreamSpec, reason: &str) {
    let hint = match (reason, &spec.replay) {
        ("joined_late" | "lost_without_replay", None) => {
            "set `replay_endpoint` in the engine's --kv-events-config and `replay` here, and lost events can be had again"
        }
        ("buffer_too_short", _) => "raise `buffer_steps` in the engine's --kv-events-config",
        ("contradicted", _) => "look in the engine's log for its event publisher",
        ("replay_failed", _) => "check the replay address (rank r listens on port + r)",
        _ => "",
    };
    tracing::warn!(
        stream = %spec.id,
        endpoint = %spec.endpoint,
        rank = spec.rank,
        reason,
        hint,
        "KV events were lost; the index of this endpoint is incomplete until its cache is emptied or it restarts"
    );
}

/// Several ranks publish where one was expected.
pub(super) fn other_ranks(spec: &StreamSpec) {
    tracing::warn!(
        stream = %spec.id,
        endpoint = %spec.endpoint,
        rank = spec.rank,
        events = %spec.events,
        hint = "set `ranks` to how many there are, and `rank_ports: shared` if one socket carries them all",
        "several ranks publish KV events at one address; only those of the first one heard are read"
    );
}

/// A socket could not be made.
pub(super) fn no_socket(spec: &StreamSpec, address: &str, error: zmq::Error) {
    tracing::warn!(
        stream = %spec.id,
        endpoint = %spec.endpoint,
        rank = spec.rank,
        address,
        %error,
        "no socket for KV events; expected an address like tcp://10.0.0.7:5557"
    );
}

/// A payload was no batch.
pub(super) fn undecodable(spec: &StreamSpec, seq: u64, bytes: usize, error: &warmpath_kv::DecodeError) {
    tracing::warn!(
        stream = %spec.id,
        endpoint = %spec.endpoint,
        rank = spec.rank,
        seq,
        bytes,
        %error,
        "a KV event batch does not decode; everything held of this endpoint is dropped"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_is_let_through_per_pause() {
        let mut limit = RateLimit::default();
        let admitted = [0, 1, PAUSE_MS - 1, PAUSE_MS, PAUSE_MS + 1].map(|now| limit.admit(Millis(now)));
        assert_eq!(admitted, [true, false, false, true, false]);
    }
}
