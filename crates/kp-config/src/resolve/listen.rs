//! Listeners: one per distinct address, whoever names it; and the names served there.

use crate::diagnostic::Diagnostic;
use crate::draft::{ListenDraft, Reader, ServerDraft};
use crate::model::{ListenAddress, ListenOptions, Listener, ServerId, ServerName};
use crate::span::Span;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

/// One address while it is put together.
struct Gathered {
    listener: Listener,
    default_server: Option<Span>,
    options: Option<Span>,
    protocols: Protocols,
}

/// What the `listen`s of an address said so far about `ssl` and `proxy_protocol`, for nginx's warning where they differ.
#[derive(Default)]
struct Protocols {
    /// What the last one came to, once there were two.
    last: Option<Spoken>,
    /// Whether one differed from those before it.
    changed: bool,
}

/// What connections begin with.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Spoken {
    tls: bool,
    proxy_protocol: bool,
}

impl Spoken {
    fn new(tls: bool, proxy_protocol: bool) -> Self {
        Self {
            tls,
            proxy_protocol,
        }
    }

    fn has_all_of(self, other: Self) -> bool {
        (self.tls || !other.tls) && (self.proxy_protocol || !other.proxy_protocol)
    }
}

/// Merges every `listen` of every server.
pub(super) fn resolve(servers: &[ServerDraft], reader: &mut Reader<'_>) -> Vec<Listener> {
    let mut gathered: Vec<Gathered> = Vec::new();
    let mut index: HashMap<ListenAddress, usize> = HashMap::new();
    for (number, server) in servers.iter().enumerate() {
        let id = ServerId(u32::try_from(number).unwrap_or(u32::MAX));
        let implied = server
            .listens
            .is_empty()
            .then(|| implied_listen(server, reader));
        for listen in server.listens.iter().chain(&implied) {
            for address in &listen.addresses {
                let at = *index.entry(address.clone()).or_insert(gathered.len());
                if at == gathered.len() {
                    gathered.push(Gathered::new(address, listen, id));
                }
                if let Some(known) = gathered.get_mut(at) {
                    known.join(listen, id, reader);
                }
            }
        }
    }
    for known in &gathered {
        check_names(&known.listener, servers, reader);
    }
    gathered.into_iter().map(|known| known.listener).collect()
}

/// nginx's port for a server without `listen`.
fn implied_listen(server: &ServerDraft, reader: &Reader<'_>) -> ListenDraft {
    let port = if reader.environment.root { 80 } else { 8000 };
    ListenDraft {
        addresses: vec![ListenAddress::Inet(SocketAddr::from((
            Ipv4Addr::UNSPECIFIED,
            port,
        )))],
        options: ListenOptions::default(),
        has_options: false,
        default_server: false,
        tls: false,
        proxy_protocol: false,
        span: server.span,
    }
}

impl Gathered {
    fn new(address: &ListenAddress, listen: &ListenDraft, id: ServerId) -> Self {
        let listener = Listener {
            address: address.clone(),
            options: ListenOptions::default(),
            tls: listen.tls,
            proxy_protocol: listen.proxy_protocol,
            servers: Vec::new(),
            default_server: id,
            span: listen.span,
        };
        Self {
            listener,
            default_server: None,
            options: None,
            protocols: Protocols::default(),
        }
    }

    fn join(&mut self, listen: &ListenDraft, id: ServerId, reader: &mut Reader<'_>) {
        let name = text(&self.listener.address);
        // Servers come in order, so a repetition is always the last one.
        if self.listener.servers.last() == Some(&id) {
            let error = Diagnostic::error(listen.span, format!("a duplicate listen {name}"));
            reader.report(error.hint("this server already listens there"));
            return;
        }
        let first = self.listener.servers.is_empty();
        self.listener.servers.push(id);
        if !first {
            self.join_protocols(listen, reader);
        }
        if listen.has_options {
            match self.options {
                Some(first) => {
                    let error = Diagnostic::error(
                        listen.span,
                        format!("duplicate listen options for {name}"),
                    );
                    reader.report(error.hint(format!(
                        "the socket is shared; its options are already given on line {}",
                        first.line
                    )));
                }
                None => {
                    self.options = Some(listen.span);
                    self.listener.options = listen.options.clone();
                }
            }
        }
        if listen.default_server {
            match self.default_server {
                Some(first) => {
                    let error = Diagnostic::error(
                        listen.span,
                        format!("a duplicate default server for {name}"),
                    );
                    reader.report(error.hint(format!("the first one is on line {}", first.line)));
                }
                None => {
                    self.default_server = Some(listen.span);
                    self.listener.default_server = id;
                }
            }
        }
    }

    /// `ssl` and `proxy_protocol` of any `listen` hold for the address. That some say it and some do not is told by nginx's
    /// rules: not for a second one without, since many write it once.
    fn join_protocols(&mut self, listen: &ListenDraft, reader: &mut Reader<'_>) {
        let before = Spoken::new(self.listener.tls, self.listener.proxy_protocol);
        let now = Spoken::new(listen.tls, listen.proxy_protocol);
        let protocols = &mut self.protocols;
        let differs_from_last = protocols.last.is_some_and(|last| last != now);
        let (told, last) = if !before.has_all_of(now) {
            let told = (self.options.is_some() && !listen.has_options)
                || protocols.changed
                || !now.has_all_of(before);
            (told, before)
        } else if !now.has_all_of(before) {
            (listen.has_options || differs_from_last, now)
        } else {
            let told = (listen.has_options && protocols.changed) || differs_from_last;
            (told, now)
        };
        protocols.changed |= before != now;
        protocols.last = Some(last);
        self.listener.tls |= listen.tls;
        self.listener.proxy_protocol |= listen.proxy_protocol;
        if told {
            let name = text(&self.listener.address);
            reader.warning(
                listen.span,
                format!("protocol options redefined for {name}"),
                "\"ssl\" and \"proxy_protocol\" of one \"listen\" hold for all of the same address; write them at each",
            );
        }
    }
}

/// A name that two servers have at one address: the first one gets it.
fn check_names(listener: &Listener, servers: &[ServerDraft], reader: &mut Reader<'_>) {
    let mut seen: HashMap<String, (ServerId, Span)> = HashMap::new();
    for id in &listener.servers {
        let Some(server) = servers.get(id.index()) else {
            continue;
        };
        let names = server
            .names
            .iter()
            .filter_map(|name| Some((key(&name.value)?, name.span)));
        let nameless = server
            .names
            .is_empty()
            .then(|| (String::new(), server.span));
        for (name, span) in names.chain(nameless) {
            if let Some((owner, first)) = seen.get(&name) {
                if owner == id {
                    continue;
                }
                let message = format!(
                    "conflicting server name \"{name}\" on {}, ignored",
                    text(&listener.address)
                );
                reader.warning(
                    span,
                    message,
                    format!("the server on line {} has it", first.line),
                );
            } else {
                seen.insert(name, (*id, span));
            }
        }
    }
}

fn key(name: &ServerName) -> Option<String> {
    match name {
        ServerName::Exact(name) => Some(name.clone()),
        ServerName::Suffix(name) => Some(format!("*.{name}")),
        ServerName::DotSuffix(name) => Some(format!(".{name}")),
        ServerName::Prefix(name) => Some(format!("{name}.*")),
        ServerName::Regex(_) => None,
    }
}

/// An address as nginx prints it.
pub(super) fn text(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Inet(address) => address.to_string(),
        ListenAddress::Unix(path) => format!("unix:{}", path.display()),
    }
}
