//! Certificates made on the spot, and what a TLS client or origin of a test is told to do.
//!
//! An [`Authority`] issues [`Pair`]s. A [`Connector`] is how a client speaks TLS, an [`Acceptor`] how an origin does; both
//! keep their sessions, so that a second connection by the same one may resume the first's.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SerialNumber,
};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, RootCertStore, ServerConfig,
    ServerConnection, SupportedProtocolVersion,
};

/// Kinds of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// ECDSA with P-256.
    Ecdsa,
    /// RSA with 2048 bits.
    Rsa,
}

/// A certificate authority of its own.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new("kp test authority")
    }
}

impl Authority {
    /// A self-signed authority of that name.
    pub fn new(name: &str) -> Self {
        let key = key(Kind::Ecdsa);
        let issuer =
            CertifiedIssuer::self_signed(authority(name), key).expect("a self-signed certificate");
        Self { issuer }
    }

    /// Another authority below this one.
    pub fn intermediate(&self, name: &str) -> Self {
        let key = key(Kind::Ecdsa);
        let issuer =
            CertifiedIssuer::signed_by(authority(name), key, &self.issuer).expect("a certificate");
        Self { issuer }
    }

    /// Its certificate, PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for these names, for servers and clients, good for a year.
    pub fn issue(&self, names: &[&str]) -> Pair {
        self.issue_as(Kind::Ecdsa, names, |_| {})
    }

    /// The same with the kind of key chosen and the certificate changed before it is signed.
    pub fn issue_as(
        &self,
        kind: Kind,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Pair {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names.clone()).expect("names of a certificate");
        params.distinguished_name.push(
            DnType::CommonName,
            names.first().map_or("nobody", String::as_str),
        );
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        valid(&mut params, -1, 365);
        change(&mut params);
        let key = key(kind);
        let certificate = params
            .signed_by(&key, &self.issuer)
            .expect("signing a certificate");
        Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// A list that revokes the certificates of these serial numbers, PEM.
    pub fn revoke(&self, serials: &[u64]) -> String {
        let now = SystemTime::now();
        let revoked = serials.iter().map(|&serial| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: now.into(),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: (now - DAY).into(),
            next_update: (now + 30 * DAY).into(),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).expect("signing a list");
        list.pem().expect("PEM of a list")
    }
}

const DAY: Duration = Duration::from_secs(86_400);

/// Sets from when until when a certificate is good, in days from now.
pub fn valid(params: &mut CertificateParams, from_days: i64, until_days: i64) {
    let at = |days: i64| {
        let distance = DAY * u32::try_from(days.unsigned_abs()).expect("days");
        let now = SystemTime::now();
        let then = if days < 0 {
            now - distance
        } else {
            now + distance
        };
        then.into()
    };
    params.not_before = at(from_days);
    params.not_after = at(until_days);
}

/// Gives a certificate a serial number.
pub fn numbered(params: &mut CertificateParams, serial: u64) {
    params.serial_number = Some(SerialNumber::from(serial));
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    valid(&mut params, -1, 3650);
    params
}

fn key(kind: Kind) -> KeyPair {
    let algorithm = match kind {
        Kind::Ecdsa => &rcgen::PKCS_ECDSA_P256_SHA256,
        Kind::Rsa => &rcgen::PKCS_RSA_SHA256,
    };
    KeyPair::generate_for(algorithm).expect("a key")
}

/// A certificate and its key, PEM (the key in PKCS#8).
#[derive(Debug, Clone)]
pub struct Pair {
    /// The certificate; issuers may be added behind it.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl Pair {
    /// The same with the issuer's certificate behind it.
    pub fn chained(mut self, issuer: &Authority) -> Self {
        self.certificate.push_str(&issuer.pem());
        self
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(self.certificate.as_bytes())
            .collect::<Result<_, _>>()
            .expect("PEM certificates")
    }

    fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("a PEM key")
    }
}

/// What a handshake agreed upon, as the test's own side saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// `TLSv1.3` or `TLSv1.2`.
    pub protocol: &'static str,
    /// rustls' name of the cipher suite.
    pub cipher: String,
    /// rustls' name of the key exchange group.
    pub group: String,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// What ALPN chose.
    pub alpn: Option<String>,
    /// The name the client asked for; known to the accepting side only.
    pub server_name: Option<String>,
    /// The other side's certificates, DER, its own first.
    pub certificates: Vec<Vec<u8>>,
}

impl Seen {
    pub(crate) fn of_client(connection: &ClientConnection) -> Self {
        Self::of(connection, connection.handshake_kind(), None)
    }

    pub(crate) fn of_server(connection: &ServerConnection) -> Self {
        let name = connection.server_name().map(str::to_owned);
        Self::of(connection, connection.handshake_kind(), name)
    }

