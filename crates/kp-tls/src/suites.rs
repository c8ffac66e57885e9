//! From the configuration's names to the library's suites, groups and versions.

use kp_config::model::{CipherSuite, NamedGroup, TlsProtocols};
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion, version};
use std::sync::Arc;

/// What handshakes are made with, in order of preference.
pub(crate) fn provider(suites: &[CipherSuite], groups: &[NamedGroup]) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: suites.iter().map(|suite| of_suite(*suite)).collect(),
        kx_groups: groups.iter().map(|group| of_group(*group)).collect(),
        ..default_provider()
    })
}

/// The versions that are both allowed and have a suite; the library refuses a version without one.
pub(crate) fn versions(
    protocols: TlsProtocols,
    suites: &[CipherSuite],
) -> Vec<&'static SupportedProtocolVersion> {
    let v13 = protocols.v13 && suites.iter().any(|suite| suite.is_tls13());
    let v12 = protocols.v12 && suites.iter().any(|suite| !suite.is_tls13());
    [(v13, &version::TLS13), (v12, &version::TLS12)]
        .into_iter()
        .filter_map(|(on, version)| on.then_some(version))
        .collect()
}

fn of_suite(suite: CipherSuite) -> SupportedCipherSuite {
    match suite {
        CipherSuite::Aes256GcmSha384 => cipher_suite::TLS13_AES_256_GCM_SHA384,
        CipherSuite::Chacha20Poly1305Sha256 => cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        CipherSuite::Aes128GcmSha256 => cipher_suite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::EcdheEcdsaAes256GcmSha384 => {
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        }
        CipherSuite::EcdheRsaAes256GcmSha384 => cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        CipherSuite::EcdheEcdsaChacha20Poly1305 => {
            cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        }
        CipherSuite::EcdheRsaChacha20Poly1305 => {
            cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
        }
        CipherSuite::EcdheEcdsaAes128GcmSha256 => {
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        }
        CipherSuite::EcdheRsaAes128GcmSha256 => cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    }
}

fn of_group(group: NamedGroup) -> &'static dyn SupportedKxGroup {
    match group {
        NamedGroup::X25519MlKem768 => kx_group::X25519MLKEM768,
        NamedGroup::Secp256r1MlKem768 => kx_group::SECP256R1MLKEM768,
        NamedGroup::MlKem768 => kx_group::MLKEM768,
        NamedGroup::MlKem1024 => kx_group::MLKEM1024,
        NamedGroup::X25519 => kx_group::X25519,
        NamedGroup::Secp256r1 => kx_group::SECP256R1,
        NamedGroup::Secp384r1 => kx_group::SECP384R1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_the_configuration_is_the_library_s() {
        for suite in CipherSuite::TLS13.into_iter().chain(CipherSuite::TLS12) {
            assert_eq!(u16::from(of_suite(suite).suite()), suite.number());
        }
        for group in NamedGroup::DEFAULT {
            assert_eq!(u16::from(of_group(group).name()), group.number());
        }
    }

    #[test]
    fn a_version_without_a_suite_is_left_out() {
        let both = TlsProtocols::default();
        assert_eq!(versions(both, &CipherSuite::TLS13), [&version::TLS13]);
        assert_eq!(versions(both, &CipherSuite::TLS12), [&version::TLS12]);
    }
}
