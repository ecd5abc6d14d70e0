//! The figures of a demo for people: one table, a column for each policy.

use super::Run;

const LABEL_WIDTH: usize = 52;
const COLUMN_WIDTH: usize = 16;

/// The table as text.
pub fn table(ideal_hit_rate: f64, runs: &[Run]) -> String {
    let mut table = Table { text: String::new(), runs };
    table.row("", |run| run.policy.to_owned());
    table.rule();
    table.row("   requests / failed", |run| format!("{} / {}", run.figures.requests, run.figures.failed));
    table.row("   requests a second, engine time", |run| {
        format!("{:.2}", run.figures.requests as f64 / run.took.as_secs_f64())
    });
    table.row("A  requests on each engine", |run| {
        let counts: Vec<String> = run.figures.requests_per_endpoint.values().map(usize::to_string).collect();
        counts.join(" / ")
    });
    let ideal = format!("B  engines' own prefix hit rate (ideal {})", percent(ideal_hit_rate));
    table.row(&ideal, |run| percent(run.prefix_cache.hit_rate()));
    table.row("C  KV events taken in by the indexer (batches)", |run| {
        format!("{} ({})", run.index.events, run.index.batches)
    });
    table.row("   blocks stored / removed in the index", |run| {
        format!("{} / {}", run.index.stored, run.index.removed)
    });
    table.row("   gaps in the event streams", |run| run.index.gaps.to_string());
    table.rule();
    table.row("   time to first token p50, ms, engine time", |run| ms(run.figures.ttft_ms.p50));
    table.row("                       p90", |run| ms(run.figures.ttft_ms.p90));
    table.row("                       p99", |run| ms(run.figures.ttft_ms.p99));
    table.row("                       p99 after each prefix's first use", |run| {
        ms(run.figures.ttft_ms.p99_after_first_wave)
    });
    table.row("   predicted = actual cached tokens, after first use", |run| {
        run.figures.predicted_equals_actual.map_or_else(|| "-".to_owned(), percent)
    });
    table.text
}

struct Table<'a> {
    text: String,
    runs: &'a [Run],
}

impl Table<'_> {
    fn row(&mut self, label: &str, cell: impl Fn(&Run) -> String) {
        let mut line = format!("{label:<LABEL_WIDTH$}");
        for run in self.runs {
            line.push_str(&format!("{:>COLUMN_WIDTH$}", cell(run)));
        }
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn rule(&mut self) {
        self.text.push_str(&"─".repeat(LABEL_WIDTH + COLUMN_WIDTH * self.runs.len()));
        self.text.push('\n');
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn ms(value: f64) -> String {
    format!("{value:.0}")
}
