//! http and its servers.

use super::location::Builder;
use super::{health, lint, listen, or, tls, upstream};
use crate::draft::{EarlyDraft, HttpDraft, Reader, ServerDraft, predefined_format};
use crate::model::{
    ClientVerification, Early, ErrorLog, Http, LocationId, LocationMatch, LocationTable, ServerId,
    ServerName, VirtualHost,
};
use crate::span::Spanned;
use std::path::PathBuf;
use std::time::Duration;

/// Resolves http; also returns the directories that must exist.
pub(super) fn resolve(
    mut draft: HttpDraft,
    error_log: &[ErrorLog],
    reader: &mut Reader<'_>,
) -> (Http, Vec<PathBuf>) {
    let mut log_formats = vec![predefined_format(&reader.names)];
    log_formats.append(&mut draft.log_formats);
    let upstreams = std::mem::take(&mut draft.upstreams);
    let upstreams = upstreams
        .into_iter()
        .map(|group| upstream::resolve(group, &draft.level, reader))
        .collect::<Vec<_>>();
    upstream::check_states(&upstreams, reader);
    let listeners = listen::resolve(&draft.servers, reader);
    let mut builder = Builder::new(reader, upstreams, log_formats, error_log);
    builder.matches = std::mem::take(&mut draft.matches);
    builder.check_default_redirect(&draft.level, None);
    let mut servers = Vec::new();
    let mut places = Vec::new();
    for (index, mut server) in draft.servers.into_iter().enumerate() {
        let id = ServerId(u32::try_from(index).unwrap_or(u32::MAX));
        places.push(tls::Place::of(&server, &draft.tls));
        let mut own = std::mem::take(&mut server.tls);
        own.inherit(&draft.tls);
        let mut host = virtual_host(server, id, &draft.level, &draft.early, &mut builder);
        let header_timeout = host.early.client_header_timeout;
        host.verification = tls::verification(&own);
        host.tls = tls::server(own, header_timeout, builder.reader);
        servers.push(host);
    }
    let (built, temp_paths) = builder.finish();
    let mut http = Http {
        listeners,
        servers,
        maps: draft.maps,
        splits: draft.splits,
        max_active_requests: draft
            .max_active_requests
            .map(|value| value.value)
            .filter(|max| *max > 0),
        metrics: or(draft.metrics, true),
        ticket_rotation: or(draft.ticket_rotation, Duration::from_secs(12 * 3600)),
        ..built
    };
    tls::check(&mut http, &places, reader);
    lint::check(&http, reader);
    health::lint(&http, reader);
    (http, temp_paths)
}

fn virtual_host(
    mut draft: ServerDraft,
    id: ServerId,
    level: &crate::draft::LevelDraft,
    early: &EarlyDraft,
    builder: &mut Builder<'_, '_>,
) -> VirtualHost {
    let mut names: Vec<ServerName> = draft.names.into_iter().map(|name| name.value).collect();
    if names.is_empty() {
        // As in nginx a server without a name is the one for requests without Host.
        names.push(ServerName::Exact(String::new()));
    }
    let children = std::mem::take(&mut draft.root.children);
    builder.check_default_redirect(&draft.root.level, None);
    draft
        .root
        .level
        .inherit_checked(level, "http", builder.reader);
    let above = draft.root.level.clone();
    let mut locations = LocationTable::default();
    let mut named = Vec::new();
    for child in children {
        let name = match &child.matches {
            LocationMatch::Named(name) => Some(name.clone()),
            _ => None,
        };
        let regex = matches!(child.matches, LocationMatch::Regex(_));
        let location: LocationId = builder.location(child, &above, id);
        match name {
            Some(name) => named.push((name, location)),
            None if regex => locations.regexes.push(location),
            None => locations.fixed.push(location),
        }
    }
    let root = builder.finish_location(draft.root, LocationTable::default(), None, id);
    VirtualHost {
        names,
        primary_name: draft.primary_name.unwrap_or_default(),
        root,
        locations,
        named,
        early: early_settings(&draft.early, early),
        tls: None,
        verification: ClientVerification::default(),
        span: draft.span,
    }
}

fn early_settings(own: &EarlyDraft, above: &EarlyDraft) -> Early {
    fn pick<T: Copy>(own: Option<&Spanned<T>>, above: Option<&Spanned<T>>, default: T) -> T {
        own.or(above).map_or(default, |value| value.value)
    }
    macro_rules! pick {
        ($field:ident, $default:expr) => {
            pick(own.$field.as_ref(), above.$field.as_ref(), $default)
        };
    }
    let (large_header_buffers, large_header_buffer_size) =
        pick!(large_client_header_buffers, (4, 8192));
    Early {
        client_header_timeout: pick!(client_header_timeout, Duration::from_secs(60)),
        client_header_buffer_size: pick!(client_header_buffer_size, 1024),
        large_header_buffers,
        large_header_buffer_size,
        max_headers: pick!(max_headers, 1000),
        underscores_in_headers: pick!(underscores_in_headers, false),
        ignore_invalid_headers: pick!(ignore_invalid_headers, true),
        merge_slashes: pick!(merge_slashes, true),
        accept_bare_lf: pick!(accept_bare_lf, false),
        limit_accept: pick!(limit_accept, None),
    }
}
