//! TLS of virtual hosts and towards upstreams: what the text says, with nothing loaded. Certificates, keys and lists are
//! named by path here; who reads them checks them.

use super::*;

/// TLS of a virtual host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsServer {
    /// `ssl_certificate` and `ssl_certificate_key`, pair by pair; the one the client can use is chosen. Empty only with
    /// `reject_handshake`.
    pub certificates: Vec<TlsCertificate>,
    /// `ssl_password_file`: a file of passwords for the keys, one a line.
    pub passwords: Option<Spanned<PathBuf>>,
    /// `ssl_reject_handshake`, default off: handshakes for its names end with `unrecognized_name`.
    pub reject_handshake: bool,
    /// `ssl_protocols`, default TLSv1.2 and TLSv1.3.
    pub protocols: TlsProtocols,
    /// `ssl_ciphers` and `ssl_conf_command Ciphersuites` in order of preference; never empty.
    pub suites: Vec<CipherSuite>,
    /// `ssl_ecdh_curve` in order of preference; never empty.
    pub groups: Vec<NamedGroup>,
    /// `ssl_prefer_server_ciphers`, default off.
    pub prefer_server_ciphers: bool,
    /// `ssl_buffer_size`, default 16k: the most plaintext of one record.
    pub buffer_size: usize,
    /// `ssl_handshake_timeout` (kp), default `client_header_timeout`: from accept to the handshake's
    /// end.
    pub handshake_timeout: Duration,
    /// `ssl_session_tickets`, default on.
    pub session_tickets: bool,
    /// `ssl_session_ticket_key`: files of 48 or 80 bytes, the first encrypts. Empty: the master makes keys.
    pub ticket_keys: Vec<Spanned<PathBuf>>,
    /// `ssl_session_timeout`, default 5 min: how long a session can be resumed.
    pub session_timeout: Duration,
    /// `ssl_verify_client` and its companions: what handshakes ask for. The same as [`VirtualHost::verification`].
    pub verification: ClientVerification,
    /// `ssl_stapling_file`: a DER encoded OCSP response; `ssl_stapling off` leaves it out.
    pub stapling_file: Option<Spanned<PathBuf>>,
    /// `ssl_certificate_cache`, for certificates with variables; `None`: loaded for every handshake.
    pub certificate_cache: Option<CertificateCache>,
    /// `ssl_certificate_reload` (kp), default off: changed files are taken up without a reload.
    pub certificate_reload: bool,
}

/// One certificate chain with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsCertificate {
    /// `ssl_certificate`: PEM, the server's own certificate first.
    pub certificate: Spanned<TlsFile>,
    /// `ssl_certificate_key`.
    pub key: Spanned<TlsFile>,
}

impl TlsCertificate {
    /// Whether it is known during a handshake at the earliest.
    pub fn has_variables(&self) -> bool {
        [&self.certificate, &self.key]
            .into_iter()
            .any(|file| !matches!(file.value, TlsFile::Path(_)))
    }
}

/// Where a certificate or a key comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsFile {
    /// A file, absolute; read when the configuration is loaded.
    Path(PathBuf),
    /// A path with variables, read during the handshake.
    Template {
        /// The path; where it is not absolute it starts at `directory`.
        path: Template,
        /// The directory of the configuration file.
        directory: PathBuf,
    },
    /// `data:`: the PEM text itself, out of variables.
    Data(Template),
}

/// Protocol versions, at least one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TlsProtocols {
    /// `TLSv1.2`
    pub v12: bool,
    /// `TLSv1.3`
    pub v13: bool,
}

impl Default for TlsProtocols {
    fn default() -> Self {
        Self {
            v12: true,
            v13: true,
        }
    }
}

/// `ssl_verify_client` and what it needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientVerification {
    /// `ssl_verify_client`.
    pub mode: VerifyMode,
    /// `ssl_client_certificate`: trusted, and their names are told to clients.
    pub ca: Option<Spanned<PathBuf>>,
    /// `ssl_trusted_certificate`: trusted without telling.
    pub trusted: Option<Spanned<PathBuf>>,
    /// `ssl_verify_depth`, default 1: how many certificates may stand between the client's own and the trusted one.
    pub depth: u32,
    /// `ssl_crl`.
    pub crl: Option<Spanned<PathBuf>>,
}

