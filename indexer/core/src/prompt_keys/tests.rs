use proptest::prelude::*;

use super::*;

const NAMESPACE: Namespace<'static> = Namespace { model: "m", lora: None, salt: None };

fn plan(sizes: &[u32]) -> KeyPlan {
    let sizes = sizes.iter().map(|size| NonZeroU32::new(*size).expect("above 0")).collect();
    KeyPlan { hasher: KeyHasher::new([1; 16]), sizes }
}

#[test]
fn a_chain_per_size_and_the_block_with_the_last_token_is_not_reusable() {
    let plan = plan(&[2, 3]);
    let (two, three) = (plan.sizes[0], plan.sizes[1]);
    let keys = plan.keys(&NAMESPACE, &[1, 2, 3, 4, 5, 6]);
    let first = plan.hasher.block(plan.hasher.root(&NAMESPACE), &[1, 2], &[]);
    let second = plan.hasher.block(first, &[3, 4], &[]);
    assert_eq!(keys.of_size(two), [first, second, plan.hasher.block(second, &[5, 6], &[])]);
    assert_eq!(keys.of_size(three).len(), 2);
    let reusable: Vec<_> = keys.reusable().map(|(size, keys)| (size.get(), keys.len())).collect();
    assert_eq!(reusable, [(2, 2), (3, 1)]);
    assert!(plan.keys(&NAMESPACE, &[]).reusable().all(|(_, keys)| keys.is_empty()));
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
        sizes in proptest::sample::subsequence(vec![1_u32, 2, 3, 7, 16, 32, 64], 0..4),
    ) {
        let plan = plan(&sizes);
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
