//! The PROXY protocol, versions 1 and 2: what a proxy says in front of a connection about who is behind it.
//!
//! Decides whether bytes are such a header, where it ends and whom it names; and writes one. Whether the word of its sender
//! is taken is decided elsewhere. The rules are those of HAProxy's `proxy-protocol.txt`, read strictly, but address
//! families that are not known name nobody, as in nginx.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest header that is read, as in nginx. One of version 1 has at most 107 bytes.
pub const PROXY_HEADER_MAX: usize = 4096;
/// Longest line of version 1, its end included (§2.1).
const LINE_MAX: usize = 107;
/// How a header of version 2 begins (§2.2).
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The signature, version and command, family and transport, length.
const FIXED: usize = 16;
/// Two paths, in the address block of unix sockets.
const UNIX_ADDRESSES: usize = 216;
/// PP2_TYPE_CRC32C.
const TYPE_CHECKSUM: u8 = 0x03;
/// PP2_TYPE_SSL: one byte about the client, four about its certificate, then TLVs.
const TYPE_TLS: u8 = 0x20;
const TLS_FIXED: usize = 5;

/// Whom a PROXY header names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Who connected to the proxy.
    pub source: SocketAddr,
    /// Where to.
    pub destination: SocketAddr,
    /// What version 2 says besides: type, length and value, one after another.
    tlvs: Box<[u8]>,
}

/// Why bytes are no PROXY header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyHeaderError {
    /// They do not even begin like one.
    Missing,
    /// They do not follow the rules.
    Broken,
    /// A version that does not exist, behind the signature of the second.
    Version(u8),
    /// Longer than [`PROXY_HEADER_MAX`].
    TooLarge,
    /// Its checksum is not that of its bytes.
    Checksum,
}

/// What the beginning of a connection is.
#[derive(Debug, PartialEq, Eq)]
pub enum ProxyPreamble {
    /// The header is not all there.
    Partial,
    /// A header of so many bytes. It names nobody where the proxy speaks for itself (`LOCAL`) or does not know
    /// (`UNKNOWN`): who connected is the client then.
    Whole(usize, Option<ProxyHeader>),
}

impl ProxyHeader {
    /// Reads the header at the beginning of a connection.
    pub fn read(bytes: &[u8]) -> Result<ProxyPreamble, ProxyHeaderError> {
        if begins(bytes, &SIGNATURE) {
            binary(bytes)
        } else if begins(bytes, b"PROXY ") {
            line(bytes)
        } else if bytes.starts_with(b"PROXY") {
            Err(ProxyHeaderError::Broken)
        } else {
            Err(ProxyHeaderError::Missing)
        }
    }

    /// A header that names two addresses and says no more.
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Self {
        Self {
            source,
            destination,
            tlvs: Box::default(),
        }
    }

    /// Appends the value of a TLV by nginx's name for it, without `$proxy_protocol_tlv_`; false where there is none.
    pub fn tlv(&self, name: &str, out: &mut Vec<u8>) -> bool {
        let (tlvs, kind) = match name.strip_prefix("ssl_") {
            Some(name) => {
                let Some(tls) = find(&self.tlvs, TYPE_TLS) else {
                    return false;
                };
                let Some((fixed, tlvs)) = tls.split_at_checked(TLS_FIXED) else {
                    return false;
                };
                if let ("verify", [_, verify @ ..]) = (name, fixed) {
                    let verify = verify.try_into().map_or(0, u32::from_be_bytes);
                    out.extend_from_slice(verify.to_string().as_bytes());
                    return true;
                }
                (tlvs, tls_type(name))
            }
            None => (&*self.tlvs, plain_type(name)),
        };
        match kind.and_then(|kind| find(tlvs, kind)) {
            Some(value) => {
                out.extend_from_slice(value);
                true
            }
            None => false,
        }
    }

    /// Appends a header of version 1; `None` is a client without an address.
    pub fn write_line(header: Option<&Self>, out: &mut Vec<u8>) {
        let text = match header.map(Self::of_one_family) {
            None => "PROXY UNKNOWN\r\n".to_owned(),
            Some((source, destination)) => {
                let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
                let (from, to) = (source.port(), destination.port());
                let (source, destination) = (source.ip(), destination.ip());
                format!("PROXY {family} {source} {destination} {from} {to}\r\n")
            }
        };
        out.extend_from_slice(text.as_bytes());
    }

