//! Reading files: the main one, the text of `-g`, and whatever `include` names, as one tree.
//!
//! It decides paths, masks, limits and cycles. What the text means is up to `nginx` and `yaml`; the file's ending chooses
//! between them. Relative names are relative to the directory of the main file, as in nginx.

use crate::diagnostic::Diagnostic;
use crate::nginx::lexer::{Lexer, Token};
use crate::nginx::parser::{self, Kind};
use crate::scope::Scope;
use crate::span::{FileId, Span};
use crate::syntax::{BlockRange, Directive, Origin, Source, Sources, Word};
use crate::{LoadOptions, yaml};
use std::collections::HashMap;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
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
    /// What could not be read or parsed.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Whether the tree lacks nothing but single directives: a part that is missing may have defined what others name.
    pub(crate) complete: bool,
}

/// Reads the configuration with everything it includes.
pub(crate) fn read(options: &LoadOptions) -> Reading {
    read_as(options, Scope::MAIN)
}

/// The same of a file that is the inside of a block.
pub(crate) fn read_as(options: &LoadOptions, scope: Scope) -> Reading {
    let path = options.prefix.join(&options.path);
    let directory = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let mut reader = Reader::new(directory);
    // The main file has the first id, but the command line's directives come first.
    let main = match &options.text {
        Some(text) => Ok(reader.add_text(path.clone(), Arc::clone(text), Origin::Main)),
        None => reader.add(&path, Origin::Main),
    };
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
        Ok(file) => directives.extend(reader.parse(file, &path, scope)),
        Err(error) => reader
            .diagnostics
            .push(Diagnostic::system(failure("open()", &path, &error))),
    }
    Reading {
        directives,
        sources: reader.sources,
        diagnostics: reader.diagnostics,
        complete: reader.complete,
    }
}

/// What the front ends report to and include through.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Of the main file.
    directory: PathBuf,
    sources: Sources,
    diagnostics: Vec<Diagnostic>,
    complete: bool,
    /// The files being read, outermost first, links resolved.
    chain: Vec<PathBuf>,
    /// A file that is included several times is read once.
    texts: HashMap<PathBuf, Arc<str>>,
}

