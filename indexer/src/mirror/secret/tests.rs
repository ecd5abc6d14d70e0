use std::collections::BTreeSet;

use super::*;

fn dated(made_us: u64, first: u8) -> DatedSecret {
    DatedSecret { made_us, secret: [first; 16] }
}

fn begun(dated: DatedSecret) -> Claim {
    Claim { dated, has_begun: true }
}

fn starting(dated: DatedSecret) -> Claim {
    Claim { dated, has_begun: false }
}

#[test]
fn the_oldest_counts_and_at_the_start_those_that_are_past_theirs() {
    let (old, mid, new) = (dated(10, 9), dated(20, 5), dated(30, 1));
    let kept = DatedSecret::of_mirror([7; 16]);
    let table: &[(&str, Claim, &[Claim], DatedSecret)] = &[
        ("alone", starting(mid), &[], mid),
        ("who starts after us", starting(mid), &[starting(new)], mid),
        ("who started before us", starting(mid), &[starting(new), starting(old)], old),
        ("who is past its start, however young", starting(old), &[starting(mid), begun(new)], new),
        ("of those the oldest", starting(old), &[begun(new), begun(mid)], mid),
        ("past our start: an older one", begun(mid), &[begun(new), begun(old)], old),
        ("past our start: a younger one", begun(mid), &[begun(new)], mid),
        ("past our start: one that is starting", begun(mid), &[starting(old)], mid),
        ("a mirror's", begun(old), &[begun(kept)], kept),
        ("of one moment the smaller", starting(dated(10, 3)), &[starting(dated(10, 2))], dated(10, 2)),
        ("of releases that know no age the smaller", begun(old), &[begun(dated(0, 9)), begun(kept)], kept),
    ];
    for (case, own, others, chosen) in table {
        assert_eq!(choose(*own, others.iter().copied()), *chosen, "{case}");
    }
}

/// An indexer in all that its start is, for every order in which the steps of several can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// Its port opens, and then its secret is made.
    Opens,
    /// It asks all, and keeps what it chose.
    Looks,
    /// It begins with that.
    Begins,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Indexer {
    next: Step,
    secret: DatedSecret,
}

const NOT_YET: DatedSecret = DatedSecret { made_us: u64::MAX, secret: [0; 16] };

/// Takes all steps in all orders.
fn each_end(indexers: &[Indexer], clock: u64, sees: &[&[bool]], ends: &mut Vec<Vec<Indexer>>) {
    let mut is_over = true;
    for (at, indexer) in indexers.iter().enumerate() {
        let mut next = indexers.to_vec();
        let secret = match indexer.next {
            // Later ones have smaller secrets: only the age can be what is chosen by.
            Step::Opens => dated(clock, 200 - clock as u8),
            Step::Looks => choose(starting(indexer.secret), told(indexers, at, sees)),
            Step::Begins => indexer.secret,
            Step::Done => continue,
        };
        is_over = false;
        let step = match indexer.next {
            Step::Opens => Step::Looks,
            Step::Looks => Step::Begins,
            Step::Begins | Step::Done => Step::Done,
        };
        next[at] = Indexer { next: step, secret };
        each_end(&next, clock + 1, sees, ends);
    }
    if is_over {
        ends.push(indexers.to_vec());
    }
}

/// What the others say whose ports are open, as far as this one sees them.
fn told(indexers: &[Indexer], own: usize, sees: &[&[bool]]) -> Vec<Claim> {
    let others = indexers
        .iter()
        .enumerate()
        .filter(|(at, other)| *at != own && sees[own][*at] && other.next != Step::Opens);
    others.map(|(_, other)| Claim { dated: other.secret, has_begun: other.next == Step::Done }).collect()
}

fn ends(sees: &[&[bool]]) -> Vec<Vec<Indexer>> {
    let mut ends = Vec::new();
    let start = vec![Indexer { next: Step::Opens, secret: NOT_YET }; sees.len()];
    each_end(&start, 1, sees, &mut ends);
    ends
}

fn secrets(indexers: &[Indexer]) -> BTreeSet<DatedSecret> {
    indexers.iter().map(|indexer| indexer.secret).collect()
}

const ALL: [&[bool]; 3] = [&[true; 3]; 3];

/// Whoever opens its port, asks and begins before whom.
#[test]
fn three_that_see_each_other_begin_with_one_secret_in_every_order_of_their_steps() {
    let ends = ends(&ALL);
    assert_eq!(ends.len(), 1680, "9 steps, three of each");
    for end in ends {
        assert_eq!(secrets(&end).len(), 1, "{end:?}");
    }
}

/// One does not know of another, or none of any: then they may begin with several, and come to one as they look again.
#[test]
fn three_of_whom_one_does_not_know_another_come_to_one_secret() {
    let mut several = 0;
    for (not_seeing, not_seen) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let mut sees = [[true; 3]; 3];
        sees[not_seeing][not_seen] = false;
        let rows: Vec<&[bool]> = sees.iter().map(|row| &row[..]).collect();
        for mut end in ends(&rows) {
            let begun_with = secrets(&end);
            several += usize::from(begun_with.len() > 1);
            // Each looks as often as it likes, in any order: none can go anywhere but to an older one.
            for _round in 0..3 {
                for at in 0..3 {
                    end[at].secret = choose(begun(end[at].secret), told(&end, at, &rows));
                }
            }
            assert_eq!(secrets(&end).len(), 1, "{end:?}");
            assert_eq!(secrets(&end).first(), begun_with.first(), "the oldest that was begun with");
        }
    }
    assert!(several > 0, "where nobody missed anybody, this shows nothing");
}

#[test]
fn who_prints_it_does_not_tell_it() {
    assert_eq!(format!("{:?}", dated(5, 255)), "DatedSecret { made_us: 5, .. }");
    assert!(DatedSecret::draw() > DatedSecret::of_mirror([255; 16]));
}
