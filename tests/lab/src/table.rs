//! Results → a table in Markdown.

use std::fmt::Write as _;

use crate::figures::Figures;

/// One table for each load, a row for each policy.
pub fn markdown(results: &[Figures]) -> String {
    let mut out = String::new();
    let mut loads: Vec<&str> = Vec::new();
    for run in results {
        if !loads.contains(&run.load.as_str()) {
            loads.push(&run.load);
        }
    }
    for load in loads {
        let rows: Vec<&Figures> = results.iter().filter(|run| run.load == load).collect();
        write(&mut out, load, &rows);
    }
    out
}

fn write(out: &mut String, load: &str, rows: &[&Figures]) {
    let head = "| policy | source | TTFT p50 | p90 | p99 | after first wave p50 | p90 | p99 | TPOT p50 | req/s | out tok/s | hit % | max/mean in flight | failed |";
    let rule = "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";
    push(out, format_args!("### {load}\n\n{head}\n{rule}\n"));
    for run in rows {
        let (whole, later) = (&run.ttft_ms, &run.ttft_after_first_wave_ms);
        push(
            out,
            format_args!(
                "| {} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} | {:.2} | {:.0} | {:.1} | {:.2} | {:.0} |\n",
                run.policy,
                run.source,
                whole.p50,
                whole.p90,
                whole.p99,
                later.p50,
                later.p90,
                later.p99,
                run.tpot_ms.p50,
                run.requests_per_second,
                run.output_tokens_per_second,
                run.hit_rate * 100.0,
                run.in_flight_max_to_mean,
                run.failed,
            ),
        );
    }
    out.push('\n');
}

/// A `String` takes everything.
fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    if out.write_fmt(text).is_err() {
        out.clear();
    }
}
