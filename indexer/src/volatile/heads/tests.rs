use super::*;

/// Text that is the same for all, of no short period.
fn rest() -> String {
    (0..400).map(|number| format!("rule {number}: be brief. ")).collect()
}

/// Sees one prompt after the other; what was named, and when (1 for the first prompt).
fn named(prompts: impl IntoIterator<Item = String>) -> (Heads, Vec<(usize, Found)>) {
    let mut heads = Heads::default();
    let mut named = Vec::new();
    for (number, prompt) in (1..).zip(prompts) {
        if let Sight::Volatile { named: Some(found) } = heads.see(prompt.as_bytes()) {
            named.push((number, found));
        }
    }
    (heads, named)
}

/// Digits in an order that has nothing to do with their number.
fn nonce(number: u64) -> String {
    format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bf0_3635)
}

#[test]
fn a_nonce_in_the_first_line_is_named_once_with_its_place() {
    let prompts = (0..50).map(|n| format!("<|im_start|>system\nrequest {}\n{}", nonce(n), rest()));
    let (heads, named) = named(prompts);
    // The first is the reference; the one that makes it 32 is the 33rd.
    assert_eq!(named.len(), 1);
    let (when, found) = named[0];
    assert_eq!((when, found.offset, found.span, found.fresh), (33, 27, 16, 32));
    let now: Vec<Found> = heads.named().collect();
    assert_eq!(now, [Found { fresh: 49, ..found }]);
}

#[test]
fn a_counter_whose_length_changes_and_a_span_of_several_lines_are_found_too() {
    let prompts = (0..2000).step_by(40).map(|n| format!("seq={n}\n{}", rest()));
    let (_, by_counter) = named(prompts);
    assert_eq!((by_counter.len(), by_counter[0].1.offset), (1, 4));
    let lines = |n| format!("id: {}\nkey: {}\n{}", nonce(n), nonce(n + 1000).repeat(4), rest());
    let (_, by_lines) = named((0..50).map(lines));
    assert_eq!((by_lines.len(), by_lines[0].1.offset), (1, 4));
    assert_eq!(by_lines[0].1.span, 16 + 6 + 64);
}

#[test]
fn a_nonce_deep_in_the_head_is_found_and_one_behind_it_is_none_of_ours() {
    let beginning = |bytes: usize| rest().repeat(2).chars().take(bytes).collect::<String>();
    let at = |bytes| (0..50).map(move |n| format!("{}{}{}", beginning(bytes), nonce(n), rest()));
    let (_, deep) = named(at(5000));
    assert_eq!((deep.len(), deep[0].1.offset), (1, 5000));
    assert!(named(at(HEAD_BYTES)).1.is_empty());
}

#[test]
fn prompts_that_honestly_differ_are_not_named() {
    let unlike = (0..50).map(|n| nonce(n).repeat(100));
    assert!(named(unlike).1.is_empty());
    // One system prompt, many questions; and short ones, which are equal behind the question but not for long.
    let questions = (0..50).map(|n| format!("{}question {}", rest(), nonce(n).repeat(20)));
    assert!(named(questions).1.is_empty());
    let short = (0..50).map(|n| format!("{} answer briefly and in English", nonce(n)));
    assert!(named(short).1.is_empty());
    // What differs is longer than a nonce.
    let long = (0..50).map(|n| format!("{}{}", nonce(n).repeat(20), rest()));
    assert!(named(long).1.is_empty());
}

#[test]
fn heads_that_come_again_are_not_named() {
    // Names of ten users, and a date that changes in the middle.
    let users = (0..200).map(|n| format!("user {}\n{}", nonce(n % 10), rest()));
    assert!(named(users).1.is_empty());
    let dates = (0..200).map(|n| format!("today is {}\n{}", nonce(n / 100), rest()));
    assert!(named(dates).1.is_empty());
}

/// Far more users than make a nonce, whose names stand in the first line.
#[test]
fn many_users_who_take_turns_are_not_named() {
    let prompt = |user| format!("user {}\n{}", nonce(user), rest());
    // Each asks twice.
    let (heads, named_by_pairs) = named((0..2000).map(|turn| prompt(turn / 2)));
    assert!(named_by_pairs.is_empty());
    assert_eq!(heads.named().count(), 0);
    // All of them ask before one asks again. Until then nothing tells them from a nonce.
    for turns in [2, 5] {
        let (heads, named_by_rounds) = named((0..turns * 1000).map(|turn| prompt(turn % 1000)));
        assert_eq!(heads.named().count(), 0, "{turns} turns each");
        assert_eq!(named_by_rounds.len(), 1, "again and again");
    }
}

/// What is met stays remembered, however many others come once; what is not is forgotten in the end.
#[test]
fn spans_are_remembered_while_they_are_met_and_their_number_is_bounded() {
    let mut spans = Spans::default();
    assert!(spans.meet(0));
    for other in 1..10 * SPANS_MIN as u64 {
        assert!(spans.meet(other));
        if other.is_multiple_of(SPANS_MIN as u64 / 2) {
            assert!(!spans.meet(0), "after {other} others");
        }
        assert!(spans.len() <= 2 * SPANS_MIN);
    }
    let last = 10 * SPANS_MIN as u64 - 1;
    assert!(!spans.meet(last - SPANS_MIN as u64 + 2), "at least so many are remembered");
    assert!(spans.meet(5), "met once, long ago");
}

#[test]
fn what_comes_again_more_often_than_not_is_named_no_longer() {
    let users = || (0..40).map(|n| format!("user {}\n{}", nonce(n), rest()));
    let (heads, first) = named(users());
    assert_eq!((first.len(), heads.named().count()), (1, 1));
    let (heads, _) = named(users().chain(users()));
    assert_eq!(heads.named().count(), 0);
}

#[test]
fn honest_prompts_between_do_not_push_a_reference_out_and_memory_is_bounded() {
    let mixed = (0..300).map(|n| match n % 5 {
        0 => format!("request {}\n{}", nonce(n), rest()),
        _ => nonce(n).repeat(600),
    });
    let (heads, named) = named(mixed);
    assert_eq!((named.len(), named[0].1.offset), (1, 8));
    assert_eq!(heads.references.len(), REFERENCES_MAX);
    assert!(heads.references.iter().all(|reference| reference.head.len() <= HEAD_BYTES));
    assert!(heads.references.iter().all(|reference| reference.seen.len() <= 2 * SPANS_MIN));
}

#[test]
fn any_two_heads_are_compared_without_leaving_them() {
    let text = rest();
    let mut apart = 0;
    for length in [0, 1, 31, 32, 255, 256, 257, 511, 768, 800, 1100, 8192] {
        for cut in [0, 1, 7, 300, 600] {
            let reference = text.as_bytes().get(..length).unwrap_or(text.as_bytes());
            let mut head = reference.to_vec();
            head.splice(cut.min(length)..(cut + 5).min(length), *b"###");
            if let Likeness::Apart { offset, span } = likeness(reference, &head) {
                assert!(offset == cut && span == 3, "{length}, {cut}: {offset}, {span}");
                apart += 1;
            }
        }
    }
    assert!(apart > 5, "{apart}");
}
