//! Made-up text that an encoder has not seen: words by their frequency, names and numbers that are new each time.

use std::fmt::Write;

const WORDS: [&str; 48] = [
    "the",
    "of",
    "and",
    "to",
    "a",
    "in",
    "is",
    "that",
    "for",
    "it",
    "with",
    "as",
    "was",
    "on",
    "be",
    "by",
    "not",
    "router",
    "cache",
    "prefix",
    "tokens",
    "replica",
    "measured",
    "latency",
    "scheduler",
    "request",
    "unless",
    "block",
    "because",
    "engine",
    "conversation",
    "which",
    "holds",
    "naïve",
    "Größe",
    "кэш",
    "缓存",
    "def",
    "return",
    "self",
    "None",
    "if",
    "else",
    "import",
    "value",
    "index",
    "result",
    "however",
];

const SYLLABLES: [&str; 24] = [
    "ka", "lo", "mi", "ter", "ven", "sho", "ru", "pel", "dra", "qui", "ston", "fy", "ber", "win", "zu",
    "gar", "the", "nor", "al", "ex", "ip", "om", "ud", "ay",
];

pub(crate) struct Prose {
    state: u64,
}

// === impl Prose ===

impl Prose {
    pub(crate) fn new(seed: u64) -> Self {
        Prose { state: seed }
    }

    /// At least `bytes` of it; one word in eight is a name.
    pub(crate) fn text(&mut self, bytes: usize) -> String {
        let mut text = String::with_capacity(bytes + 64);
        while text.len() < bytes {
            match self.below(64) {
                0 => text.push_str(".\n\n"),
                1 | 2 => text.push_str(".\n"),
                3..=6 => text.push_str(", "),
                7 => write!(text, "{} ", self.below(100_000)).unwrap(),
                8..=15 => {
                    for _ in 0..2 + self.below(3) {
                        text.push_str(self.pick(&SYLLABLES));
                    }
                    text.push(' ');
                }
                16 => text.push_str("<|im_end|>\n<|im_start|>user\n"),
                _ => {
                    text.push_str(self.pick(&WORDS));
                    text.push(' ');
                }
            }
        }
        text
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from.get(self.below(from.len())).copied().unwrap_or_default()
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % (bound as u64)).unwrap()
    }
}
