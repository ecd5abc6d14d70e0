//! All ids of a prompt, as something that they are folded into.

use warmpath_prompt::{Fold, Folded};

pub(crate) struct Ids;

impl Fold for Ids {
    type State = ();
    type Part = Vec<u32>;

    fn identify(&self, _: &mut Vec<u8>) {}

    fn begin(&self) {}

    fn fold(&self, (): &mut (), ids: &[u32]) -> Vec<u32> {
        ids.to_vec()
    }

    fn owned_bytes((): &(), ids: &Vec<u32>) -> usize {
        size_of_val(ids.as_slice())
    }
}

pub(crate) fn ids_of(folded: &Folded<Ids>) -> Vec<u32> {
    folded.parts().flatten().copied().collect()
}
