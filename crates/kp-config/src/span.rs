//! Where in the configuration text a value stands.

/// Index of a file in [`crate::syntax::Sources`]; the first is the file that was named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileId(pub u32);

/// A stretch of one configuration file. Lines and columns count from 1, columns in characters, lengths in characters.
///
/// Two spans are always equal: a `Config` is compared by its meaning, not by where the text stood.
#[derive(Debug, Clone, Copy, Default)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// First line of the text.
    pub line: u32,
    /// First column of the text.
    pub column: u32,
    /// Length of the text on its first line, at least 1.
    pub length: u32,
}

impl Span {
    /// Whether both begin at the same character (equality of spans says nothing about places).
    pub fn same_place(self, other: Self) -> bool {
        self.place() == other.place()
    }

    /// File, line and column, for sorting.
    pub fn place(self) -> (FileId, u32, u32) {
        (self.file, self.line, self.column)
    }
}

impl PartialEq for Span {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Span {}

/// A value and where it stood.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Its place.
    pub span: Span,
}

impl<T> Spanned<T> {
    /// Puts a value and its place together.
    pub fn new(value: T, span: Span) -> Self {
        Self { value, span }
    }
}

impl<T> std::ops::Deref for Spanned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}
