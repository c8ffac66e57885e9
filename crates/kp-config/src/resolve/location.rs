//! Locations: what a level says, what it inherits and what holds by default become one complete [`Location`].

use super::or;
use crate::diagnostic::Diagnostic;
use crate::draft::{AccessLogDraft, LevelDraft, LocationDraft, Reader, RewriteDraft, RootDraft};
use crate::model::{
    AccessLog, AccessLogTarget, BodyInFile, ErrorLog, Handler, Http, KeepaliveDisable, Lingering,
    LingeringClose, Location, LocationId, LocationMatch, LocationTable, LogFormat, LogFormatId,
    Marks, MatchBlock, Network, RealIp, RealIpHeader, Redirects, Rewrite, Root, ServerId,
    ServerTokens, TlsIdentity, TraceContext, TypeMapId, Upstream, UpstreamId,
};
use crate::span::{Span, Spanned};
use crate::suggest::nearest;
use crate::template::Template;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

/// `keepalive_disable` where nobody says it.
const KEEPALIVE_DISABLE: KeepaliveDisable = KeepaliveDisable {
    msie6: true,
    safari: false,
};

/// The tables that grow while locations are resolved.
pub(super) struct Builder<'a, 'e> {
    pub(super) reader: &'a mut Reader<'e>,
    pub(super) upstreams: Vec<Upstream>,
    /// The `upstream` blocks by name in lower case, the first of a name.
    pub(super) explicit: HashMap<String, UpstreamId>,
    /// The other groups by the address they were made for.
    pub(super) implicit: HashMap<String, UpstreamId>,
    pub(super) tls_identities: Vec<TlsIdentity>,
    pub(super) matches: Vec<MatchBlock>,
    locations: Vec<Location>,
    log_formats: Vec<LogFormat>,
    error_log: &'a [ErrorLog],
    temp_paths: Vec<PathBuf>,
}

impl<'a, 'e> Builder<'a, 'e> {
    pub(super) fn new(
        reader: &'a mut Reader<'e>,
        upstreams: Vec<Upstream>,
        log_formats: Vec<LogFormat>,
        error_log: &'a [ErrorLog],
    ) -> Self {
        let mut explicit = HashMap::new();
        for (number, group) in (0..).zip(&upstreams) {
            explicit
                .entry(group.name.to_ascii_lowercase())
                .or_insert(UpstreamId(number));
        }
        Self {
            reader,
            explicit,
            implicit: HashMap::new(),
            upstreams,
            tls_identities: Vec::new(),
            matches: Vec::new(),
            locations: Vec::new(),
            log_formats,
            error_log,
            temp_paths: Vec::new(),
        }
    }

    /// The tables, and the directories that must exist.
    pub(super) fn finish(self) -> (Http, Vec<PathBuf>) {
        let http = Http {
            locations: self.locations,
            upstreams: self.upstreams,
            log_formats: self.log_formats,
            tls_identities: self.tls_identities,
            matches: self.matches,
            ..Http::default()
        };
        (http, self.temp_paths)
    }

    /// Resolves a location and everything in it.
    pub(super) fn location(
        &mut self,
        mut draft: LocationDraft,
        above: &LevelDraft,
        server: ServerId,
    ) -> LocationId {
        self.check_default_redirect(&draft.level, draft.proxy_pass.as_ref());
        draft
            .level
            .inherit_checked(above, "the level above", self.reader);
        let level = draft.level.clone();
        let mut children = LocationTable::default();
        for child in std::mem::take(&mut draft.children) {
            let regex = matches!(child.matches, LocationMatch::Regex(_));
            let id = self.location(child, &level, server);
            if regex {
                children.regexes.push(id);
            } else {
                children.fixed.push(id);
            }
        }
        self.finish_location(draft, children, None, server)
    }

    /// Resolves a location whose level is already complete. An `if` answers as the location around it does, unless it
    /// has a `proxy_pass` of its own.
    pub(super) fn finish_location(
        &mut self,
        draft: LocationDraft,
        children: LocationTable,
        around: Option<&Handler>,
        server: ServerId,
    ) -> LocationId {
        let passed = draft
            .proxy_pass
            .as_ref()
            .and_then(|pass| self.proxy_pass(pass, &draft));
        let page = draft.page.as_ref().and_then(|page| self.page(page));
        let handler = match (passed, page, around) {
            (Some(pass), _, _) => Handler::Proxy(pass),
            (None, Some(page), _) => Handler::Page(page),
            (None, None, Some(around)) => around.clone(),
            (None, None, None) => Handler::Static,
        };
        if let Some(span) = draft.try_files.filter(|_| handler != Handler::Static) {
            self.reader.refuse(
                span,
                "\"try_files\" is supported only where files are served",
                "for an upstream in place of missing files: `error_page 403 404 405 = @name`, with the proxy_pass in that named location",
            );
        }
        let rewrite = self.rewrite(draft.rewrite, &draft.level, &handler, server);
        let pass_text = draft.proxy_pass.as_ref().map(|pass| pass.text.as_str());
        let proxy = self.proxy_settings(&draft.level, &draft.text, &handler, pass_text);
        let id = LocationId(u32::try_from(self.locations.len()).unwrap_or(u32::MAX));
        self.health_checks(
            &draft.health_checks,
            &handler,
            draft.proxy_pass.is_some(),
            id,
        );
        let admission = self.admission(&draft.level, draft.except);
        let mut location = self.settings(draft.level, handler, proxy, server);
        location.admission = admission;
        location.matches = draft.matches;
        location.children = children;
        location.rewrite = rewrite;
        location.internal = draft.internal;
        location.span = draft.span;
        for path in [&location.client_body_temp_path, &location.proxy.temp_path] {
            if !self.temp_paths.contains(path) {
                self.temp_paths.push(path.clone());
            }
        }
        self.locations.push(location);
        id
    }

