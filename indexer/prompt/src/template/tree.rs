//! A walk over a template's syntax tree that gathers nodes of some kinds, wherever they stand.

use minijinja::machinery::Span;
use minijinja::machinery::ast::{BinOpKind, Call, CallArg, Expr, ForLoop, Macro, Set, Stmt};

/// The gathered nodes, in source order.
#[derive(Default)]
pub(super) struct Tree<'t, 'a> {
    pub sets: Vec<&'t Set<'a>>,
    pub loops: Vec<Loop<'t, 'a>>,
    pub macros: Vec<&'t Macro<'a>>,
    pub calls: Vec<&'t Call<'a>>,
    /// Of `a ~ b`, both sides.
    pub concatenations: Vec<Span>,
    macro_depth: usize,
}

pub(super) struct Loop<'t, 'a> {
    pub node: &'t ForLoop<'a>,
    /// Whether it stands in the body of a macro.
    pub in_macro: bool,
}

// === impl Tree ===

impl<'t, 'a> Tree<'t, 'a> {
    pub(super) fn of(root: &'t Stmt<'a>) -> Self {
        let mut tree = Tree::default();
        tree.statement(root);
        tree
    }

    pub(super) fn of_body(body: &'t [Stmt<'a>]) -> Self {
        let mut tree = Tree::default();
        tree.body(body);
        tree
    }

    fn body(&mut self, body: &'t [Stmt<'a>]) {
        for statement in body {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &'t Stmt<'a>) {
        match statement {
            Stmt::Template(node) => self.body(&node.children),
            Stmt::EmitExpr(node) => self.expression(&node.expr),
            Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => {}
            Stmt::ForLoop(node) => {
                self.loops.push(Loop { node, in_macro: self.macro_depth > 0 });
                self.expression(&node.iter);
                self.optional(node.filter_expr.as_ref());
                self.body(&node.body);
                self.body(&node.else_body);
            }
            Stmt::IfCond(node) => {
                self.expression(&node.expr);
                self.body(&node.true_body);
                self.body(&node.false_body);
            }
            Stmt::WithBlock(node) => {
                for (_, value) in &node.assignments {
                    self.expression(value);
                }
                self.body(&node.body);
            }
            Stmt::Set(node) => {
                self.sets.push(node);
                self.expression(&node.expr);
            }
            Stmt::SetBlock(node) => {
                self.optional(node.filter.as_ref());
                self.body(&node.body);
            }
            Stmt::AutoEscape(node) => self.body(&node.body),
            Stmt::FilterBlock(node) => {
                self.expression(&node.filter);
                self.body(&node.body);
            }
            Stmt::Block(node) => self.body(&node.body),
            Stmt::Macro(node) => self.declaration(node),
            Stmt::CallBlock(node) => {
                self.call(&node.call);
                self.declaration(&node.macro_decl);
            }
            Stmt::Do(node) => self.call(&node.call),
            // Other templates are never there to be imported.
            Stmt::Import(_) | Stmt::FromImport(_) | Stmt::Extends(_) | Stmt::Include(_) => {}
        }
    }

    fn declaration(&mut self, node: &'t Macro<'a>) {
        self.macros.push(node);
        for default in &node.defaults {
            self.expression(default);
        }
        self.macro_depth += 1;
        self.body(&node.body);
        self.macro_depth -= 1;
    }

    fn call(&mut self, call: &'t Call<'a>) {
        self.calls.push(call);
        self.expression(&call.expr);
        self.arguments(&call.args);
    }

    fn arguments(&mut self, arguments: &'t [CallArg<'a>]) {
        for argument in arguments {
            match argument {
                CallArg::Pos(value)
                | CallArg::Kwarg(_, value)
                | CallArg::PosSplat(value)
                | CallArg::KwargSplat(value) => self.expression(value),
            }
        }
    }

    fn expression(&mut self, expr: &'t Expr<'a>) {
        match expr {
            Expr::Var(_) | Expr::Const(_) => {}
            Expr::Slice(node) => {
                self.expression(&node.expr);
                self.optional(node.start.as_ref());
                self.optional(node.stop.as_ref());
                self.optional(node.step.as_ref());
            }
            Expr::UnaryOp(node) => self.expression(&node.expr),
            Expr::BinOp(node) => {
                if matches!(node.op, BinOpKind::Concat) {
                    self.concatenations.push(node.span());
                }
                self.expression(&node.left);
                self.expression(&node.right);
            }
            Expr::Compare(node) => {
                self.expression(&node.expr);
                for operand in &node.ops {
                    self.expression(&operand.expr);
                }
            }
            Expr::IfExpr(node) => {
                self.expression(&node.test_expr);
                self.expression(&node.true_expr);
                self.optional(node.false_expr.as_ref());
            }
            Expr::Filter(node) => {
                self.optional(node.expr.as_ref());
                self.arguments(&node.args);
            }
            Expr::Test(node) => {
                self.expression(&node.expr);
                self.arguments(&node.args);
            }
            Expr::GetAttr(node) => self.expression(&node.expr),
            Expr::GetItem(node) => {
                self.expression(&node.expr);
                self.expression(&node.subscript_expr);
            }
            Expr::Call(node) => self.call(node),
            Expr::List(node) => self.expressions(&node.items),
            Expr::Tuple(node) => self.expressions(&node.items),
            Expr::Map(node) => {
                self.expressions(&node.keys);
                self.expressions(&node.values);
            }
        }
    }

    fn expressions(&mut self, list: &'t [Expr<'a>]) {
        for expr in list {
            self.expression(expr);
        }
    }

    fn optional(&mut self, expr: Option<&'t Expr<'a>>) {
        if let Some(expr) = expr {
            self.expression(expr);
        }
    }
}
