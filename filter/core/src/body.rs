//! Bounded collection: may a request body still be collected? The proxy keeps the bytes; we only count them.

/// What to do with a body of which so much has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collect {
    /// Hold it until its end.
    More,
    /// It is complete: read it.
    Read,
    /// There is none.
    Empty,
    /// It is too large: let it go.
    TooLarge,
}

/// Judges by what the headers announce, before any of it has come. `None`: nothing announced.
pub fn announced(content_length: Option<u64>, bytes_max: usize) -> Collect {
    match content_length {
        Some(0) => Collect::Empty,
        Some(length) if length > bytes_max as u64 => Collect::TooLarge,
        _ => Collect::More,
    }
}

/// Judges by what has come: `bytes` of it, and whether that is all.
pub fn collected(bytes: usize, ends: bool, bytes_max: usize) -> Collect {
    match (bytes, ends) {
        _ if bytes > bytes_max => Collect::TooLarge,
        (_, false) => Collect::More,
        (0, true) => Collect::Empty,
        (_, true) => Collect::Read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_itself_is_still_collected() {
        assert_eq!(announced(Some(10), 10), Collect::More);
        assert_eq!(announced(Some(11), 10), Collect::TooLarge);
        assert_eq!(announced(None, 10), Collect::More);
        assert_eq!(announced(Some(0), 10), Collect::Empty);
        assert_eq!(collected(10, true, 10), Collect::Read);
        assert_eq!(collected(10, false, 10), Collect::More);
        assert_eq!(collected(11, false, 10), Collect::TooLarge);
        assert_eq!(collected(11, true, 10), Collect::TooLarge);
        assert_eq!(collected(0, true, 10), Collect::Empty);
    }
}
