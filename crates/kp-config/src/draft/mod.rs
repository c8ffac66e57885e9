//! The draft: what the file says, block by block, with nothing filled in.
//!
//! Every setting is optional and keeps its place. Reading a directive means: look its row up, check context, block,
//! number of arguments and repetition, then let the row's setter write the draft. Defaults and inheritance are
//! `resolve`'s business.

mod ejection;
mod health;
pub(crate) mod inert;
mod level;
mod limits;
mod listen;
mod location;
mod log;
mod log_format;
mod main;
mod map;
mod marks;
mod page;
mod proxy;
mod reader;
mod real_ip;
mod resolver;
mod retry;
mod split_clients;
mod sticky;
mod syslog;
mod tls;
mod upstream;
mod values;

pub(crate) use health::HealthCheckDraft;
pub(crate) use level::{LevelDraft, RootDraft};
pub(crate) use limits::{ExceptDraft, PlaceLimitDraft, RateLimitDraft, ZoneMark};
pub(crate) use listen::ListenDraft;
pub(crate) use location::{LocationDraft, ProxyPassDraft, RewriteDraft};
pub(crate) use log::AccessLogDraft;
pub(crate) use main::{EarlyDraft, HttpDraft, MainDraft, ServerDraft};
pub(crate) use page::{PageDraft, PageKind};
pub(crate) use proxy::RedirectDraft;
pub(crate) use reader::{Reader, predefined_format};
pub(crate) use tls::{TlsCommands, TlsDraft, TlsFileDraft};
pub(crate) use upstream::{
    BalancerDraft, KeepaliveDraft, ServerLineDraft, UpstreamDraft, server_parameter,
};

use crate::diagnostic::Diagnostic;
use crate::directives::{self, Arity, BlockKind, Contexts, Entry};
use crate::foreign::foreign;
use crate::model::MatchBlock;
use crate::span::Span;
use crate::suggest::nearest;
use crate::syntax::{Block, Directive};
use std::collections::HashMap;

