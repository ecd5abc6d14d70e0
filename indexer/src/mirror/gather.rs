//! At the start: the freshest image of each stream that store and peers have, all of one secret.
//!
//! ```text
//! peers: what they have ─▶ a secret ─▶ store: its secret, its images ─▶ peers: images of what they know later ─▶ Loaded
//! ```
//!
//! Where there is a store, its secret counts: it is offered the peers' first, so that one that was wiped gets back what
//! the others go on with. Without a store's secret, the one counts that [`choose`] finds among the peers' and our own.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::future::join_all;

use super::format::Saved;
use super::load::{LeftAlone, Loaded, load_into, read_all};
use super::metrics::MirrorMetrics;
use super::peers::{Offer, Peers};
use super::room::Room;
use super::secret::{Claim, DatedSecret, Keyring, choose};
use super::store::{Store, StreamName};
use crate::lifecycle::ReadyGuard;

/// Where images may come from. The guards are ended when each has answered, or has not in time.
#[derive(Debug)]
pub struct Sources<S> {
    pub store: Option<(S, ReadyGuard)>,
    pub peers: Option<(Peers, ReadyGuard)>,
}

/// Asks all of them, for at most `patience`. The keyring has the secret where nobody else has one, and afterwards the one that
/// counts.
pub async fn gather<S: Store>(
    sources: Sources<S>,
    keyring: &Keyring,
    patience: Duration,
    metrics: &MirrorMetrics,
) -> Loaded {
    let (end, room) = (Instant::now() + patience, Room::default());
    let (peers, asking) = sources.peers.unzip();
    let offers = match peers {
        Some(peers) => peers.offers(patience).await,
        None => Vec::new(),
    };
    let has_begun = |offer: &Offer| offer.claim.has_begun;
    let peers_result = match offers.as_slice() {
        [] => "no answer",
        offers if offers.iter().any(has_begun) => "answered",
        _ => "starting themselves",
    };
    let chosen = chosen(Claim { dated: keyring.get(), has_begun: false }, &offers);
    // Told from now on to those that are starting too, however long the store takes.
    keyring.set(chosen);
    let loaded = match sources.store {
        Some((store, asking)) => {
            let left = end.saturating_duration_since(Instant::now());
            let (loaded, error) = load_into(&room, &store, chosen.secret, left, metrics).await;
            if error.is_none() || loaded.secret != chosen.secret {
                keyring.set(DatedSecret::of_mirror(loaded.secret));
            }
            asking.end(error.unwrap_or("answered"));
            loaded
        }
        None => Loaded::nothing(chosen.secret),
    };
    let loaded = with_fresher(loaded, offers, (end, &room), metrics).await;
    if let Some(asking) = asking {
        asking.end(peers_result);
    }
    loaded
}

/// Of peers whose secret counts more than `own`, with which this indexer has begun: what they have, and that secret. None: there
/// is no such peer.
pub async fn gather_from(
    peers: &Peers,
    own: DatedSecret,
    patience: Duration,
    metrics: &MirrorMetrics,
) -> Option<(DatedSecret, Loaded)> {
    let (end, room) = (Instant::now() + patience, Room::default());
    let offers = peers.offers(patience).await;
    let chosen = chosen(Claim { dated: own, has_begun: true }, &offers);
    if chosen.secret == own.secret {
        return None;
    }
    let loaded = with_fresher(Loaded::nothing(chosen.secret), offers, (end, &room), metrics).await;
    Some((chosen, loaded))
}

fn chosen(own: Claim, offers: &[Offer]) -> DatedSecret {
    choose(own, offers.iter().map(|offer| offer.claim))
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
    let offers: Vec<Offer> = offers.into_iter().filter(|offer| offer.claim.dated.secret == secret).collect();
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