    fn of(
        common: &rustls::CommonState,
        kind: Option<HandshakeKind>,
        server_name: Option<String>,
    ) -> Self {
        Self {
            protocol: match common.protocol_version() {
                Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "",
            },
            cipher: common
                .negotiated_cipher_suite()
                .map(|suite| format!("{:?}", suite.suite()))
                .unwrap_or_default(),
            group: common
                .negotiated_key_exchange_group()
                .map(|group| format!("{:?}", group.name()))
                .unwrap_or_default(),
            resumed: kind == Some(HandshakeKind::Resumed),
            alpn: common
                .alpn_protocol()
                .map(|name| String::from_utf8_lossy(name).into_owned()),
            server_name,
            certificates: common
                .peer_certificates()
                .unwrap_or_default()
                .iter()
                .map(|certificate| certificate.to_vec())
                .collect(),
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn roots(authorities: &[&Authority]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots
            .add(authority.issuer.der().clone())
            .expect("an authority's certificate");
    }
    roots
}

/// How a client speaks TLS. Connections of one connector may resume each other's sessions.
#[derive(Debug, Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    name: String,
}

impl Connector {
    /// Asks for `name` and accepts what the authority issued for it.
    pub fn new(authority: &Authority, name: &str) -> Self {
        Self::with(authority, name, rustls::ALL_VERSIONS, None)
    }

    /// The same with one protocol version only.
    pub fn version(
        authority: &Authority,
        name: &str,
        version: &'static SupportedProtocolVersion,
    ) -> Self {
        Self::with(authority, name, &[version], None)
    }

    /// Everything chosen: versions, and a certificate for where one is asked for.
    pub fn with(
        authority: &Authority,
        name: &str,
        versions: &[&'static SupportedProtocolVersion],
        own: Option<&Pair>,
    ) -> Self {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots(&[authority]));
        let config = match own {
            Some(own) => builder
                .with_client_auth_cert(own.chain(), own.private_key())
                .expect("a certificate and its key"),
            None => builder.with_no_client_auth(),
        };
        Self {
            config: Arc::new(config),
            name: name.to_owned(),
        }
    }

    /// The same connector, sessions and all, with another name. Sessions are kept by name.
    pub fn named(&self, name: &str) -> Self {
        Self {
            config: Arc::clone(&self.config),
            name: name.to_owned(),
        }
    }

    /// The same settings, changed; with a session memory of its own.
    pub fn changed(&self, change: impl FnOnce(&mut ClientConfig)) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::in_memory_sessions(64);
        change(&mut config);
        Self {
            config: Arc::new(config),
            name: self.name.clone(),
        }
    }

    /// The same with no memory of earlier sessions.
    pub fn fresh(&self) -> Self {
        self.changed(|_| {})
    }

    /// The first flight of a handshake that nobody goes on with.
    pub fn hello(&self) -> Vec<u8> {
        let mut hello = Vec::new();
        self.connection()
            .write_tls(&mut hello)
            .expect("a ClientHello");
        hello
    }

    /// The same with the certificate of one pair and the key of another, where a certificate is asked for.
    pub fn with_wrong_key(&self, certificate: &Pair, key: &Pair) -> Self {
        let key = provider()
            .key_provider
            .load_private_key(key.private_key())
            .expect("a key");
        let both = CertifiedKey::new(certificate.chain(), key);
        self.changed(|config| {
            config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(both));
        })
    }

    pub(crate) fn connection(&self) -> ClientConnection {
        let name = ServerName::try_from(self.name.clone()).expect("a server name");
        ClientConnection::new(Arc::clone(&self.config), name).expect("a client connection")
    }
}

/// How an origin speaks TLS.
#[derive(Debug, Clone)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
}

impl Acceptor {
    /// Shows this certificate to everybody.
    pub fn new(pair: &Pair) -> Self {
        Self::with(pair, rustls::ALL_VERSIONS, None)
    }

    /// Asks for a client certificate of this authority, too, and refuses who has none.
    pub fn verifying(pair: &Pair, authority: &Authority) -> Self {
        Self::with(pair, rustls::ALL_VERSIONS, Some(authority))
    }

    /// Everything chosen.
    pub fn with(
        pair: &Pair,
        versions: &[&'static SupportedProtocolVersion],
        clients: Option<&Authority>,
    ) -> Self {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .expect("versions");
        let builder = match clients {
            Some(authority) => builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(
                    Arc::new(roots(&[authority])),
                    provider(),
                )
                .build()
                .expect("a verifier"),
            ),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder
            .with_single_cert(pair.chain(), pair.private_key())
            .expect("a certificate and its key");
        config.ticketer = aws_lc_rs::Ticketer::new().expect("ticket keys");
        Self {
            config: Arc::new(config),
        }
    }

    /// The same settings, changed.
    pub fn changed(&self, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut config = ServerConfig::clone(&self.config);
        change(&mut config);
        Self {
            config: Arc::new(config),
        }
    }

    pub(crate) fn connection(&self) -> ServerConnection {
        ServerConnection::new(Arc::clone(&self.config)).expect("a server connection")
    }
}
