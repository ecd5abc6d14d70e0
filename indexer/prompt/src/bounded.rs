//! A text that is written piece by piece and stops at a limit, so that what makes long texts of short requests is stopped
//! while it writes.

use std::fmt;

use crate::limits::MAX_PROMPT_BYTES;

/// A text of at most so many bytes. A write that would make it longer fails and leaves it as it is.
#[derive(Debug)]
pub(crate) struct Bounded {
    text: String,
    limit: usize,
}

// === impl Bounded ===

impl Bounded {
    /// As long as a prompt may be.
    pub(crate) fn prompt() -> Self {
        Self::of(MAX_PROMPT_BYTES)
    }

    pub(crate) fn of(limit: usize) -> Self {
        Bounded { text: String::new(), limit }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn into_string(self) -> String {
        self.text
    }
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        if piece.len() > self.limit.saturating_sub(self.text.len()) {
            return Err(fmt::Error);
        }
        self.text.push_str(piece);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    #[test]
    fn text_never_grows_beyond_its_limit() {
        let mut text = Bounded::of(5);
        assert!(write!(text, "ab{}", 34).is_ok());
        assert!(text.write_str("56").is_err());
        assert!(text.write_char('é').is_err());
        assert!(text.write_char('5').is_ok());
        assert!(text.write_char('6').is_err());
        assert_eq!(text.into_string(), "ab345");
    }
}
