//! Random texts of which most characters are the boundary of something.

/// SplitMix64.
pub(super) struct Random(pub(super) u64);

const FRAGMENTS: [&str; 44] = [
    "a", "b", "ab", "abc", "Cab", "word", "The", "x1", "1", "12", "2024", "0x0A", "<0x0A>", " ", " ", " ",
    "  ", "   ", "\n", "\n", "\n\n", "\n \n", " \n", "\r\n", "\t", "\u{a0}", "\u{2028}", ".", "...", "!?",
    "'s", "'LL", "ſ", "/", "//\n", "é", "e\u{301}", "\u{301}", "中文", "の", "▁", "▁▁", "😀", "\u{0}",
];

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.draw() % bound.max(1) as u64) as usize
    }

    pub(super) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// Up to 60 fragments; one in eight is one of `tokens`, half of the others are words with a blank.
    pub(super) fn text(&mut self, tokens: &[&str]) -> String {
        let length = self.below(60);
        let mut text = String::new();
        for _ in 0..length {
            match self.below(8) {
                0 if !tokens.is_empty() => text.push_str(self.pick(tokens)),
                1..=3 => {
                    text.push_str(self.pick(&FRAGMENTS[..12]));
                    text.push_str(self.pick(&[" ", " ", "\n", ""]));
                }
                _ => text.push_str(self.pick(&FRAGMENTS)),
            }
        }
        text
    }
}

/// The last boundary between characters at or before `place`.
pub(super) fn boundary(text: &str, place: usize) -> usize {
    (0..=place.min(text.len())).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(0)
}