/// `ssl_verify_client`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum VerifyMode {
    /// Clients are not asked for a certificate.
    #[default]
    Off,
    /// A request without a verified certificate is answered 400.
    On,
    /// Only a certificate that is there must be good.
    Optional,
    /// A certificate is asked for; who signed it is not the server's business.
    OptionalNoCa,
}

/// `ssl_certificate_cache`, `proxy_ssl_certificate_cache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CertificateCache {
    /// `max=`: the most entries; the least recently used one goes.
    pub max: usize,
    /// `inactive=`, default 10 s: an entry that is not used for this long goes.
    pub inactive: Duration,
    /// `valid=`, default 60 s: after this time an entry is loaded anew.
    pub valid: Duration,
}

/// TLS towards the upstream of a location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyTls {
    /// What the handshake is done with: connections are shared only within one.
    pub identity: TlsIdentityId,
    /// `proxy_ssl_name`, for SNI and verification; `None`: `$proxy_host`.
    pub name: Option<Template>,
}

/// Everything that makes one TLS handshake with an upstream differ from another, save the name, which is evaluated for
/// each request. Equal ones are one entry of [`Http::tls_identities`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsIdentity {
    /// `proxy_ssl_server_name`, default off: the name is sent as SNI.
    pub server_name: bool,
    /// `proxy_ssl_verify`, default off.
    pub verify: bool,
    /// `proxy_ssl_verify_depth`, default 1.
    pub verify_depth: u32,
    /// `proxy_ssl_trusted_certificate`; `None` with `verify`: the system's store, see [`SYSTEM_TRUST`].
    pub trusted: Option<Spanned<PathBuf>>,
    /// `proxy_ssl_crl`.
    pub crl: Option<Spanned<PathBuf>>,
    /// `proxy_ssl_certificate` and `proxy_ssl_certificate_key`. With variables an empty value is no certificate.
    pub certificate: Option<TlsCertificate>,
    /// `proxy_ssl_certificate_cache`; `None`: loaded for every handshake.
    pub certificate_cache: Option<CertificateCache>,
    /// `proxy_ssl_password_file`.
    pub passwords: Option<Spanned<PathBuf>>,
    /// `proxy_ssl_protocols`, default TLSv1.2 and TLSv1.3.
    pub protocols: TlsProtocols,
    /// `proxy_ssl_ciphers` and `proxy_ssl_conf_command Ciphersuites`; never empty.
    pub suites: Vec<CipherSuite>,
    /// The groups that are offered, in order of preference.
    pub groups: Vec<NamedGroup>,
    /// `proxy_ssl_session_reuse`, default on.
    pub session_reuse: bool,
    /// `proxy_ssl_alpn` (kp): protocols offered, in order; empty: the extension is not sent.
    pub alpn: Vec<String>,
    /// Where the `proxy_pass` stands that first needed it.
    pub span: Span,
}

/// Where certificate authorities are looked for when `proxy_ssl_verify` is on without `proxy_ssl_trusted_certificate`: the
/// first of these files that is there.
pub const SYSTEM_TRUST: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// A cipher suite that kp can speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CipherSuite {
    /// TLS_AES_256_GCM_SHA384
    Aes256GcmSha384,
    /// TLS_CHACHA20_POLY1305_SHA256
    Chacha20Poly1305Sha256,
    /// TLS_AES_128_GCM_SHA256
    Aes128GcmSha256,
    /// ECDHE-ECDSA-AES256-GCM-SHA384
    EcdheEcdsaAes256GcmSha384,
    /// ECDHE-RSA-AES256-GCM-SHA384
    EcdheRsaAes256GcmSha384,
    /// ECDHE-ECDSA-CHACHA20-POLY1305
    EcdheEcdsaChacha20Poly1305,
    /// ECDHE-RSA-CHACHA20-POLY1305
    EcdheRsaChacha20Poly1305,
    /// ECDHE-ECDSA-AES128-GCM-SHA256
    EcdheEcdsaAes128GcmSha256,
    /// ECDHE-RSA-AES128-GCM-SHA256
    EcdheRsaAes128GcmSha256,
}

