//! Reading files: the main one, the text of `-g`, and whatever `include` names, as one tree.
//!
//! It decides paths, masks, limits and cycles. What the text means is up to `nginx` and `yaml`; the file's ending chooses
//! between them. Relative names are relative to the directory of the main file, as in nginx.

use crate::diagnostic::Diagnostic;
use crate::nginx::parser::{self, Kind};
use crate::scope::Scope;
use crate::span::{FileId, Span};
use crate::syntax::{BlockRange, Directive, Origin, Source, Sources, Word};
use crate::{LoadOptions, yaml};
use std::collections::HashMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files inside files beyond this are an error, whether they form a cycle or not.
const INCLUDE_DEPTH_MAX: usize = 32;
/// Beyond this many readings the includes multiply each other.
const READINGS_MAX: usize = 100_000;
/// A larger file is not a configuration (64 MiB hold half a million upstream servers).
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Everything that was read.
#[derive(Debug)]
pub(crate) struct Reading {
    /// The directives of the main context: those of `-g`, then the file's.
    pub(crate) directives: Vec<Directive>,
    /// The texts.
    pub(crate) sources: Sources,
    /// What could not be read or parsed. If there is an error among them, the tree lacks something.
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// Reads the configuration with everything it includes.
pub(crate) fn read(options: &LoadOptions) -> Reading {
    let path = options.prefix.join(&options.path);
    let mut reader = Reader {
        directory: path.parent().map(Path::to_path_buf).unwrap_or_default(),
        sources: Sources::default(),
        diagnostics: Vec::new(),
        chain: Vec::new(),
        texts: HashMap::new(),
    };
    // The main file has the first id, but the command line's directives come first.
    let main = reader.add(&path, Origin::Main);
    let mut directives = Vec::new();
    if let Some(text) = &options.globals {
        let file = reader.add_text(
            PathBuf::from("command line"),
            Arc::from(text.as_str()),
            Origin::CommandLine,
        );
        directives = parser::parse(
            &mut reader,
            file,
            &Arc::from(text.as_str()),
            Kind::CommandLine,
            Scope::MAIN,
        );
    }
    match main {
        Ok(file) => directives.extend(reader.parse(file, &path, Scope::MAIN)),
        Err(error) => reader
            .diagnostics
            .push(Diagnostic::system(failure("open()", &path, &error))),
    }
    Reading {
        directives,
        sources: reader.sources,
        diagnostics: reader.diagnostics,
    }
}

/// What the front ends report to and include through.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Of the main file.
    directory: PathBuf,
    sources: Sources,
    diagnostics: Vec<Diagnostic>,
    /// The files being read, outermost first, links resolved.
    chain: Vec<PathBuf>,
    /// A file that is included several times is read once.
    texts: HashMap<PathBuf, Arc<str>>,
}

impl Reader {
    /// Adds a finding.
    pub(crate) fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// The directives that an `include` stands for. `name` and `args` are its words.
    pub(crate) fn include(&mut self, name: &Word, args: &[Word], scope: Scope) -> Vec<Directive> {
        let [target] = args else {
            self.report(Diagnostic::error(
                name.span,
                "invalid number of arguments in \"include\" directive",
            ));
            return Vec::new();
        };
        let path = self.directory.join(&target.text);
        if !target.text.contains(['*', '?', '[']) {
            return self.include_file(&path, target.span, scope);
        }
        let mut paths = match matches(&path) {
            Ok(paths) => paths,
            Err(problem) => {
                self.report(Diagnostic::error(
                    target.span,
                    format!("glob() \"{}\" failed ({problem})", path.display()),
                ));
                return Vec::new();
            }
        };
        paths.sort();
        paths
            .iter()
            .flat_map(|path| self.include_file(path, target.span, scope))
            .collect()
    }

    fn include_file(&mut self, path: &Path, at: Span, scope: Scope) -> Vec<Directive> {
        let resolved = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        if self.chain.contains(&resolved) {
            let message = format!("\"include\" of \"{}\", which is being read", path.display());
            let chain: Vec<String> = self
                .chain
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            self.report(Diagnostic::error(at, message).hint(format!(
                "the cycle: {} → {}",
                chain.join(" → "),
                resolved.display()
            )));
            return Vec::new();
        }
        if self.chain.len() >= INCLUDE_DEPTH_MAX {
            self.report(Diagnostic::error(
                at,
                format!("includes are nested too deep, at most {INCLUDE_DEPTH_MAX}"),
            ));
            return Vec::new();
        }
        if self.sources.files.len() >= READINGS_MAX {
            // Said once: every further include would say it again.
            if self.sources.files.len() == READINGS_MAX {
                self.add_text(path.to_path_buf(), Arc::from(""), Origin::Include(at));
                self.report(Diagnostic::error(
                    at,
                    format!("too many included files, at most {READINGS_MAX}"),
                ));
            }
            return Vec::new();
        }
        match self.add(path, Origin::Include(at)) {
            Ok(file) => self.parse(file, path, scope),
            Err(error) => {
                self.report(Diagnostic::error(at, failure("open()", path, &error)));
                Vec::new()
            }
        }
    }

