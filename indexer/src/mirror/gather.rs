//! At the start: the freshest image of each stream that store and peers have, all of one secret.
//!
//! ```text
//! peers: what they have ─▶ a secret ─▶ store: its secret, its images ─▶ peers: images of what they know later ─▶ Loaded
//! ```
//!
//! Where there is a store, its secret counts: it is offered the peers' first, so that one that was wiped gets back what
//! the others go on with. Without a store's secret, the one counts under which peers know most.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::future::join_all;

use super::format::Saved;
use super::load::{LeftAlone, Loaded, load_into, read_all};
use super::metrics::MirrorMetrics;
use super::peers::{Offer, Peers};
use super::room::Room;
use super::store::{Secret, Store, StreamName};
use crate::lifecycle::ReadyGuard;

/// Where images may come from. The guards are ended when each has answered, or has not in time.
#[derive(Debug)]
pub struct Sources<S> {
    pub store: Option<(S, ReadyGuard)>,
    pub peers: Option<(Peers, ReadyGuard)>,
}

/// Asks all of them, for at most `patience`. `own`: the secret where nobody has one.
pub async fn gather<S: Store>(
    sources: Sources<S>,
    own: Secret,
    patience: Duration,
    metrics: &MirrorMetrics,
) -> Loaded {
    let (end, room) = (Instant::now() + patience, Room::default());
    let (peers, asking) = sources.peers.unzip();
    let offers = match peers {
        Some(peers) => peers.offers(patience).await,
        None => Vec::new(),
    };
    let peers_result = if offers.is_empty() { "no answer" } else { "answered" };
    let own = most_known(&offers).unwrap_or(own);
    let loaded = match sources.store {
        Some((store, asking)) => {
            let left = end.saturating_duration_since(Instant::now());
            let (loaded, error) = load_into(&room, &store, own, left, metrics).await;
            asking.end(error.unwrap_or("answered"));
            loaded
        }
        None => Loaded::nothing(own),
    };
    let loaded = with_fresher(loaded, offers, (end, &room), metrics).await;
    if let Some(asking) = asking {
        asking.end(peers_result);
    }
    loaded
}

/// The secret of the peers that know most streams; of equals the smallest, so that all who ask choose the same.
fn most_known(offers: &[Offer]) -> Option<Secret> {
    let best = offers.iter().max_by_key(|offer| (offer.streams.len(), std::cmp::Reverse(offer.secret)))?;
    Some(best.secret)
}

/// What peers know later than the store takes the place of the store's.
async fn with_fresher(
    loaded: Loaded,
    offers: Vec<Offer>,
    (end, room): (Instant, &Room),
    metrics: &MirrorMetrics,
) -> Loaded {
    let Loaded { secret, mut saved } = loaded;
    let known: HashMap<&StreamName, u64> =
        saved.iter().map(|saved| (&saved.name, saved.last_made_us)).collect();
    let offers: Vec<Offer> = offers.into_iter().filter(|offer| offer.secret == secret).collect();
    let shares = shares(offers.iter().map(|offer| &offer.streams), &known);
    let asked = offers.into_iter().zip(shares).filter(|(_, share)| !share.is_empty());
    let images = join_all(asked.map(|(offer, share)| offer.images(share, end, room))).await;
    let images: Vec<_> = images.into_iter().flatten().collect();
    if images.is_empty() {
        return Loaded { secret, saved };
    }
    let mut left_alone = LeftAlone::default();
    let fresher = read_all(images, secret, &mut left_alone).await;
    left_alone.tell(metrics);
    metrics.taken.inc_by(fresher.len() as u64);
    tracing::info!(images = fresher.len(), "peers gave images");
    saved = freshest(saved, fresher);
    Loaded { secret, saved }
}

/// For each peer, which streams it is to be asked for: those of which it alone, or the first of equals, knows latest, and
/// later than `known`.
fn shares<'a>(
    offers: impl Iterator<Item = &'a HashMap<StreamName, u64>>,
    known: &HashMap<&StreamName, u64>,
) -> Vec<Vec<StreamName>> {
    let mut best: HashMap<&StreamName, (u64, usize)> = HashMap::new();
    let mut count = 0;
    for (number, streams) in offers.enumerate() {
        count = number + 1;
        for (name, made) in streams {
            let is_later = best.get(name).is_none_or(|(other, _)| made > other);
            if is_later && known.get(name).is_none_or(|saved| made > saved) {
                best.insert(name, (*made, number));
            }
        }
    }
    let mut shares = vec![Vec::new(); count];
    for (name, (_, number)) in best {
        if let Some(share) = shares.get_mut(number) {
            share.push(name.clone());
        }
    }
    shares
}

/// One image of each stream.
fn freshest(saved: Vec<Saved>, others: Vec<Saved>) -> Vec<Saved> {
    let mut best: HashMap<StreamName, Saved> = HashMap::new();
    for image in saved.into_iter().chain(others) {
        let is_later = best.get(&image.name).is_none_or(|other| image.last_made_us > other.last_made_us);
        if is_later {
            best.insert(image.name.clone(), image);
        }
    }
    best.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(rank: u32) -> StreamName {
        StreamName { endpoint: "10.0.0.1:8000".to_owned(), rank }
    }

    #[test]
    fn a_peer_is_asked_for_what_it_knows_latest() {
        let offers: [HashMap<_, _>; 2] = [
            [(name(0), 10), (name(1), 10), (name(2), 10), (name(3), 10)].into(),
            [(name(1), 11), (name(2), 9), (name(3), 10), (name(4), 1)].into(),
        ];
        let (newer, equal) = (name(0), name(4));
        let known: HashMap<_, _> = [(&newer, 12), (&equal, 1)].into();
        let mut shares = shares(offers.iter(), &known);
        shares.iter_mut().for_each(|share| share.sort_unstable());
        assert_eq!(shares, [vec![name(2), name(3)], vec![name(1)]]);
    }
}
