//! From the configuration to everything a handshake needs: reads certificates, keys, lists and staples, once, with the
//! rights of whoever calls. What is wrong is told at the directive, in nginx's words.

use crate::clock::Clock;
use crate::ends::{End, Role, first_end, next_update};
use crate::pair::{Pair, PairError};
use crate::pem;
use crate::server::{self, Parts, Server};
use crate::tickets::{self, Binding, KeySource, Tickets};
use crate::trust::Trust;
use crate::upstream::Upstream;
use aws_lc_rs::digest;
use kp_config::model::{
    Config, SYSTEM_TRUST, ServerId, TlsCertificate, TlsFile, TlsIdentity, TlsIdentityId, TlsServer,
    VirtualHost,
};
use kp_config::{Diagnostic, Span, Spanned};
use kp_shm::{TicketKey, TicketReader};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reads a whole file.
pub type ReadFile<'a> = dyn FnMut(&Path) -> io::Result<Vec<u8>> + 'a;

/// Everything TLS of a configuration, loaded.
#[derive(Debug)]
pub struct Tls {
    servers: Vec<Option<Server>>,
    upstreams: Vec<Option<Upstream>>,
    /// Certificates of files: whose, the place among its pairs, the file.
    files: Vec<(ServerId, usize, PathBuf)>,
    /// What is shown to upstreams, each file once.
    shown: Vec<(PathBuf, Pair)>,
    /// When other files are over, each once for what it is there for.
    ends: Vec<End>,
    clock: Clock,
}

/// When a certificate is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiry {
    /// Its file.
    pub certificate: PathBuf,
    /// Seconds since 1970.
    pub expires_unix_secs: u64,
    /// What to warn of, if it is time to.
    pub warning: Option<String>,
}

impl Tls {
    /// Reads and checks what the configuration names; warnings come with it. Without `ring` (a test of the configuration)
    /// no tickets are given out.
    ///
    /// # Errors
    ///
    /// Everything that is wrong.
    pub fn load(
        config: &Config,
        read: &mut ReadFile<'_>,
        ring: Option<TicketReader>,
        now_unix_secs: u64,
    ) -> Result<(Self, Vec<Diagnostic>), Vec<Diagnostic>> {
        let mut loader = Loader {
            read,
            ring,
            clock: Clock::at(now_unix_secs),
            pairs: HashMap::new(),
            trusts: HashMap::new(),
            passwords: HashMap::new(),
            shown: BTreeMap::new(),
            certificate_ends: HashMap::new(),
            list_ends: HashMap::new(),
            ends: BTreeSet::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
        };
        let servers = config.http.servers.iter();
        let servers = servers.map(|host| loader.host(host)).collect();
        let upstreams = config.http.tls_identities.iter();
        let upstreams = upstreams
            .map(|identity| loader.upstream(identity))
            .collect();
        if !loader.errors.is_empty() {
            return Err(loader.errors);
        }
        let tls = Self {
            servers,
            upstreams,
            files: certificate_files(config),
            shown: loader.shown.into_iter().collect(),
            ends: loader.ends.into_iter().collect(),
            clock: loader.clock,
        };
        Ok((tls, loader.warnings))
    }

    /// The virtual host's side; `None` where it has no TLS of its own.
    pub fn server(&self, id: ServerId) -> Option<&Server> {
        self.servers.get(id.index())?.as_ref()
    }

    /// The side towards upstreams.
    pub fn upstream(&self, id: TlsIdentityId) -> Option<&Upstream> {
        self.upstreams.get(id.index())?.as_ref()
    }

