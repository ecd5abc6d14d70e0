//! Comparison of predicted ids with the engine's own, for load-time checks and tests.

use std::fmt;

/// Ids shown before and after the first difference.
const CONTEXT: usize = 4;

/// The first place where two id lists part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Tokens that agree before it.
    pub position: usize,
    pub ours: Option<u32>,
    pub theirs: Option<u32>,
    pub our_len: usize,
    pub their_len: usize,
    ours_around: Vec<u32>,
    theirs_around: Vec<u32>,
}

/// `None`: the lists are equal.
pub fn first_difference(ours: &[u32], theirs: &[u32]) -> Option<Difference> {
    let position = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    if position == ours.len() && position == theirs.len() {
        return None;
    }
    let around = |ids: &[u32]| {
        ids.iter().skip(position.saturating_sub(CONTEXT)).take(2 * CONTEXT + 1).copied().collect::<Vec<_>>()
    };
    Some(Difference {
        position,
        ours: ours.get(position).copied(),
        theirs: theirs.get(position).copied(),
        our_len: ours.len(),
        their_len: theirs.len(),
        ours_around: around(ours),
        theirs_around: around(theirs),
    })
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "token {}: ours …{:?}… ({} tokens), theirs …{:?}… ({} tokens)",
            self.position, self.ours_around, self.our_len, self.theirs_around, self.their_len
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lists_have_no_difference() {
        assert_eq!(first_difference(&[], &[]), None);
        assert_eq!(first_difference(&[1, 2], &[1, 2]), None);
    }

    #[test]
    fn difference_names_place_ids_and_lengths() {
        let difference = first_difference(&[1, 2, 3, 4], &[1, 2, 9]).unwrap();
        assert_eq!((difference.position, difference.ours, difference.theirs), (2, Some(3), Some(9)));
        assert_eq!(
            difference.to_string(),
            "token 2: ours …[1, 2, 3, 4]… (4 tokens), theirs …[1, 2, 9]… (3 tokens)"
        );
    }

    #[test]
    fn shorter_list_ends_where_it_ends() {
        let difference = first_difference(&[1], &[1, 2]).unwrap();
        assert_eq!((difference.position, difference.ours, difference.theirs), (1, None, Some(2)));
    }
}
