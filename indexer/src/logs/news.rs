//! Which lines of something that happens again and again are worth the log. Pure.

use std::time::{Duration, Instant};

/// The same line is not written sooner than this after the last: often enough for whoever begins to read now.
const SAME: Duration = Duration::from_secs(60);
/// Nor is another one, where what happens changes with every time.
const OTHER: Duration = Duration::from_secs(1);

/// What the log was last told of one thing, by a name of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct News {
    last: Option<(&'static str, Instant)>,
}

// === impl News ===

impl News {
    /// Whether this is to be written at `now`; it counts as written then.
    pub fn is_news(&mut self, what: &'static str, now: Instant) -> bool {
        let is_news = self.last.is_none_or(|(told, at)| {
            now.saturating_duration_since(at) >= if told == what { SAME } else { OTHER }
        });
        if is_news {
            self.last = Some((what, now));
        }
        is_news
    }

    /// It is well again: whatever comes next is news.
    pub fn clear(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_once_a_minute_and_anything_at_most_once_a_second() {
        let (begun, mut news) = (Instant::now(), News::default());
        let mut at = |what, ms| news.is_news(what, begun + Duration::from_millis(ms));
        assert!(at("refused", 0));
        assert!(!at("refused", 59_999));
        assert!(at("refused", 60_000));
        assert!(!at("late", 60_999));
        assert!(at("late", 61_000));
        let told =
            (61_001..71_000).filter(|ms| at(if ms % 2 == 0 { "late" } else { "refused" }, *ms)).count();
        assert_eq!(told, 9);
        news.clear();
        assert!(news.is_news("late", begun + Duration::from_millis(71_000)));
    }
}