    /// Appends a header of version 2; `None` is a client without an address.
    pub fn write_binary(header: Option<&Self>, out: &mut Vec<u8>) {
        out.extend_from_slice(&SIGNATURE);
        let Some((source, destination)) = header.map(Self::of_one_family) else {
            // LOCAL, of no family.
            return out.extend_from_slice(&[0x20, 0, 0, 0]);
        };
        match (source.ip(), destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                out.extend_from_slice(&[0x21, 0x11, 0, 12]);
                out.extend_from_slice(&source.octets());
                out.extend_from_slice(&destination.octets());
            }
            (source, destination) => {
                out.extend_from_slice(&[0x21, 0x21, 0, 36]);
                out.extend_from_slice(&mapped(source).octets());
                out.extend_from_slice(&mapped(destination).octets());
            }
        }
        out.extend_from_slice(&source.port().to_be_bytes());
        out.extend_from_slice(&destination.port().to_be_bytes());
    }

    /// Both addresses, an IPv4 address beside an IPv6 address mapped into that family (RFC 4291 §2.5.5.2).
    fn of_one_family(&self) -> (SocketAddr, SocketAddr) {
        if self.source.is_ipv4() == self.destination.is_ipv4() {
            return (self.source, self.destination);
        }
        let map =
            |address: SocketAddr| SocketAddr::new(mapped(address.ip()).into(), address.port());
        (map(self.source), map(self.destination))
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Whether what is there of the beginning is as it should be.
fn begins(bytes: &[u8], beginning: &[u8]) -> bool {
    bytes
        .iter()
        .zip(beginning)
        .all(|(byte, expected)| byte == expected)
}

/// Version 1: `PROXY TCP4 192.0.2.1 192.0.2.2 1234 80` or `PROXY UNKNOWN …`, ended by CR LF (§2.1).
fn line(bytes: &[u8]) -> Result<ProxyPreamble, ProxyHeaderError> {
    let window = bytes.get(..LINE_MAX).unwrap_or(bytes);
    let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
        if window.len() == LINE_MAX {
            return Err(ProxyHeaderError::Broken);
        }
        return Ok(ProxyPreamble::Partial);
    };
    let text = window
        .get(..end)
        .and_then(|line| line.strip_suffix(b"\r"))
        .filter(|line| !line.contains(&b'\r'))
        .and_then(|line| std::str::from_utf8(line).ok())
        .ok_or(ProxyHeaderError::Broken)?;
    let mut words = text.split(' ').skip(1);
    let mut word = || words.next().ok_or(ProxyHeaderError::Broken);
    let family = word()?;
    if family == "UNKNOWN" {
        return Ok(ProxyPreamble::Whole(end + 1, None));
    }
    let (source, destination) = (word()?, word()?);
    let (from, to) = (port(word()?)?, port(word()?)?);
    if words.next().is_some() {
        return Err(ProxyHeaderError::Broken);
    }
    let address = |text: &str| -> Option<IpAddr> {
        match family {
            "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
            "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            _ => None,
        }
    };
    let (source, destination) = address(source)
        .zip(address(destination))
        .ok_or(ProxyHeaderError::Broken)?;
    let header = ProxyHeader::new((source, from).into(), (destination, to).into());
    Ok(ProxyPreamble::Whole(end + 1, Some(header)))
}

/// Decimal digits without leading zeros, at most 65535.
fn port(text: &str) -> Result<u16, ProxyHeaderError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let plain = !text.starts_with('0') || text == "0";
    text.parse()
        .ok()
        .filter(|_| digits && plain)
        .ok_or(ProxyHeaderError::Broken)
}

/// Version 2 (§2.2).
fn binary(bytes: &[u8]) -> Result<ProxyPreamble, ProxyHeaderError> {
    let Some(version) = bytes.get(SIGNATURE.len()) else {
        return Ok(ProxyPreamble::Partial);
    };
    if version >> 4 != 2 {
        return Err(ProxyHeaderError::Version(version >> 4));
    }
    let Some([command, family, length @ ..]) = bytes.get(SIGNATURE.len()..FIXED) else {
        return Ok(ProxyPreamble::Partial);
    };
    let length = usize::from(length.try_into().map_or(0, u16::from_be_bytes));
    let total = FIXED + length;
    if total > PROXY_HEADER_MAX {
        return Err(ProxyHeaderError::TooLarge);
    }
    let Some(block) = bytes.get(FIXED..total) else {
        return Ok(ProxyPreamble::Partial);
    };
    let header = match command & 15 {
        // LOCAL: whatever follows is to be ignored.
        0 => None,
        1 => proxied(*family, block)?,
        // "Receivers must drop connections presenting unexpected values here."
        _ => return Err(ProxyHeaderError::Broken),
    };
    if command & 15 == 1 {
        check_sum(bytes.get(..total).unwrap_or_default(), *family)?;
    }
    Ok(ProxyPreamble::Whole(total, header))
}