impl Reader {
    fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            sources: Sources::default(),
            diagnostics: Vec::new(),
            complete: true,
            chain: Vec::new(),
            texts: HashMap::new(),
        }
    }

    /// Adds a finding.
    pub(crate) fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// Adds a finding because of which a part of the configuration is missing.
    pub(crate) fn report_loss(&mut self, diagnostic: Diagnostic) {
        self.complete = false;
        self.report(diagnostic);
    }

    /// The directives that an `include` stands for. `name` and `args` are its words.
    pub(crate) fn include(&mut self, name: &Word, args: &[Word], scope: Scope) -> Vec<Directive> {
        let [target] = args else {
            let message = "invalid number of arguments in \"include\" directive";
            let hint = "it takes one argument: the form is `include file | mask;`";
            self.report_loss(Diagnostic::error(name.span, message).hint(hint));
            return Vec::new();
        };
        let path = self.directory.join(&target.text);
        if !target.text.contains(['*', '?', '[']) {
            return self.include_file(&path, target.span, scope);
        }
        let mut paths = match matches(&path) {
            Ok(paths) => paths,
            Err(problem) => {
                let message = format!("glob() \"{}\" failed ({problem})", path.display());
                let hint = "in a mask * and ? stand for characters, [a-z] for one of several";
                self.report_loss(Diagnostic::error(target.span, message).hint(hint));
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
            self.report_loss(Diagnostic::error(at, message).hint(format!(
                "the cycle: {} → {}",
                chain.join(" → "),
                resolved.display()
            )));
            return Vec::new();
        }
        if self.chain.len() >= INCLUDE_DEPTH_MAX {
            let message = format!("includes are nested too deep, at most {INCLUDE_DEPTH_MAX}");
            self.report_loss(
                Diagnostic::error(at, message).hint("include the files from one place"),
            );
            return Vec::new();
        }
        if self.sources.files.len() >= READINGS_MAX {
            // Said once: every further include would say it again.
            if self.sources.files.len() == READINGS_MAX {
                self.add_text(path.to_path_buf(), Arc::from(""), Origin::Include(at));
                let message = format!("too many included files, at most {READINGS_MAX}");
                let hint = "files that include the same files several times multiply them";
                self.report_loss(Diagnostic::error(at, message).hint(hint));
            }
            return Vec::new();
        }
        match self.add(path, Origin::Include(at)) {
            Ok(file) => self.parse(file, path, scope),
            Err(error) => {
                let hint = format!(
                    "relative names start at \"{}\", the main file's directory",
                    self.directory.display()
                );
                self.report_loss(Diagnostic::error(at, failure("open()", path, &error)).hint(hint));
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

    /// Reads a file into the sources. What is not UTF-8 is replaced, and reported where it stands, except in comments.
    fn add(&mut self, path: &Path, origin: Origin) -> io::Result<FileId> {
        if let Some(text) = self.texts.get(path) {
            return Ok(self.add_text(path.to_path_buf(), Arc::clone(text), origin));
        }
        Ok(self.add_bytes(path, &read_bytes(path)?, origin))
    }

    fn add_bytes(&mut self, path: &Path, bytes: &[u8], origin: Origin) -> FileId {
        let text: Arc<str> = String::from_utf8_lossy(bytes).into();
        let invalid = first_invalid(bytes, &text, is_yaml(path));
        self.texts.insert(path.to_path_buf(), Arc::clone(&text));
        let file = self.add_text(path.to_path_buf(), text, origin);
        if let Some(at) = invalid {
            self.report(invalid_utf8(file, bytes, at));
        }
        file
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

    /// Notes that a block was opened by these words at a place; returns its number within its file.
    pub(crate) fn open_block(&mut self, opened: Span, name: Span, words: &[Word]) -> usize {
        let Some(source) = self.sources.files.get_mut(opened.file.0 as usize) else {
            return 0;
        };
        let from = (opened.line, opened.column);
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
pub(crate) fn is_yaml(path: &Path) -> bool {
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
    // Who reads it has other things to do than to wait for its writer; and it could not be read again at a reload.
    if std::fs::metadata(path)?.file_type().is_fifo() {
        return Err(io::Error::other("it is a pipe and no file"));
    }
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

/// Where a byte that is not UTF-8 first means something; `text` is the same with replacements. Comments of nginx's syntax may
/// be in any encoding, as many old files have them.
fn first_invalid(bytes: &[u8], text: &str, yaml: bool) -> Option<usize> {
    let valid_bytes = std::str::from_utf8(bytes).err()?.valid_up_to();
    if yaml {
        return Some(valid_bytes);
    }
    let mut lexer = Lexer::unlimited(text);
    let mut lexed = lexer.next();
    let (mut in_bytes, mut in_text) = (0, 0);
    for chunk in bytes.utf8_chunks() {
        in_bytes += chunk.valid().len();
        in_text += chunk.valid().len();
        if chunk.invalid().is_empty() {
            continue;
        }
        while lexed.token != Ok(Token::End) && lexed.to <= in_text {
            lexed = lexer.next();
        }
        if lexed.token != Ok(Token::End) && lexed.from <= in_text {
            return Some(in_bytes);
        }
        in_bytes += chunk.invalid().len();
        in_text += char::REPLACEMENT_CHARACTER.len_utf8();
    }
    None
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

#[cfg(test)]
impl Reader {
    /// Reads bytes as if they were the main file of this name.
    pub(crate) fn read_bytes(bytes: &[u8], name: &str) -> Reading {
        let mut reader = Self::new(PathBuf::new());
        let path = PathBuf::from(name);
        let file = reader.add_bytes(&path, bytes, Origin::Main);
        let directives = reader.parse(file, &path, Scope::MAIN);
        Reading {
            directives,
            sources: reader.sources,
            diagnostics: reader.diagnostics,
            complete: reader.complete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::LoadOptions;
    use crate::testing::{findings, read_files, tree};

    #[test]
    fn a_mask_takes_files_in_order_and_may_match_nothing() {
        let (reading, _) = read_files(&[
            (
                "kp.conf",
                b"include none/*.conf;\ninclude c.d/*;\ninclude \"d/?[0-9].c\";\n",
            ),
            ("c.d/b", b"b;"),
            ("c.d/a", b"a;"),
            ("c.d/.hidden", b"hidden;"),
            ("d/x1.c", b"x1;"),
            ("d/xx.c", b"xx;"),
        ]);
        assert_eq!(findings(&reading), [""; 0]);
        assert_eq!(tree(&reading.directives), "a; b; x1;");
    }

    #[test]
    fn a_missing_file_is_an_error_at_the_include() {
        let (reading, directory) = read_files(&[("kp.conf", b"a {\n  include b.conf;\n}\n")]);
        let expected =
            format!("2:11+6 open() \"{directory}/b.conf\" failed (2: No such file or directory)");
        assert_eq!(findings(&reading), [expected]);
    }

    #[test]
    fn a_missing_main_file_is_an_error_without_place() {
        let options = LoadOptions {
            path: "/nowhere/kp.conf".into(),
            ..LoadOptions::default()
        };
        let expected = "open() \"/nowhere/kp.conf\" failed (2: No such file or directory)";
        assert_eq!(findings(&read(&options)), [expected]);
    }

    #[test]
    fn a_directory_cannot_be_included() {
        let (reading, directory) = read_files(&[("kp.conf", b"include c.d;"), ("c.d/a", b"a;")]);
        let expected = format!("1:9+3 open() \"{directory}/c.d\" failed (21: Is a directory)");
        assert_eq!(findings(&reading), [expected]);
    }

    #[test]
    fn names_are_relative_to_the_main_file() {
        let (reading, _) = read_files(&[
            ("etc/kp.conf", b"include c.d/a;"),
            ("etc/c.d/a", b"include c.d/b;"),
            ("etc/c.d/b", b"b;"),
        ]);
        assert_eq!(findings(&reading), [""; 0]);
        assert_eq!(tree(&reading.directives), "b;");
    }

    #[test]
    fn a_cycle_is_an_error_at_the_include_that_closes_it() {
        let (reading, directory) = read_files(&[
            ("kp.conf", b"include a.conf;"),
            ("a.conf", b"\ninclude *.yaml;"),
            ("b.yaml", b"include: ./kp.conf"),
        ]);
        let expected =
            format!("1:10+9 \"include\" of \"{directory}/./kp.conf\", which is being read");
        assert_eq!(findings(&reading), [expected]);
        assert_eq!(reading.diagnostics[0].span.unwrap().file.0, 2);
    }

    #[test]
    fn long_chains_of_includes_end() {
        let names: Vec<String> = (0..50).map(|number| format!("{number}.conf")).collect();
        let texts: Vec<String> = (1..51)
            .map(|number| format!("include {number}.conf;"))
            .collect();
        let files: Vec<_> = names
            .iter()
            .zip(&texts)
            .map(|(name, text)| (name.as_str(), text.as_bytes()))
            .collect();
        let (reading, _) = read_files(&files);
        assert_eq!(
            findings(&reading),
            ["1:9+7 includes are nested too deep, at most 32"]
        );
    }

    #[test]
    fn includes_that_multiply_end() {
        let names: Vec<String> = (0..20).map(|number| format!("{number}.conf")).collect();
        let texts: Vec<String> = (1..=20)
            .map(|number| format!("include {}.conf;\n", number.min(19)).repeat(8))
            .map(|text| {
                if text.contains("19") {
                    "a;".to_owned()
                } else {
                    text
                }
            })
            .collect();
        let files = names.iter().zip(&texts);
        let files: Vec<_> = files
            .map(|(name, text)| (name.as_str(), text.as_bytes()))
            .collect();
        let (reading, _) = read_files(&files);
        assert_eq!(
            findings(&reading),
            ["8:9+7 too many included files, at most 100000"]
        );
    }

    #[test]
    fn a_file_in_two_places_says_which() {
        let (reading, directory) = read_files(&[
            (
                "kp.conf",
                b"a {\n  include x.conf;\n}\nb {\n  include x.conf;\n}\n",
            ),
            ("x.conf", b"c \"d\"e;\n"),
        ]);
        assert_eq!(
            findings(&reading),
            ["1:6+1 unexpected \"e\"", "1:6+1 unexpected \"e\""]
        );
        let shown = crate::render(&reading.diagnostics, &reading.sources);
        let expected = format!(
            "kp: [emerg] unexpected \"e\" in {directory}/x.conf:1:6\n\
             \x201 | c \"d\"e;\n\
             \x20  |      ^\n\
             \x20    in b, opened at {directory}/kp.conf:4:1\n\
             \x20    included at {directory}/kp.conf:5:11\n\
             \x20    hint: after a closing quote only white space, \";\", \"{{\" or \")\" may follow\n"
        );
        assert!(shown.ends_with(&expected), "{shown}");
        let text = crate::dump(&reading.sources);
        let expected = format!(
            "# configuration file {directory}/kp.conf:\na {{\n  include x.conf;\n}}\nb {{\n  include x.conf;\n}}\n\n\
             # configuration file {directory}/x.conf:\nc \"d\"e;\n\n"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn bytes_that_are_no_text_are_an_error_at_their_place() {
        let (reading, _) = read_files(&[("kp.conf", b"a;\nb \xc3\xbc\xff c;\nd;\n")]);
        assert_eq!(findings(&reading), ["2:4+1 invalid UTF-8: byte 0xFF"]);
        assert_eq!(tree(&reading.directives), "a; b ü\u{fffd} c; d;");
    }

    #[test]
    fn comments_may_be_in_any_encoding() {
        let text = b"# caf\xe9 \xff\na; # \xe9t\xe9\nb 'x # y'; # \xfc";
        let (reading, _) = read_files(&[("kp.conf", text)]);
        assert_eq!(findings(&reading), [""; 0]);
        assert_eq!(tree(&reading.directives), "a; b <x # y>;");
        for (text, place) in [
            (b"# \xe9\na '# \xe9';\n".as_slice(), "2:6"),
            (b"# \xe9\na#\xe9;\n", "2:3"),
            (b"a; \xe9", "1:4"),
        ] {
            let (reading, _) = read_files(&[("kp.conf", text)]);
            let expected = format!("{place}+1 invalid UTF-8: byte 0xE9");
            assert!(
                findings(&reading).contains(&expected),
                "{:?}",
                findings(&reading)
            );
        }
        let (reading, _) = read_files(&[("kp.yaml", b"# \xe9\n")]);
        assert_eq!(findings(&reading), ["1:3+1 invalid UTF-8: byte 0xE9"]);
    }

    #[test]
    fn the_command_line_comes_first() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("kp.yaml"), "b: c").unwrap();
        let run = |globals: &str| {
            read(&LoadOptions {
                path: "kp.yaml".into(),
                prefix: directory.path().to_path_buf(),
                globals: Some(globals.to_owned()),
                ..LoadOptions::default()
            })
        };
        let reading = run("a 'b'; c d;");
        assert_eq!(findings(&reading), [""; 0]);
        assert_eq!(tree(&reading.directives), "a <b>; c d; b;");
        assert_eq!(
            crate::dump(&reading.sources)
                .matches("# configuration file")
                .count(),
            1
        );
        let reading = run("a b");
        assert_eq!(
            findings(&reading),
            ["1:4+1 unexpected end of parameter, expecting \";\""]
        );
        assert!(
            crate::render(&reading.diagnostics, &reading.sources)
                .contains(" in command line:1:4\n")
        );
        let reading = run("a; http { b; } c;");
        assert_eq!(
            findings(&reading),
            ["1:4+4 block directives are not supported in -g option"]
        );
        assert_eq!(tree(&reading.directives), "a; c; b;");
    }
}
