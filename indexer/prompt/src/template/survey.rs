//! What the engine reads from a template's syntax tree before it renders: in which form messages' content is wanted.
//!
//! A template that loops over a message's content wants a list of parts, any other a text. The engine follows names:
//! `messages` and variables set from it, the variables of loops over those, then loops over such a variable's
//! `content` (or a slice or filtered form of it). What else counts depends on its release ([`ContentDetection`]).

use std::collections::BTreeSet;

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
        .filter(|looped| messages.iter().any(|name| is_access(&looped.node.iter, name, None)))
        .filter_map(|looped| variable(&looped.node.target))
        .collect();
    let is_content = |expr: &Expr<'_>| message.iter().any(|name| is_access(expr, name, Some("content")));
    if tree.loops.iter().any(|looped| is_content(&looped.node.iter)) {
        return true;
    }
    let mut over_content = tree.loops.iter().filter(|looped| variable(&looped.node.iter) == Some("content"));
    match detection {
        ContentDetection::Messages => false,
        ContentDetection::ContentVariable => over_content.next().is_some(),
        ContentDetection::MacroParameters => {
            over_content.any(|looped| !looped.in_macro)
                || tree.macros.iter().any(|each| macro_loops_over_content(tree, each, &is_content))
        }
    }
}

/// `messages` and every variable that is set from it, directly or through another.
fn names_for_messages<'a>(tree: &Tree<'_, 'a>) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::from(["messages"]);
    loop {
        let known = names.len();
        for set in &tree.sets {
            if names.iter().any(|name| is_access(&set.expr, name, None)) {
                names.extend(variable(&set.target));
            }
        }
        if names.len() == known {
            return names;
        }
    }
}

/// Whether `each` loops over a parameter that some call gives a message's content.
fn macro_loops_over_content(
    tree: &Tree<'_, '_>,
    each: &Macro<'_>,
    is_content: &dyn Fn(&Expr<'_>) -> bool,
) -> bool {
    let parameters: Vec<&str> = each.args.iter().filter_map(variable).collect();
    let mut given: BTreeSet<&str> = BTreeSet::new();
    for call in tree.calls.iter().filter(|call| variable(&call.expr) == Some(each.name)) {
        let mut place = 0;
        for argument in &call.args {
            match argument {
                CallArg::Pos(value) => {
                    if is_content(value) {
                        given.extend(parameters.get(place).copied());
                    }
                    place += 1;
                }
                CallArg::Kwarg(name, value) if is_content(value) => {
                    given.extend(parameters.iter().copied().find(|parameter| parameter == name));
                }
                _ => {}
            }
        }
    }
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

/// Whether `expr` is the variable `name`, or its attribute `key`, or a slice, filter or test of that.
fn is_access(expr: &Expr<'_>, name: &str, key: Option<&str>) -> bool {
    match (expr, key) {
        (Expr::Filter(filter), _) => filter.expr.as_ref().is_some_and(|inner| is_access(inner, name, key)),
        (Expr::Test(test), _) => is_access(&test.expr, name, key),
        (Expr::Slice(slice), _) => is_access(&slice.expr, name, key),
        (Expr::Var(var), None) => var.id == name,
        (Expr::GetAttr(get), Some(key)) => get.name == key && variable(&get.expr) == Some(name),
        (Expr::GetItem(get), Some(key)) => {
            variable(&get.expr) == Some(name)
                && matches!(&get.subscript_expr, Expr::Const(index) if index.value.as_str() == Some(key))
        }
        _ => false,
    }
}