impl CipherSuite {
    /// The suites of TLS 1.3, in OpenSSL's order.
    pub const TLS13: [Self; 3] = [
        Self::Aes256GcmSha384,
        Self::Chacha20Poly1305Sha256,
        Self::Aes128GcmSha256,
    ];
    /// The suites of TLS 1.2, in OpenSSL's order.
    pub const TLS12: [Self; 6] = [
        Self::EcdheEcdsaAes256GcmSha384,
        Self::EcdheRsaAes256GcmSha384,
        Self::EcdheEcdsaChacha20Poly1305,
        Self::EcdheRsaChacha20Poly1305,
        Self::EcdheEcdsaAes128GcmSha256,
        Self::EcdheRsaAes128GcmSha256,
    ];

    /// Whether it is one of TLS 1.3.
    pub fn is_tls13(self) -> bool {
        Self::TLS13.contains(&self)
    }

    /// The number of the IANA registry.
    pub fn number(self) -> u16 {
        match self {
            Self::Aes128GcmSha256 => 0x1301,
            Self::Aes256GcmSha384 => 0x1302,
            Self::Chacha20Poly1305Sha256 => 0x1303,
            Self::EcdheEcdsaAes128GcmSha256 => 0xc02b,
            Self::EcdheEcdsaAes256GcmSha384 => 0xc02c,
            Self::EcdheRsaAes128GcmSha256 => 0xc02f,
            Self::EcdheRsaAes256GcmSha384 => 0xc030,
            Self::EcdheRsaChacha20Poly1305 => 0xcca8,
            Self::EcdheEcdsaChacha20Poly1305 => 0xcca9,
        }
    }

    /// OpenSSL's name, as in `$ssl_cipher`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes256GcmSha384 => "TLS_AES_256_GCM_SHA384",
            Self::Chacha20Poly1305Sha256 => "TLS_CHACHA20_POLY1305_SHA256",
            Self::Aes128GcmSha256 => "TLS_AES_128_GCM_SHA256",
            Self::EcdheEcdsaAes256GcmSha384 => "ECDHE-ECDSA-AES256-GCM-SHA384",
            Self::EcdheRsaAes256GcmSha384 => "ECDHE-RSA-AES256-GCM-SHA384",
            Self::EcdheEcdsaChacha20Poly1305 => "ECDHE-ECDSA-CHACHA20-POLY1305",
            Self::EcdheRsaChacha20Poly1305 => "ECDHE-RSA-CHACHA20-POLY1305",
            Self::EcdheEcdsaAes128GcmSha256 => "ECDHE-ECDSA-AES128-GCM-SHA256",
            Self::EcdheRsaAes128GcmSha256 => "ECDHE-RSA-AES128-GCM-SHA256",
        }
    }
}

/// A group for the key exchange that kp can speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NamedGroup {
    /// X25519 joined with ML-KEM-768.
    X25519MlKem768,
    /// P-256 joined with ML-KEM-768.
    Secp256r1MlKem768,
    /// ML-KEM-768
    MlKem768,
    /// ML-KEM-1024
    MlKem1024,
    /// X25519
    X25519,
    /// P-256
    Secp256r1,
    /// P-384
    Secp384r1,
}

impl NamedGroup {
    /// What `ssl_ecdh_curve auto` stands for.
    pub const DEFAULT: [Self; 4] = [
        Self::X25519MlKem768,
        Self::X25519,
        Self::Secp256r1,
        Self::Secp384r1,
    ];

    /// The number of the IANA registry.
    pub fn number(self) -> u16 {
        match self {
            Self::Secp256r1 => 0x0017,
            Self::Secp384r1 => 0x0018,
            Self::X25519 => 0x001d,
            Self::MlKem768 => 0x0201,
            Self::MlKem1024 => 0x0202,
            Self::Secp256r1MlKem768 => 0x11eb,
            Self::X25519MlKem768 => 0x11ec,
        }
    }

    /// OpenSSL's name, as in `$ssl_curve`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Secp256r1 => "prime256v1",
            Self::Secp384r1 => "secp384r1",
            Self::X25519 => "X25519",
            Self::MlKem768 => "MLKEM768",
            Self::MlKem1024 => "MLKEM1024",
            Self::Secp256r1MlKem768 => "SecP256r1MLKEM768",
            Self::X25519MlKem768 => "X25519MLKEM768",
        }
    }
}