    /// When the certificates in use are over, each file once, the first to end in front.
    pub fn expiries(&self, now_unix_secs: u64) -> Vec<Expiry> {
        let expiry = |path: &PathBuf, pair: &Pair| Expiry {
            certificate: path.clone(),
            expires_unix_secs: pair.expires_unix_secs,
            warning: expiry_warning(pair, path, now_unix_secs),
        };
        let of_server = |(server, index, path): &(ServerId, usize, PathBuf)| {
            let pairs = self.server(*server)?.pairs();
            Some(expiry(path, pairs.get(*index)?))
        };
        let mut found: Vec<Expiry> = self.files.iter().filter_map(of_server).collect();
        let upstreams = self.shown.iter().filter(|(path, _)| {
            let mut known = self.files.iter();
            !known.any(|(_, _, known)| known == path)
        });
        found.extend(upstreams.map(|(path, pair)| expiry(path, pair)));
        found.sort_by_key(|one| one.expires_unix_secs);
        found
    }

    /// When what is in use is over, each file once for what it is there for, by name.
    pub fn ends(&self) -> Vec<End> {
        let of_server = |(server, index, path): &(ServerId, usize, PathBuf)| {
            let pairs = self.server(*server)?.pairs();
            let end = pairs.get(*index)?.expires_unix_secs;
            Some(End::new(path, Role::Server, end))
        };
        let mut ends: Vec<End> = self.files.iter().filter_map(of_server).collect();
        let upstreams = self.shown.iter();
        ends.extend(
            upstreams.map(|(path, pair)| End::new(path, Role::Client, pair.expires_unix_secs)),
        );
        ends.extend_from_slice(&self.ends);
        ends.sort_unstable();
        ends.dedup_by(|later, earlier| (&later.file, later.role) == (&earlier.file, earlier.role));
        ends
    }

    /// The clock of everything here: to be set once a turn of the loop.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

fn certificate_files(config: &Config) -> Vec<(ServerId, usize, PathBuf)> {
    let mut seen = HashSet::new();
    let mut files = Vec::new();
    for (host, id) in config.http.servers.iter().zip(0..) {
        let pairs = host.tls.iter().flat_map(pair_files);
        for (index, pair) in pairs.enumerate() {
            if seen.insert(pair.certificate.clone()) {
                files.push((ServerId(id), index, pair.certificate));
            }
        }
    }
    files
}

/// Certificates are told to end when fewer days than this are left.
const WARN_DAYS: u64 = 14;

struct Loader<'a, 'r> {
    read: &'a mut ReadFile<'r>,
    ring: Option<TicketReader>,
    clock: Clock,
    /// What many hosts share is loaded once.
    pairs: HashMap<PairFiles, Option<Pair>>,
    trusts: HashMap<TrustFiles, Arc<Trust>>,
    /// Read once: it may be a pipe.
    passwords: HashMap<PathBuf, Option<Vec<Vec<u8>>>>,
    /// What is shown to upstreams.
    shown: BTreeMap<PathBuf, Pair>,
    /// When files are over that were read: the first of their certificates, the first of their lists.
    certificate_ends: HashMap<PathBuf, u64>,
    list_ends: HashMap<PathBuf, u64>,
    /// When what is in use is over.
    ends: BTreeSet<End>,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
}

/// What a pair is made of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PairFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) passwords: Option<PathBuf>,
    pub(crate) staple: Option<PathBuf>,
}

impl PairFiles {
    /// `None` where variables name the certificate or the key.
    fn of(
        named: &TlsCertificate,
        passwords: Option<&Named>,
        staple: Option<&Named>,
    ) -> Option<Self> {
        let (TlsFile::Path(certificate), TlsFile::Path(key)) =
            (&named.certificate.value, &named.key.value)
        else {
            return None;
        };
        Some(Self {
            certificate: certificate.clone(),
            key: key.clone(),
            passwords: passwords.map(|path| path.value.clone()),
            staple: staple.map(|path| path.value.clone()),
        })
    }
}

/// The files of a virtual host's pairs, in order; those with variables are left out.
pub(crate) fn pair_files(settings: &TlsServer) -> impl Iterator<Item = PairFiles> {
    let (passwords, staple) = (settings.passwords.as_ref(), settings.stapling_file.as_ref());
    let certificates = settings.certificates.iter();
    certificates.filter_map(move |one| PairFiles::of(one, passwords, staple))
}

