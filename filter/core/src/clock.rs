//! A wall clock → a clock that never runs backwards, for hosts that have no other.

/// Remembers how far the wall clock was set back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Monotonic {
    wall_us: u64,
    set_back_us: u64,
}

impl Monotonic {
    /// The time now, given the wall clock. A clock that is set forward makes deadlines end early, which harms nobody; one
    /// that is set back would have them never end.
    pub fn read(&mut self, wall_us: u64) -> u64 {
        self.set_back_us += self.wall_us.saturating_sub(wall_us);
        self.wall_us = wall_us;
        wall_us + self.set_back_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_where_the_wall_clock_is_set_back() {
        let mut clock = Monotonic::default();
        let times = [100, 250, 50, 60, 300, 10].map(|wall| clock.read(wall));
        assert_eq!(times, [100, 250, 250, 260, 500, 500]);
    }
}
