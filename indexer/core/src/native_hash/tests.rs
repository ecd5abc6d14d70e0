use crate::hex::hex;

use super::*;

fn digest_of(text: &str) -> NativeDigest {
    let bytes = hex(text);
    match bytes.len() {
        16 => NativeDigest::Xxh3(bytes.try_into().expect("16 bytes")),
        _ => NativeDigest::Sha256(bytes.try_into().expect("32 bytes")),
    }
}

fn hasher(algorithm: NativeAlgorithm, seed: &str) -> NativeHasher {
    NativeHasher::new(algorithm, seed, NativeKeyForm::Tagged)
}

fn tuple(keys: Vec<NativeKey>) -> NativeKey {
    NativeKey::Tuple(keys.into())
}

/// The first two are what real servers have, all were computed by `hashlib.sha256(pickle.dumps(…, protocol=5))`.
#[test]
fn roots_are_the_digests_of_the_seed() {
    let root = |algorithm, seed| hasher(algorithm, seed).root();
    for (algorithm, seed, digest) in [
        (
            NativeAlgorithm::Sha256,
            SEED_DEFAULT,
            "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198",
        ),
        (
            NativeAlgorithm::Sha256Cbor,
            "0",
            "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e",
        ),
        (NativeAlgorithm::Sha256, "0", "1973e23848344dc43a988a9b478663803cfffe1243480253f9a3cf004b14aa7c"),
        (NativeAlgorithm::Sha256, "", "3279c4b947f331d055c47442171c9ea17712596bd7fe094c31d4a5d432b42d68"),
        (
            NativeAlgorithm::Sha256Cbor,
            SEED_DEFAULT,
            "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0",
        ),
    ] {
        assert_eq!(root(algorithm, seed), digest_of(digest), "{algorithm:?} {seed}");
    }
}

#[test]
fn pickled_blocks_are_those_of_cpython() {
    let hasher = hasher(NativeAlgorithm::Sha256, SEED_DEFAULT);
    let block = |tokens: &[u32], keys: &[NativeKey]| hasher.block(&hasher.root(), tokens, keys);
    let text = NativeKey::text;
    for (tokens, keys, digest) in [
        (
            vec![1, 255, 256, 65535],
            vec![],
            "64b05b8b7de237b04310cce9899c2c3b4100aeafbf1bb53c1ba4e55e6b925b31",
        ),
        (
            vec![65536, (1 << 31) - 1, 1 << 31, u32::MAX],
            vec![],
            "886b01d4710ad7a0667c778c54466ba17a25d239c25a72bebfed8cf1e830eacc",
        ),
        (vec![1, 2, 3], vec![], "d6a0584b5995a886add7c1f59433a9171ba6fdf4b936d0b68e6df127e2244c82"),
        (
            vec![7],
            vec![text("my-lora"), text("tenant")],
            "007bd51b6716339c7a3e7c358ddbdd543b3da651464e0f60099a275b2fa3dfd3",
        ),
        (
            vec![1, 2, 3, 4],
            vec![
                tuple(vec![text("lora"), text("my-lora"), text("models/tiny-lora")]),
                tuple(vec![text("mm"), text("id"), NativeKey::Int(-3)]),
                tuple(vec![text("cache_salt"), text(&"t".repeat(300))]),
                tuple(vec![text("prompt_embeds"), NativeKey::Bytes([0; 32].into())]),
            ],
            "a4ecbb4be0877f74cbae7f07fc71cd36455abf2014f211646950a3bc473d7be8",
        ),
        (
            vec![1, 2],
            [-1, -129, -1 << 31, (-1 << 31) - 1, 1 << 40, -1 << 40, i64::MAX, i64::MIN]
                .map(NativeKey::Int)
                .to_vec(),
            "09aa2306cbf2b07cd4b718c8d3002840f47d98f7695163edc0646660d4f74560",
        ),
    ] {
        assert_eq!(block(&tokens, &keys), digest_of(digest), "{tokens:?} {keys:?}");
    }
}

