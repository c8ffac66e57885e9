//! TLS: what http and server say about it, and the setters of both sides, clients and upstreams.

use super::Reader;
use super::level::inherited;
use crate::diagnostic::Diagnostic;
use crate::model::{CertificateCache, CipherSuite, NamedGroup, TlsFile, TlsProtocols, VerifyMode};
use crate::span::Spanned;
use crate::syntax::{Directive, Word};
use crate::tls::{Selection, cipher_string, groups, tls13_suites};
use crate::value::{self, Finest};
use std::path::PathBuf;
use std::time::Duration;

inherited! {
    /// What http or a server says about TLS with clients. A list is one setting, as on every level.
    TlsDraft {
        certificates: Vec<TlsFileDraft>,
        keys: Vec<TlsFileDraft>,
        passwords: PathBuf,
        reject_handshake: bool,
        protocols: TlsProtocols,
        ciphers: Vec<CipherSuite>,
        commands: TlsCommands,
        groups: Vec<NamedGroup>,
        prefer_server_ciphers: bool,
        buffer_size: usize,
        handshake_timeout: Duration,
        session_tickets: bool,
        ticket_keys: Vec<Spanned<PathBuf>>,
        session_timeout: Duration,
        verify_client: VerifyMode,
        client_certificate: PathBuf,
        trusted_certificate: PathBuf,
        verify_depth: u32,
        crl: PathBuf,
        stapling: bool,
        stapling_file: PathBuf,
        /// `None`: `off`.
        certificate_cache: Option<CertificateCache>,
        certificate_reload: bool,
    }
}

/// A certificate or a key.
#[derive(Debug, Clone)]
pub(crate) struct TlsFileDraft {
    /// As written, for messages.
    pub(crate) text: String,
    pub(crate) file: Spanned<TlsFile>,
}

/// What `ssl_conf_command` says.
#[derive(Debug, Clone, Default)]
pub(crate) struct TlsCommands {
    /// `Ciphersuites`
    pub(crate) suites: Option<Vec<CipherSuite>>,
}

/// The versions by name; `None`: kp does not speak it.
const PROTOCOLS: [(&str, Option<TlsProtocols>); 6] = [
    ("SSLv2", None),
    ("SSLv3", None),
    ("TLSv1", None),
    ("TLSv1.1", None),
    (
        "TLSv1.2",
        Some(TlsProtocols {
            v12: true,
            v13: false,
        }),
    ),
    (
        "TLSv1.3",
        Some(TlsProtocols {
            v12: false,
            v13: true,
        }),
    ),
];

const SUITES_HINT: &str =
    "kp speaks ECDHE with AES-GCM or ChaCha20-Poly1305, with ECDSA and RSA certificates";

