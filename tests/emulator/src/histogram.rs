//! The histogram of time to first token, with vLLM's buckets.

use std::fmt::Write as _;

const BOUNDS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];

/// Counts per bucket, not cumulated; values above the last bound are only in `count`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram {
    buckets: [u64; BOUNDS.len()],
    count: u64,
    sum: f64,
}

impl Histogram {
    pub(crate) fn observe(&mut self, seconds: f64) {
        if let Some((_, bucket)) = BOUNDS.iter().zip(&mut self.buckets).find(|(bound, _)| seconds <= **bound)
        {
            *bucket += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }

    /// Appends the samples in Prometheus text form; `labels` without braces.
    pub(crate) fn render(&self, out: &mut String, name: &str, labels: &str) {
        let mut below = 0;
        for (bound, bucket) in BOUNDS.iter().zip(self.buckets) {
            below += bucket;
            append(out, format_args!("{name}_bucket{{{labels},le=\"{bound:?}\"}} {below}\n"));
        }
        append(out, format_args!("{name}_bucket{{{labels},le=\"+Inf\"}} {}\n", self.count));
        append(out, format_args!("{name}_sum{{{labels}}} {}\n", self.sum));
        append(out, format_args!("{name}_count{{{labels}}} {}\n", self.count));
    }
}

/// Appends text to a string, which cannot fail.
pub(crate) fn append(out: &mut String, text: std::fmt::Arguments<'_>) {
    if out.write_fmt(text).is_err() {
        tracing::error!("formatting failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulated_when_shown() {
        let mut histogram = Histogram::default();
        [0.001, 0.3, 0.3, 5000.0].into_iter().for_each(|seconds| histogram.observe(seconds));
        let mut out = String::new();
        histogram.render(&mut out, "x", "engine=\"0\"");
        for line in [
            "x_bucket{engine=\"0\",le=\"0.001\"} 1",
            "x_bucket{engine=\"0\",le=\"0.25\"} 1",
            "x_bucket{engine=\"0\",le=\"0.5\"} 3",
            "x_bucket{engine=\"0\",le=\"2560.0\"} 3",
            "x_bucket{engine=\"0\",le=\"+Inf\"} 4",
            "x_count{engine=\"0\"} 4",
        ] {
            assert!(out.lines().any(|found| found == line), "{line} in {out}");
        }
    }
}
