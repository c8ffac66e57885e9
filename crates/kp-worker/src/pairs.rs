//! Certificates whose names hold variables: found among those that were used lately, else read by a job thread while the
//! handshake waits. The loop itself never reads a file.

use crate::client::Client;
use crate::jobs::{Job, Purpose};
use crate::reactor::Worker;
use crate::secure::Partner;
use crate::token::Key;
use kp_config::model::{ServerId, TlsFile, TlsIdentityId};
use kp_proxy::tls::{TlsSource, tls_source};
use kp_proxy::{Exchange, TlsFacts};
use kp_tls::{Pair, PairCache, PairName, Source};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

/// What was used lately, by virtual host and by identity; nothing is kept where no cache is configured.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    servers: Vec<(ServerId, PairCache)>,
    identities: Vec<(TlsIdentityId, PairCache)>,
}

/// What a handshake needs.
pub(crate) enum Needed {
    /// These, beside those of files.
    Here(Vec<Pair>),
    /// A job thread reads them.
    Awaited,
    /// The variables gave nothing.
    Nameless,
}

/// Pairs that were read, or why they could not be.
pub(crate) type Loaded = Vec<(PairName, Result<Pair, String>)>;

impl Worker {
    /// The pairs that variables of a virtual host name, for a client that is in its handshake.
    pub(crate) fn client_pairs(&mut self, key: Key, facts: &TlsFacts) -> Needed {
        let Some(server) = self.tls.server(facts.server) else {
            return Needed::Nameless;
        };
        if !server.loads_pairs() {
            return Needed::Here(Vec::new());
        }
        let Some(names) = self.client_pair_names(key, facts) else {
            return Needed::Nameless;
        };
        let now_unix_s = self.clock.unix_ms / 1000;
        if let Some(cache) = self.server_cache(facts.server)
            && let Some(found) = names
                .iter()
                .map(|name| cache.find(name, now_unix_s))
                .collect()
        {
            return Needed::Here(found);
        }
        let passwords = self
            .tls
            .server(facts.server)
            .map(|server| server.passwords().to_vec())
            .unwrap_or_default();
        let job = Job::Pairs { names, passwords };
        self.jobs.submit(key, Purpose::ClientPairs, job);
        Needed::Awaited
    }

    fn client_pair_names(&self, key: Key, facts: &TlsFacts) -> Option<Vec<PairName>> {
        let tls = self.config.http.servers[facts.server.index()]
            .tls
            .as_ref()?;
        let mut exchange = Exchange::default();
        if let Some(client) = self.clients.peek(key) {
            self.note_connection(&mut exchange, client, Some(Rc::new(facts.clone())));
        }
        let known = self.facts(key);
        let context = self.context(&known);
        let mut source = |file: &TlsFile| {
            tls_source(file, &mut exchange, self.program, &context).map(|source| match source {
                TlsSource::File(path) => Source::Path(path),
                TlsSource::Text(text) => Source::Text(text),
            })
        };
        tls.certificates
            .iter()
            .filter(|pair| pair.has_variables())
            .map(|pair| {
                Some(PairName {
                    certificate: source(&pair.certificate.value)?,
                    key: source(&pair.key.value)?,
                })
            })
            .collect()
    }

    /// What an exchange knows of its client connection.
    pub(crate) fn note_connection(
        &self,
        exchange: &mut Exchange,
        client: &Client,
        tls: Option<Rc<TlsFacts>>,
    ) {
        let connection = &mut exchange.connection;
        connection.serial = client.serial;
        connection.requests = client.requests;
        connection.accepted_ms = client.accepted_ms;
        connection.connected_from(client.remote.address());
        connection.proxied.clone_from(&client.proxied);
        connection.listener = self.listeners[usize::from(client.listener)].id;
        connection.tls = tls;
    }

