//! OpenSSL's names of what a hello offers and a handshake agrees on (`$ssl_ciphers`, `$ssl_cipher`, `$ssl_curves`,
//! `$ssl_curve`, `$ssl_sigalgs`), by the numbers of the IANA registries. They are more than kp speaks: a client may offer
//! anything.

/// Names by number, sorted by number.
type Table = [(u16, &'static str)];

/// The name of a cipher suite.
pub fn cipher(number: u16) -> Option<&'static str> {
    look_up(CIPHERS, number)
}

/// The name of a group for the key exchange.
pub fn group(number: u16) -> Option<&'static str> {
    look_up(GROUPS, number)
}

/// The name of a signature scheme (RFC 8446 §4.2.3).
pub fn signature_scheme(number: u16) -> Option<&'static str> {
    look_up(SIGNATURES, number)
}

fn look_up(table: &Table, number: u16) -> Option<&'static str> {
    let at = table.binary_search_by_key(&number, |(number, _)| *number);
    table.get(at.ok()?).map(|(_, name)| *name)
}

const CIPHERS: &Table = &[
    (0x000a, "DES-CBC3-SHA"),
    (0x002f, "AES128-SHA"),
    (0x0032, "DHE-DSS-AES128-SHA"),
    (0x0033, "DHE-RSA-AES128-SHA"),
    (0x0035, "AES256-SHA"),
    (0x0038, "DHE-DSS-AES256-SHA"),
    (0x0039, "DHE-RSA-AES256-SHA"),
    (0x003c, "AES128-SHA256"),
    (0x003d, "AES256-SHA256"),
    (0x0041, "CAMELLIA128-SHA"),
    (0x0045, "DHE-RSA-CAMELLIA128-SHA"),
    (0x0067, "DHE-RSA-AES128-SHA256"),
    (0x006b, "DHE-RSA-AES256-SHA256"),
    (0x0084, "CAMELLIA256-SHA"),
    (0x0088, "DHE-RSA-CAMELLIA256-SHA"),
    (0x009c, "AES128-GCM-SHA256"),
    (0x009d, "AES256-GCM-SHA384"),
    (0x009e, "DHE-RSA-AES128-GCM-SHA256"),
    (0x009f, "DHE-RSA-AES256-GCM-SHA384"),
    (0x00ff, "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"),
    (0x1301, "TLS_AES_128_GCM_SHA256"),
    (0x1302, "TLS_AES_256_GCM_SHA384"),
    (0x1303, "TLS_CHACHA20_POLY1305_SHA256"),
    (0x1304, "TLS_AES_128_CCM_SHA256"),
    (0x1305, "TLS_AES_128_CCM_8_SHA256"),
    (0x5600, "TLS_FALLBACK_SCSV"),
    (0xc009, "ECDHE-ECDSA-AES128-SHA"),
    (0xc00a, "ECDHE-ECDSA-AES256-SHA"),
    (0xc013, "ECDHE-RSA-AES128-SHA"),
    (0xc014, "ECDHE-RSA-AES256-SHA"),
    (0xc023, "ECDHE-ECDSA-AES128-SHA256"),
    (0xc024, "ECDHE-ECDSA-AES256-SHA384"),
    (0xc027, "ECDHE-RSA-AES128-SHA256"),
    (0xc028, "ECDHE-RSA-AES256-SHA384"),
    (0xc02b, "ECDHE-ECDSA-AES128-GCM-SHA256"),
    (0xc02c, "ECDHE-ECDSA-AES256-GCM-SHA384"),
    (0xc02f, "ECDHE-RSA-AES128-GCM-SHA256"),
    (0xc030, "ECDHE-RSA-AES256-GCM-SHA384"),
    (0xc09c, "AES128-CCM"),
    (0xc09d, "AES256-CCM"),
    (0xc09e, "DHE-RSA-AES128-CCM"),
    (0xc09f, "DHE-RSA-AES256-CCM"),
    (0xc0a0, "AES128-CCM8"),
    (0xc0a1, "AES256-CCM8"),
    (0xc0a2, "DHE-RSA-AES128-CCM8"),
    (0xc0a3, "DHE-RSA-AES256-CCM8"),
    (0xc0ac, "ECDHE-ECDSA-AES128-CCM"),
    (0xc0ad, "ECDHE-ECDSA-AES256-CCM"),
    (0xc0ae, "ECDHE-ECDSA-AES128-CCM8"),
    (0xc0af, "ECDHE-ECDSA-AES256-CCM8"),
    (0xcca8, "ECDHE-RSA-CHACHA20-POLY1305"),
    (0xcca9, "ECDHE-ECDSA-CHACHA20-POLY1305"),
    (0xccaa, "DHE-RSA-CHACHA20-POLY1305"),
];