/// What a directive writes to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Setter {
    /// `include`: the loader has already put the file's directives in its place.
    Loader,
    /// A block; the reader enters it.
    Block,
    /// Nothing; the value is checked.
    Ignored(fn(&mut Reader<'_>, &Directive)),
    /// Nothing; it must be this word, which says what holds anyway.
    Only(&'static str),
    /// `try_files`: the words of its syntax, which say what is done anyway where files are served.
    TryFiles,
    /// The main and events contexts.
    Main(fn(&mut MainDraft, &mut Reader<'_>, &Directive)),
    /// Things that only http has.
    Http(fn(&mut HttpDraft, &mut Reader<'_>, &Directive)),
    /// Things that only a server has.
    Server(fn(&mut ServerDraft, &mut Reader<'_>, &Directive)),
    /// http and server: settings that hold before routing.
    Early(fn(&mut EarlyDraft, &mut Reader<'_>, &Directive)),
    /// http and server: TLS with clients.
    Tls(fn(&mut TlsDraft, &mut Reader<'_>, &Directive)),
    /// http, server, location, if: inherited settings.
    Level(fn(&mut LevelDraft, &mut Reader<'_>, &Directive)),
    /// Location, if, and a server's own level.
    Location(fn(&mut LocationDraft, &mut Reader<'_>, &Directive)),
    /// An upstream group.
    Upstream(fn(&mut UpstreamDraft, &mut Reader<'_>, &Directive)),
    /// A `match`.
    Match(fn(&mut MatchBlock, &mut Reader<'_>, &Directive)),
}

/// Writes the setter column of the directive table.
macro_rules! setter {
    (loader) => {
        $crate::draft::Setter::Loader
    };
    (block) => {
        $crate::draft::Setter::Block
    };
    (ignored $kind:ident) => {
        $crate::draft::Setter::Ignored($crate::draft::inert::$kind)
    };
    (only $word:literal) => {
        $crate::draft::Setter::Only($word)
    };
    (try_files) => {
        $crate::draft::Setter::TryFiles
    };
    (main $kind:ident $field:ident) => {
        $crate::draft::Setter::Main(|draft, reader, directive| {
            reader.$kind(directive, &mut draft.$field)
        })
    };
    (early with $function:ident) => {
        $crate::draft::Setter::Early($crate::draft::EarlyDraft::$function)
    };
    (early $kind:ident $field:ident) => {
        $crate::draft::Setter::Early(|draft, reader, directive| {
            reader.$kind(directive, &mut draft.$field)
        })
    };
    (tls $kind:ident $field:ident) => {
        $crate::draft::Setter::Tls(|draft, reader, directive| {
            reader.$kind(directive, &mut draft.$field)
        })
    };
    (level $kind:ident $field:ident) => {
        $crate::draft::Setter::Level(|draft, reader, directive| {
            reader.$kind(directive, &mut draft.$field)
        })
    };
    (http with $function:ident) => {
        $crate::draft::Setter::Http($crate::draft::HttpDraft::$function)
    };
    (http $kind:ident $field:ident) => {
        $crate::draft::Setter::Http(|draft, reader, directive| {
            reader.$kind(directive, &mut draft.$field)
        })
    };
    (server with $function:ident) => {
        $crate::draft::Setter::Server($crate::draft::ServerDraft::$function)
    };
    (location with $function:ident) => {
        $crate::draft::Setter::Location($crate::draft::LocationDraft::$function)
    };
    (rewrite $function:ident) => {
        $crate::draft::Setter::Location($crate::draft::LocationDraft::$function)
    };
    (upstream $function:ident) => {
        $crate::draft::Setter::Upstream($crate::draft::UpstreamDraft::$function)
    };
    (match $function:ident) => {
        $crate::draft::Setter::Match($crate::model::MatchBlock::$function)
    };
}
pub(crate) use setter;

/// The draft of the block that is being read.
enum Target<'a> {
    Main(&'a mut MainDraft),
    Http(&'a mut HttpDraft),
    Server(&'a mut ServerDraft),
    Location(&'a mut LocationDraft),
    Upstream(&'a mut UpstreamDraft),
    Match(&'a mut MatchBlock),
}

/// Reads a whole file.
pub(crate) fn read(tree: &[Directive], reader: &mut Reader<'_>) -> MainDraft {
    let mut draft = MainDraft::default();
    read_block(tree, Contexts::MAIN, &mut Target::Main(&mut draft), reader);
    draft
}

/// May stand again although each is said once: the last one holds, and `balance` warns, as nginx does.
const LAST_ONE_HOLDS: [&str; 4] = ["least_conn", "ip_hash", "hash", "random"];

fn read_block(
    tree: &[Directive],
    context: Contexts,
    target: &mut Target<'_>,
    reader: &mut Reader<'_>,
) {
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for directive in tree {
        let name = directive.name.text.as_str();
        let Some(entry) = directives::find(name, context) else {
            reader.report(unknown_or_misplaced(directive, context));
            continue;
        };
        if let Some(problem) = misshapen(directive, entry) {
            reader.report(problem);
            // The inside of a block is still worth reading, so that all its errors are shown at once.
            if directive.block.is_none() || entry.block == BlockKind::None {
                continue;
            }
        }
        if !entry.repeatable && !LAST_ONE_HOLDS.contains(&name) {
            if let Some(first) = seen.get(name) {
                let message = format!("\"{name}\" directive is duplicate");
                let hint = format!("the first one is on line {}", first.line);
                reader.report(Diagnostic::error(directive.at, message).hint(hint));
                continue;
            }
            seen.insert(name, directive.at);
        }
        apply(directive, entry, target, reader);
    }
}

fn apply(directive: &Directive, entry: &Entry, target: &mut Target<'_>, reader: &mut Reader<'_>) {
    match (entry.set, target) {
        (Setter::Loader | Setter::Only(_), _) => {}
        (Setter::TryFiles, Target::Server(draft)) => draft.root.try_files = Some(directive.at),
        (Setter::TryFiles, Target::Location(draft)) => draft.try_files = Some(directive.at),
        (Setter::Ignored(check), _) => check(reader, directive),
        (Setter::Main(set), Target::Main(draft)) => set(draft, reader, directive),
        (Setter::Http(set), Target::Http(draft)) => set(draft, reader, directive),
        (Setter::Early(set), Target::Http(draft)) => set(&mut draft.early, reader, directive),
        (Setter::Tls(set), Target::Http(draft)) => set(&mut draft.tls, reader, directive),
        (Setter::Tls(set), Target::Server(draft)) => set(&mut draft.tls, reader, directive),
        (Setter::Level(set), Target::Http(draft)) => set(&mut draft.level, reader, directive),
        (Setter::Server(set), Target::Server(draft)) => set(draft, reader, directive),
        (Setter::Early(set), Target::Server(draft)) => set(&mut draft.early, reader, directive),
        (Setter::Level(set), Target::Server(draft)) => {
            set(&mut draft.root.level, reader, directive);
        }
        (Setter::Location(set), Target::Server(draft)) => set(&mut draft.root, reader, directive),
        (Setter::Level(set), Target::Location(draft)) => set(&mut draft.level, reader, directive),
        (Setter::Location(set), Target::Location(draft)) => set(draft, reader, directive),
        (Setter::Upstream(set), Target::Upstream(draft)) => set(draft, reader, directive),
        (Setter::Match(set), Target::Match(draft)) => set(draft, reader, directive),
        (Setter::Block, target) => {
            if let Some(block) = &directive.block {
                enter(directive, block, target, reader);
            }
        }
        // The table's contexts decide which rows are found for a target; a test walks all of them.
        (_, _) => reader.report(not_allowed(directive, entry.contexts)),
    }
}

/// Reads a block directive into a new draft and hangs that into the draft around it.
fn enter(directive: &Directive, block: &Block, target: &mut Target<'_>, reader: &mut Reader<'_>) {
    let inside = block.directives.as_slice();
    match (directive.name.text.as_str(), target) {
        ("events", Target::Main(draft)) => {
            read_block(inside, Contexts::EVENTS, &mut Target::Main(draft), reader);
        }
        ("http", Target::Main(draft)) => {
            let http = draft.http.insert(HttpDraft::default());
            read_block(inside, Contexts::HTTP, &mut Target::Http(http), reader);
        }
        ("server", Target::Http(draft)) => {
            let mut server = ServerDraft::new(directive.at);
            read_block(
                inside,
                Contexts::SERVER,
                &mut Target::Server(&mut server),
                reader,
            );
            draft.servers.push(server);
        }
        ("upstream", Target::Http(draft)) => {
            let Some(mut upstream) = draft.upstream(reader, directive) else {
                return;
            };
            read_block(
                inside,
                Contexts::UPSTREAM,
                &mut Target::Upstream(&mut upstream),
                reader,
            );
            draft.upstreams.push(upstream);
        }
        ("match", Target::Http(draft)) => {
            let Some(mut block) = draft.match_block(reader, directive) else {
                return;
            };
            let target = &mut Target::Match(&mut block);
            read_block(inside, Contexts::MATCH, target, reader);
            draft.matches.push(block);
        }
        ("map", Target::Http(draft)) => draft.map(reader, directive, inside),
        ("split_clients", Target::Http(draft)) => draft.split_clients(reader, directive, inside),
        ("types", Target::Http(draft)) => reader.types(directive, inside, &mut draft.level.types),
        ("types", Target::Server(draft)) => {
            reader.types(directive, inside, &mut draft.root.level.types);
        }
        ("types", Target::Location(draft)) => {
            reader.types(directive, inside, &mut draft.level.types);
        }
        ("location", Target::Server(draft)) => {
            enter_location(directive, inside, &mut draft.root, reader);
        }
        ("location", Target::Location(draft)) => enter_location(directive, inside, draft, reader),
        ("if", Target::Server(draft)) => enter_if(
            directive,
            inside,
            &mut draft.root,
            Contexts::SERVER_IF,
            reader,
        ),
        ("if", Target::Location(draft)) => {
            enter_if(directive, inside, draft, Contexts::LOCATION_IF, reader);
        }
        ("limit_except", Target::Location(draft)) => {
            enter_except(directive, inside, draft, reader);
        }
        _ => {}
    }
}

fn enter_except(
    directive: &Directive,
    inside: &[Directive],
    parent: &mut LocationDraft,
    reader: &mut Reader<'_>,
) {
    let methods = reader.methods(directive);
    let mut branch = parent.branch(directive);
    let target = &mut Target::Location(&mut branch);
    read_block(inside, Contexts::LIMIT_EXCEPT, target, reader);
    let access = branch.level.access.map(|access| access.value);
    parent.except = Some(ExceptDraft { methods, access });
}

fn enter_location(
    directive: &Directive,
    inside: &[Directive],
    parent: &mut LocationDraft,
    reader: &mut Reader<'_>,
) {
    let mut location = parent.child(reader, directive);
    read_block(
        inside,
        Contexts::LOCATION,
        &mut Target::Location(&mut location),
        reader,
    );
    parent.children.push(location);
}

fn enter_if(
    directive: &Directive,
    inside: &[Directive],
    parent: &mut LocationDraft,
    context: Contexts,
    reader: &mut Reader<'_>,
) {
    let condition = reader.condition(directive);
    let mut location = parent.branch(directive);
    read_block(
        inside,
        context,
        &mut Target::Location(&mut location),
        reader,
    );
    if let Some(condition) = condition {
        parent.rewrite.push(RewriteDraft::If {
            condition,
            location: Box::new(location),
        });
    }
}

/// What the table says against a directive in a context.
pub(crate) fn shape_problem(directive: &Directive, context: Contexts) -> Option<Diagnostic> {
    match directives::find(&directive.name.text, context) {
        Some(entry) => misshapen(directive, entry),
        None => Some(unknown_or_misplaced(directive, context)),
    }
}

/// Whether block and number of arguments fit the row.
fn misshapen(directive: &Directive, entry: &Entry) -> Option<Diagnostic> {
    let name = directive.name.text.as_str();
    match (&directive.block, entry.block) {
        (Some(block), BlockKind::None) => {
            let message = format!("directive \"{name}\" is not terminated by \";\"");
            return Some(Diagnostic::error(block.opened, message).hint(form(entry)));
        }
        (None, BlockKind::Of(_) | BlockKind::Entries(_)) => {
            let message = format!("directive \"{name}\" has no opening \"{{\"");
            return Some(Diagnostic::error(directive.at, message).hint(form(entry)));
        }
        _ => {}
    }
    if entry.arity.accepts(directive.args.len()) {
        return unsupported(directive, entry);
    }
    let message = format!("invalid number of arguments in \"{name}\" directive");
    let surplus = entry.arity.max.and_then(|max| directive.args.get(max));
    let span = surplus.map_or(directive.at, |word| word.span);
    Some(Diagnostic::error(span, message).hint(format!(
        "{}: {}",
        count_in_words(entry.arity),
        form(entry)
    )))
}

/// Of what kp does not have, anything but the words that say so; the documentation tells what to do instead.
fn unsupported(directive: &Directive, entry: &Entry) -> Option<Diagnostic> {
    let accepted = match entry.set {
        Setter::Only(word) => word,
        Setter::TryFiles => entry.syntax,
        _ => return None,
    };
    let words: Vec<&str> = directive
        .args
        .iter()
        .map(|word| word.text.as_str())
        .collect();
    let said = words.join(" ");
    if said == accepted {
        return None;
    }
    let name = entry.name;
    let message = match accepted {
        "off" => format!("\"{name}\" is not supported"),
        _ => format!("\"{name} {said}\" is not supported"),
    };
    let instead = entry.doc.split_once(": ").map_or(entry.doc, |(_, doc)| doc);
    let mut hint = String::new();
    for sentence in instead.trim_end_matches('.').split(". ") {
        let mut letters = sentence.chars();
        if !hint.is_empty() {
            hint.push_str("; ");
            hint.extend(letters.next().map(|first| first.to_ascii_lowercase()));
        }
        hint.push_str(letters.as_str());
    }
    Some(Diagnostic::error(directive.name.span, message).hint(hint))
}

fn form(entry: &Entry) -> String {
    let end = if entry.block.may_be_left_out() {
        ";"
    } else {
        ""
    };
    let space = if entry.syntax.is_empty() { "" } else { " " };
    format!("the form is `{}{space}{}{end}`", entry.name, entry.syntax)
}

fn count_in_words(arity: Arity) -> String {
    match (arity.min, arity.max) {
        (0, Some(0)) => "it takes no arguments".to_owned(),
        (1, Some(1)) => "it takes one argument".to_owned(),
        (min, Some(max)) if min == max => format!("it takes {min} arguments"),
        (min, Some(max)) => format!("it takes {min} to {max} arguments"),
        (min, None) => format!(
            "it takes at least {min} argument{}",
            if min == 1 { "" } else { "s" }
        ),
    }
}

fn unknown_or_misplaced(directive: &Directive, context: Contexts) -> Diagnostic {
    let name = directive.name.text.as_str();
    let elsewhere = directives::named(name)
        .map(|entry| entry.contexts)
        .reduce(Contexts::or);
    if let Some(contexts) = elsewhere {
        return not_allowed(directive, contexts);
    }
    let error = Diagnostic::error(directive.name.span, format!("unknown directive \"{name}\""));
    let here = directives::all()
        .filter(|entry| entry.contexts.contains(context))
        .map(|entry| entry.name);
    let near =
        nearest(name, here).or_else(|| nearest(name, directives::all().map(|entry| entry.name)));
    match (foreign(name), near) {
        (Some(advice), _) => error.hint(format!("kp does not have it: {advice}")),
        (None, Some(near)) => error.hint(format!("did you mean \"{near}\"?")),
        (None, None) => {
            error.hint("neither kp nor nginx has it: is it of a module that was added to nginx?")
        }
    }
}

fn not_allowed(directive: &Directive, contexts: Contexts) -> Diagnostic {
    let places: Vec<&str> = contexts.names().collect();
    Diagnostic::error(
        directive.name.span,
        format!("\"{}\" directive is not allowed here", directive.name.text),
    )
    .hint(format!("it is allowed in: {}", places.join(", ")))
}
