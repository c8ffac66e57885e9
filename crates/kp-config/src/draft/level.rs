//! The settings that are inherited from http to server to location to `if`, and the setters of those that are not the
//! proxy module's.

use super::{
    AccessLogDraft, PlaceLimitDraft, RateLimitDraft, Reader, RedirectDraft, TlsCommands,
    TlsFileDraft,
};
use crate::diagnostic::Diagnostic;
use crate::model::{
    AccessRule, AddHeader, BodyInFile, CertificateCache, CipherSuite, CookieFlags, ErrorLog,
    ErrorPage, ErrorPageStatus, ErrorPageTarget, Forwarding, KeepaliveDisable, Level,
    LingeringClose, LogFileCacheId, MinRate, Network, NextUpstream, ProxyHttpVersion,
    ProxyProtocol, RealIpHeader, Replace, RequestBuffering, RetryBackoff, ServerTokens, SetHeader,
    TlsProtocols, TraceContext, TypeMapId,
};
use crate::span::Spanned;
use crate::syntax::{Directive, Word};
use crate::template::Template;
use crate::value::{self, Finest};
use std::path::PathBuf;
use std::time::Duration;

/// A struct of settings that a level says or not, and that are inherited one by one.
macro_rules! inherited {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Default)]
        pub(crate) struct $name {
            $($(#[$doc])* pub(crate) $field: Option<Spanned<$type>>,)*
        }

        impl $name {
            /// Takes over what the level above says and this one does not. A list is one setting: a level with its own
            /// `add_header` inherits none.
            pub(crate) fn inherit(&mut self, above: &Self) {
                $(if self.$field.is_none() {
                    self.$field.clone_from(&above.$field);
                })*
            }
        }
    };
}

pub(crate) use inherited;

inherited! {
    /// What one level says about inherited settings.
    LevelDraft {
        root: RootDraft,
        index: Vec<Template>,
        default_type: String,
        types: TypeMapId,
        keepalive_timeout: (Duration, Option<Duration>),
        keepalive_requests: u32,
        keepalive_time: Duration,
        keepalive_min_timeout: Duration,
        keepalive_disable: KeepaliveDisable,
        client_body_timeout: Duration,
        client_max_body_size: u64,
        client_body_buffer_size: usize,
        client_body_temp_path: PathBuf,
        client_body_in_file_only: BodyInFile,
        send_timeout: Duration,
        real_ip_from: Vec<Network>,
        real_ip_header: RealIpHeader,
        real_ip_recursive: bool,
        /// `None`: `off`, as in the next one.
        client_min_rate: Option<MinRate>,
        send_min_rate: Option<MinRate>,
        resolver: crate::model::Resolver,
        resolver_timeout: Duration,
        response_rate: Template,
        response_rate_after: Template,
        rates: Vec<RateLimitDraft>,
        rates_status: u16,
        rates_log_level: Level,
        rates_dry_run: bool,
        rates_retry_after: bool,
        places: Vec<PlaceLimitDraft>,
        places_status: u16,
        places_log_level: Level,
        places_dry_run: bool,
        access: Vec<AccessRule>,
        reset_timedout_connection: bool,
        lingering_close: LingeringClose,
        lingering_time: Duration,
        lingering_timeout: Duration,
        tcp_nodelay: bool,
        server_tokens: ServerTokens,
        chunked_transfer_encoding: bool,
        absolute_redirect: bool,
        port_in_redirect: bool,
        server_name_in_redirect: bool,
        recursive_error_pages: bool,
        error_pages: Vec<ErrorPage>,
        add_headers: Vec<AddHeader>,
        add_trailers: Vec<AddHeader>,
        early_hints: Vec<Template>,
        /// Empty: `off`.
        access_logs: Vec<AccessLogDraft>,
        error_log: Vec<ErrorLog>,
        open_log_file_cache: Option<LogFileCacheId>,
        log_not_found: bool,
        log_subrequest: bool,
        /// `None`: `off`.
        request_id_header: Option<String>,
        trace_context: TraceContext,
        kp_reason_header: bool,
        set_headers: Vec<SetHeader>,
        pass_headers: Vec<String>,
        hide_headers: Vec<String>,
        ignore_headers: Vec<String>,
        http_version: ProxyHttpVersion,
        connect_timeout: Duration,
        proxy_send_timeout: Duration,
        read_timeout: Duration,
        next_upstream: NextUpstream,
        next_upstream_tries: u32,
        next_upstream_timeout: Duration,
        try_timeout: Duration,
        /// `None`: `off`.
        retry_backoff: Option<RetryBackoff>,
        buffering: bool,
        buffer_size: usize,
        buffers: (usize, usize),
        busy_buffers_size: usize,
        max_temp_file_size: u64,
        temp_file_write_size: usize,
        proxy_temp_path: PathBuf,
        request_buffering: RequestBuffering,
        ignore_client_abort: bool,
        intercept_errors: bool,
        redirects: Vec<RedirectDraft>,
        /// Empty: `off`, as in the next two.
        cookie_domains: Vec<Replace>,
        cookie_paths: Vec<Replace>,
        cookie_flags: Vec<CookieFlags>,
        /// `None`: `off`.
        bind: Option<(Template, bool)>,
        socket_keepalive: bool,
        /// `None`: `off`.
        proxy_protocol: Option<ProxyProtocol>,
        method: Template,
        set_body: Template,
        pass_request_headers: bool,
        pass_request_body: bool,
        pass_trailers: bool,
        limit_rate: Template,
        upgrade: Vec<String>,
        upgrade_timeout: Duration,
        forwarding: Forwarding,
        tls_server_name: bool,
        tls_name: Template,
        tls_verify: bool,
        tls_verify_depth: u32,
        tls_trusted: PathBuf,
        tls_crl: PathBuf,
        tls_certificate: TlsFileDraft,
        tls_key: TlsFileDraft,
        /// `None`: `off`.
        tls_certificate_cache: Option<CertificateCache>,
        tls_passwords: PathBuf,
        tls_protocols: TlsProtocols,
        tls_ciphers: Vec<CipherSuite>,
        tls_commands: TlsCommands,
        tls_session_reuse: bool,
        tls_alpn: Vec<String>,
    }
}