/// What trust is made of.
#[derive(PartialEq, Eq, Hash)]
struct TrustFiles {
    depth: u32,
    trusted: Vec<PathBuf>,
    list: Option<PathBuf>,
}

type Named = Spanned<PathBuf>;

impl Loader<'_, '_> {
    fn host(&mut self, host: &VirtualHost) -> Option<Server> {
        let settings = host.tls.as_ref()?;
        let (passwords, staple) = (settings.passwords.as_ref(), settings.stapling_file.as_ref());
        let pairs = settings.certificates.iter();
        let pairs = pairs
            .filter_map(|one| self.pair(one, passwords, staple))
            .collect();
        let verification = &settings.verification;
        let files = [&verification.ca, &verification.trusted];
        let files: Vec<_> = files.into_iter().flatten().collect();
        // What is named is checked, used or not, as nginx does.
        let trust = self.trust(verification.depth, &files, verification.crl.as_ref());
        let trust = server::asks(verification.mode).then_some(trust);
        // The end of what is not used hurts nobody.
        if trust.is_some() {
            self.note(Role::ClientAuthorities, verification.ca.as_ref());
            self.note(Role::TrustedAuthorities, verification.trusted.as_ref());
            self.note(Role::ClientList, verification.crl.as_ref());
        }
        let tickets = self.tickets(host, settings);
        let told = match &verification.ca {
            Some(ca) => self.trust(verification.depth, &[ca], None).names(),
            None => Vec::new(),
        };
        let loads_pairs = settings
            .certificates
            .iter()
            .any(TlsCertificate::has_variables);
        let passwords = self.passwords(passwords.filter(|_| loads_pairs));
        let parts = Parts {
            pairs,
            passwords: passwords.unwrap_or_default(),
            loads_pairs,
            trust,
            told,
            tickets,
        };
        let made = Server::new(settings, parts, &self.clock);
        self.kept(made, host.span)
    }

    fn upstream(&mut self, identity: &TlsIdentity) -> Option<Upstream> {
        let pair = match &identity.certificate {
            Some(one) => self.pair(one, identity.passwords.as_ref(), None),
            None => None,
        };
        let trust = identity.verify.then(|| match &identity.trusted {
            Some(path) => self.trust(identity.verify_depth, &[path], identity.crl.as_ref()),
            None => self.system_trust(identity),
        });
        if trust.is_some() {
            self.note(Role::UpstreamAuthorities, identity.trusted.as_ref());
            self.note(Role::UpstreamList, identity.crl.as_ref());
        }
        if let (Some(pair), Some(named)) = (&pair, &identity.certificate)
            && let TlsFile::Path(path) = &named.certificate.value
        {
            self.shown.insert(path.clone(), pair.clone());
        }
        let dynamic = pair.is_none() && identity.certificate.is_some();
        let passwords = self.passwords(identity.passwords.as_ref().filter(|_| dynamic));
        let passwords = passwords.unwrap_or_default();
        let made = Upstream::new(identity, pair, passwords, trust, &self.clock);
        self.kept(made, identity.span)
    }

    /// Notes when a file is over that was read for this.
    fn note(&mut self, role: Role, file: Option<&Named>) {
        let Some(file) = file else { return };
        let known = match role.is_list() {
            true => &self.list_ends,
            false => &self.certificate_ends,
        };
        if let Some(end) = known.get(&file.value) {
            self.ends.insert(End::new(&file.value, role, *end));
        }
    }

    fn kept<T>(&mut self, made: Result<T, rustls::Error>, span: Span) -> Option<T> {
        made.map_err(|error| self.error(span, error.to_string()))
            .ok()
    }

    fn error(&mut self, span: Span, message: String) {
        self.errors.push(Diagnostic::error(span, message));
    }

