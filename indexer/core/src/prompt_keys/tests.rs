use proptest::prelude::*;

use super::*;

const NAMESPACE: Namespace<'static> = Namespace { model: "m", lora: None, salt: None };

fn plan(sizes: &[u32]) -> KeyPlan {
    plan_ahead(&sizes.iter().map(|size| (*size, 0)).collect::<Vec<_>>())
}

fn plan_ahead(layouts: &[(u32, u32)]) -> KeyPlan {
    let layout = |(size, ahead): &(u32, u32)| {
        Layout::new(NonZeroU32::new(*size).expect("above 0"), *ahead).expect("small")
    };
    KeyPlan { hasher: KeyHasher::new([1; 16]), layouts: layouts.iter().map(layout).collect() }
}

#[test]
fn a_chain_per_size_and_the_block_with_the_last_token_is_not_reusable() {
    let plan = plan(&[2, 3]);
    let (two, three) = (plan.layouts[0], plan.layouts[1]);
    let keys = plan.keys(&NAMESPACE, &[1, 2, 3, 4, 5, 6]);
    let first = plan.hasher.block(plan.hasher.root(&NAMESPACE), &[1, 2], &[]);
    let second = plan.hasher.block(first, &[3, 4], &[]);
    assert_eq!(keys.of_layout(two), [first, second, plan.hasher.block(second, &[5, 6], &[])]);
    assert_eq!(keys.of_layout(three).len(), 2);
    let reusable: Vec<_> = keys.reusable().map(|(layout, keys)| (layout.size(), keys.len())).collect();
    assert_eq!(reusable, [(2, 2), (3, 1)]);
    assert!(plan.keys(&NAMESPACE, &[]).reusable().all(|(_, keys)| keys.is_empty()));
}

#[test]
fn the_first_block_behind_what_is_held_is_one_of_the_smallest() {
    let plan = plan(&[3, 2]);
    let keys = plan.keys(&NAMESPACE, &[1, 2, 3, 4, 5, 6, 7]);
    let two: Vec<u64> = keys.of_layout(plan.layouts[1]).iter().map(|key| key.0).collect();
    assert_eq!(two.len(), 3);
    let behind = [0, 1, 2, 4, 6, 9].map(|tokens| keys.first_behind(tokens).unwrap());
    assert_eq!(behind, [two[0], two[0], two[1], two[2], two[2], two[2]]);
    assert_eq!(plan.keys(&NAMESPACE, &[1]).first_behind(0), None);
}

#[test]
fn a_block_with_tokens_ahead_is_whole_when_they_are_there_and_depends_on_them() {
    let plan = plan_ahead(&[(2, 1), (2, 3)]);
    let (one, three) = (plan.layouts[0], plan.layouts[1]);
    let root = plan.hasher.root(&NAMESPACE);
    let ahead = |tokens: &[u32]| [crate::key::Extra::Ahead(tokens.into())];
    let keys = plan.keys(&NAMESPACE, &[1, 2, 3, 4, 5]);
    let first = plan.hasher.block(root, &[1, 2], &ahead(&[3]));
    assert_eq!(keys.of_layout(one), [first, plan.hasher.block(first, &[3, 4], &ahead(&[5]))]);
    assert_eq!(keys.of_layout(three), [plan.hasher.block(root, &[1, 2], &ahead(&[3, 4, 5]))]);
    assert_eq!(plan.keys(&NAMESPACE, &[1, 2]).of_layout(one), []);
    assert_ne!(plan.keys(&NAMESPACE, &[1, 2, 9]).of_layout(one), [first]);
}

#[test]
fn plans_and_namespaces_that_make_other_keys_identify_themselves_otherwise() {
    let name = |plan: &KeyPlan, namespace: &Namespace<'_>| {
        let mut name = Vec::new();
        plan.identify(namespace, &mut name);
        name
    };
    let secret = KeyPlan { hasher: KeyHasher::new([2; 16]), ..plan(&[16]) };
    let names = [
        name(&plan(&[16]), &NAMESPACE),
        name(&plan(&[16, 32]), &NAMESPACE),
        name(&plan(&[32]), &NAMESPACE),
        name(&plan(&[]), &NAMESPACE),
        name(&plan_ahead(&[(16, 1)]), &NAMESPACE),
        name(&secret, &NAMESPACE),
        name(&plan(&[16]), &Namespace { model: "ms", ..NAMESPACE }),
        name(&plan(&[16]), &Namespace { salt: Some("s"), ..NAMESPACE }),
        name(&plan(&[16]), &Namespace { lora: Some("s"), ..NAMESPACE }),
        name(&plan(&[16]), &Namespace { salt: Some(""), ..NAMESPACE }),
    ];
    for (place, one) in names.iter().enumerate() {
        assert!(!names[..place].contains(one), "{place}");
    }
    assert_eq!(names[0], name(&plan(&[16]), &NAMESPACE));
}

proptest! {
    #[test]
    fn keys_of_parts_are_the_keys_of_the_whole(
        tokens in proptest::collection::vec(any::<u32>(), 0..300),
        cuts in proptest::collection::vec(0_usize..300, 0..8),
        layouts in proptest::sample::subsequence(
            vec![(1_u32, 0_u32), (2, 0), (2, 1), (3, 0), (3, 7), (7, 2), (16, 0), (32, 3), (64, 0)],
            0..4,
        ),
    ) {
        let plan = plan_ahead(&layouts);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(tokens.len())).collect();
        cuts.extend([0, tokens.len()]);
        cuts.sort_unstable();
        let mut state = plan.begin(&NAMESPACE);
        let parts: Vec<_> =
            cuts.windows(2).map(|cut| plan.extend(&mut state, &tokens[cut[0]..cut[1]])).collect();
        prop_assert_eq!(plan.join(parts.iter()), plan.keys(&NAMESPACE, &tokens));
        // What is carried does not depend on where the parts ended.
        let mut whole = plan.begin(&NAMESPACE);
        let _ = plan.extend(&mut whole, &tokens);
        prop_assert_eq!(state, whole);
    }
}

/// What one process expects, another that has its secret expects too: for streams of any of the layouts.
#[test]
fn keys_come_back_as_they_were_told() {
    let plan = plan_ahead(&[(2, 0), (2, 1), (3, 0)]);
    let keys = plan.keys(&NAMESPACE, &[1, 2, 3, 4, 5, 6, 7]);
    let heard = PromptKeys::of_runs(keys.runs(2));
    for layout in &plan.layouts {
        let told = keys.of_layout(*layout);
        assert_eq!(heard.of_layout(*layout), told.get(..2).unwrap_or(told));
    }
    let runs: Vec<KeyRun> = keys.runs(2).collect();
    assert_eq!(runs, heard.runs(9).collect::<Vec<_>>());
    let absurd = [(0, 0), (1 << 25, 0), (2, 65)].map(|(block_size, ahead)| KeyRun {
        block_size,
        ahead,
        keys: vec![1],
    });
    assert_eq!(PromptKeys::of_runs(absurd), PromptKeys::default());
}
