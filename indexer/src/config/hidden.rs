//! Text that must not be seen.

use std::fmt;

use serde::{Serialize, Serializer};

/// A password. What is printed in its place says only that there is one.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(String);

const SHOWN: &str = "(hidden)";

impl Hidden {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, to be handed to who needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SHOWN)
    }
}

impl Serialize for Hidden {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(SHOWN)
    }
}
