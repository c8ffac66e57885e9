//! Which fields end at this hop: the union of a fixed list and the names in `Connection` (RFC 9110 §7.6.1).
//!
//! Decides the HOP flag of each field and what `Connection` asks for. Does not remove anything: whoever writes the
//! next head skips flagged fields, and fields kp adds itself carry no flag, so a sender cannot strip them.
//!
//! Not on the list: `Trailer` (RFC 9110 §6.6.2 makes it a hint about trailers, which are passed on), and
//! `Proxy-Authenticate` and `Proxy-Authorization` (RFC 9110 §11.7: consumed by the proxy that uses them; kp uses
//! neither, and nginx passes both).

use crate::error::HeadCause;
use crate::field::{DROPPED, Field, HOP, Known, elements};

/// More options than this in all `Connection` lines together are refused: each is compared with every field name.
const OPTIONS_MAX: u16 = 64;

/// What the `Connection` fields of a head ask for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    pub(crate) upgrade: bool,
    /// Options that name fields outside the fixed list.
    named: u16,
}

impl Options {
    /// Reads one `Connection` value.
    pub(crate) fn read(&mut self, value: &[u8]) -> Result<(), HeadCause> {
        for option in elements(value) {
            if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                self.upgrade = true;
            } else {
                self.named += 1;
                if self.named > OPTIONS_MAX {
                    return Err(HeadCause::TooManyConnectionOptions);
                }
            }
        }
        Ok(())
    }

    /// Flags the fields that are named in `Connection`.
    pub(crate) fn mark(&self, bytes: &[u8], fields: &mut [Field]) {
        if self.named == 0 {
            return;
        }
        for at in 0..fields.len() {
            let Some(line) = fields.get(at).copied() else {
                return;
            };
            if line.known != Known::Connection || line.flags & DROPPED != 0 {
                continue;
            }
            for option in elements(line.value(bytes)) {
                for field in fields.iter_mut() {
                    if usize::from(field.name_len) == option.len()
                        && !is_protected(field.known)
                        && field.name(bytes).eq_ignore_ascii_case(option)
                    {
                        field.flags |= HOP;
                    }
                }
            }
        }
    }
}

/// The fixed list: `Connection` itself and what RFC 9110 §7.6.1 wants removed even if it is not named.
pub(crate) fn is_hop(known: Known) -> bool {
    matches!(
        known,
        Known::Connection
            | Known::KeepAlive
            | Known::ProxyConnection
            | Known::Te
            | Known::TransferEncoding
            | Known::Upgrade
    )
}

/// What `Connection` may name without effect: without them the next reader would see another message.
fn is_protected(known: Known) -> bool {
    matches!(known, Known::Host | Known::ContentLength)
}
