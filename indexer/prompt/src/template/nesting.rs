//! How deep a template's syntax may nest.
//!
//! The parser builds `a|f|f`, `a ~ b ~ c` and `{% elif %}` as nodes in each other, and follows signs and brackets by calling
//! itself; its limit of depth counts statements and brackets only. Everything that walks the tree afterwards calls itself
//! too, so a long enough template, which may come with a request, would end the stack and with it the process. The
//! tokens tell before anything is built how deep it can get.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::CompileError;

/// Operators, dots and opened brackets between the braces of one tag. Templates in use have fewer than 100; the engine's
/// own parser, in Python, ends at about 300 in each other.
const OPERATORS_MAX: usize = 500;

/// Open branches of `{% if %}` in each other or after one another. Templates in use have fewer than 30.
const BRANCHES_MAX: usize = 500;

/// The open `{% if %}` statements.
#[derive(Default)]
struct Branches {
    /// Of each statement.
    open: Vec<usize>,
    all: usize,
}

/// Refuses a template that is nested too deeply. What is no template at all is left to the parser.
pub(super) fn check(source: &str, syntax: SyntaxConfig) -> Result<(), CompileError> {
    let (mut operators, mut begins_tag) = (0, false);
    let mut branches = Branches::default();
    for token in tokenize(source, false, syntax).map_while(Result::ok) {
        let (token, span) = token;
        if matches!(token, Token::VariableStart | Token::BlockStart) {
            operators = 0;
        }
        if let (true, Token::Ident(word)) = (begins_tag, &token) {
            branches.see(word);
        }
        begins_tag = matches!(token, Token::BlockStart);
        operators += usize::from(nests(&token));
        if operators > OPERATORS_MAX || branches.all > BRANCHES_MAX {
            return Err(CompileError::TooDeep { line: span.start_line.into() });
        }
    }
    Ok(())
}

/// Whether what the token stands for can hold another one of its kind.
fn nests(token: &Token<'_>) -> bool {
    match token {
        Token::Plus
        | Token::Minus
        | Token::Mul
        | Token::Div
        | Token::FloorDiv
        | Token::Pow
        | Token::Mod
        | Token::Dot
        | Token::Tilde
        | Token::Pipe
        | Token::BracketOpen
        | Token::ParenOpen
        | Token::BraceOpen => true,
        Token::Ident(word) => ["and", "else", "if", "is", "not", "or"].contains(word),
        _ => false,
    }
}

// === impl Branches ===

impl Branches {
    fn see(&mut self, word: &str) {
        match word {
            "if" => {
                self.open.push(1);
                self.all += 1;
            }
            "elif" => {
                if let Some(last) = self.open.last_mut() {
                    *last += 1;
                    self.all += 1;
                }
            }
            "endif" => self.all = self.all.saturating_sub(self.open.pop().unwrap_or_default()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::template::{ChatTemplate, SystemClock};
    use crate::version::ContentDetection;

    fn compile(source: &str) -> Result<ChatTemplate, CompileError> {
        ChatTemplate::compile(source, ContentDetection::MacroParameters, Arc::new(SystemClock::local()))
    }

    /// Each repeated `count` times.
    fn nested(count: usize) -> Vec<String> {
        let times = |text: &str| text.repeat(count);
        let chains =
            ["|f", "~a", "+a", "**a", ".b", "[0]", "()", " and a", " or a", " is none", " if a else a"];
        let mut all: Vec<String> = chains.iter().map(|link| format!("{{{{ a{} }}}}", times(link))).collect();
        all.extend(["not ", "- ", "(", "[", "{1:"].iter().map(|sign| format!("{{{{ {} a }}}}", times(sign))));
        all.extend([
            format!("{{% set {} = 1 %}}", times("(")),
            format!("{{% if a %}}{}{{% endif %}}", times("{% elif a %}")),
            format!("{}{}", times("{% if a %}"), times("{% endif %}")),
            times("{% if a %}{% else %}"),
            times("{% for a in b %}"),
        ]);
        all
    }

    /// On a stack as small as that of the threads which render.
    #[test]
    fn whatever_repeats_ends_in_a_template_or_in_words() {
        let run = || {
            for count in [1, 100, 140, OPERATORS_MAX - 1, OPERATORS_MAX, OPERATORS_MAX + 1, 20_000] {
                for source in nested(count) {
                    if let Ok(template) = compile(&source) {
                        assert!(count <= OPERATORS_MAX, "{count}: {}", source.get(..40).unwrap_or(&source));
                        drop(template.render(minijinja::context! { a => 1 }));
                    }
                }
            }
        };
        thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
    }

    #[test]
    fn operators_of_one_tag_count_and_not_those_of_all() {
        let tag = format!("{{{{ a{} }}}}", " ~ a".repeat(OPERATORS_MAX));
        assert!(compile(&tag.repeat(3)).is_ok());
        let branch = format!("{{% if a %}}{}{{% else %}}x{{% endif %}}", "{% elif b %}".repeat(100));
        assert!(compile(&branch.repeat(50)).is_ok());
        let error = compile(&format!("\n{{{{ a{} }}}}", "|f".repeat(OPERATORS_MAX + 1))).err().unwrap();
        assert_eq!(error.to_string(), "line 2: is nested too deeply");
    }

    #[test]
    fn what_is_no_tag_nests_nothing() {
        let signs = "~|.".repeat(OPERATORS_MAX);
        for source in [format!("{{# {signs} #}}"), format!("{{{{ '{signs}' }}}}"), signs.clone()] {
            assert!(compile(&source).is_ok());
        }
    }
}
