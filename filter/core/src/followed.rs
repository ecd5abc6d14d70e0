//! Whether requests go where they were sent. A proxy takes a destination that names none of its hosts for none at all, and
//! one that reads another header never sees it; neither says anything.

use crate::limits::{ASTRAY_SHARE_DIVISOR, FOLLOWED_WINDOW};

/// What a worker saw of its decided requests.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    /// Since it was last asked.
    untold: u64,
    seen: u32,
    astray: u32,
    /// The last one of this window.
    example: Option<(String, String)>,
    verdict: Option<Astray>,
}

/// Too many requests of a window went elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Astray {
    /// So many of [`FOLLOWED_WINDOW`].
    pub requests: u32,
    /// The endpoints that were named for one of them, comma-separated.
    pub named: String,
    /// The one that served it.
    pub served_by: String,
}

impl Followed {
    /// A request for `named` was served by an endpoint at the first attempt. A retry may be anywhere, and is not told.
    pub fn saw(&mut self, named: &str, served_by: &str) {
        self.seen = self.seen.saturating_add(1);
        if named.split(',').next() != Some(served_by) {
            self.untold = self.untold.saturating_add(1);
            self.astray = self.astray.saturating_add(1);
            self.example = Some((named.to_owned(), served_by.to_owned()));
        }
        if self.seen < FOLLOWED_WINDOW {
            return;
        }
        let (requests, example) = (self.astray, self.example.take());
        (self.seen, self.astray) = (0, 0);
        self.verdict = example
            .filter(|_| requests > FOLLOWED_WINDOW / ASTRAY_SHARE_DIVISOR)
            .map(|(named, served_by)| Astray { requests, named, served_by });
    }

    /// Requests that went elsewhere since this was last asked.
    pub fn take_astray(&mut self) -> u64 {
        std::mem::take(&mut self.untold)
    }

    /// What is to be said of the last window; none: most of it was followed.
    pub fn verdict(&self) -> Option<&Astray> {
        self.verdict.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMED: &str = "10.0.0.1:80,10.0.0.2:80";

    fn after(served_by: &[&str]) -> Followed {
        let mut followed = Followed::default();
        (0..FOLLOWED_WINDOW as usize).for_each(|at| followed.saw(NAMED, served_by[at % served_by.len()]));
        followed
    }

    #[test]
    fn a_proxy_that_chooses_by_itself_is_found_out_also_between_two_endpoints() {
        let astray =
            |requests| Astray { requests, named: NAMED.to_owned(), served_by: "10.0.0.2:80".to_owned() };
        let mut followed = after(&["10.0.0.1:80", "10.0.0.2:80"]);
        assert_eq!(followed.verdict(), Some(&astray(FOLLOWED_WINDOW / 2)));
        assert_eq!(followed.take_astray(), u64::from(FOLLOWED_WINDOW / 2));
        assert_eq!(followed.take_astray(), 0);
        assert_eq!(after(&["10.0.0.2:80"]).verdict(), Some(&astray(FOLLOWED_WINDOW)));
        // It is mended.
        (0..FOLLOWED_WINDOW).for_each(|_| followed.saw(NAMED, "10.0.0.1:80"));
        assert_eq!(followed.verdict(), None);
        assert_eq!(followed.take_astray(), 0);
    }

    #[test]
    fn few_that_go_elsewhere_are_counted_only() {
        let first = ["10.0.0.1:80"; 7];
        let mut followed = after(&[&first[..], &["10.9.9.9:80"]].concat());
        assert_eq!(followed.verdict(), None);
        assert_eq!(followed.take_astray(), u64::from(FOLLOWED_WINDOW / 8));
        let mut short = Followed::default();
        (1..FOLLOWED_WINDOW).for_each(|_| short.saw(NAMED, "10.9.9.9:80"));
        assert_eq!(short.verdict(), None, "not so many yet");
    }
}