#[test]
fn cbor_blocks_are_canonical() {
    let hasher = hasher(NativeAlgorithm::Sha256Cbor, "0");
    let block = |tokens: &[u32], keys: &[NativeKey]| hasher.block(&hasher.root(), tokens, keys);
    assert_eq!(
        block(&[0, 23, 24, 255, 256, 65535, 65536, u32::MAX], &[]),
        digest_of("39532d759036eca7efd7a6e039e216836a50436ef6b04f2f261c9e2f453fb3ec")
    );
    let keys = [
        tuple(vec![NativeKey::text("mm"), NativeKey::text("id"), NativeKey::Int(-3)]),
        tuple(vec![NativeKey::text("cache_salt"), NativeKey::text(&"t".repeat(300))]),
        NativeKey::Bytes([0; 32].into()),
        NativeKey::Int(-1 << 40),
    ];
    assert_eq!(
        block(&[1, 2, 3, 4], &keys),
        digest_of("1e3d72586357f6ac8c8306c8c945db85e0f51155b73d136ddcc5d26a9e3cff5d")
    );
}

/// Computed by `xxhash.xxh3_128_digest` over `pickle.dumps(…, protocol=5)` and `cbor2.dumps(…, canonical=True)`.
#[test]
fn xxhash_blocks_are_those_of_the_library() {
    let adapter = tuple(vec![NativeKey::text("lora"), NativeKey::text("sql"), NativeKey::text("/loras/sql")]);
    for (algorithm, digests) in [
        (
            NativeAlgorithm::Xxhash,
            [
                "6fb31cc38bba6066183f7f2104b9c051",
                "7cc911724da32fc7f5359a22d62498ab",
                "7e8b414809c4ddfbbfe46ef7ce422575",
                "52e286106c69694625963dd82e1e609b",
            ],
        ),
        (
            NativeAlgorithm::XxhashCbor,
            [
                "1ebe36576dcb573f26b99533a20aaeca",
                "7aa388ce79e16c206f242c54d3027890",
                "b15f6184e004370291901a1376b6f35d",
                "c11ee080f047023f898694f16c03d6b0",
            ],
        ),
    ] {
        let hasher = hasher(algorithm, "0");
        let first = hasher.block(&hasher.root(), &[1, 255, 256, 65535], &[]);
        let second =
            hasher.block(&first, &(1000..1016).collect::<Vec<u32>>(), std::slice::from_ref(&adapter));
        let third = hasher.block(&second, &(70_000..70_256).collect::<Vec<u32>>(), &[]);
        let computed = [hasher.root(), first, second, third];
        assert_eq!(computed, digests.map(digest_of), "{algorithm:?}");
        assert_eq!(first.engine_hash().0.to_be_bytes().to_vec(), hex(digests[1].get(16..).unwrap()));
    }
}

#[test]
fn a_prompt_is_the_chain_of_its_whole_blocks_and_its_salt_is_in_the_first() {
    let tokens = [1, 2, 3, 4, 5, 6, 7];
    let two = NonZeroU32::new(2).expect("above 0");
    let namespace = NativeNamespace { lora: Some(("a", "/a")), salt: Some("t") };
    let text = NativeKey::text;
    let tagged =
        [tuple(vec![text("lora"), text("a"), text("/a")]), tuple(vec![text("cache_salt"), text("t")])];
    let plain = [text("a"), text("t")];
    for algorithm in [NativeAlgorithm::Sha256, NativeAlgorithm::Sha256Cbor, NativeAlgorithm::Xxhash] {
        for (form, keys) in [(NativeKeyForm::Tagged, &tagged), (NativeKeyForm::Plain, &plain)] {
            let hasher = NativeHasher::new(algorithm, "0", form);
            let first = hasher.block(&hasher.root(), &tokens[..2], keys);
            let second = hasher.block(&first, &tokens[2..4], &keys[..1]);
            let third = hasher.block(&second, &tokens[4..6], &keys[..1]);
            let expected = [first, second, third].map(|digest| digest.engine_hash()).to_vec();
            assert_eq!(hasher.prompt(&namespace, &tokens, two), expected, "{algorithm:?} {form:?}");
        }
    }
}

#[test]
fn only_algorithms_that_are_known_have_a_name() {
    assert_eq!(NativeAlgorithm::by_name("sha256"), Some(NativeAlgorithm::Sha256));
    assert_eq!(NativeAlgorithm::by_name("sha256_cbor"), Some(NativeAlgorithm::Sha256Cbor));
    assert_eq!(NativeAlgorithm::by_name("xxhash"), Some(NativeAlgorithm::Xxhash));
    assert_eq!(NativeAlgorithm::by_name("xxhash_cbor"), Some(NativeAlgorithm::XxhashCbor));
    for other in ["builtin", "sha256_cbor_64bit", ""] {
        assert_eq!(NativeAlgorithm::by_name(other), None);
    }
}
