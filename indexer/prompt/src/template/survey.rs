//! What the engine reads from a template's syntax tree before it renders: in which form messages' content is wanted.
//!
//! A template that loops over a message's content wants a list of parts, any other a text. The engine follows names:
//! `messages` and variables set from it, the variables of loops over those, then loops over such a variable's
//! `content` (or a slice or filtered form of it). What else counts depends on its release ([`ContentDetection`]).

use std::collections::{BTreeMap, BTreeSet};

use minijinja::machinery::ast::{CallArg, Expr, Macro};

use super::tree::Tree;
use crate::version::ContentDetection;

/// The form in which a template gets the content of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentFormat {
    /// One text; the texts of several parts are joined.
    Text,
    /// A list of parts, `{"type": "text", "text": …}`.
    Parts,
}

/// What a template's syntax tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Survey {
    pub content_format: ContentFormat,
    pub knows_developer: bool,
    pub mentions_content: bool,
}

// === impl Survey ===

impl Survey {
    /// `source` is the template as written, `tree` what the parser understands of it.
    pub(super) fn of(source: &str, tree: &Tree<'_, '_>, detection: ContentDetection) -> Self {
        let wants_parts = loops_over_content(tree, detection);
        Survey {
            content_format: if wants_parts { ContentFormat::Parts } else { ContentFormat::Text },
            knows_developer: ["\"developer\"", "'developer'"].iter().any(|role| source.contains(role)),
            mentions_content: source.contains("content"),
        }
    }
}

fn loops_over_content(tree: &Tree<'_, '_>, detection: ContentDetection) -> bool {
    let messages = names_for_messages(tree);
    let message: BTreeSet<&str> = tree
        .loops
        .iter()
        .filter(|looped| accessed(&looped.node.iter, None).is_some_and(|name| messages.contains(name)))
        .filter_map(|looped| variable(&looped.node.target))
        .collect();
    let is_content =
        |expr: &Expr<'_>| accessed(expr, Some("content")).is_some_and(|name| message.contains(name));
    if tree.loops.iter().any(|looped| is_content(&looped.node.iter)) {
        return true;
    }
    let mut over_content = tree.loops.iter().filter(|looped| variable(&looped.node.iter) == Some("content"));
    match detection {
        ContentDetection::Messages => false,
        ContentDetection::ContentVariable => over_content.next().is_some(),
        ContentDetection::MacroParameters => {
            over_content.any(|looped| !looped.in_macro) || some_macro_loops_over_content(tree, &is_content)
        }
    }
}

/// `messages` and every variable that is set from it, directly or through another.
fn names_for_messages<'a>(tree: &Tree<'_, 'a>) -> BTreeSet<&'a str> {
    // A template may come with a request, so each assignment is looked at once.
    let mut set_from: BTreeMap<&str, Vec<&'a str>> = BTreeMap::new();
    for set in &tree.sets {
        if let (Some(source), Some(target)) = (accessed(&set.expr, None), variable(&set.target)) {
            set_from.entry(source).or_default().push(target);
        }
    }
    let mut names = BTreeSet::from(["messages"]);
    let mut new = vec!["messages"];
    while let Some(name) = new.pop() {
        let targets = set_from.remove(name).unwrap_or_default();
        new.extend(targets.into_iter().filter(|target| names.insert(*target)));
    }
    names
}

/// What the calls of a macro give a message's content to.
#[derive(Default)]
struct Given<'a> {
    places: BTreeSet<usize>,
    names: BTreeSet<&'a str>,
}

/// Whether some macro loops over a parameter that some call gives a message's content.
fn some_macro_loops_over_content(tree: &Tree<'_, '_>, is_content: &dyn Fn(&Expr<'_>) -> bool) -> bool {
    let mut given: BTreeMap<&str, Given<'_>> = BTreeMap::new();
    for call in &tree.calls {
        let Some(name) = variable(&call.expr) else { continue };
        let mut place = 0;
        for argument in &call.args {
            match argument {
                CallArg::Pos(value) => {
                    if is_content(value) {
                        given.entry(name).or_default().places.insert(place);
                    }
                    place += 1;
                }
                CallArg::Kwarg(parameter, value) if is_content(value) => {
                    given.entry(name).or_default().names.insert(parameter);
                }
                _ => {}
            }
        }
    }
    tree.macros.iter().any(|each| given.get(each.name).is_some_and(|given| loops_over_given(each, given)))
}

fn loops_over_given(each: &Macro<'_>, given: &Given<'_>) -> bool {
    let parameters = each.args.iter().filter_map(variable).enumerate();
    let given: BTreeSet<&str> = parameters
        .filter(|(place, name)| given.places.contains(place) || given.names.contains(name))
        .map(|(_, name)| name)
        .collect();
    Tree::of_body(&each.body)
        .loops
        .iter()
        .any(|looped| variable(&looped.node.iter).is_some_and(|name| given.contains(name)))
}

fn variable<'a>(expr: &Expr<'a>) -> Option<&'a str> {
    match expr {
        Expr::Var(var) => Some(var.id),
        _ => None,
    }
}

/// The variable that `expr` is, or has the attribute `key` of, or is a slice, filter or test of that.
fn accessed<'a>(expr: &Expr<'a>, key: Option<&str>) -> Option<&'a str> {
    match (expr, key) {
        (Expr::Filter(filter), _) => accessed(filter.expr.as_ref()?, key),
        (Expr::Test(test), _) => accessed(&test.expr, key),
        (Expr::Slice(slice), _) => accessed(&slice.expr, key),
        (Expr::Var(var), None) => Some(var.id),
        (Expr::GetAttr(get), Some(key)) if get.name == key => variable(&get.expr),
        (Expr::GetItem(get), Some(key)) => match &get.subscript_expr {
            Expr::Const(index) if index.value.as_str() == Some(key) => variable(&get.expr),
            _ => None,
        },
        _ => None,
    }
}