    /// A pair of files; `None` where variables name them, or something is wrong.
    fn pair(
        &mut self,
        named: &TlsCertificate,
        passwords: Option<&Named>,
        staple: Option<&Named>,
    ) -> Option<Pair> {
        let files = PairFiles::of(named, passwords, staple)?;
        if let Some(known) = self.pairs.get(&files) {
            return known.clone();
        }
        let pair = self.fresh_pair(named, &files, passwords, staple);
        if let Some(pair) = &pair
            && let Some(message) =
                expiry_warning(pair, &files.certificate, self.clock.unix_seconds())
        {
            let at = named.certificate.span;
            self.warnings.push(Diagnostic::warning(at, message));
        }
        self.pairs.insert(files, pair.clone());
        pair
    }

    fn fresh_pair(
        &mut self,
        named: &TlsCertificate,
        files: &PairFiles,
        passwords: Option<&Named>,
        staple: Option<&Named>,
    ) -> Option<Pair> {
        let (at, key_at) = (named.certificate.span, named.key.span);
        let certificate = self.read(&files.certificate, at, "cannot load certificate");
        let key = self.read(&files.key, key_at, "cannot load certificate key");
        let passwords = self.passwords(passwords)?;
        let staple = match staple {
            Some(path) => Some(self.read(&path.value, path.span, "cannot load OCSP response")?),
            None => None,
        };
        let made = Pair::from_pem(&certificate?, &key?, &passwords, staple);
        made.map_err(|error| {
            let at = match error {
                PairError::Certificate(_) => at,
                PairError::Key(_) | PairError::Mismatch => key_at,
            };
            self.error(at, error.told(&files.certificate, &files.key));
        })
        .ok()
    }

    /// None if none are named; `None` if they cannot be read.
    fn passwords(&mut self, file: Option<&Named>) -> Option<Vec<Vec<u8>>> {
        let Some(file) = file else {
            return Some(Vec::new());
        };
        if let Some(known) = self.passwords.get(&file.value) {
            return known.clone();
        }
        let content = self.read(&file.value, file.span, "cannot load");
        let passwords = content.map(|content| pem::passwords(&content));
        self.passwords.insert(file.value.clone(), passwords.clone());
        passwords
    }

    fn trust(&mut self, depth: u32, trusted: &[&Named], list: Option<&Named>) -> Arc<Trust> {
        let files = TrustFiles {
            depth,
            trusted: trusted.iter().map(|path| path.value.clone()).collect(),
            list: list.map(|path| path.value.clone()),
        };
        if let Some(known) = self.trusts.get(&files) {
            return known.clone();
        }
        let mut trust = Trust::new(depth);
        for path in trusted {
            let lead = "failed to load certificate";
            let added = self.read(&path.value, path.span, lead).map(|content| {
                let list = pem::certificates(&content)?;
                let end = first_end(&list).map(|end| (path.value.clone(), end));
                self.certificate_ends.extend(end);
                trust.add(list).map_err(bad_place)
            });
            if let Some(Err(why)) = added {
                self.error(path.span, told(lead, &path.value, &why));
            }
        }
        if let Some(path) = list {
            let lead = "failed to load CRL";
            let added = self.read(&path.value, path.span, lead).map(|content| {
                let lists = pem::revocation_lists(&content)?;
                let end = lists.iter().filter_map(|list| next_update(list)).min();
                self.list_ends
                    .extend(end.map(|end| (path.value.clone(), end)));
                lists.iter().try_for_each(|list| trust.add_list(list))
            });
            if let Some(Err(why)) = added {
                self.error(path.span, told(lead, &path.value, &why));
            }
        }
        let trust = Arc::new(trust);
        self.trusts.insert(files, trust.clone());
        trust
    }

    /// The system's authorities; those that cannot be read are left out, since nobody here chose them.
    fn system_trust(&mut self, identity: &TlsIdentity) -> Arc<Trust> {
        let store = SYSTEM_TRUST.iter().map(Path::new);
        let mut store = store.filter_map(|path| Some((path, (self.read)(path).ok()?)));
        let Some((path, content)) = store.next() else {
            let message = "no certificate authorities of the system were found";
            let hint = "name them with proxy_ssl_trusted_certificate";
            let found = Diagnostic::error(identity.span, message).hint(hint);
            self.errors.push(found);
            return Arc::new(Trust::default());
        };
        let files = TrustFiles {
            depth: identity.verify_depth,
            trusted: vec![path.to_owned()],
            list: identity.crl.as_ref().map(|path| path.value.clone()),
        };
        if let Some(known) = self.trusts.get(&files) {
            return known.clone();
        }
        let list = identity.crl.as_ref();
        let lists = self.trust(identity.verify_depth, &[], list);
        let mut trust = Trust::clone(&lists);
        for certificate in pem::certificates(&content).unwrap_or_default() {
            let _ = trust.add(vec![certificate]);
        }
        let trust = Arc::new(trust);
        self.trusts.insert(files, trust.clone());
        trust
    }

