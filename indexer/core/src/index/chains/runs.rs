//! Stretches of blocks at once: what most events tell of lies side by side in one chain, where all of it is looked at,
//! placed, held and let go in a few steps, however many blocks it is.

use crate::key::BlockKey;

use super::super::groups::GroupMask;
use super::super::place::{CHAIN_BLOCKS_MAX, ChainId, Place, Slot};
use super::{Chain, Chains, index};

/// Least room for keys that is added to a chain which an event did not tell of whole: more will come, perhaps one by one.
const MORE_MIN: usize = 4;

/// Whose blocks they are.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Holder {
    pub(in super::super) slot: Slot,
    pub(in super::super) group: usize,
}

/// A block that was entered: its place, and the groups that had it before.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Entered {
    pub(in super::super) place: Place,
    pub(in super::super) had: GroupMask,
}

/// Which of some keys of an event are known, as seen before they are entered. What others do meanwhile shows in the number
/// of chains begun.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Sight {
    begun: u64,
    /// No chain began with this key of the event or with a later one.
    new_from: usize,
}

/// Keys of an event, one after the other.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Keys<'a> {
    pub(in super::super) keys: &'a [BlockKey],
    /// Those of the same event before them.
    pub(in super::super) before: usize,
    /// Those of it behind them.
    pub(in super::super) behind: usize,
}

/// Blocks side by side in a chain.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    chain: ChainId,
    /// Place of the first.
    at: u32,
    length: u32,
}

impl Chains {
    /// Looks at keys of an event, whose first comes after the block at `after`, and brings what is known of them into the
    /// cache: who holds the lock for writing later waits for none of it. `beginnings`: of how many of the first keys a
    /// chain [begins](Self::begins) with the last one, and with none behind it.
    pub(in super::super) fn look(&self, after: Option<Place>, keys: Keys<'_>, beginnings: usize) -> Sight {
        let going_on = after.and_then(|after| self.get(after.chain)?.keys.get(index(after.at) + 1..));
        let mut known = going_on.map_or(0, |behind| alike(behind, keys.keys));
        let rest = |known: usize| keys.keys.get(known..).unwrap_or_default();
        while known < beginnings
            && let Some(chain) = rest(known).first().and_then(|key| self.beginning(*key))
        {
            known += chain.common(rest(known));
        }
        Sight { begun: self.begun, new_from: keys.before + beginnings }
    }

    /// Gives blocks of which none is another's their places where they have none yet, and notes that `holder` has them.
    /// `after`: the place of the block before the first. Returns how many it was, in `entered`: fewer where the room ends.
    pub(in super::super) fn enter_run(
        &mut self,
        holder: Holder,
        after: Option<Place>,
        run: Keys<'_>,
        sight: &mut Sight,
        entered: &mut [Entered],
    ) -> usize {
        let (mut after, mut run, mut entered) = (after, run, entered);
        let mut count = 0;
        while let Some(stretch) = self.stretch(after, run, sight) {
            let (these, rest) = entered.split_at_mut(index(stretch.length).min(entered.len()));
            self.hold_stretch(holder, stretch, these);
            entered = rest;
            count += index(stretch.length);
            after = Some(Place { chain: stretch.chain, at: stretch.at + stretch.length - 1 });
            run.keys = run.keys.get(index(stretch.length)..).unwrap_or_default();
            run.before += index(stretch.length);
        }
        count
    }

    /// The first of these keys, as far as they have their places in one chain or get them there. `None`: there is none, or
    /// no room.
    fn stretch(&mut self, after: Option<Place>, run: Keys<'_>, sight: &mut Sight) -> Option<Stretch> {
        let first = run.keys.first()?;
        let known = |chain: ChainId, at: u32, length: usize| {
            let length = u32::try_from(length).ok().filter(|length| *length > 0)?;
            Some(Stretch { chain, at, length })
        };
        if let Some(after) = after
            && let Some(behind) =
                self.get(after.chain).and_then(|chain| chain.keys.get(index(after.at) + 1..))
            && let Some(stretch) = known(after.chain, after.at + 1, alike(behind, run.keys))
        {
            return Some(stretch);
        }
        let is_new = |at: usize| sight.begun == self.begun && run.before + at >= sight.new_from;
        if !is_new(0)
            && let Some(id) = self.heads.get(*first)
        {
            return known(id, 0, self.get(id).map_or(0, |chain| alike(&chain.keys, run.keys)));
        }
        let begins = |at: usize, key: &BlockKey| !is_new(at) && self.heads.contains(*key);
        let others = run.keys.iter().enumerate().skip(1);
        let new = 1 + others.take_while(|(at, key)| !begins(*at, key)).count();
        let new = run.keys.get(..new.min(self.keys_max.saturating_sub(self.keys))).unwrap_or_default();
        self.place_run(after, new, run.keys.len() - new.len() + run.behind, sight)
    }