impl Reader<'_> {
    /// `ssl_certificate`, `ssl_certificate_key`.
    pub(crate) fn tls_files(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<TlsFileDraft>>>,
    ) {
        if let Some(word) = directive.args.first() {
            let file = self.tls_file_word(word);
            Self::push(slot, file, word.span);
        }
    }

    /// `proxy_ssl_certificate`, `proxy_ssl_certificate_key`.
    pub(crate) fn tls_file(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<TlsFileDraft>>,
    ) {
        self.put(directive, slot, |reader, word| {
            Some(reader.tls_file_word(word))
        });
    }

    /// After an error it is a file all the same, so that it is not missed as well.
    fn tls_file_word(&mut self, word: &Word) -> TlsFileDraft {
        let schemes = ["engine:", "store:"];
        let mut foreign = schemes.iter();
        if let Some(scheme) = foreign.find(|scheme| word.text.starts_with(**scheme)) {
            self.refuse(
                word.span,
                format!("\"{scheme}\" keys are not supported"),
                "a key is read from a file, or from \"data:$variable\"",
            );
        }
        let (data, text) = match word.text.strip_prefix("data:") {
            Some(text) => (true, text),
            None => (false, word.text.as_str()),
        };
        let template = self.compile_text(text, word.span).unwrap_or_default();
        let file = match template.as_literal() {
            _ if data => TlsFile::Data(template),
            Some(text) => TlsFile::Path(self.beside_configuration(text)),
            None => TlsFile::Template {
                path: template,
                directory: self.environment.directory.clone(),
            },
        };
        TlsFileDraft {
            text: word.text.clone(),
            file: Spanned::new(file, word.span),
        }
    }

    /// A path beside the configuration.
    pub(crate) fn tls_path(&mut self, directive: &Directive, slot: &mut Option<Spanned<PathBuf>>) {
        self.put(directive, slot, |reader, word| {
            Some(reader.beside_configuration(&word.text))
        });
    }

    /// `ssl_session_ticket_key`.
    pub(crate) fn tls_paths(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<Spanned<PathBuf>>>>,
    ) {
        if let Some(word) = directive.args.first() {
            let path = self.beside_configuration(&word.text);
            Self::push(slot, Spanned::new(path, word.span), word.span);
        }
    }

    /// `ssl_protocols`, `proxy_ssl_protocols`: the versions add up, as in nginx. What kp does not speak is left out with one
    /// warning; a directive that names nothing else is an error.
    pub(crate) fn tls_protocols(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<TlsProtocols>>,
    ) {
        let mut left_out: Vec<&Word> = Vec::new();
        for word in &directive.args {
            let choices = PROTOCOLS.map(|(name, protocol)| (name, (name, protocol)));
            match self.choose(word, &choices) {
                Some((name, Some(protocol))) => self.add_protocol(word, name, protocol, slot),
                Some((_, None)) => left_out.push(word),
                None => {}
            }
        }
        let Some(first) = left_out.first() else {
            return;
        };
        let names: Vec<String> = left_out
            .iter()
            .map(|word| format!("\"{}\"", word.text))
            .collect();
        let (directive, names) = (&directive.name.text, names.join(", "));
        if slot.is_none() {
            self.refuse(
                first.span,
                format!("no version is left in \"{directive}\": {names} is not supported"),
                "kp speaks TLSv1.2 and TLSv1.3",
            );
        } else {
            self.warning(
                first.span,
                format!("not supported in \"{directive}\", left out: {names}"),
                "kp speaks TLSv1.2 and TLSv1.3; what is older is broken (RFC 8996), and current programs do not need it",
            );
        }
    }

    fn add_protocol(
        &mut self,
        word: &Word,
        name: &str,
        protocol: TlsProtocols,
        slot: &mut Option<Spanned<TlsProtocols>>,
    ) {
        let sum = slot.get_or_insert_with(|| {
            let none = TlsProtocols {
                v12: false,
                v13: false,
            };
            Spanned::new(none, word.span)
        });
        if (protocol.v12 && sum.value.v12) || (protocol.v13 && sum.value.v13) {
            let message = format!("duplicate value \"{name}\"");
            self.warning(word.span, message, "once is enough");
        }
        sum.value.v12 |= protocol.v12;
        sum.value.v13 |= protocol.v13;
    }

    /// `ssl_ciphers`, `proxy_ssl_ciphers`.
    pub(crate) fn tls_ciphers(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<CipherSuite>>>,
    ) {
        self.put(directive, slot, |reader, word| {
            let name = &directive.name.text;
            reader.selected(
                word,
                cipher_string(&word.text),
                name,
                "no cipher match",
                SUITES_HINT,
            )
        });
    }

    /// `ssl_ecdh_curve`.
    pub(crate) fn tls_groups(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<NamedGroup>>>,
    ) {
        const HINT: &str = "kp has X25519MLKEM768, SecP256r1MLKEM768, MLKEM768, MLKEM1024, X25519, prime256v1 and secp384r1; `auto` is a good choice of them";
        self.put(directive, slot, |reader, word| {
            let name = &directive.name.text;
            reader.selected(word, groups(&word.text), name, "no group is left", HINT)
        });
    }

    /// What is left of a list. What kp does not have is told in one warning; if nothing is left, that is an error.
    fn selected<T>(
        &mut self,
        word: &Word,
        selection: Selection<T>,
        directive: &str,
        nothing_left: &str,
        hint: &str,
    ) -> Option<Vec<T>> {
        if selection.chosen.is_empty() {
            let message = format!("{nothing_left} in \"{directive}\" \"{}\"", word.text);
            self.refuse(word.span, message, hint);
            return None;
        }
        let names: Vec<String> = selection
            .left_out
            .iter()
            .map(|name| format!("\"{name}\""))
            .collect();
        if !names.is_empty() {
            let message = format!(
                "not supported in \"{directive}\", left out: {}",
                names.join(", ")
            );
            self.warning(word.span, message, hint);
        }
        Some(selection.chosen)
    }

    /// `ssl_conf_command`, `proxy_ssl_conf_command`.
    pub(crate) fn tls_command(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<TlsCommands>>,
    ) {
        let [command, value] = directive.args.as_slice() else {
            return;
        };
        let name = &directive.name.text;
        let commands =
            slot.get_or_insert_with(|| Spanned::new(TlsCommands::default(), command.span));
        if command.text.eq_ignore_ascii_case("Ciphersuites") {
            let hint = "kp has TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256 and TLS_AES_128_GCM_SHA256";
            let selection = tls13_suites(&value.text);
            commands.value.suites = self.selected(value, selection, name, "no cipher match", hint);
            return;
        }
        let text = &command.text;
        let message = format!("\"{text}\" in \"{name}\" is not supported");
        // Options tune what is kp's own business; the others decide about security, so leaving them out is not an option.
        if text.eq_ignore_ascii_case("Options") {
            let message = format!("{message}, left out");
            self.warning(command.span, message, "kp is not built on OpenSSL");
            return;
        }
        let prefix = name.trim_end_matches("conf_command");
        let instead = [
            ("CipherString", "ciphers"),
            ("MinProtocol", "protocols"),
            ("MaxProtocol", "protocols"),
            ("Protocol", "protocols"),
            ("Curves", "ecdh_curve"),
            ("Groups", "ecdh_curve"),
            ("VerifyCAFile", "trusted_certificate"),
        ];
        let mut instead = instead.iter();
        let hint = match instead.find(|(known, _)| text.eq_ignore_ascii_case(known)) {
            Some((_, directive)) => format!("write it with \"{prefix}{directive}\""),
            None => "\"Ciphersuites\" is the one command there is".to_owned(),
        };
        self.refuse(command.span, message, hint);
    }

    /// `ssl_verify_client`.
    pub(crate) fn verify_client(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<VerifyMode>>,
    ) {
        let choices = [
            ("off", VerifyMode::Off),
            ("on", VerifyMode::On),
            ("optional", VerifyMode::Optional),
            ("optional_no_ca", VerifyMode::OptionalNoCa),
        ];
        self.choice(directive, slot, &choices);
    }

    /// `ssl_certificate_cache`, `proxy_ssl_certificate_cache`.
    pub(crate) fn certificate_cache(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Option<CertificateCache>>>,
    ) {
        let Some(first) = directive.args.first() else {
            return;
        };
        if let [word] = directive.args.as_slice()
            && word.text == "off"
        {
            *slot = Some(Spanned::new(None, word.span));
            return;
        }
        let mut max = None;
        let mut cache = CertificateCache {
            max: 0,
            inactive: Duration::from_secs(10),
            valid: Duration::from_secs(60),
        };
        for word in &directive.args {
            let time = |name| {
                let text = Self::parameter(word, name)?;
                value::time(text, Finest::Seconds)
            };
            let number = Self::parameter(word, "max").and_then(value::number);
            if let Some(number) = number.and_then(|number| usize::try_from(number).ok())
                && number > 0
            {
                max = Some(number);
            } else if let Some(inactive) = time("inactive") {
                cache.inactive = inactive;
            } else if let Some(valid) = time("valid") {
                cache.valid = valid;
            } else {
                let error =
                    Diagnostic::error(word.span, format!("invalid parameter \"{}\"", word.text));
                self.report(error.hint("the form is `max=1000 inactive=20s valid=1m`, or `off`"));
                return;
            }
        }
        let Some(max) = max else {
            let name = &directive.name.text;
            let message = format!("\"{name}\" must have the \"max\" parameter");
            return self.refuse(first.span, message, "such as `max=1000`");
        };
        cache.max = max;
        *slot = Some(Spanned::new(Some(cache), first.span));
    }

    /// `ssl_session_cache`: checked as in nginx; tickets do what it is for.
    pub(crate) fn session_cache(&mut self, directive: &Directive) {
        let mut wanted = false;
        for word in &directive.args {
            let text = word.text.as_str();
            let invalid = |problem: &str| {
                Diagnostic::error(word.span, problem.to_owned())
                    .hint("the form is `shared:name:size`, such as shared:SSL:10m, or `off`")
            };
            let size = match text {
                "off" | "none" => continue,
                "builtin" => Some(u64::MAX),
                _ => match (text.strip_prefix("builtin:"), text.strip_prefix("shared:")) {
                    (Some(number), _) => value::number(number).map(|_| u64::MAX),
                    (_, Some(rest)) => rest
                        .split_once(':')
                        .filter(|(name, _)| !name.is_empty())
                        .and_then(|(_, size)| value::size(size)),
                    _ => None,
                },
            };
            wanted = true;
            match size {
                None => {
                    self.report(invalid(&format!("invalid session cache \"{text}\"")));
                    return;
                }
                // nginx: at least eight pages.
                Some(size) if size < 8 * 4096 => {
                    self.report(invalid(&format!("session cache \"{text}\" is too small")));
                    return;
                }
                Some(_) => {}
            }
        }
        if wanted {
            self.warn_once(directive.at,
                "\"ssl_session_cache\" changes nothing: sessions are resumed by tickets only",
                "tickets work from any worker to any other and across reloads, for TLSv1.2 and TLSv1.3; with \"ssl_session_tickets off\" no session is resumed",
            );
        }
    }

    /// A flag that kp has nothing for; `on` is told once.
    pub(crate) fn only_off(&mut self, directive: &Directive, message: &str, hint: &str) {
        let mut slot = None;
        self.flag(directive, &mut slot);
        if slot.is_some_and(|flag| flag.value) {
            self.warn_once(directive.at, message, hint);
        }
    }

    /// `proxy_ssl_alpn`.
    pub(crate) fn alpn(&mut self, directive: &Directive, slot: &mut Option<Spanned<Vec<String>>>) {
        for word in &directive.args {
            let length = word.text.len();
            if length == 0 || length > usize::from(u8::MAX) {
                let message = format!("invalid protocol \"{}\"", word.text);
                self.refuse(word.span, message, "a protocol's name has 1 to 255 bytes");
            } else if word.text == "h2" {
                let message = "\"h2\" in \"proxy_ssl_alpn\" is not supported";
                let hint =
                    "kp speaks HTTP/1.1 with upstreams, so an upstream must not choose HTTP/2";
                self.refuse(word.span, message, hint);
            } else {
                Self::push(slot, word.text.clone(), word.span);
            }
        }
    }
}
