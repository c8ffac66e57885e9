//! Traps: what is valid and does something else than it seems to. Each is a warning with its place and what to do instead.
//!
//! These look at the tree of directives as it is written, of a configuration without errors; `resolve` warns of what only the
//! resolved one shows. A finding must be worth reading each time: what is merely a matter of taste is not here.
//! `docs/configuration-help.md` lists them.

mod access;
mod capacity;
mod paths;
mod redirects;
#[cfg(test)]
mod tests;
mod unused;

use crate::Config;
use crate::diagnostic::Diagnostic;
use crate::scope::Scope;
use crate::syntax::Directive;

/// A directive and the blocks around it, outermost first.
#[derive(Clone, Copy)]
struct Here<'t> {
    directive: &'t Directive,
    around: &'t [&'t Directive],
}

impl<'t> Here<'t> {
    fn name(self) -> &'t str {
        &self.directive.name.text
    }

    /// The text of an argument.
    fn arg(self, index: usize) -> Option<&'t str> {
        self.directive
            .args
            .get(index)
            .map(|word| word.text.as_str())
    }

    /// The innermost block around it, if that has this name.
    fn inside(self, name: &str) -> Option<&'t Directive> {
        self.around
            .last()
            .copied()
            .filter(|block| block.name.text == name)
    }

    /// A finding at an argument.
    fn warning(
        self,
        index: usize,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Diagnostic {
        let word = self.directive.args.get(index);
        let span = word.map_or(self.directive.at, |word| word.span);
        Diagnostic::warning(span, message).hint(hint)
    }
}

/// Everything that is found.
pub(crate) fn check(tree: &[Directive], config: &Config) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut around = Vec::new();
    visit(tree, Scope::MAIN, &mut around, &mut |here| {
        paths::check(here, &mut found);
        redirects::check(here, &mut found);
        access::check(here, &mut found);
        capacity::check(here, config, &mut found);
    });
    unused::check(tree, &mut found);
    found
}

/// Shows every directive with what is around it; entries of `map` and `types` are none.
fn visit<'t>(
    tree: &'t [Directive],
    scope: Scope,
    around: &mut Vec<&'t Directive>,
    look: &mut impl FnMut(Here<'_>),
) {
    if scope.holds_entries() {
        return;
    }
    for directive in tree {
        look(Here { directive, around });
        if let Some(block) = &directive.block {
            around.push(directive);
            visit(
                &block.directives,
                scope.inside(&directive.name.text),
                around,
                look,
            );
            around.pop();
        }
    }
}

/// The directives in a block.
fn inside(block: &Directive) -> &[Directive] {
    block
        .block
        .as_ref()
        .map_or(&[], |block| block.directives.as_slice())
}
