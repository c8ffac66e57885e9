//! Distinguished names as text: RFC 2253, and OpenSSL's older form with slashes.

use std::fmt::Write;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Encode, Tag, Tagged};
use x509_cert::name::Name;

/// RFC 2253 as OpenSSL prints it with `XN_FLAG_RFC2253`: the parts from last to first, values escaped, everything that
/// is not ASCII as `\XX`.
pub(crate) fn rfc2253(name: &Name) -> String {
    let mut out = String::new();
    let parts: Vec<_> = name.iter_rdn().collect();
    for (index, part) in parts.iter().rev().enumerate() {
        if index > 0 {
            out.push(',');
        }
        let several: Vec<_> = part.iter().collect();
        for (index, attribute) in several.iter().rev().enumerate() {
            if index > 0 {
                out.push('+');
            }
            push_attribute(&mut out, attribute);
        }
    }
    out
}

/// `X509_NAME_oneline`'s form.
pub(crate) fn legacy(name: &Name) -> String {
    let mut out = String::new();
    for attribute in name.iter() {
        out.push('/');
        push_type(&mut out, attribute);
        out.push('=');
        for byte in attribute.value.value() {
            if matches!(byte, b' '..=b'~') {
                // What ends a part must not look like one (OpenSSL 1.1.1 and later).
                if matches!(byte, b'/' | b'+') {
                    out.push('\\');
                }
                out.push((*byte).into());
            } else {
                push_hex(&mut out, "\\x", *byte);
            }
        }
    }
    out
}

/// The values of all common names.
pub(crate) fn common_names(name: &Name) -> Vec<String> {
    name.iter()
        .filter(|attribute| attribute.oid == COMMON_NAME)
        .filter_map(text)
        .collect()
}

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// OpenSSL's short names of what stands in names.
const TYPES: [(&str, &str); 24] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.15", "businessCategory"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.20", "telephoneNumber"),
    ("2.5.4.41", "name"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.44", "generationQualifier"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.65", "pseudonym"),
    ("2.5.4.97", "organizationIdentifier"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

fn known_type(attribute: &AttributeTypeAndValue) -> Option<&'static str> {
    let oid = attribute.oid.to_string();
    TYPES
        .iter()
        .find(|(known, _)| *known == oid)
        .map(|(_, name)| *name)
}

fn push_type(out: &mut String, attribute: &AttributeTypeAndValue) {
    match known_type(attribute) {
        Some(name) => out.push_str(name),
        None => out.push_str(&attribute.oid.to_string()),
    }
}

fn push_attribute(out: &mut String, attribute: &AttributeTypeAndValue) {
    push_type(out, attribute);
    out.push('=');
    match text(attribute).filter(|_| known_type(attribute).is_some()) {
        Some(value) => push_escaped(out, &value),
        // RFC 2253 §2.4: what has no string form is shown as the bytes of its encoding.
        None => {
            out.push('#');
            for byte in attribute.value.to_der().unwrap_or_default() {
                push_hex(out, "", byte);
            }
        }
    }
}

/// The value as text, where it is of a kind of text.
fn text(attribute: &AttributeTypeAndValue) -> Option<String> {
    let value = &attribute.value;
    match value.tag() {
        Tag::Utf8String
        | Tag::PrintableString
        | Tag::Ia5String
        | Tag::VisibleString
        | Tag::NumericString => String::from_utf8(value.value().to_vec()).ok(),
        // Latin-1, in practice.
        Tag::TeletexString => Some(value.value().iter().map(|byte| char::from(*byte)).collect()),
        Tag::BmpString => {
            let units = value.value().as_chunks::<2>().0.iter();
            let units: Vec<u16> = units.map(|unit| u16::from_be_bytes(*unit)).collect();
            String::from_utf16(&units).ok()
        }
        _ => None,
    }
}

/// RFC 2253 §2.4.
fn push_escaped(out: &mut String, value: &str) {
    let last = value.len().saturating_sub(1);
    for (index, byte) in value.bytes().enumerate() {
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => {
                out.push('\\');
                out.push(byte.into());
            }
            b'#' if index == 0 => out.push_str("\\#"),
            b' ' if index == 0 || index == last => out.push_str("\\ "),
            b' '..=b'~' => out.push(byte.into()),
            _ => push_hex(out, "\\", byte),
        }
    }
}

fn push_hex(out: &mut String, before: &str, byte: u8) {
    // Writing to a string does not fail.
    let _ = write!(out, "{before}{byte:02X}");
}
