//! What a check found, as people read it.

use std::fmt;

use warmpath_prompt::EngineVersion;

/// Width of the first column: the longest name of a prompt.
const NAME_WIDTH: usize = 36;
const CELL_WIDTH: usize = 10;

/// One model at one endpoint.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub model: String,
    pub endpoint: String,
    /// As the engine reports it.
    pub engine_version: Option<EngineVersion>,
    /// Whose behaviour was followed.
    pub rendered_as: Option<EngineVersion>,
    /// The engine did not answer at all, and why.
    pub unreachable: Option<String>,
    pub rows: Vec<Row>,
    pub first_difference: Option<FirstDifference>,
}

/// One prompt.
#[derive(Clone, Debug)]
pub struct Row {
    pub probe: &'static str,
    pub tokenize: Cell,
    pub render: Cell,
}

/// What one page of the engine made of one prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// The same tokens, or refused by both.
    Equal,
    Different,
    /// We say that the engine would refuse, and why; it does not.
    OnlyWeRefuse(String),
    /// The engine refuses, and why.
    EngineRefused(String),
    /// We do not render it, and the reason that its requests get.
    NotRendered(&'static str),
    /// The engine has no such page, or it leaves something of the prompt out.
    NotAsked,
    /// The question got no answer, and why.
    Failed(String),
}

/// Where two lists of tokens part.
#[derive(Clone, Debug)]
pub struct FirstDifference {
    pub probe: &'static str,
    pub page: &'static str,
    /// Tokens that agree before it.
    pub agreeing: usize,
    /// Position of the first id shown.
    pub begin: usize,
    pub ours: Window,
    pub theirs: Window,
}

/// Some ids of a prompt.
#[derive(Clone, Debug)]
pub struct Window {
    pub ids: Vec<u32>,
    /// None: the engine does not decode them.
    pub text: Option<String>,
    /// Of the whole prompt.
    pub tokens: usize,
}

/// How a check went, all reports together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summary {
    /// Whatever could be compared is equal, and something was.
    Equal,
    Different,
    /// An engine was not reached, or gave nothing to compare.
    Unreachable,
}

// === impl Report ===

impl Report {
    pub(super) fn new(model: &str, endpoint: &str) -> Self {
        Self { model: model.to_owned(), endpoint: endpoint.to_owned(), ..Self::default() }
    }

    fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.rows.iter().flat_map(|row| [&row.tokenize, &row.render])
    }

    fn count(&self, what: impl Fn(&Cell) -> bool) -> usize {
        self.cells().filter(|cell| what(cell)).count()
    }

    fn summary(&self) -> Summary {
        if self.count(Cell::is_difference) > 0 {
            Summary::Different
        } else if self.count(|cell| *cell == Cell::Equal) == 0 || self.count(Cell::is_failure) > 0 {
            Summary::Unreachable
        } else {
            Summary::Equal
        }
    }
}

impl Summary {
    pub fn of(reports: &[Report]) -> Self {
        let has = |wanted| reports.iter().any(|report| report.summary() == wanted);
        if has(Self::Different) {
            Self::Different
        } else if has(Self::Unreachable) {
            Self::Unreachable
        } else {
            Self::Equal
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, endpoint, .. } = self;
        if let Some(why) = &self.unreachable {
            return writeln!(f, "model {model} at {endpoint}: not reached: {why}");
        }
        let version =
            |version: Option<EngineVersion>| version.map_or("unknown".to_owned(), |v| v.to_string());
        writeln!(
            f,
            "model {model} at {endpoint}: engine {}, rendered as {}\n",
            version(self.engine_version),
            version(self.rendered_as)
        )?;
        writeln!(f, "  {:NAME_WIDTH$} {:CELL_WIDTH$} /render", "prompt", "/tokenize")?;
        for Row { probe, tokenize, render } in &self.rows {
            writeln!(f, "  {probe:NAME_WIDTH$} {:CELL_WIDTH$} {}", tokenize.name(), render.name())?;
            for why in [tokenize, render].into_iter().filter_map(Cell::why) {
                writeln!(f, "      {why}")?;
            }
        }
        let (equal, different) = (self.count(|cell| *cell == Cell::Equal), self.count(Cell::is_difference));
        writeln!(
            f,
            "\n  {equal} equal, {different} different, {} not compared",
            self.count(Cell::is_left_out)
        )?;
        match &self.first_difference {
            Some(difference) => write!(f, "\n{difference}"),
            None => Ok(()),
        }
    }
}

// === impl Cell ===

impl Cell {
    fn is_difference(&self) -> bool {
        matches!(self, Self::Different | Self::OnlyWeRefuse(_))
    }

    fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    fn is_left_out(&self) -> bool {
        matches!(self, Self::EngineRefused(_) | Self::NotRendered(_) | Self::Failed(_))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Different => "DIFFERENT",
            Self::OnlyWeRefuse(_) => "TAKEN",
            Self::EngineRefused(_) => "refused",
            Self::NotRendered(reason) => reason,
            Self::NotAsked => "-",
            Self::Failed(_) => "no answer",
        }
    }

    fn why(&self) -> Option<String> {
        match self {
            Self::OnlyWeRefuse(why) => Some(format!("we expect the engine to refuse it: {why}")),
            Self::EngineRefused(why) => Some(format!("the engine refuses it: {why}")),
            Self::Failed(why) => Some(why.clone()),
            Self::Equal | Self::Different | Self::NotRendered(_) | Self::NotAsked => None,
        }
    }
}

impl fmt::Display for FirstDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { probe, page, agreeing, begin, ours, theirs } = self;
        writeln!(
            f,
            "  first difference: {probe}, {page}; {agreeing} tokens agree, these are from {begin} on:"
        )?;
        for (who, Window { ids, text, tokens }) in [("ours", ours), ("engine", theirs)] {
            writeln!(f, "    {who:7} {ids:?} of {tokens}")?;
            if let Some(text) = text {
                writeln!(f, "            {text:?}")?;
            }
        }
        writeln!(
            f,
            "  What to look at: chat_template (the engine's --chat-template), engine_version, content_format,\n  \
             default_chat_template_kwargs, the files in tokenizer_dir, and the date and time zone of both machines."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(cells: &[Cell]) -> Report {
        let rows =
            cells.iter().map(|cell| Row { probe: "p", tokenize: cell.clone(), render: Cell::NotAsked });
        Report { rows: rows.collect(), ..Report::new("m", "h:1") }
    }

    #[test]
    fn a_difference_outweighs_silence_and_silence_outweighs_equality() {
        let refused = Cell::EngineRefused("no".into());
        let table = [
            (vec![Cell::Equal, refused.clone()], Summary::Equal),
            (vec![Cell::Equal, Cell::NotRendered("media")], Summary::Equal),
            (vec![Cell::Equal, Cell::Failed("late".into())], Summary::Unreachable),
            (vec![Cell::Failed("late".into()), Cell::Different], Summary::Different),
            (vec![Cell::Equal, Cell::OnlyWeRefuse("no".into())], Summary::Different),
            (vec![refused], Summary::Unreachable),
            (vec![], Summary::Unreachable),
        ];
        for (cells, expected) in table {
            assert_eq!(Summary::of(&[report(&cells)]), expected, "{cells:?}");
            assert_eq!(Summary::of(&[report(&cells), report(&[Cell::Different])]), Summary::Different);
        }
    }

    #[test]
    fn names_fit_their_column() {
        for probe in super::super::probes::all() {
            assert!(probe.name.chars().count() <= NAME_WIDTH, "{}", probe.name);
        }
    }
}