    fn rewrite(
        &mut self,
        drafts: Vec<RewriteDraft>,
        level: &LevelDraft,
        handler: &Handler,
        server: ServerId,
    ) -> Vec<Rewrite> {
        let mut instructions = Vec::with_capacity(drafts.len());
        let mut answered: Option<Span> = None;
        for draft in drafts {
            let (instruction, span) = match draft {
                RewriteDraft::Done(instruction, span) => (instruction, span),
                RewriteDraft::If {
                    condition,
                    mut location,
                } => {
                    let span = location.span;
                    location
                        .level
                        .inherit_checked(level, "the level above", self.reader);
                    let location = self.finish_location(
                        *location,
                        LocationTable::default(),
                        Some(handler),
                        server,
                    );
                    (
                        Rewrite::If {
                            condition,
                            location,
                        },
                        span,
                    )
                }
            };
            if let Some(first) = answered {
                let hint = format!("the \"return\" on line {} has already answered", first.line);
                self.reader.warning(span, "this directive is ignored", hint);
            } else if let Rewrite::Return(_) = instruction {
                answered = Some(span);
            }
            instructions.push(instruction);
        }
        instructions
    }

    /// Everything but what the location is and does.
    fn settings(
        &mut self,
        mut level: LevelDraft,
        handler: Handler,
        proxy: crate::model::Proxy,
        server: ServerId,
    ) -> Location {
        let seconds = Duration::from_secs;
        let body_temp = self.reader.temporary("client_body_temp");
        let access_logs = self.access_logs(level.access_logs.take());
        let (lingering, redirects) = (lingering(&mut level), redirects(&mut level));
        let marks = marks(&mut level);
        let real_ip = real_ip(
            level.real_ip_from,
            level.real_ip_header,
            level.real_ip_recursive,
        );
        let keepalive = or(level.keepalive_timeout, (seconds(75), None));
        Location {
            server,
            matches: LocationMatch::If,
            children: LocationTable::default(),
            rewrite: Vec::new(),
            handler,
            internal: false,
            span: Span::default(),
            root: self.root(level.root),
            index: or(level.index, vec![Template::literal("index.html")]),
            default_type: or(level.default_type, "text/plain".to_owned()),
            types: or(level.types, TypeMapId(0)),
            keepalive_timeout: keepalive.0,
            keepalive_header: keepalive.1,
            keepalive_requests: or(level.keepalive_requests, 1000),
            keepalive_time: or(level.keepalive_time, seconds(3600)),
            keepalive_min_timeout: or(level.keepalive_min_timeout, seconds(10)),
            keepalive_disable: or(level.keepalive_disable, KEEPALIVE_DISABLE),
            client_body_timeout: or(level.client_body_timeout, seconds(60)),
            client_max_body_size: body_max(level.client_max_body_size),
            client_body_buffer_size: or(level.client_body_buffer_size, 16 << 10),
            client_body_temp_path: or(level.client_body_temp_path, body_temp),
            client_body_in_file_only: or(level.client_body_in_file_only, BodyInFile::Off),
            send_timeout: or(level.send_timeout, seconds(60)),
            real_ip,
            client_min_rate: or(level.client_min_rate, None),
            send_min_rate: or(level.send_min_rate, None),
            resolver: level.resolver.map(|value| value.value),
            resolver_timeout: or(level.resolver_timeout, seconds(30)),
            limit_rate: level.response_rate.map(|rate| rate.value),
            limit_rate_after: level.response_rate_after.map(|bytes| bytes.value),
            admission: None,
            reset_timedout_connection: or(level.reset_timedout_connection, false),
            lingering,
            tcp_nodelay: or(level.tcp_nodelay, true),
            server_tokens: or(level.server_tokens, ServerTokens::On),
            chunked_transfer_encoding: or(level.chunked_transfer_encoding, true),
            redirects,
            recursive_error_pages: or(level.recursive_error_pages, false),
            error_pages: or(level.error_pages, Vec::new()),
            add_headers: or(level.add_headers, Vec::new()),
            add_trailers: or(level.add_trailers, Vec::new()),
            early_hints: or(level.early_hints, Vec::new()),
            access_logs,
            error_log: self.error_log(level.error_log),
            open_log_file_cache: or(level.open_log_file_cache, None),
            log_not_found: or(level.log_not_found, true),
            log_subrequest: or(level.log_subrequest, false),
            marks,
            proxy,
        }
    }