    fn parse(&mut self, file: FileId, path: &Path, scope: Scope) -> Vec<Directive> {
        let Some(text) = self
            .sources
            .file(file)
            .map(|source| Arc::clone(&source.text))
        else {
            return Vec::new();
        };
        self.chain
            .push(path.canonicalize().unwrap_or_else(|_| path.to_path_buf()));
        let directives = if is_yaml(path) {
            yaml::parse(self, file, &text, scope)
        } else {
            parser::parse(self, file, &text, Kind::File, scope)
        };
        self.chain.pop();
        directives
    }

    /// Reads a file into the sources. What is not UTF-8 is reported where it stands and replaced.
    fn add(&mut self, path: &Path, origin: Origin) -> io::Result<FileId> {
        if let Some(text) = self.texts.get(path) {
            return Ok(self.add_text(path.to_path_buf(), Arc::clone(text), origin));
        }
        let bytes = read_bytes(path)?;
        let text: Arc<str> = String::from_utf8_lossy(&bytes).into();
        self.texts.insert(path.to_path_buf(), Arc::clone(&text));
        let file = self.add_text(path.to_path_buf(), text, origin);
        if let Err(error) = std::str::from_utf8(&bytes) {
            self.report(invalid_utf8(file, &bytes, error.valid_up_to()));
        }
        Ok(file)
    }

    fn add_text(&mut self, path: PathBuf, text: Arc<str>, origin: Origin) -> FileId {
        let id = FileId(u32::try_from(self.sources.files.len()).unwrap_or(u32::MAX));
        self.sources.files.push(Source {
            path,
            text,
            origin,
            blocks: Vec::new(),
        });
        id
    }

    /// Notes that a block was opened by these words; returns its number within its file.
    pub(crate) fn open_block(&mut self, opened: Span, words: &[Word]) -> usize {
        let Some(source) = self.sources.files.get_mut(opened.file.0 as usize) else {
            return 0;
        };
        let from = (opened.line, opened.column);
        let name = words.first().map_or(opened, |word| word.span);
        source.blocks.push(BlockRange {
            name,
            label: label(words),
            from,
            to: (u32::MAX, u32::MAX),
        });
        source.blocks.len() - 1
    }

    /// Notes where it ends.
    pub(crate) fn close_block(&mut self, number: usize, closed: Span) {
        let source = self.sources.files.get_mut(closed.file.0 as usize);
        if let Some(block) = source.and_then(|source| source.blocks.get_mut(number)) {
            block.to = (closed.line, closed.column);
        }
    }
}

/// What a block is called: `location "/api/"`.
fn label(words: &[Word]) -> String {
    let mut words = words.iter().map(|word| word.text.as_str());
    let Some(name) = words.next() else {
        return "block".to_owned();
    };
    let args: Vec<&str> = words.collect();
    if args.is_empty() {
        name.to_owned()
    } else {
        format!("{name} \"{}\"", args.join(" "))
    }
}

/// Whether a file is read as YAML.
fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|ending| {
        ending.eq_ignore_ascii_case("yaml") || ending.eq_ignore_ascii_case("yml")
    })
}

/// The files a mask names, as glob(3) with no flags does: `*` matches neither `/` nor a leading dot, and `**` is `*`.
fn matches(mask: &Path) -> Result<Vec<PathBuf>, String> {
    let mut pattern = mask.to_string_lossy().into_owned();
    while pattern.contains("**") {
        pattern = pattern.replace("**", "*");
    }
    let options = glob::MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    let paths = glob::glob_with(&pattern, options).map_err(|error| error.msg.to_owned())?;
    paths
        .map(|path| path.map_err(|error| reason(error.error())))
        .collect()
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("the file is larger than {} MiB", FILE_BYTES_MAX >> 20),
        ));
    }
    Ok(bytes)
}

fn invalid_utf8(file: FileId, bytes: &[u8], at: usize) -> Diagnostic {
    let before = String::from_utf8_lossy(bytes.get(..at).unwrap_or_default());
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    let span = Span {
        file,
        line: line as u32,
        column: column as u32,
        length: 1,
    };
    let byte = bytes.get(at).copied().unwrap_or_default();
    Diagnostic::error(span, format!("invalid UTF-8: byte 0x{byte:02X}"))
        .hint("save the file as UTF-8")
}

/// nginx's sentence for a failed call.
fn failure(call: &str, path: &Path, error: &io::Error) -> String {
    format!("{call} \"{}\" failed ({})", path.display(), reason(error))
}

/// The number and the text of a system error, as nginx writes them.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => format!(
            "{number}: {}",
            text.split(" (os error").next().unwrap_or_default()
        ),
        None => text,
    }
}
