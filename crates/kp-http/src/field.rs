//! Field lines: what a name means and where a field lies in its head.
//!
//! Decides: which names kp knows (a table made at compile time), which names nginx would drop
//! (`ignore_invalid_headers`, `underscores_in_headers`), what a legal name and value is (RFC 9110 §5.1, §5.5).
//! Does not decide what a field does to framing (`framing`) or to forwarding (`hop`).

use std::ops::Range;

macro_rules! known_names {
    ($($variant:ident $text:literal),* $(,)?) => {
        /// A field name that some part of kp asks for by meaning. `Other` is every name not in the table.
        #[repr(u8)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        #[allow(missing_docs)]
        pub enum Known { #[default] Other, $($variant),* }

        const TABLE: &[(Known, &str)] = &[(Known::Other, ""), $((Known::$variant, $text)),*];
    };
}

known_names! {
    Host "Host", Connection "Connection", ContentLength "Content-Length", TransferEncoding "Transfer-Encoding",
    KeepAlive "Keep-Alive", ProxyConnection "Proxy-Connection", Te "TE", Trailer "Trailer", Upgrade "Upgrade",
    Expect "Expect", Date "Date", Server "Server", Location "Location", Refresh "Refresh", SetCookie "Set-Cookie",
    ContentType "Content-Type", ContentEncoding "Content-Encoding", ContentRange "Content-Range", Cookie "Cookie",
    UserAgent "User-Agent", Referer "Referer", Accept "Accept", AcceptEncoding "Accept-Encoding",
    AcceptLanguage "Accept-Language", AcceptRanges "Accept-Ranges", Authorization "Authorization",
    ProxyAuthenticate "Proxy-Authenticate", ProxyAuthorization "Proxy-Authorization",
    WwwAuthenticate "WWW-Authenticate", Forwarded "Forwarded", Via "Via", XForwardedFor "X-Forwarded-For",
    XForwardedProto "X-Forwarded-Proto", XForwardedHost "X-Forwarded-Host", XForwardedPort "X-Forwarded-Port",
    XRealIp "X-Real-IP", XRequestId "X-Request-Id", CacheControl "Cache-Control", Expires "Expires", ETag "ETag",
    LastModified "Last-Modified", IfModifiedSince "If-Modified-Since", IfUnmodifiedSince "If-Unmodified-Since",
    IfMatch "If-Match", IfNoneMatch "If-None-Match", IfRange "If-Range", Range "Range", Vary "Vary", Age "Age",
    Pragma "Pragma", Allow "Allow", RetryAfter "Retry-After", Link "Link", MaxForwards "Max-Forwards",
    Status "Status", XAccelRedirect "X-Accel-Redirect", XAccelExpires "X-Accel-Expires",
    XAccelLimitRate "X-Accel-Limit-Rate", XAccelBuffering "X-Accel-Buffering", XAccelCharset "X-Accel-Charset",
}

/// Places of the hash table; a power of two, and so many that most names of others meet an empty one.
const PLACES: usize = 256;

/// The names by their hash, as places in the table. 0 is empty (`Other` is never looked up); names that meet are in
/// neighbouring places.
static BY_HASH: [u8; PLACES] = by_hash();

const _: () = assert!(TABLE.len() <= 64, "a set of known names is one word");

const fn by_hash() -> [u8; PLACES] {
    let mut places = [0; PLACES];
    let mut at = 1;
    while at < TABLE.len() {
        let name = TABLE[at].1.as_bytes();
        let mut place = hash(name.len(), name[0], name[name.len() - 1]);
        while places[place] != 0 {
            place = (place + 1) % PLACES;
        }
        places[place] = at as u8;
        at += 1;
    }
    places
}

/// Length, first and last letter tell nearly all known names apart. Bit 0x20 is the case of a letter.
const fn hash(length: usize, first: u8, last: u8) -> usize {
    let key = (length as u32) << 16 | ((first | 0x20) as u32) << 8 | (last | 0x20) as u32;
    (key.wrapping_mul(0x9e37_79b1) >> 24) as usize % PLACES
}

impl Known {
    /// The meaning of a name, whatever its case.
    #[must_use]
    pub fn of(name: &[u8]) -> Self {
        let (Some(first), Some(last)) = (name.first(), name.last()) else {
            return Self::Other;
        };
        let mut place = hash(name.len(), *first, *last);
        loop {
            let at = usize::from(BY_HASH[place]);
            if at == 0 {
                return Self::Other;
            }
            if let Some((known, text)) = TABLE.get(at)
                && text.len() == name.len()
                && same_name(text.as_bytes(), name)
            {
                return *known;
            }
            place = (place + 1) % PLACES;
        }
    }

    /// Its bit in a set of known names.
    pub(crate) fn bit(self) -> u64 {
        1 << self as u8
    }

    /// The name in its usual spelling; empty for `Other`.
    #[must_use]
    pub fn name(self) -> &'static str {
        TABLE.get(self as usize).map_or("", |(_, text)| text)
    }
}