    fn tickets(&mut self, host: &VirtualHost, settings: &TlsServer) -> Option<Tickets> {
        if !settings.session_tickets {
            return None;
        }
        let source = if settings.ticket_keys.is_empty() {
            KeySource::Ring(self.ring?)
        } else {
            let paths = settings.ticket_keys.iter();
            let keys: Vec<_> = paths.filter_map(|path| self.ticket_key(path)).collect();
            KeySource::Files(keys)
        };
        Some(Tickets {
            source,
            binding: self.binding(host, settings),
            lifetime_secs: u32::try_from(settings.session_timeout.as_secs()).unwrap_or(u32::MAX),
            clock: self.clock.clone(),
        })
    }

    fn ticket_key(&mut self, path: &Named) -> Option<TicketKey> {
        let content = self.read(&path.value, path.span, "cannot load")?;
        let key = tickets::key_of_file(&content);
        if key.is_none() {
            let message = format!("\"{}\" must be 48 or 80 bytes", path.value.display());
            self.error(path.span, message);
        }
        key
    }

    /// What a session may be resumed for: the same host with the same demands on clients. The lists of what was revoked
    /// are left out, because a resumed session is judged again.
    fn binding(&mut self, host: &VirtualHost, settings: &TlsServer) -> Binding {
        let verification = &settings.verification;
        let mut context = digest::Context::new(&digest::SHA256);
        let mut add = |part: &[u8]| {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        };
        add(b"kp session 1");
        add(host.primary_name.as_bytes());
        add(format!("{:?} {}", verification.mode, verification.depth).as_bytes());
        for path in [&verification.ca, &verification.trusted] {
            // A file that cannot be read was told about already.
            let content = path.as_ref().and_then(|path| (self.read)(&path.value).ok());
            add(&content.unwrap_or_default());
        }
        let mut binding = Binding([0; 32]);
        for (byte, digest) in binding.0.iter_mut().zip(context.finish().as_ref()) {
            *byte = *digest;
        }
        binding
    }

    fn read(&mut self, path: &Path, at: Span, lead: &str) -> Option<Vec<u8>> {
        (self.read)(path)
            .map_err(|error| self.error(at, told(lead, path, &system_words(&error))))
            .ok()
    }
}

/// What a warning says of a pair that is over or will be soon; `None` while there is time.
pub fn expiry_warning(pair: &Pair, path: &Path, now_unix_secs: u64) -> Option<String> {
    let path = path.display();
    let until = pair.certificate()?.not_after();
    let left = pair.expires_unix_secs.checked_sub(now_unix_secs);
    match left.map(|secs| secs / 86_400) {
        None => Some(format!("certificate \"{path}\" has expired ({until})")),
        Some(days) if days < WARN_DAYS => Some(format!(
            "certificate \"{path}\" expires in {days} day{} ({until})",
            if days == 1 { "" } else { "s" }
        )),
        Some(_) => None,
    }
}

fn told(lead: &str, path: &Path, why: &str) -> String {
    format!("{lead} \"{}\": {why}", path.display())
}

fn bad_place(index: usize) -> String {
    format!("certificate {} in it has a bad encoding", index + 1)
}

/// As nginx shows an error of the system.
pub(crate) fn system_words(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => {
            let words = error.to_string();
            let words = words.split(" (os error").next().unwrap_or_default();
            format!("open() failed ({number}: {words})")
        }
        None => error.to_string(),
    }
}
