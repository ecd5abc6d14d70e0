//! Prometheus text, read back.

use std::collections::BTreeMap;

/// One line of an exposition.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// As written, with `_total`, `_bucket` and the like.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

/// The samples of one scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(Vec<Sample>);

impl Metrics {
    /// Reads an exposition. Lines that are no samples are skipped.
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect())
    }

    /// The sum over all samples of this name whose labels include `labels`; 0 where there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).map(|sample| sample.value).sum()
    }

    /// All samples of this name whose labels include `labels`.
    pub fn matching<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        self.0.iter().filter(move |sample| {
            sample.name == name
                && labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|v| v == value))
        })
    }

    /// The names of all samples.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|sample| sample.name.as_str())
    }
}

/// `name{key="value",…} 1.5`
fn sample(line: &str) -> Option<Sample> {
    let (name, labels, rest) = match line.split_once('{') {
        Some((name, rest)) => {
            let (labels, rest) = rest.rsplit_once('}')?;
            (name, labels, rest)
        }
        None => {
            let (name, rest) = line.split_once(' ')?;
            (name, "", rest)
        }
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels: read_labels(labels), value })
}

/// `key="value",…`; a value may hold commas and escaped quotes.
fn read_labels(text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    while let Some((key, after)) = rest.split_once("=\"") {
        let mut value = String::new();
        let mut chars = after.chars();
        while let Some(char) = chars.next() {
            match char {
                '"' => break,
                '\\' => value.extend(chars.next().map(|escaped| if escaped == 'n' { '\n' } else { escaped })),
                other => value.push(other),
            }
        }
        labels.insert(key.trim_start_matches([',', ' ']).to_owned(), value);
        rest = chars.as_str();
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_over_the_labels_asked_for() {
        let metrics = Metrics::parse(
            "# TYPE hits counter\nhits_total{engine=\"0\",model=\"a,b\"} 3\nhits_total{engine=\"1\",model=\"a\\\"b\"} 4.5\nup 1 1700000000\n",
        );
        assert_eq!(metrics.sum("hits_total", &[]), 7.5);
        assert_eq!(metrics.sum("hits_total", &[("model", "a,b")]), 3.0);
        assert_eq!(metrics.sum("hits_total", &[("model", "a\"b")]), 4.5);
        assert_eq!(metrics.sum("up", &[]), 1.0);
        assert_eq!(metrics.sum("absent", &[]), 0.0);
    }
}