    fn error_log(&self, stated: Option<Spanned<Vec<ErrorLog>>>) -> Vec<ErrorLog> {
        stated.map_or_else(|| self.error_log.to_vec(), |stated| stated.value)
    }

    fn root(&self, root: Option<Spanned<RootDraft>>) -> Root {
        match root.map(|root| root.value) {
            Some(RootDraft::Root(path)) => Root::Root(path),
            Some(RootDraft::Alias { path, prefix_len }) => Root::Alias { path, prefix_len },
            None => Root::Root(Template::literal(
                self.reader.under_prefix("html").to_string_lossy(),
            )),
        }
    }

    fn access_logs(&mut self, logs: Option<Spanned<Vec<AccessLogDraft>>>) -> Vec<AccessLog> {
        let Some(logs) = logs else {
            let path = self
                .reader
                .environment
                .access_log
                .to_string_lossy()
                .into_owned();
            let target = AccessLogTarget::File(self.reader.log_file(&path, None));
            return vec![AccessLog {
                target,
                format: LogFormatId(0),
                condition: None,
            }];
        };
        let mut resolved = Vec::with_capacity(logs.value.len());
        for log in logs.value {
            let Some(format) = self.log_format(log.format.as_ref()) else {
                continue;
            };
            resolved.push(AccessLog {
                target: log.target,
                format,
                condition: log.condition,
            });
        }
        resolved
    }

    fn log_format(&mut self, name: Option<&Spanned<String>>) -> Option<LogFormatId> {
        let Some(name) = name else {
            return Some(LogFormatId(0));
        };
        if let Some(index) = self
            .log_formats
            .iter()
            .position(|format| format.name.eq_ignore_ascii_case(&name.value))
        {
            return u32::try_from(index).ok().map(LogFormatId);
        }
        let error = Diagnostic::error(name.span, format!("unknown log format \"{}\"", name.value));
        let near = nearest(
            &name.value,
            self.log_formats.iter().map(|format| format.name.as_str()),
        );
        let hint = match near {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => "a format is defined with \"log_format\" in http".to_owned(),
        };
        self.reader.report(error.hint(hint));
        None
    }
}

impl LevelDraft {
    /// Inherits, with a warning where a level's own `proxy_set_header` makes it lose inherited ones.
    pub(super) fn inherit_checked(&mut self, above: &Self, whence: &str, reader: &mut Reader<'_>) {
        if let (Some(own), Some(inherited)) = (&self.set_headers, &above.set_headers) {
            let names: Vec<&str> = inherited
                .value
                .iter()
                .map(|field| field.name.as_str())
                .filter(|name| {
                    !own.value
                        .iter()
                        .any(|field| field.name.eq_ignore_ascii_case(name))
                })
                .collect();
            if !names.is_empty() {
                let message = format!(
                    "\"proxy_set_header\" here drops the inherited {}",
                    names
                        .iter()
                        .map(|name| format!("\"{name}\""))
                        .collect::<Vec<_>>()
                        .join(", ")
                );
                let hint = format!(
                    "a level with its own \"proxy_set_header\" takes none from {whence}; repeat them here"
                );
                reader.warning(own.span, message, hint);
            }
        }
        self.inherit(above);
    }
}

fn lingering(level: &mut LevelDraft) -> Lingering {
    Lingering {
        close: or(level.lingering_close.take(), LingeringClose::On),
        time: or(level.lingering_time.take(), Duration::from_secs(30)),
        timeout: or(level.lingering_timeout.take(), Duration::from_secs(5)),
    }
}

fn redirects(level: &mut LevelDraft) -> Redirects {
    Redirects {
        absolute: or(level.absolute_redirect.take(), true),
        port: or(level.port_in_redirect.take(), true),
        server_name: or(level.server_name_in_redirect.take(), false),
    }
}

/// `client_max_body_size`; 0: any size.
fn body_max(stated: Option<Spanned<u64>>) -> Option<u64> {
    Some(or(stated, 1 << 20)).filter(|size| *size > 0)
}

fn marks(level: &mut LevelDraft) -> Marks {
    let id_header = level.request_id_header.take();
    Marks {
        request_id_header: or(id_header, Some(Marks::REQUEST_ID_HEADER.to_owned())),
        trace_context: or(level.trace_context.take(), TraceContext::Propagate),
        reason_header: or(level.kp_reason_header.take(), false),
    }
}

fn real_ip(
    from: Option<Spanned<Vec<Network>>>,
    header: Option<Spanned<RealIpHeader>>,
    recursive: Option<Spanned<bool>>,
) -> Option<RealIp> {
    Some(RealIp {
        trusted: from?.value,
        header: header.map_or_else(RealIpHeader::default, |header| header.value),
        recursive: or(recursive, false),
    })
}
