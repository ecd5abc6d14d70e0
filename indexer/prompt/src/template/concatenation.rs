//! `a ~ b`: both sides as Python's `str` prints them, one behind the other.
//!
//! The engine library has a form of its own for floats, lists and maps there, and none of its hooks reaches the operator. So
//! each side that is no plain text is given to the filter `string`, which is ours.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use minijinja::machinery::Span;

/// `source` with the sides of every concatenation in `spans` made texts.
pub(super) fn rewrite<'s>(source: &'s str, spans: &[Span]) -> Cow<'s, str> {
    // The beginnings of a chain are chains of their own, which begin where it does: only the longest is looked at, so that
    // the work is not that of every pair of its sides.
    let mut chains: BTreeMap<usize, usize> = BTreeMap::new();
    for span in spans {
        let end = chains.entry(span.start_offset as usize).or_default();
        *end = (*end).max(span.end_offset as usize);
    }
    let sides: BTreeSet<(usize, usize)> = chains
        .into_iter()
        .flat_map(|(start, end)| sides(source, start..end))
        .filter(|side| source.get(side.clone()).is_some_and(|text| !is_plain_text(text)))
        .map(|side| (side.start, side.end))
        .collect();
    if sides.is_empty() {
        return Cow::Borrowed(source);
    }
    // Sides lie in each other or apart, so none begins or ends where another one does.
    let begins = sides.iter().map(|(start, _)| (*start, "("));
    let mut marks: Vec<(usize, &str)> =
        begins.chain(sides.iter().map(|(_, end)| (*end, ")|string"))).collect();
    marks.sort_unstable();
    let mut out = String::with_capacity(source.len() + marks.len() * ")|string".len());
    let mut done = 0;
    for (place, mark) in marks {
        out.push_str(source.get(done..place).unwrap_or_default());
        out.push_str(mark);
        done = place;
    }
    out.push_str(source.get(done..).unwrap_or_default());
    Cow::Owned(out)
}

/// The sides of a chain of concatenations, which takes up `range` of `source`: what stands between its operators.
fn sides(source: &str, range: Range<usize>) -> Vec<Range<usize>> {
    let Some(chain) = source.get(range.clone()) else { return Vec::new() };
    let mut sides = Vec::new();
    let mut start = 0;
    let (mut depth, mut quote, mut is_escaped) = (0_i32, None, false);
    for (place, char) in chain.char_indices() {
        match (quote, char) {
            (Some(_), '\\') if !is_escaped => {
                is_escaped = true;
                continue;
            }
            (Some(open), _) if char == open && !is_escaped => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(char),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth -= 1,
            (None, '~') if depth == 0 => {
                sides.extend(trimmed(chain, start..place));
                start = place + char.len_utf8();
            }
            (None, _) => {}
        }
        is_escaped = false;
    }
    sides.extend(trimmed(chain, start..chain.len()));
    sides.into_iter().map(|side| range.start + side.start..range.start + side.end).collect()
}

/// `range` of `text` without white space around it; `None` where nothing else is there.
fn trimmed(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let inner = text.get(range.clone())?;
    let start = range.start + (inner.len() - inner.trim_start().len());
    let end = range.start + inner.trim_end().len();
    (start < end).then_some(start..end)
}

/// Whether an expression is nothing but a text in quotes.
fn is_plain_text(expression: &str) -> bool {
    ['"', '\''].iter().any(|quote| {
        let inner = expression.strip_prefix(*quote).and_then(|rest| rest.strip_suffix(*quote));
        inner.is_some_and(|inner| !inner.contains([*quote, '\\']))
    })
}

#[cfg(test)]
mod tests {
    use minijinja::machinery::parse;
    use minijinja::syntax::SyntaxConfig;

    use super::*;
    use crate::template::tree::Tree;

    #[track_caller]
    fn check(source: &str, want: &str) {
        let root = parse(source, "test", SyntaxConfig::default()).unwrap();
        assert_eq!(rewrite(source, &Tree::of(&root).concatenations), want);
    }

    #[test]
    fn each_side_becomes_a_text_once() {
        check("{{ a ~ b.c[1] ~ 'd' }}", "{{ (a)|string ~ (b.c[1])|string ~ 'd' }}");
        check("{{- a~-b*2 -}}", "{{- (a)|string~(-b*2)|string -}}");
        check(
            "é{% set x = f(y ~ 1, z='~') ~ 2 %}",
            "é{% set x = (f((y)|string ~ (1)|string, z='~'))|string ~ (2)|string %}",
        );
    }

    #[test]
    fn a_side_ends_at_its_operator_wherever_else_one_stands() {
        check("{{ (a ~ b) ~ c }}", "{{ (((a)|string ~ (b)|string))|string ~ (c)|string }}");
        check("{{ a ~ 'x\\'~' ~ \"~\" }}", "{{ (a)|string ~ ('x\\'~')|string ~ \"~\" }}");
        check(
            "{{ 1 + a ~ b + 2 == c ~ d }}",
            "{{ 1 + (a)|string ~ (b)|string + 2 == (c)|string ~ (d)|string }}",
        );
        check(
            "{{ a|f(x ~ y)|g ~ b is h }}",
            "{{ (a|f((x)|string ~ (y)|string)|g)|string ~ (b is h)|string }}",
        );
    }

    #[test]
    fn other_text_stays() {
        for source in
            ["a ~ b", "{# a ~ b #}", "{% raw %}{{ a ~ b }}{% endraw %}", "{{ 'a ~ b' }}", "{{ 'a' ~ \"b\" }}"]
        {
            check(source, source);
        }
    }
}
