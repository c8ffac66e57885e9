//! Certificates made on the spot, configurations over files in memory, and a library client or server at the other end.

use kp_config::model::ServerId;
use kp_config::{Diagnostic, LoadOptions};
use kp_shm::TicketReader;
use kp_tls::{Hello, HelloReader, Progress, Scratch, Session, Stage, Tls, TlsError};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, DigitallySignedStruct, Error, ServerConfig,
    ServerConnection, SignatureScheme, SupportedProtocolVersion,
};
use std::collections::HashMap;
use std::io::{IoSlice, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Within the life of every certificate here: 2026-06-01.
pub(crate) const NOW: u64 = 1_780_272_000;

/// A certificate with its key, PEM.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Made {
    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(self.certificate.as_bytes())
            .map(Result::unwrap)
            .collect()
    }

    pub(crate) fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap()
    }
}

/// Who signs.
pub(crate) struct Authority {
    pub(crate) made: Made,
    issuer: Issuer<'static, KeyPair>,
}

pub(crate) fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2026, 1, 1);
    params.not_after = date_time_ymd(2036, 1, 1);
    params
}

pub(crate) fn authority_params(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.subject_alt_names.clear();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = authority_params(name);
        let made = Made {
            certificate: params.self_signed(&key).unwrap().pem(),
            key: key.serialize_pem(),
        };
        Self {
            made,
            issuer: Issuer::new(params, key),
        }
    }

    /// An authority below this one; its chain holds both.
    pub(crate) fn below(&self, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = authority_params(name);
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let made = Made {
            certificate: signed.pem(),
            key: key.serialize_pem(),
        };
        Self {
            made,
            issuer: Issuer::new(params, key),
        }
    }

    pub(crate) fn sign(&self, params: &CertificateParams) -> Made {
        self.sign_for(params, &KeyPair::generate().unwrap())
    }

    pub(crate) fn sign_for(&self, params: &CertificateParams, key: &KeyPair) -> Made {
        Made {
            certificate: params.signed_by(key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    pub(crate) fn issue(&self, name: &str) -> Made {
        self.sign(&params(name))
    }

    pub(crate) fn issue_for(&self, name: &str, purpose: ExtendedKeyUsagePurpose) -> Made {
        let mut params = params(name);
        params.extended_key_usages = vec![purpose];
        self.sign(&params)
    }

    pub(crate) fn revoke(&self, serials: &[u64]) -> String {
        let crl = rcgen::CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(2027, 1, 1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: serials
                .iter()
                .map(|serial| rcgen::RevokedCertParams {
                    serial_number: (*serial).into(),
                    revocation_time: date_time_ymd(2026, 2, 1),
                    reason_code: None,
                    invalidity_date: None,
                })
                .collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        crl.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

/// Files in memory.
#[derive(Clone, Default)]
pub(crate) struct Files(HashMap<PathBuf, Vec<u8>>);

impl Files {
    pub(crate) fn with(mut self, name: &str, content: impl Into<Vec<u8>>) -> Self {
        self.0
            .insert(Path::new("/etc/kp").join(name), content.into());
        self
    }

    pub(crate) fn with_pair(self, name: &str, made: &Made) -> Self {
        self.with(&format!("{name}.crt"), made.certificate.clone())
            .with(&format!("{name}.key"), made.key.clone())
    }

    pub(crate) fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        let found = self.0.get(path).cloned();
        found.ok_or_else(|| std::io::Error::from_raw_os_error(2))
    }
}

/// The configuration of servers within `http`.
pub(crate) fn config(http: &str) -> kp_config::Config {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kp.conf");
    std::fs::write(&path, format!("events {{}} http {{ {http} }}")).unwrap();
    let loaded = kp_config::load(&LoadOptions {
        path,
        prefix: "/etc/kp".into(),
        ..LoadOptions::default()
    });
    let text = kp_config::render(&loaded.diagnostics, &loaded.sources);
    loaded.config.unwrap_or_else(|| panic!("{text}"))
}

pub(crate) fn load_with(
    http: &str,
    files: &Files,
    ring: Option<TicketReader>,
) -> Result<(Tls, Vec<Diagnostic>), Vec<Diagnostic>> {
    Tls::load(&config(http), &mut |path| files.read(path), ring, NOW)
}

pub(crate) fn load(http: &str, files: &Files) -> Tls {
    load_with(http, files, None).unwrap().0
}

/// A server block; paths are those of [`Files`].
pub(crate) fn server(more: &str) -> String {
    format!(
        "server {{ listen 443 ssl; ssl_certificate /etc/kp/a.crt; ssl_certificate_key /etc/kp/a.key; {more} }}"
    )
}

pub(crate) fn first() -> ServerId {
    ServerId(0)
}

/// Trusts everyone: what a test of the server needs. Offers these schemes.
#[derive(Debug)]
struct Gullible(Vec<SignatureScheme>);

impl ServerCertVerifier for Gullible {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

/// Takes every certificate.
pub(crate) fn gullible() -> Arc<dyn ServerCertVerifier> {
    let algorithms = default_provider().signature_verification_algorithms;
    Arc::new(Gullible(algorithms.supported_schemes()))
}

pub(crate) fn client_config_with_schemes(
    version: &'static SupportedProtocolVersion,
    schemes: &[SignatureScheme],
) -> ClientConfig {
    let mut config = client_config(&[version], None);
    let verifier = Arc::new(Gullible(schemes.to_vec()));
    config.dangerous().set_certificate_verifier(verifier);
    config
}

pub(crate) fn client_config(
    versions: &[&'static SupportedProtocolVersion],
    own: Option<&Made>,
) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(gullible());
    match own {
        None => builder.with_no_client_auth(),
        Some(made) => builder
            .with_client_auth_cert(made.chain(), made.private_key())
            .unwrap(),
    }
}

/// Two clients of one memory, each with one suite. The library offers a session only where what decides about certificates
/// is the same, too.
pub(crate) fn clients_with_suites(
    version: &'static SupportedProtocolVersion,
    suites: [CipherSuite; 2],
) -> [Arc<ClientConfig>; 2] {
    let verifier = gullible();
    let first = client_config(&[version], None);
    suites.map(|suite| {
        let mut provider = default_provider();
        provider.cipher_suites.retain(|one| one.suite() == suite);
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[version])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone())
            .with_no_client_auth();
        config.client_auth_cert_resolver = first.client_auth_cert_resolver.clone();
        config.resumption = first.resumption.clone();
        Arc::new(config)
    })
}

pub(crate) fn client(config: &Arc<ClientConfig>, name: &str) -> ClientConnection {
    ClientConnection::new(config.clone(), name.to_owned().try_into().unwrap()).unwrap()
}

pub(crate) fn both() -> [&'static SupportedProtocolVersion; 2] {
    [&rustls::version::TLS13, &rustls::version::TLS12]
}

/// Our server's end of a connection, with everything that came of it.
pub(crate) struct Ours<'a> {
    pub(crate) tls: &'a Tls,
    pub(crate) id: ServerId,
    reader: HelloReader,
    received: Vec<u8>,
    pub(crate) session: Option<Session>,
    pub(crate) plain: Vec<u8>,
    pub(crate) out: Vec<u8>,
    pub(crate) progress: Progress,
    pub(crate) asked_for: Option<String>,
    /// Loaded for this connection.
    pub(crate) pairs: Vec<kp_tls::Pair>,
    foreign: bool,
}

impl<'a> Ours<'a> {
    pub(crate) fn new(tls: &'a Tls, id: ServerId) -> Self {
        Self {
            tls,
            id,
            reader: HelloReader::default(),
            received: Vec::new(),
            session: None,
            plain: Vec::new(),
            out: Vec::new(),
            progress: Progress::default(),
            asked_for: None,
            pairs: Vec::new(),
            foreign: false,
        }
    }

    /// As [`Ours::take`], for bytes that may be anything: what is not TLS is left alone.
    pub(crate) fn try_take(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
        self.foreign |= self.session.is_none()
            && self.received.is_empty()
            && bytes
                .first()
                .is_some_and(|byte| *byte != 0x16 && byte & 0x80 == 0);
        if self.foreign {
            return Ok(());
        }
        self.take(bytes)
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
        self.received.extend_from_slice(bytes);
        if self.session.is_none() {
            match self.reader.read(&self.received, &mut self.out)? {
                Hello::Incomplete => return Ok(()),
                Hello::NotTls => panic!("not TLS"),
                Hello::Complete(hello) => {
                    self.asked_for = hello.server_name.map(Into::into);
                    let server = self.tls.server(self.id).unwrap();
                    self.session = Some(match self.pairs.as_slice() {
                        [] => server.accept(&mut self.out)?,
                        pairs => server.accept_with(pairs, &mut self.out)?,
                    });
                }
            }
        }
        let session = self.session.as_mut().unwrap();
        loop {
            let (plain, out) = (&mut self.plain, &mut self.out);
            self.progress = session.receive(&mut self.received, plain, out, 16 * 1024)?;
            assert!(self.received.is_empty());
            if !self.progress.pending {
                return Ok(());
            }
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let stretches = [IoSlice::new(bytes)];
        let session = self.session.as_mut().unwrap();
        session
            .send(&stretches, &mut Scratch::default(), &mut self.out)
            .unwrap();
    }

    pub(crate) fn open(&self) -> &Session {
        self.session.as_ref().unwrap()
    }
}

/// Moves bytes both ways, at most `split` at once towards us, until neither side has more.
pub(crate) fn exchange(
    ours: &mut Ours<'_>,
    theirs: &mut ClientConnection,
    split: usize,
) -> Result<(), TlsError> {
    loop {
        let mut wire = Vec::new();
        while theirs.wants_write() {
            theirs.write_tls(&mut wire).unwrap();
        }
        let mut result = Ok(());
        for chunk in wire.chunks(split) {
            result = result.and_then(|()| ours.take(chunk));
        }
        let moved = !wire.is_empty() || !ours.out.is_empty();
        give(theirs, &mut ours.out);
        result?;
        if !moved {
            return Ok(());
        }
    }
}

/// Gives the library's client what was sent to it; what it thinks of it shows later.
pub(crate) fn give(theirs: &mut ClientConnection, out: &mut Vec<u8>) {
    let mut bytes = out.as_slice();
    while !bytes.is_empty() && theirs.read_tls(&mut bytes).is_ok() {
        let _ = theirs.process_new_packets();
    }
    out.clear();
}

/// The plaintext of what was sent to the library's client, which takes only so much at once.
pub(crate) fn received(theirs: &mut ClientConnection, out: &mut Vec<u8>) -> Vec<u8> {
    let mut content = Vec::new();
    let mut bytes = out.as_slice();
    while !bytes.is_empty() {
        theirs.read_tls(&mut bytes).unwrap();
        theirs.process_new_packets().unwrap();
        content.extend(read_all(theirs));
    }
    out.clear();
    content
}

pub(crate) fn read_all(theirs: &mut ClientConnection) -> Vec<u8> {
    let mut content = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = theirs.reader().read(&mut buffer) {
        content.extend_from_slice(&buffer[..count]);
    }
    content
}

/// A handshake between ours and the library's client, which must succeed.
pub(crate) fn handshake<'a>(tls: &'a Tls, id: ServerId, theirs: &mut ClientConnection) -> Ours<'a> {
    let mut ours = Ours::new(tls, id);
    exchange(&mut ours, theirs, usize::MAX).unwrap();
    assert_eq!(ours.open().stage(), Stage::Open);
    assert!(!theirs.is_handshaking());
    ours
}

pub(crate) fn server_config(
    versions: &[&'static SupportedProtocolVersion],
    made: &Made,
    more: &[&Made],
) -> ServerConfig {
    let mut chain = made.chain();
    chain.extend(more.iter().flat_map(|one| one.chain()));
    ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, made.private_key())
        .unwrap()
}

/// Our client against the library's server: until neither has more to say.
pub(crate) fn dial(
    session: &mut Session,
    theirs: &mut ServerConnection,
    split: usize,
) -> Result<Vec<u8>, TlsError> {
    let (mut plain, mut out) = (Vec::new(), Vec::new());
    if session.stage() == Stage::Handshake {
        session.start(&mut out)?;
    }
    loop {
        let moved = !out.is_empty();
        let mut bytes = out.as_slice();
        while !bytes.is_empty() && theirs.read_tls(&mut bytes).is_ok() {
            let _ = theirs.process_new_packets();
        }
        out.clear();
        let mut wire = Vec::new();
        while theirs.wants_write() {
            theirs.write_tls(&mut wire).unwrap();
        }
        if wire.is_empty() && !moved {
            return Ok(plain);
        }
        for chunk in wire.chunks(split) {
            let mut chunk = chunk.to_vec();
            session.receive(&mut chunk, &mut plain, &mut out, usize::MAX)?;
        }
    }
}

pub(crate) fn write(theirs: &mut ClientConnection, bytes: &[u8]) {
    theirs.writer().write_all(bytes).unwrap();
}
