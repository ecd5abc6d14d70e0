use proptest::prelude::*;

use super::*;

/// An id in one of the forms that MessagePack has for it, or as the first of a pair.
fn id() -> impl Strategy<Value = (u32, Vec<u8>)> {
    let tiny = (0..0x80_u8).prop_map(|id| (u32::from(id), vec![id]));
    let byte = any::<u8>().prop_map(|id| (u32::from(id), vec![0xcc, id]));
    let short = any::<u16>().prop_map(|id| (u32::from(id), [&[0xcd][..], &id.to_be_bytes()].concat()));
    let long = any::<u32>().prop_map(|id| (id, [&[0xce][..], &id.to_be_bytes()].concat()));
    let wide = any::<u32>().prop_map(|id| (id, [&[0xcf][..], &u64::from(id).to_be_bytes()].concat()));
    let paired =
        any::<u16>().prop_map(|id| (u32::from(id), [&[0x92, 0xcd][..], &id.to_be_bytes(), &[7]].concat()));
    prop_oneof![4 => tiny, 1 => byte, 6 => short, 4 => long, 1 => wide, 1 => paired]
}

proptest! {
    #[test]
    fn ids_are_read_whatever_forms_stand_side_by_side(
        ids in proptest::collection::vec(id(), 0..40),
        behind in proptest::collection::vec(any::<u8>(), 0..12),
    ) {
        let mut bytes = ids.iter().flat_map(|(_, bytes)| bytes.clone()).collect::<Vec<u8>>();
        bytes.extend(&behind);
        let mut reader = Reader::new(&bytes);
        let read = reader.tokens(ids.len());
        prop_assert_eq!(read, Ok(ids.iter().map(|(id, _)| *id).collect::<Vec<_>>()));
        prop_assert_eq!(reader.rest, &behind[..], "what comes behind them is left");
    }

    #[test]
    fn ids_that_are_cut_off_or_none_are_an_error(
        ids in proptest::collection::vec(id(), 1..20),
        cut in any::<prop::sample::Index>(),
        marker in prop_oneof![Just(0xc0_u8), Just(0xc3), Just(0xca), Just(0xff), Just(0xa1)],
    ) {
        let whole = ids.iter().flat_map(|(_, bytes)| bytes.clone()).collect::<Vec<u8>>();
        let cut_off = &whole[..cut.index(whole.len())];
        prop_assert_eq!(Reader::new(cut_off).tokens(ids.len()), Err(ReadError::Truncated));
        let at = cut.index(ids.len());
        let mut strange = ids[..at].iter().flat_map(|(_, bytes)| bytes.clone()).collect::<Vec<u8>>();
        strange.extend([marker, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        prop_assert_eq!(Reader::new(&strange).tokens(ids.len()), Err(ReadError::WrongType));
    }
}