/// The addresses of a block, and the TLVs behind them. Other than streams over IP name nobody.
fn proxied(family: u8, block: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    let Some(length) = addresses_len(family) else {
        return Ok(None);
    };
    let (addresses, tlvs) = block
        .split_at_checked(length)
        .ok_or(ProxyHeaderError::Broken)?;
    if !is_chain(tlvs) {
        return Err(ProxyHeaderError::Broken);
    }
    let (source, destination): (IpAddr, IpAddr) = match (family, addresses) {
        (0x11, [a, b, c, d, e, f, g, h, ..]) => (
            Ipv4Addr::from([*a, *b, *c, *d]).into(),
            Ipv4Addr::from([*e, *f, *g, *h]).into(),
        ),
        (0x21, addresses) => match (v6(addresses, 0), v6(addresses, 16)) {
            (Some(source), Some(destination)) => (source, destination),
            _ => return Err(ProxyHeaderError::Broken),
        },
        _ => return Ok(None),
    };
    let [.., a, b, c, d] = addresses else {
        return Err(ProxyHeaderError::Broken);
    };
    Ok(Some(ProxyHeader {
        source: (source, u16::from_be_bytes([*a, *b])).into(),
        destination: (destination, u16::from_be_bytes([*c, *d])).into(),
        tlvs: tlvs.into(),
    }))
}

fn v6(addresses: &[u8], at: usize) -> Option<IpAddr> {
    let octets: [u8; 16] = addresses.get(at..at + 16)?.try_into().ok()?;
    Some(Ipv6Addr::from(octets).into())
}

/// Length of the address block; `None` for an unknown family, whose addresses cannot be told from what follows them.
fn addresses_len(family: u8) -> Option<usize> {
    match family {
        0 => Some(0),
        0x11 | 0x12 => Some(12),
        0x21 | 0x22 => Some(36),
        0x31 | 0x32 => Some(UNIX_ADDRESSES),
        _ => None,
    }
}

/// The checksum, if there is one, is that of the whole header with itself as zeros (§2.2.3). A second one is refused: each
/// costs a look at every byte.
fn check_sum(header: &[u8], family: u8) -> Result<(), ProxyHeaderError> {
    let Some(length) = addresses_len(family) else {
        return Ok(());
    };
    let mut at = FIXED + length;
    let tlvs = header.get(at..).unwrap_or_default();
    let mut checked = false;
    for (kind, value) in (Tlvs { rest: tlvs }) {
        at += 3;
        if kind == TYPE_CHECKSUM {
            let (Ok(stated), false) = (value.try_into().map(u32::from_be_bytes), checked) else {
                return Err(ProxyHeaderError::Broken);
            };
            checked = true;
            let zeroed = header.iter().enumerate().map(|(index, byte)| {
                let own = (at..at + value.len()).contains(&index);
                if own { 0 } else { *byte }
            });
            if crc32c(zeroed) != stated {
                return Err(ProxyHeaderError::Checksum);
            }
        }
        at += value.len();
    }
    Ok(())
}

/// CRC-32C (RFC 9260 Appendix A), bit by bit: headers are short and few have one.
fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    const REVERSED: u32 = 0x82f6_3b78;
    !bytes.fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| {
            (sum >> 1) ^ (REVERSED & (sum & 1).wrapping_neg())
        })
    })
}

/// Types and values, as long as they are whole.
struct Tlvs<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [kind, high, low, rest @ ..] = self.rest else {
            return None;
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (value, rest) = rest.split_at_checked(length)?;
        self.rest = rest;
        Some((*kind, value))
    }
}

/// Whether TLVs fill these bytes.
fn is_chain(bytes: &[u8]) -> bool {
    let mut tlvs = Tlvs { rest: bytes };
    while tlvs.next().is_some() {}
    tlvs.rest.is_empty()
}

fn find(tlvs: &[u8], wanted: u8) -> Option<&[u8]> {
    (Tlvs { rest: tlvs }).find_map(|(kind, value)| (kind == wanted).then_some(value))
}

/// The type of a TLV by name, or by number as `0xNN`.
fn plain_type(name: &str) -> Option<u8> {
    Some(match name {
        "alpn" => 0x01,
        "authority" => 0x02,
        "unique_id" => 0x05,
        "ssl" => TYPE_TLS,
        "netns" => 0x30,
        _ => return numbered(name),
    })
}

/// The same among those about TLS.
fn tls_type(name: &str) -> Option<u8> {
    Some(match name {
        "version" => 0x21,
        "cn" => 0x22,
        "cipher" => 0x23,
        "sig_alg" => 0x24,
        "key_alg" => 0x25,
        _ => return numbered(name),
    })
}

fn numbered(name: &str) -> Option<u8> {
    let digits = name.strip_prefix("0x")?.trim_start_matches('0');
    let hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    match digits {
        "" => Some(0),
        _ => u8::from_str_radix(digits, 16).ok().filter(|_| hexadecimal),
    }
}

#[cfg(test)]
mod tests;