/// Whether two names of equal length are equal but for the case of `text`'s letters: in words, since every field of every
/// head asks. The last word may overlap the one before it.
fn same_name(text: &[u8], name: &[u8]) -> bool {
    if let (Some(text_end), Some(name_end)) = (text.last_chunk(), name.last_chunk()) {
        let (texts, names) = (text.as_chunks().0, name.as_chunks().0);
        texts
            .iter()
            .zip(names)
            .all(|(text, name)| same_word(*text, *name))
            && same_word(*text_end, *name_end)
    } else if let (Some((text_start, _)), Some((name_start, _)), Some(text_end), Some(name_end)) = (
        text.split_first_chunk(),
        name.split_first_chunk(),
        text.last_chunk(),
        name.last_chunk(),
    ) {
        same_word(wide(*text_start, *text_end), wide(*name_start, *name_end))
    } else {
        text.eq_ignore_ascii_case(name)
    }
}

/// Both ends of a name of four to eight bytes as one word.
fn wide(start: [u8; 4], end: [u8; 4]) -> [u8; 8] {
    (u64::from(u32::from_ne_bytes(start)) << 32 | u64::from(u32::from_ne_bytes(end))).to_ne_bytes()
}

fn same_word(text: [u8; 8], name: [u8; 8]) -> bool {
    let (text, name) = (u64::from_ne_bytes(text), u64::from_ne_bytes(name));
    // In a name, what has the bit 0x40 is a letter, and a letter may differ in the bit 0x20.
    let letters = (text & 0x4040_4040_4040_4040) >> 1;
    (text ^ name) & !letters == 0
}

/// Where one field lies in its head's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    pub(crate) name_at: u32,
    pub(crate) value_at: u32,
    pub(crate) value_len: u32,
    pub(crate) name_len: u16,
    pub(crate) known: Known,
    pub(crate) flags: u8,
}

const _: () = assert!(size_of::<Field>() == 16);

/// Must not be forwarded: hop-by-hop, or meaningless in this message.
pub(crate) const HOP: u8 = 1;
/// Does not exist for anybody: a name nginx ignores.
pub(crate) const DROPPED: u8 = 2;

impl Field {
    /// What the name means.
    #[must_use]
    pub fn known(&self) -> Known {
        self.known
    }

    /// Must not be forwarded: one of the fixed hop-by-hop names, named in `Connection`, or a length
    /// on a response that has no body by definition.
    #[must_use]
    pub fn is_hop(&self) -> bool {
        self.flags & HOP != 0
    }

    /// A name that is ignored (`ignore_invalid_headers`): neither read nor forwarded.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        self.flags & DROPPED != 0
    }

    /// Where the whole line stands in the bytes of its head, if it stands there as it would be written anew:
    /// `Name: value\r\n`, without other white space. Whoever writes the next head can then copy it in one piece.
    #[must_use]
    pub fn plain_line(&self, bytes: &[u8]) -> Option<Range<usize>> {
        let name_at = self.name_at as usize;
        let name_end = name_at + usize::from(self.name_len);
        let value_at = self.value_at as usize;
        let value_end = value_at + self.value_len as usize;
        let plain = value_at == name_end + 2
            && bytes.get(name_end..value_at) == Some(b": ")
            && bytes.get(value_end..value_end + 2) == Some(b"\r\n");
        plain.then_some(name_at..value_end + 2)
    }

    pub(crate) fn name<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        Span {
            at: self.name_at,
            len: u32::from(self.name_len),
        }
        .of(bytes)
    }

    pub(crate) fn value<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        Span {
            at: self.value_at,
            len: self.value_len,
        }
        .of(bytes)
    }
}

/// A part of a head's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Span {
    pub(crate) at: u32,
    pub(crate) len: u32,
}

impl Span {
    /// Heads are far smaller than 4 GiB (`HeadLimits` are clamped), so the narrowing loses nothing.
    pub(crate) fn new(at: usize, end: usize) -> Self {
        Self {
            at: at as u32,
            len: end.saturating_sub(at) as u32,
        }
    }

    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        let at = self.at as usize;
        bytes.get(at..at + self.len as usize).unwrap_or_default()
    }
}

/// `present`: the known names among the fields, since most that are asked for are not there.
pub(crate) fn find<'a>(
    bytes: &'a [u8],
    fields: &[Field],
    present: u64,
    known: Known,
) -> Option<&'a [u8]> {
    if present & known.bit() == 0 {
        return None;
    }
    fields
        .iter()
        .find(|field| field.known == known && !field.is_dropped())
        .map(|field| field.value(bytes))
}

pub(crate) fn find_name<'a>(bytes: &'a [u8], fields: &[Field], name: &[u8]) -> Option<&'a [u8]> {
    fields
        .iter()
        .find(|field| {
            usize::from(field.name_len) == name.len()
                && !field.is_dropped()
                && field.name(bytes).eq_ignore_ascii_case(name)
        })
        .map(|field| field.value(bytes))
}

/// RFC 9110 §5.6.2: the characters of a token.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

