//! Runs of one load → plots in SVG: distribution of times to the first token, hit rate over time, in-flight of each
//! replica over time.

use std::fmt::Write as _;
use std::time::Duration;

use crate::outcome::Run;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 40.0;
/// Tell eight lines apart on white, also for most who see few colours.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999"];
/// Points along a time axis.
const STEPS: usize = 120;

/// A line of a plot.
#[derive(Clone, Debug)]
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Clone, Debug)]
struct Chart<'a> {
    title: String,
    x: &'a str,
    y: &'a str,
    log_x: bool,
    lines: Vec<Line>,
}

/// Share of requests whose first token had come after so long.
pub fn ttft(runs: &[&Run]) -> String {
    let lines = runs.iter().map(|run| {
        let mut times: Vec<f64> =
            run.outcomes.iter().filter_map(|outcome| Some(outcome.ttft()?.as_secs_f64().max(1e-3))).collect();
        times.sort_by(f64::total_cmp);
        let at = |step: usize| {
            let share = step as f64 / 200.0;
            let position = (share * times.len().saturating_sub(1) as f64) as usize;
            Some((times.get(position).copied()?, share * 100.0))
        };
        Line { name: run.policy.clone(), points: (0..=200).filter_map(at).collect() }
    });
    let lines = lines.collect();
    Chart { title: title(runs, "time to first token"), x: "seconds", y: "% of requests", log_x: true, lines }
        .svg()
}

/// Share of prompt tokens found in a cache, over time.
pub fn hit_rate(runs: &[&Run]) -> String {
    let end = runs.iter().flat_map(|run| &run.outcomes).filter_map(|outcome| outcome.first).max();
    let step = (end.unwrap_or_default().as_secs_f64() / STEPS as f64).max(1e-3);
    let lines = runs.iter().map(|run| {
        let mut sums = vec![(0.0, 0.0); STEPS + 1];
        for outcome in &run.outcomes {
            let Some(first) = outcome.first else { continue };
            if let Some(sum) = sums.get_mut((first.as_secs_f64() / step) as usize) {
                sum.0 += f64::from(outcome.cached);
                sum.1 += f64::from(outcome.prompt_tokens);
            }
        }
        let points = sums.iter().enumerate().filter(|(_, (_, tokens))| *tokens > 0.0);
        let points = points.map(|(number, (cached, tokens))| (number as f64 * step, 100.0 * cached / tokens));
        Line { name: run.policy.clone(), points: points.collect() }
    });
    let lines = lines.collect();
    Chart { title: title(runs, "hit rate"), x: "seconds", y: "% of prompt tokens", log_x: false, lines }.svg()
}

/// Requests that each replica has, over time, under one policy.
pub fn in_flight(run: &Run) -> String {
    let replicas = run.samples.iter().map(|sample| sample.in_flight.len()).max().unwrap_or(0);
    let every = run.samples.len().div_ceil(STEPS).max(1);
    let lines = (0..replicas).map(|replica| {
        let of = |sample: &crate::outcome::Sample| {
            Some((seconds(sample.at), *sample.in_flight.get(replica)? as f64))
        };
        Line {
            name: format!("replica {replica}"),
            points: run.samples.iter().step_by(every).filter_map(of).collect(),
        }
    });
    let title = format!("{}, {}: in flight per replica", run.load, run.policy);
    Chart { title, x: "seconds", y: "requests", log_x: false, lines: lines.collect() }.svg()
}

fn title(runs: &[&Run], what: &str) -> String {
    format!("{}: {what}", runs.first().map_or("", |run| run.load.as_str()))
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

// === impl Chart ===

impl Chart<'_> {
    fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let scale = |x: f64| if self.log_x { x.max(1e-3).log10() } else { x };
        let x_min = points().map(|(x, _)| scale(*x)).fold(f64::INFINITY, f64::min);
        let x_max = points().map(|(x, _)| scale(*x)).fold(f64::NEG_INFINITY, f64::max);
        let y_max = points().map(|(_, y)| *y).fold(0.0, f64::max).max(1e-9);
        let (x_min, x_max) = if x_min < x_max { (x_min, x_max) } else { (0.0, 1.0) };
        let place_x = |x: f64| LEFT + (scale(x) - x_min) / (x_max - x_min) * (WIDTH - LEFT - RIGHT);
        let place_y = |y: f64| HEIGHT - BOTTOM - y / y_max * (HEIGHT - TOP - BOTTOM);
        let mut body = String::new();
        for tick in 0..=4 {
            let share = f64::from(tick) / 4.0;
            let (y, at) = (y_max * share, x_min + (x_max - x_min) * share);
            let x = if self.log_x { 10f64.powf(at) } else { at };
            let (left, right, line_y) = (LEFT, WIDTH - RIGHT, place_y(y));
            put(
                &mut body,
                format_args!(
                    "<path d=\"M{left:.0} {line_y:.1}H{right:.0}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
                 <text x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>\n",
                    LEFT - 6.0,
                    line_y + 4.0,
                    short(y),
                    place_x(x),
                    HEIGHT - BOTTOM + 16.0,
                    short(x),
                ),
            );
        }
        for (number, line) in self.lines.iter().enumerate() {
            let colour = COLOURS.get(number % COLOURS.len()).copied().unwrap_or("#000");
            let mut path = String::new();
            for (x, y) in &line.points {
                let letter = if path.is_empty() { 'M' } else { 'L' };
                put(&mut path, format_args!("{letter}{:.1} {:.1}", place_x(*x), place_y(*y)));
            }
            let legend_y = TOP + 16.0 * number as f64;
            put(
                &mut body,
                format_args!(
                    "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>\
                 <text x=\"{:.0}\" y=\"{legend_y:.0}\" fill=\"{colour}\">{}</text>\n",
                    WIDTH - RIGHT + 12.0,
                    line.name,
                ),
            );
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{}</text>\n{body}\
             <text x=\"{middle:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(14 {:.0}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n</svg>\n",
            self.title,
            HEIGHT - 6.0,
            self.x,
            HEIGHT / 2.0,
            self.y,
        )
    }
}

/// A number for an axis.
fn short(number: f64) -> String {
    match number {
        n if n >= 100.0 => format!("{n:.0}"),
        n if n >= 1.0 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    }
}

/// A `String` takes everything.
fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    if out.write_fmt(text).is_err() {
        out.clear();
    }
}
