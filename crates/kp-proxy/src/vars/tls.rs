//! `$ssl_*`: the client's TLS connection. Without one none of them has a value, and neither has one that is empty.

use super::Evaluation;
use super::builtin::{bytes, hexadecimal, present};
use crate::Exchange;
use crate::tls::{ClientCertificate, ClientVerdict, TlsFacts, TlsOffer};
use kp_config::template::Builtin;
use kp_config::tls::names;
use kp_http::target::{Escape, escape_uri};
use std::io::Write;

impl Evaluation<'_> {
    /// Appends one of them; `None`: the variable is not one of these.
    pub(super) fn of_tls(
        self,
        builtin: Builtin,
        exchange: &Exchange,
        out: &mut Vec<u8>,
    ) -> Option<bool> {
        let facts = exchange.connection.tls.as_deref();
        match builtin {
            Builtin::Scheme => {
                return Some(bytes(if facts.is_some() { b"https" } else { b"http" }, out));
            }
            Builtin::Https => {
                return Some(bytes(if facts.is_some() { b"on" } else { b"" }, out));
            }
            _ => {}
        }
        if let Some(part) = certificate_part(builtin) {
            return Some(facts.is_some() && self.certificate(builtin, part, out));
        }
        let text: fn(&TlsFacts, &mut Vec<u8>) -> bool = match builtin {
            Builtin::SslProtocol => |facts, out| present(facts.protocol.as_bytes(), out),
            Builtin::SslCipher => |facts, out| present(facts.cipher.as_bytes(), out),
            Builtin::SslCurve => |facts, out| present(facts.curve.as_bytes(), out),
            Builtin::SslSigalg => |facts, out| present(facts.signature.as_bytes(), out),
            Builtin::SslClientSigalg => {
                |facts, out| present(facts.client_signature.as_bytes(), out)
            }
            Builtin::SslServerName => |facts, out| optional(facts.server_name.as_deref(), out),
            Builtin::SslAlpnProtocol => |facts, out| optional(facts.alpn.as_deref(), out),
            Builtin::SslSessionReused => {
                |facts, out| bytes(if facts.reused { b"r" } else { b"." }, out)
            }
            Builtin::SslSessionId => |facts, out| hexadecimal(&facts.session_id, out),
            // Early data is never taken.
            Builtin::SslEarlyData => |_, _| false,
            Builtin::SslCiphers => {
                |facts, out| offered(facts, |offer| &offer.ciphers, names::cipher, out)
            }
            Builtin::SslCurves => {
                |facts, out| offered(facts, |offer| &offer.groups, names::group, out)
            }
            Builtin::SslSigalgs => |facts, out| {
                offered(
                    facts,
                    |offer| &offer.signatures,
                    names::signature_scheme,
                    out,
                )
            },
            Builtin::SslClientVerify => |facts, out| verdict(facts.client, out),
            _ => return None,
        };
        Some(facts.is_some_and(|facts| text(facts, out)))
    }

    fn certificate(self, builtin: Builtin, part: ClientCertificate, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        if !self.context.facts.client_certificate(part, out) {
            return false;
        }
        match builtin {
            // A header field of several lines, as it was allowed once: each line but the first begins with a tab.
            Builtin::SslClientCert => {
                let pem = out.split_off(start);
                let pem = pem.strip_suffix(b"\n").unwrap_or(&pem);
                for &byte in pem {
                    out.push(byte);
                    if byte == b'\n' {
                        out.push(b'\t');
                    }
                }
            }
            Builtin::SslClientEscapedCert => {
                let pem = out.split_off(start);
                escape_uri(out, &pem, Escape::Component);
            }
            _ => {}
        }
        out.len() > start
    }
}

fn certificate_part(builtin: Builtin) -> Option<ClientCertificate> {
    Some(match builtin {
        Builtin::SslClientCert | Builtin::SslClientRawCert | Builtin::SslClientEscapedCert => {
            ClientCertificate::Pem
        }
        Builtin::SslClientSubject => ClientCertificate::Subject,
        Builtin::SslClientIssuer => ClientCertificate::Issuer,
        Builtin::SslClientLegacySubject => ClientCertificate::LegacySubject,
        Builtin::SslClientLegacyIssuer => ClientCertificate::LegacyIssuer,
        Builtin::SslClientSerial => ClientCertificate::Serial,
        Builtin::SslClientFingerprint => ClientCertificate::Fingerprint,
        Builtin::SslClientStart => ClientCertificate::Start,
        Builtin::SslClientEnd => ClientCertificate::End,
        Builtin::SslClientDaysLeft => ClientCertificate::DaysLeft,
        _ => return None,
    })
}

fn optional(text: Option<&str>, out: &mut Vec<u8>) -> bool {
    text.is_some_and(|text| present(text.as_bytes(), out))
}

/// Names with `:` between them; a number without a name as `0x…`, as nginx.
fn offered(
    facts: &TlsFacts,
    numbers: fn(&TlsOffer) -> &Vec<u16>,
    name: fn(u16) -> Option<&'static str>,
    out: &mut Vec<u8>,
) -> bool {
    let Some(offer) = facts.offer.as_deref() else {
        return false;
    };
    let numbers = numbers(offer);
    for (index, &number) in numbers.iter().enumerate() {
        if index > 0 {
            out.push(b':');
        }
        match name(number) {
            Some(name) => out.extend_from_slice(name.as_bytes()),
            // Writing to a Vec does not fail.
            None => drop(write!(out, "0x{number:04x}")),
        }
    }
    !numbers.is_empty()
}

fn verdict(verdict: ClientVerdict, out: &mut Vec<u8>) -> bool {
    match verdict {
        ClientVerdict::None => bytes(b"NONE", out),
        ClientVerdict::Success => bytes(b"SUCCESS", out),
        ClientVerdict::Failed { reason, .. } => {
            out.extend_from_slice(b"FAILED:");
            bytes(reason.as_bytes(), out)
        }
    }
}
