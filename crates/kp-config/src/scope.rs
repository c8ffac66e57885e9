//! Where in the tree the text that is being read will stand, so that an included file and a YAML key know their block.

use crate::diagnostic::Diagnostic;
use crate::directives::{self, BlockKind, Contexts, Entry};
use crate::span::Span;

/// Blocks inside blocks beyond this are an error: no meaningful configuration comes near it, and the tree is walked by
/// recursion later.
const DEPTH_MAX: u32 = 100;

/// What is said of a block that is too deep.
pub(crate) fn too_deep(at: Span) -> Diagnostic {
    let hint = format!("blocks may be {DEPTH_MAX} deep; is a \"}}\" missing above?");
    Diagnostic::error(at, "blocks are nested too deep").hint(hint)
}

/// The block that text is read for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope {
    /// Its kind; `None` inside something unknown.
    context: Option<Contexts>,
    depth: u32,
}

impl Scope {
    /// Outside any block.
    pub(crate) const MAIN: Self = Self {
        context: Some(Contexts::MAIN),
        depth: 0,
    };

    /// The inside of a block of this kind.
    pub(crate) fn of(context: Contexts) -> Self {
        Self {
            context: Some(context),
            depth: 0,
        }
    }

    /// Its kind; `None` inside something unknown.
    pub(crate) fn context(self) -> Option<Contexts> {
        self.context
    }

    /// The row of a directive here; of a misplaced one, its row elsewhere, so that it is still read in its own form.
    pub(crate) fn entry(self, name: &str) -> Option<&'static Entry> {
        self.own_entry(name).or_else(|| {
            directives::named(name)
                .next()
                .filter(|_| !self.holds_entries())
        })
    }

    /// The row of a directive that may stand here.
    pub(crate) fn own_entry(self, name: &str) -> Option<&'static Entry> {
        directives::find(name, self.context?)
    }

    /// Inside the block of this directive.
    pub(crate) fn inside(self, name: &str) -> Self {
        if self.is_log_format() {
            // An object in an object.
            return Self {
                depth: self.depth.saturating_add(1),
                ..self
            };
        }
        let context = self.entry(name).and_then(|entry| match entry.block {
            BlockKind::None => None,
            BlockKind::Entries(context) | BlockKind::Optional(context) => Some(context),
            BlockKind::Of(_) if name == "if" && self.context == Some(Contexts::SERVER) => {
                Some(Contexts::SERVER_IF)
            }
            BlockKind::Of(_) if name == "if" => Some(Contexts::LOCATION_IF),
            BlockKind::Of(context) => Some(context),
        });
        Self {
            context,
            depth: self.depth.saturating_add(1),
        }
    }

    /// Whether names are data here: `map`, `types`, `log_format`.
    pub(crate) fn holds_entries(self) -> bool {
        self.is_map() || self.is_log_format() || self.context == Some(Contexts::TYPES)
    }

    /// Whether this is the inside of a `map`.
    pub(crate) fn is_map(self) -> bool {
        self.context == Some(Contexts::MAP)
    }

    /// Whether this is the inside of a `log_format`, whose entries may be blocks, too.
    pub(crate) fn is_log_format(self) -> bool {
        self.context == Some(Contexts::LOG_FORMAT)
    }

    /// Whether no block may be opened any more.
    pub(crate) fn too_deep(self) -> bool {
        self.depth > DEPTH_MAX
    }
}
