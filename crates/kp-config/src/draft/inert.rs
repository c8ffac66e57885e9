//! Setters of directives without effect (`directives/inert.rs`): the value is checked, and what somebody might miss is told.

use super::Reader;
use crate::syntax::{Directive, Word};

pub(crate) fn flag(reader: &mut Reader<'_>, directive: &Directive) {
    reader.flag(directive, &mut None);
}

pub(crate) fn number(reader: &mut Reader<'_>, directive: &Directive) {
    reader.number::<u64>(directive, &mut None);
}

pub(crate) fn size(reader: &mut Reader<'_>, directive: &Directive) {
    reader.size::<u64>(directive, &mut None);
}

pub(crate) fn buffers(reader: &mut Reader<'_>, directive: &Directive) {
    reader.buffers(directive, &mut None);
}

pub(crate) fn http2(reader: &mut Reader<'_>, directive: &Directive) {
    reader.only_off(
        directive,
        "HTTP/2 is not spoken yet, \"http2 on\" changes nothing",
        "clients agree on HTTP/1.1 by themselves",
    );
}

pub(crate) fn early_data(reader: &mut Reader<'_>, directive: &Directive) {
    reader.only_off(
        directive,
        "early data is not accepted, \"ssl_early_data on\" changes nothing",
        "clients send it again after the handshake by themselves",
    );
}

pub(crate) fn stapling_verify(reader: &mut Reader<'_>, directive: &Directive) {
    reader.only_off(
        directive,
        "\"ssl_stapling_verify on\" changes nothing",
        "the response is stapled as \"ssl_stapling_file\" has it",
    );
}

pub(crate) fn dhparam(reader: &mut Reader<'_>, directive: &Directive) {
    reader.warn_once(
        directive.at,
        "\"ssl_dhparam\" changes nothing: kp has no DHE suites",
        "keys are agreed on with elliptic curves (ECDHE), which every current client can",
    );
}

pub(crate) fn session_cache(reader: &mut Reader<'_>, directive: &Directive) {
    reader.session_cache(directive);
}

/// No check: what it may be is nginx's business.
pub(crate) fn anything(_: &mut Reader<'_>, _: &Directive) {}

pub(crate) fn time(reader: &mut Reader<'_>, directive: &Directive) {
    reader.time(directive, &mut None);
}

pub(crate) fn size_or_off(reader: &mut Reader<'_>, directive: &Directive) {
    if first(directive).is_none_or(|word| word.text != "off") {
        size(reader, directive);
    }
}

pub(crate) fn texts(reader: &mut Reader<'_>, directive: &Directive) {
    reader.arguments(directive, &mut None);
}

pub(crate) fn gzip(reader: &mut Reader<'_>, directive: &Directive) {
    reader.only_off(
        directive,
        "kp does not compress, \"gzip on\" changes nothing",
        "an upstream can: the client's Accept-Encoding reaches it unchanged",
    );
}

pub(crate) fn gzip_static(reader: &mut Reader<'_>, directive: &Directive) {
    if let Some(word) = first(directive)
        && word.text == "always"
    {
        let message = "\"gzip_static always\" is not supported";
        return reader.refuse(
            word.span,
            message,
            "kp serves the plain files: keep them beside the others",
        );
    }
    reader.only_off(
        directive,
        "\"gzip_static on\" changes nothing: files are served as they are",
        "clients get the plain file, which has to be there",
    );
}

pub(crate) fn rewrite_log(reader: &mut Reader<'_>, directive: &Directive) {
    reader.only_off(
        directive,
        "\"rewrite_log on\" changes nothing",
        "put what a rewrite made of a request into the access log: $uri beside $request",
    );
}

pub(crate) fn module(reader: &mut Reader<'_>, directive: &Directive) {
    reader.warn_once(
        directive.at,
        "\"load_module\" changes nothing: kp loads no modules",
        "what kp can do is built in (`kp explain`); directives of other modules are refused",
    );
}

/// `env NAME` is what kp does anyway.
pub(crate) fn environment(reader: &mut Reader<'_>, directive: &Directive) {
    if let Some(word) = first(directive)
        && word.text.contains('=')
    {
        let message = "a value in \"env\" is not supported";
        let hint = "workers keep the environment of kp: set it where kp is started, such as `Environment=` in the systemd unit";
        reader.refuse(word.span, message, hint);
    }
}

fn first(directive: &Directive) -> Option<&Word> {
    directive.args.first()
}