    /// The pair that variables name for an upstream, if they name one.
    pub(crate) fn upstream_pair(&mut self, key: Key, partner: &Partner) -> Needed {
        let Some(identity) = self
            .config
            .http
            .tls_identities
            .get(partner.identity.index())
        else {
            return Needed::Nameless;
        };
        let named = identity.certificate.as_ref();
        let Some(files) = named.filter(|pair| pair.has_variables()) else {
            return Needed::Here(Vec::new());
        };
        let sources = source_of(&files.certificate.value, &partner.tls.certificate)
            .zip(source_of(&files.key.value, &partner.tls.key));
        let name = sources.map(|(certificate, key)| PairName { certificate, key });
        // An empty value is no certificate, as nginx has it.
        let Some(name) = name else {
            return Needed::Here(Vec::new());
        };
        let now_unix_s = self.clock.unix_ms / 1000;
        if let Some(cache) = self.identity_cache(partner.identity)
            && let Some(pair) = cache.find(&name, now_unix_s)
        {
            return Needed::Here(vec![pair]);
        }
        let passwords = self
            .tls
            .upstream(partner.identity)
            .map(|upstream| upstream.passwords().to_vec())
            .unwrap_or_default();
        let job = Job::Pairs {
            names: vec![name],
            passwords,
        };
        self.jobs.submit(key, Purpose::UpstreamPair, job);
        Needed::Awaited
    }

    /// Keeps what was read for a virtual host; returns it, or why something of it could not be read.
    pub(crate) fn keep_client_pairs(
        &mut self,
        server: ServerId,
        loaded: Loaded,
    ) -> Result<Vec<Pair>, String> {
        let now_unix_s = self.clock.unix_ms / 1000;
        keep(loaded, self.server_cache(server), now_unix_s)
    }

    /// The same for an upstream.
    pub(crate) fn keep_upstream_pair(
        &mut self,
        identity: TlsIdentityId,
        loaded: Loaded,
    ) -> Result<Vec<Pair>, String> {
        let now_unix_s = self.clock.unix_ms / 1000;
        keep(loaded, self.identity_cache(identity), now_unix_s)
    }

    fn server_cache(&mut self, id: ServerId) -> Option<&mut PairCache> {
        let tls = self.config.http.servers[id.index()].tls.as_ref()?;
        let bounds = tls.certificate_cache?;
        Some(cache(&mut self.pairs.servers, id, || {
            PairCache::new(bounds)
        }))
    }

    fn identity_cache(&mut self, id: TlsIdentityId) -> Option<&mut PairCache> {
        let bounds = self
            .config
            .http
            .tls_identities
            .get(id.index())?
            .certificate_cache?;
        Some(cache(&mut self.pairs.identities, id, || {
            PairCache::new(bounds)
        }))
    }
}

/// The entry of a short list, made when it is first asked for.
fn cache<I: PartialEq>(
    list: &mut Vec<(I, PairCache)>,
    id: I,
    new: impl FnOnce() -> PairCache,
) -> &mut PairCache {
    let at = list.iter().position(|(known, _)| *known == id);
    let at = at.unwrap_or_else(|| {
        list.push((id, new()));
        list.len() - 1
    });
    &mut list[at].1
}

fn keep(
    loaded: Loaded,
    mut cache: Option<&mut PairCache>,
    now_unix_s: u64,
) -> Result<Vec<Pair>, String> {
    let mut pairs = Vec::with_capacity(loaded.len());
    for (name, result) in loaded {
        let pair = result?;
        if let Some(cache) = cache.as_deref_mut() {
            cache.insert(name, pair.clone(), now_unix_s);
        }
        pairs.push(pair);
    }
    Ok(pairs)
}

/// A certificate or key of an upstream, whose variables were evaluated with the request's.
fn source_of(file: &TlsFile, value: &[u8]) -> Option<Source> {
    match file {
        TlsFile::Path(path) => Some(Source::Path(path.clone())),
        _ if value.is_empty() => None,
        TlsFile::Template { .. } => Some(Source::Path(OsStr::from_bytes(value).into())),
        TlsFile::Data(_) => Some(Source::Text(value.to_vec())),
    }
}
