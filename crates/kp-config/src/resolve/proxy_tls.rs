//! TLS with the upstream of a location: the settings of its level become one of the configuration's identities.

use super::location::Builder;
use super::{or, tls};
use crate::draft::LevelDraft;
use crate::model::{
    Handler, NamedGroup, ProxyPass, ProxyTarget, ProxyTls, TlsCertificate, TlsIdentity,
    TlsIdentityId,
};
use crate::template::Part;

impl Builder<'_, '_> {
    /// How TLS is spoken with the upstream, where it may have to be.
    pub(super) fn proxy_tls(&mut self, level: &LevelDraft, handler: &Handler) -> Option<ProxyTls> {
        let Handler::Proxy(pass) = handler else {
            return None;
        };
        if scheme(&pass.target) == Scheme::Http {
            return None;
        }
        let identity = self.identity(level, pass);
        let known = self
            .tls_identities
            .iter()
            .position(|known| *known == identity);
        let index = known.unwrap_or_else(|| {
            self.tls_identities.push(identity);
            self.tls_identities.len() - 1
        });
        Some(ProxyTls {
            identity: TlsIdentityId(u32::try_from(index).unwrap_or(u32::MAX)),
            name: level.tls_name.as_ref().map(|name| name.value.clone()),
        })
    }

    fn identity(&mut self, level: &LevelDraft, pass: &ProxyPass) -> TlsIdentity {
        let verify = or(level.tls_verify.clone(), false);
        if !verify && scheme(&pass.target) == Scheme::Https {
            self.reader.warning(
                pass.span,
                "the upstream's certificate is not verified",
                "anyone on the way could answer; \"proxy_ssl_verify on\" verifies it (the default is off, as in nginx)",
            );
        }
        // An empty text is none, so that an inherited one can be left out.
        let stated = level.tls_certificate.as_ref();
        let stated = stated.filter(|certificate| !certificate.value.text.is_empty());
        let certificate = match (stated, &level.tls_key) {
            (Some(certificate), Some(key)) => Some(TlsCertificate {
                certificate: certificate.value.file.clone(),
                key: key.value.file.clone(),
            }),
            (Some(certificate), None) => {
                tls::no_key(&certificate.value, "proxy_ssl_certificate_key", self.reader);
                None
            }
            (None, _) => None,
        };
        let (protocols, suites) = tls::suites(
            level.tls_protocols.clone(),
            level.tls_ciphers.clone(),
            level.tls_commands.clone(),
        );
        TlsIdentity {
            server_name: or(level.tls_server_name.clone(), false),
            verify,
            verify_depth: or(level.tls_verify_depth.clone(), 1),
            trusted: level.tls_trusted.clone(),
            crl: level.tls_crl.clone(),
            certificate,
            certificate_cache: or(level.tls_certificate_cache.clone(), None),
            passwords: level.tls_passwords.clone(),
            protocols,
            suites,
            groups: NamedGroup::DEFAULT.to_vec(),
            session_reuse: or(level.tls_session_reuse.clone(), true),
            alpn: or(level.tls_alpn.clone(), Vec::new()),
            span: pass.span,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
    /// A variable decides.
    Either,
}

fn scheme(target: &ProxyTarget) -> Scheme {
    let start = match target {
        ProxyTarget::Upstream { https: true, .. } => return Scheme::Https,
        ProxyTarget::Upstream { https: false, .. } => return Scheme::Http,
        ProxyTarget::Template(template) => match template.parts.first() {
            Some(Part::Literal(start)) => start.to_ascii_lowercase(),
            _ => return Scheme::Either,
        },
    };
    if start.starts_with("https://") {
        Scheme::Https
    } else if "https://".starts_with(&start) {
        Scheme::Either
    } else {
        Scheme::Http
    }
}