const GROUPS: &Table = &[
    (0x0017, "prime256v1"),
    (0x0018, "secp384r1"),
    (0x0019, "secp521r1"),
    (0x001a, "brainpoolP256r1"),
    (0x001b, "brainpoolP384r1"),
    (0x001c, "brainpoolP512r1"),
    (0x001d, "X25519"),
    (0x001e, "X448"),
    (0x0100, "ffdhe2048"),
    (0x0101, "ffdhe3072"),
    (0x0102, "ffdhe4096"),
    (0x0103, "ffdhe6144"),
    (0x0104, "ffdhe8192"),
    (0x0200, "MLKEM512"),
    (0x0201, "MLKEM768"),
    (0x0202, "MLKEM1024"),
    (0x11eb, "SecP256r1MLKEM768"),
    (0x11ec, "X25519MLKEM768"),
    (0x11ed, "SecP384r1MLKEM1024"),
];

const SIGNATURES: &Table = &[
    (0x0201, "rsa_pkcs1_sha1"),
    (0x0203, "ecdsa_sha1"),
    (0x0401, "rsa_pkcs1_sha256"),
    (0x0403, "ecdsa_secp256r1_sha256"),
    (0x0501, "rsa_pkcs1_sha384"),
    (0x0503, "ecdsa_secp384r1_sha384"),
    (0x0601, "rsa_pkcs1_sha512"),
    (0x0603, "ecdsa_secp521r1_sha512"),
    (0x0804, "rsa_pss_rsae_sha256"),
    (0x0805, "rsa_pss_rsae_sha384"),
    (0x0806, "rsa_pss_rsae_sha512"),
    (0x0807, "ed25519"),
    (0x0808, "ed448"),
    (0x0809, "rsa_pss_pss_sha256"),
    (0x080a, "rsa_pss_pss_sha384"),
    (0x080b, "rsa_pss_pss_sha512"),
    (0x0904, "mldsa44"),
    (0x0905, "mldsa65"),
    (0x0906, "mldsa87"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CipherSuite, NamedGroup};

    #[test]
    fn tables_are_sorted() {
        for table in [CIPHERS, GROUPS, SIGNATURES] {
            assert!(table.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
    }

    /// What kp speaks has the same name where it is offered and where it is configured.
    #[test]
    fn own_names_are_in_the_tables() {
        for suite in CipherSuite::TLS13.into_iter().chain(CipherSuite::TLS12) {
            assert_eq!(cipher(suite.number()), Some(suite.name()), "{suite:?}");
        }
        for own in [
            NamedGroup::X25519MlKem768,
            NamedGroup::Secp256r1MlKem768,
            NamedGroup::MlKem768,
            NamedGroup::MlKem1024,
            NamedGroup::X25519,
            NamedGroup::Secp256r1,
            NamedGroup::Secp384r1,
        ] {
            assert_eq!(group(own.number()), Some(own.name()), "{own:?}");
        }
    }

    #[test]
    fn numbers_without_a_name_have_none() {
        assert_eq!(cipher(0x1302), Some("TLS_AES_256_GCM_SHA384"));
        // Drawn to keep servers tolerant (RFC 8701).
        assert_eq!(cipher(0x0a0a), None);
        assert_eq!(group(0x001d), Some("X25519"));
        assert_eq!(signature_scheme(0x0403), Some("ecdsa_secp256r1_sha256"));
    }
}