/// `root` or `alias`.
#[derive(Debug, Clone)]
pub(crate) enum RootDraft {
    Root(Template),
    Alias {
        path: Template,
        prefix_len: Option<usize>,
    },
}

impl Reader<'_> {
    /// `root`.
    pub(crate) fn root(&mut self, directive: &Directive, slot: &mut Option<Spanned<RootDraft>>) {
        if self.refuse_second_root(directive, slot.as_ref()) {
            return;
        }
        self.put(directive, slot, |reader, word| {
            let path = word.text.strip_suffix('/').unwrap_or(&word.text);
            reader
                .served_path(directive, word, path)
                .map(RootDraft::Root)
        });
    }

    /// Whether `root` and `alias` meet on one level.
    pub(crate) fn refuse_second_root(
        &mut self,
        directive: &Directive,
        slot: Option<&Spanned<RootDraft>>,
    ) -> bool {
        let Some(first) = slot else { return false };
        let earlier = match first.value {
            RootDraft::Root(_) => "root",
            RootDraft::Alias { .. } => "alias",
        };
        let name = &directive.name.text;
        let message = format!(
            "\"{name}\" directive is duplicate, \"{earlier}\" directive was specified earlier"
        );
        self.refuse(directive.at, message, "keep one of the two");
        true
    }

    /// The path of `root` or `alias`: joined to the prefix unless it starts with a variable.
    pub(crate) fn served_path(
        &mut self,
        directive: &Directive,
        word: &Word,
        path: &str,
    ) -> Option<Template> {
        for name in ["document_root", "realpath_root"] {
            if word.text.contains(&format!("${name}"))
                || word.text.contains(&format!("${{{name}}}"))
            {
                let directive = &directive.name.text;
                let message =
                    format!("the ${name} variable cannot be used in the \"{directive}\" directive");
                self.error(word.span, message);
                return None;
            }
        }
        if path.starts_with('$') {
            return self.compile_text(path, word.span);
        }
        let full = self.under_prefix(path);
        self.compile_text(&full.to_string_lossy(), word.span)
    }

    /// `index`.
    pub(crate) fn templates(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<Template>>>,
    ) {
        for (position, word) in directive.args.iter().enumerate() {
            let name = &directive.name.text;
            if word.text.is_empty() {
                self.error(
                    word.span,
                    format!("index \"\" in \"{name}\" directive is invalid"),
                );
            } else if word.text.starts_with('/') && position + 1 < directive.args.len() {
                let hint = "an absolute file always matches, so those after it are never tried";
                self.warning(
                    word.span,
                    "only the last index in \"index\" directive should be absolute",
                    hint,
                );
            }
        }
        self.arguments(directive, slot);
    }

    /// `types`.
    pub(crate) fn types(
        &mut self,
        _: &Directive,
        inside: &[Directive],
        slot: &mut Option<Spanned<TypeMapId>>,
    ) {
        let mut types: Vec<(String, String)> =
            match slot.as_ref().and_then(|id| self.type_maps.get(id.index())) {
                Some(earlier) => earlier.types.clone(),
                None => Vec::new(),
            };
        let span = inside
            .first()
            .map(|entry| entry.name.span)
            .unwrap_or_default();
        for entry in inside {
            if entry.name.text == "include" {
                continue;
            }
            if let Some(block) = &entry.block {
                self.error(block.opened, "unexpected \"{\" in types");
                continue;
            }
            if entry.args.is_empty() {
                let message = format!("\"{}\" has no extension", entry.name.text);
                self.warning(
                    entry.name.span,
                    message,
                    "this line of \"types\" is ignored",
                );
            }
            for extension in &entry.args {
                self.add_type(&mut types, &entry.name, extension);
            }
        }
        types.sort();
        let id = self.add_types(types);
        *slot = Some(Spanned::new(id, span));
    }

    fn add_type(&mut self, types: &mut Vec<(String, String)>, media_type: &Word, extension: &Word) {
        let key = extension.text.to_ascii_lowercase();
        match types.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => {
                let message = format!(
                    "duplicate extension \"{key}\", content type: \"{}\", previous content type: \"{known}\"",
                    media_type.text
                );
                known.clone_from(&media_type.text);
                self.warning(extension.span, message, "the last one holds");
            }
            None => types.push((key, media_type.text.clone())),
        }
    }

    /// `keepalive_timeout` of http, server and location.
    pub(crate) fn keepalive_timeout(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<(Duration, Option<Duration>)>>,
    ) {
        let header = match directive.args.get(1) {
            Some(word) => match self.read_time(directive, word, Finest::Seconds) {
                Some(time) => Some(time),
                None => return,
            },
            None => None,
        };
        self.put(directive, slot, |reader, word| {
            reader
                .read_time(directive, word, Finest::Milliseconds)
                .map(|time| (time, header))
        });
    }

    /// `keepalive_disable`.
    pub(crate) fn keepalive_disable(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<KeepaliveDisable>>,
    ) {
        let mut disable = slot.take().map(|earlier| earlier.value).unwrap_or_default();
        for word in &directive.args {
            match self.choose(word, &[("none", 0), ("msie6", 1), ("safari", 2)]) {
                Some(1) => disable.msie6 = true,
                Some(2) => disable.safari = true,
                _ => {}
            }
        }
        self.put(directive, slot, |_, _| Some(disable));
    }

    /// `client_body_in_file_only`.
    pub(crate) fn body_in_file(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<BodyInFile>>,
    ) {
        let choices = [
            ("off", BodyInFile::Off),
            ("on", BodyInFile::On),
            ("clean", BodyInFile::Clean),
        ];
        self.choice(directive, slot, &choices);
    }

    /// `lingering_close`.
    pub(crate) fn lingering_close(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<LingeringClose>>,
    ) {
        let choices = [
            ("off", LingeringClose::Off),
            ("on", LingeringClose::On),
            ("always", LingeringClose::Always),
        ];
        self.choice(directive, slot, &choices);
    }

    /// `server_tokens`.
    pub(crate) fn server_tokens(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<ServerTokens>>,
    ) {
        self.put(directive, slot, |reader, word| {
            Some(match word.text.to_ascii_lowercase().as_str() {
                "on" => ServerTokens::On,
                "off" => ServerTokens::Off,
                "build" => ServerTokens::Build,
                _ => ServerTokens::Text(reader.compile(word)?),
            })
        });
    }

    /// `error_page`.
    pub(crate) fn error_page(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<ErrorPage>>>,
    ) {
        let Some((target_word, words)) = directive.args.split_last() else {
            return;
        };
        let (answer, codes) = match words.split_last() {
            Some((word, codes)) if word.text.starts_with('=') => {
                let Some(answer) = self.error_page_answer(word, codes.is_empty()) else {
                    return;
                };
                (answer, codes)
            }
            _ => (ErrorPageStatus::Keep, words),
        };
        let Some(target) = self.error_page_target(target_word) else {
            return;
        };
        for word in codes {
            let Some(status) = self.error_page_code(word) else {
                continue;
            };
            // The codes nginx made up for bad TLS requests are 400 to the client; 494 is kp's 431, which stays.
            let answer = match (answer, status) {
                (ErrorPageStatus::Keep, 495..=497) => ErrorPageStatus::Fixed(400),
                (answer, _) => answer,
            };
            Self::push(
                slot,
                ErrorPage {
                    status,
                    answer,
                    target: target.clone(),
                    span: target_word.span,
                },
                word.span,
            );
        }
    }

    fn error_page_answer(&mut self, word: &Word, no_codes: bool) -> Option<ErrorPageStatus> {
        let digits = word.text.get(1..).unwrap_or("");
        let status = value::number(digits).and_then(|status| u16::try_from(status).ok());
        match status {
            _ if no_codes => {}
            None if digits.is_empty() => return Some(ErrorPageStatus::FromTarget),
            // nginx takes 0 for "as the target answers" too.
            Some(0) => return Some(ErrorPageStatus::FromTarget),
            Some(status @ 100..=999) => return Some(ErrorPageStatus::Fixed(status)),
            _ => {}
        }
        self.report(
            Diagnostic::error(word.span, format!("invalid value \"{}\"", word.text))
                .hint("the form is `error_page 502 503 =200 /uri;` or `error_page 404 = @name;`"),
        );
        None
    }

    fn error_page_code(&mut self, word: &Word) -> Option<u16> {
        let text = &word.text;
        match value::number(text) {
            None | Some(499) => {
                self.error(word.span, format!("invalid value \"{text}\""));
                None
            }
            Some(status @ 300..=599) => u16::try_from(status).ok(),
            Some(_) => {
                self.refuse(
                    word.span,
                    format!("value \"{text}\" must be between 300 and 599"),
                    "a page stands for the answers with these statuses",
                );
                None
            }
        }
    }

    fn error_page_target(&mut self, word: &Word) -> Option<ErrorPageTarget> {
        let text = word.text.as_str();
        if text.starts_with('@') {
            return Some(ErrorPageTarget::Named(text.to_owned()));
        }
        let template = self.compile(word)?;
        // nginx takes whatever does not start with "/" for a URL to redirect to; one that starts with a variable is a
        // URI when the variable's value says so.
        if text.starts_with('/') || text.starts_with('$') && !text.starts_with("$scheme") {
            return Some(ErrorPageTarget::Uri(template));
        }
        Some(ErrorPageTarget::Url(template))
    }

    /// `add_header` and `add_trailer`.
    pub(crate) fn add_header(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<AddHeader>>>,
    ) {
        let [name, value, rest @ ..] = directive.args.as_slice() else {
            return;
        };
        let always = match rest.first() {
            Some(word) if word.text == "always" => true,
            Some(word) => {
                let error =
                    Diagnostic::error(word.span, format!("invalid parameter \"{}\"", word.text));
                self.report(error.hint(
                    "the third argument can be \"always\"; a value with blanks needs quotes",
                ));
                return;
            }
            None => false,
        };
        let named = self.check_field_name(name);
        let Some(value) = self.compile(value) else {
            return;
        };
        if named {
            Self::push(
                slot,
                AddHeader {
                    name: name.text.clone(),
                    value,
                    always,
                },
                name.span,
            );
        }
    }

    /// Whether a word is a field name (RFC 9110 §5.1).
    pub(crate) fn check_field_name(&mut self, word: &Word) -> bool {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let fine = !word.text.is_empty() && word.text.bytes().all(token);
        if !fine {
            let message = format!("invalid header name \"{}\"", word.text);
            self.refuse(word.span, message, "a name has letters, digits and \"-\"");
        }
        fine
    }
}