/// RFC 9110 §5.6.2.
pub(crate) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|&byte| is_token_byte(byte))
}

/// RFC 9110 §5.5: field-vchar, space and tab; obs-text included.
pub(crate) fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Whether nginx reads a field of this name: letters, digits and hyphens, and underscores if they are on.
pub(crate) fn is_plain_name(name: &[u8], underscores: bool) -> bool {
    name.iter()
        .all(|&byte| byte.is_ascii_alphanumeric() || byte == b'-' || (underscores && byte == b'_'))
}

/// Whether a careless reader (CGI turns every odd character into `_`) could take this name for one that frames or
/// routes the message. Such a field is never passed on, whatever is configured.
pub(crate) fn is_framing_alias(name: &[u8]) -> bool {
    const RISKY: [&[u8]; 5] = [
        b"content-length",
        b"transfer-encoding",
        b"host",
        b"connection",
        b"upgrade",
    ];
    RISKY.iter().any(|risky| {
        risky.len() == name.len()
            && risky.iter().zip(name).all(|(&want, &got)| {
                got.to_ascii_lowercase() == want || (want == b'-' && !got.is_ascii_alphanumeric())
            })
    })
}

/// RFC 9110 §5.6.3: optional whitespace around a value is not part of it.
pub(crate) fn trim_ows(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// The non-empty elements of a comma-separated list (RFC 9110 §5.6.1.2: a recipient ignores empty ones).
pub(crate) fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&byte| byte == b',')
        .map(trim_ows)
        .filter(|element| !element.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_found_in_any_case() {
        for (known, text) in TABLE.iter().skip(1) {
            assert_eq!(Known::of(text.as_bytes()), *known, "{text}");
            assert_eq!(
                Known::of(text.to_ascii_lowercase().as_bytes()),
                *known,
                "{text}"
            );
            assert_eq!(
                Known::of(text.to_ascii_uppercase().as_bytes()),
                *known,
                "{text}"
            );
            assert_eq!(known.name(), *text);
            assert_eq!(TABLE[*known as usize].0, *known);
            assert!(
                is_plain_name(text.as_bytes(), false),
                "a known name is never dropped"
            );
        }
    }

    #[test]
    fn one_wrong_byte_makes_another_name() {
        for (known, text) in TABLE.iter().skip(1) {
            for at in 0..text.len() {
                for byte in 0..=255 {
                    let mut name = text.as_bytes().to_vec();
                    name[at] = byte;
                    let same = name.eq_ignore_ascii_case(text.as_bytes());
                    assert_eq!(Known::of(&name) == *known, same, "{}", name.escape_ascii());
                }
            }
        }
    }

    #[test]
    fn other_names_are_other() {
        for name in [
            "",
            "X",
            "Hos",
            "Hosts",
            "Content_Length",
            "Content-Lengths",
            "X-Forwarded-Foo",
            "A-Name-Longer-Than-Any",
        ] {
            assert_eq!(Known::of(name.as_bytes()), Known::Other, "{name}");
        }
        assert_eq!(Known::Other.name(), "");
    }

    #[test]
    fn aliases_of_framing_names() {
        for name in [
            "Content_Length",
            "content.length",
            "TRANSFER_ENCODING",
            "Transfer!Encoding",
        ] {
            assert!(is_framing_alias(name.as_bytes()), "{name}");
        }
        for name in [
            "Content_Lengths",
            "X_Host",
            "ContentxLength",
            "X_Forwarded_For",
        ] {
            assert!(!is_framing_alias(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn token_bytes_are_those_of_the_rfc() {
        let legal: Vec<u8> = (0..=255).filter(|&byte| is_token_byte(byte)).collect();
        let mut want: Vec<u8> = b"!#$%&'*+-.^_`|~0123456789".to_vec();
        want.extend(b'a'..=b'z');
        want.extend(b'A'..=b'Z');
        want.sort_unstable();
        assert_eq!(legal, want);
    }

    #[test]
    fn lines_that_are_written_as_kp_writes_them() {
        let plain = |line: &[u8]| {
            let colon = line.iter().position(|&byte| byte == b':').expect("a colon");
            let value = trim_ows(line[colon + 1..].trim_ascii_end());
            let value_at = value.as_ptr() as usize - line.as_ptr() as usize;
            let field = Field {
                name_at: 0,
                value_at: value_at as u32,
                value_len: value.len() as u32,
                name_len: colon as u16,
                known: Known::Other,
                flags: 0,
            };
            field.plain_line(line)
        };
        assert_eq!(plain(b"A: b\r\nC: d\r\n\r\n".split_at(6).0), Some(0..6));
        for line in [
            b"A:b\r\n".as_slice(),
            b"A:\tb\r\n",
            b"A:  b\r\n",
            b"A: b \r\n",
            b"A: b\n",
            b"A:\r\n",
        ] {
            assert_eq!(plain(line), None, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn lists_skip_empty_elements() {
        let got: Vec<&[u8]> = elements(b", a\t,,b , ").collect();
        assert_eq!(got, [b"a", b"b"]);
    }
}