    /// Gives places to blocks that have none. `more`: how many will follow them.
    fn place_run(
        &mut self,
        after: Option<Place>,
        keys: &[BlockKey],
        more: usize,
        sight: &mut Sight,
    ) -> Option<Stretch> {
        let (first, length) = (keys.first()?, u32::try_from(keys.len()).ok()?);
        self.keys += keys.len();
        if let Some(after) = after
            && let Some(chain) = self.chains.get_mut(index(after.chain.0))
        {
            let is_last = chain.keys.len() == index(after.at) + 1;
            if is_last && after.at.saturating_add(length) <= CHAIN_BLOCKS_MAX {
                chain.extend(keys, more);
                return Some(Stretch { chain: after.chain, at: after.at + 1, length });
            }
            chain.parting = after.at + 1;
        }
        let id = self.unused();
        if let Some(chain) = self.chains.get_mut(index(id.0)) {
            chain.extend(keys, more);
        }
        let saw_all = sight.begun == self.begun;
        self.begin(*first, id);
        if saw_all {
            // No later key is this one.
            sight.begun = self.begun;
        }
        Some(Stretch { chain: id, at: 0, length })
    }

    /// Notes that `holder` has the blocks of a stretch.
    fn hold_stretch(&mut self, holder: Holder, stretch: Stretch, entered: &mut [Entered]) {
        let Some(chain) = self.chains.get_mut(index(stretch.chain.0)) else { return };
        let hold = chain.holders_mut().get_or_insert(holder.slot);
        let is_new = hold.store_run(stretch.at, stretch.length, holder.group);
        for (at, entered) in (stretch.at..).zip(entered) {
            *entered = Entered { place: Place { chain: stretch.chain, at }, had: GroupMask::default() };
            if !is_new {
                entered.had = hold.stored(at);
                if !entered.had.has(holder.group) {
                    hold.store(at, holder.group);
                }
            }
        }
    }

    /// Notes that `holder` no longer has the blocks from `from` to `to` of a chain, if those are the last ones that its
    /// stream has there, and in no other group. `false`: nothing was done.
    pub(in super::super) fn release_run(&mut self, id: ChainId, holder: Holder, from: u32, to: u32) -> bool {
        let Some(chain) = self.chains.get_mut(index(id.0)) else { return false };
        let Some(hold) = chain.holders_mut().get_mut(holder.slot) else { return false };
        if !hold.release_run(from, to, holder.group) {
            return false;
        }
        if hold.is_empty() {
            chain.holders_mut().remove(holder.slot);
        }
        if index(to) == chain.keys.len() {
            self.trim(id);
        }
        true
    }
}

// === impl Chain ===

impl Chain {
    /// Adds keys at the end. `more`: how many will follow them. Chains grow by what an event brings, so a vector's doubling
    /// would leave half of the memory unused.
    pub(super) fn extend(&mut self, keys: &[BlockKey], more: usize) {
        let Some(last) = keys.last() else { return };
        let (spare, wanted) = (self.keys.capacity() - self.keys.len(), keys.len() + more);
        if spare < wanted {
            let least = if self.keys.is_empty() { 0 } else { MORE_MIN.max(self.keys.len() / 8) };
            self.keys.reserve_exact(wanted.max(least));
        }
        self.keys.extend_from_slice(keys);
        self.last = *last;
    }
}

/// How many of the first keys are the same.
fn alike(some: &[BlockKey], others: &[BlockKey]) -> usize {
    some.iter().zip(others).take_while(|(one, other)| one == other).count()
}
