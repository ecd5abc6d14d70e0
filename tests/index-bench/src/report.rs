//! What was seen: one table to read, and the same as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::contestant;

/// A part of the report.
#[derive(Debug)]
pub(crate) struct Section {
    /// Its name in the JSON.
    pub(crate) name: &'static str,
    /// What is measured, and how.
    pub(crate) about: String,
    pub(crate) rows: Vec<Row>,
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) unit: &'static str,
    /// By contestant; `None` where it does not do this.
    pub(crate) figures: Vec<Option<f64>>,
    /// What ours must not exceed.
    pub(crate) bar: Option<f64>,
}

const LABEL_WIDTH: usize = 46;
const FIGURE_WIDTH: usize = 16;

// === impl Row ===

impl Row {
    pub(crate) fn new(label: impl Into<String>, unit: &'static str, figures: Vec<Option<f64>>) -> Self {
        Self { label: label.into(), unit, figures, bar: None }
    }

    pub(crate) fn with_bar(self, bar: f64) -> Self {
        Self { bar: Some(bar), ..self }
    }

    /// Ours, as a multiple of the best peer's.
    fn ratio(&self) -> Option<f64> {
        let ours = self.figures.first().copied().flatten()?;
        let best = self.figures.iter().skip(1).flatten().copied().reduce(f64::min)?;
        (best > 0.0).then(|| ours / best)
    }

    fn holds(&self) -> Option<bool> {
        let ours = self.figures.first().copied().flatten()?;
        self.bar.map(|bar| ours <= bar)
    }

    fn print(&self, text: &mut String) {
        write!(text, "  {:LABEL_WIDTH$}", self.label).expect("strings take all");
        for figure in &self.figures {
            let figure = figure.map_or("-".to_owned(), |figure| format!("{figure:.1} {}", self.unit));
            write!(text, "{figure:>FIGURE_WIDTH$}").expect("strings take all");
        }
        let ratio = self.ratio().map_or(String::new(), |ratio| format!("{ratio:.2} x"));
        write!(text, "{ratio:>10}").expect("strings take all");
        if let (Some(bar), Some(holds)) = (self.bar, self.holds()) {
            let verdict = if holds { "holds" } else { "MISSED" };
            write!(text, "  {verdict} (at most {bar} {})", self.unit).expect("strings take all");
        }
        text.push('\n');
    }

    fn to_json(&self, names: &[&str]) -> Value {
        let figures: serde_json::Map<String, Value> = names
            .iter()
            .zip(&self.figures)
            .map(|(name, figure)| ((*name).to_owned(), json!(figure)))
            .collect();
        json!({
            "label": self.label, "unit": self.unit, "figures": figures, "ours_to_best_peer": self.ratio(),
            "bar": self.bar, "holds": self.holds(),
        })
    }
}

// === impl Section ===

impl Section {
    pub(crate) fn print(&self, names: &[&str]) -> String {
        let mut text = format!("\n{}\n  {:LABEL_WIDTH$}", self.about, "");
        for name in names {
            write!(text, "{name:>FIGURE_WIDTH$}").expect("strings take all");
        }
        text.push_str(if names.len() > 1 { " best peer\n" } else { "\n" });
        self.rows.iter().for_each(|row| row.print(&mut text));
        text
    }

    pub(crate) fn to_json(&self, names: &[&str]) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(|row| row.to_json(names)).collect();
        json!({ "name": self.name, "about": self.about, "rows": rows })
    }
}

/// Names of the contestants, ours first.
pub(crate) fn names() -> Vec<&'static str> {
    let setting = contestant::Setting { workers: 1, block_size: 16 };
    (0..contestant::COUNT).map(|which| contestant::one(which, setting).name()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_compares_ours_with_the_best_peer_and_with_the_bar() {
        let row = Row::new("p50", "ns", vec![Some(300.0), None, Some(900.0), Some(600.0)]).with_bar(350.0);
        assert_eq!((row.ratio(), row.holds()), (Some(0.5), Some(true)));
        let slower = Row { figures: vec![Some(351.0), Some(300.0)], ..row.clone() };
        assert_eq!((slower.ratio(), slower.holds()), (Some(1.17), Some(false)));
        let mut text = String::new();
        slower.print(&mut text);
        assert!(text.contains("1.17 x  MISSED (at most 350 ns)"), "{text}");
        let alone = Row { figures: vec![Some(1.0)], bar: None, ..row };
        assert_eq!((alone.ratio(), alone.holds()), (None, None));
    }

    #[test]
    fn the_json_names_who_has_which_figure() {
        let rows = vec![Row::new("p50", "ns", vec![Some(300.0), None])];
        let section = Section { name: "lookups", about: "Lookups".to_owned(), rows };
        let json = section.to_json(&["warmpath", "peer"]);
        let figures = json!({ "warmpath": 300.0, "peer": null });
        assert_eq!((&json["name"], &json["rows"][0]["figures"]), (&json!("lookups"), &figures));
    }
}
