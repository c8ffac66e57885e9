//! Session tickets (RFC 8446 §4.6.1, RFC 5077): what a session needs to be resumed, sealed, in the client's keeping.
//!
//! A ticket is bound to what the virtual host asked of its clients when it was given out: it does not open under another
//! policy, so a session that was made without a client certificate cannot slip into a host that wants one. Each ticket
//! has a key of its own, derived from the key ring's or file's, since a key from a file may seal without end.

use crate::clock::Clock;
use crate::session_id::{self, Id};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{digest, hmac, rand};
use kp_shm::{TicketKey, TicketReader};
use rustls::server::ProducesTickets;

/// Where keys come from.
#[derive(Debug, Clone)]
pub(crate) enum KeySource {
    /// The master's ring.
    Ring(TicketReader),
    /// `ssl_session_ticket_key`: the first seals, all open.
    Files(Vec<TicketKey>),
}

/// What a ticket is good for: a digest of the virtual host's name and what it asks of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Binding(pub(crate) [u8; 32]);

/// Seals and opens the tickets of one virtual host.
#[derive(Debug)]
pub(crate) struct Tickets {
    pub(crate) source: KeySource,
    pub(crate) binding: Binding,
    /// `ssl_session_timeout`.
    pub(crate) lifetime_secs: u32,
    pub(crate) clock: Clock,
}

const NAME: usize = 16;
const SALT: usize = 32;
const TAG: usize = 16;
const TIME: usize = 8;
const ID: usize = size_of::<Id>();

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.lifetime_secs
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let key = match &self.source {
            KeySource::Ring(reader) => reader.keys()?.current,
            KeySource::Files(keys) => *keys.first()?,
        };
        let mut salt = [0; SALT];
        rand::fill(&mut salt).ok()?;
        let mut ticket = Vec::with_capacity(NAME + SALT + TIME + ID + plain.len() + TAG);
        ticket.extend_from_slice(&key.name);
        ticket.extend_from_slice(&salt);
        let start = ticket.len();
        ticket.extend_from_slice(&self.clock.unix_seconds().to_be_bytes());
        ticket.extend_from_slice(&session_id::seal()?);
        ticket.extend_from_slice(plain);
        let (_, sealed) = ticket.split_at_mut(start);
        let tag = derived(&key, &salt)?
            .seal_in_place_separate_tag(nonce(), self.associated(&key), sealed)
            .ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME>()?;
        let (salt, sealed) = rest.split_first_chunk::<SALT>()?;
        let key = self.key(name)?;
        let mut sealed = sealed.to_vec();
        let plain = derived(&key, salt)?
            .open_in_place(nonce(), self.associated(&key), &mut sealed)
            .ok()?;
        let (time, plain) = plain.split_first_chunk::<TIME>()?;
        let (id, plain) = plain.split_first_chunk::<ID>()?;
        // A session that is resumed gets a new ticket: the time is that of the last resumption, as with OpenSSL.
        let age = self
            .clock
            .unix_seconds()
            .saturating_sub(u64::from_be_bytes(*time));
        if age > self.lifetime_secs.into() {
            return None;
        }
        session_id::offer(*id);
        Some(plain.to_vec())
    }
}

impl Tickets {
    fn key(&self, name: &[u8; NAME]) -> Option<TicketKey> {
        match &self.source {
            KeySource::Ring(reader) => {
                let keys = reader.keys()?;
                [keys.current, keys.previous, keys.next]
                    .into_iter()
                    .find(|key| key.name == *name)
            }
            KeySource::Files(keys) => keys.iter().find(|key| key.name == *name).copied(),
        }
    }

    fn associated(&self, key: &TicketKey) -> Aad<[u8; NAME + 32]> {
        let mut bytes = [0; NAME + 32];
        let (name, binding) = bytes.split_at_mut(NAME);
        name.copy_from_slice(&key.name);
        binding.copy_from_slice(&self.binding.0);
        Aad::from(bytes)
    }
}

/// The key of one ticket: HMAC-SHA-256 of 32 random bytes, so that no two tickets share one.
fn derived(key: &TicketKey, salt: &[u8; SALT]) -> Option<LessSafeKey> {
    let secret = hmac::Key::new(hmac::HMAC_SHA256, &key.secret);
    let mut message = *b"kp ticket 1\0................................";
    message.last_chunk_mut::<SALT>()?.copy_from_slice(salt);
    let derived = hmac::sign(&secret, &message);
    let key = UnboundKey::new(&AES_256_GCM, derived.as_ref()).ok()?;
    Some(LessSafeKey::new(key))
}

/// The key is used once.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

/// A key from the content of a `ssl_session_ticket_key` file, nginx's format: a name of 16 bytes, then secrets of 16 + 16
/// or 32 + 32.
pub(crate) fn key_of_file(content: &[u8]) -> Option<TicketKey> {
    if !matches!(content.len(), 48 | 80) {
        return None;
    }
    let (name, secrets) = content.split_first_chunk::<NAME>()?;
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(b"kp ticket key file 1\0");
    context.update(secrets);
    Some(TicketKey {
        name: *name,
        secret: context.finish().as_ref().try_into().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kp_shm::TicketRing;
    use std::time::Duration;

    fn tickets(source: KeySource, binding: u8, clock: &Clock) -> Tickets {
        Tickets {
            source,
            binding: Binding([binding; 32]),
            lifetime_secs: 300,
            clock: clock.clone(),
        }
    }

    #[test]
    fn a_ticket_opens_under_the_same_policy_only() {
        let ring = TicketRing::create(1000).unwrap();
        let clock = Clock::at(1000);
        let ours = tickets(KeySource::Ring(ring.reader()), 1, &clock);
        let same = tickets(KeySource::Ring(ring.reader()), 1, &clock);
        let other = tickets(KeySource::Ring(ring.reader()), 2, &clock);
        let ticket = ours.encrypt(b"session").unwrap();
        assert_eq!(same.decrypt(&ticket).unwrap(), b"session");
        assert_eq!(other.decrypt(&ticket), None);
        assert_ne!(ours.encrypt(b"session").unwrap(), ticket);
    }

    #[test]
    fn a_ticket_lives_one_period_and_not_three() {
        let ring = TicketRing::create(1000).unwrap();
        let clock = Clock::at(1000);
        let tickets = tickets(KeySource::Ring(ring.reader()), 1, &clock);
        let ticket = tickets.encrypt(b"session").unwrap();
        let rotate = |now| {
            assert!(ring.rotate_if_due(now, Duration::from_secs(2)).unwrap());
        };
        rotate(1002);
        assert!(tickets.decrypt(&ticket).is_some());
        rotate(1004);
        rotate(1006);
        assert_eq!(tickets.decrypt(&ticket), None);
    }

    #[test]
    fn a_ticket_is_no_good_after_the_session_timeout() {
        let ring = TicketRing::create(1000).unwrap();
        let clock = Clock::at(1000);
        let tickets = tickets(KeySource::Ring(ring.reader()), 1, &clock);
        let ticket = tickets.encrypt(b"session").unwrap();
        clock.set(1300);
        assert!(tickets.decrypt(&ticket).is_some());
        clock.set(1301);
        assert_eq!(tickets.decrypt(&ticket), None);
    }

    #[test]
    fn keys_of_files_open_in_any_order_and_the_first_seals() {
        let file = |fill: u8, length| key_of_file(&vec![fill; length]).unwrap();
        let (short, long) = (file(1, 48), file(2, 80));
        assert_ne!(short.secret, long.secret);
        let clock = Clock::at(1);
        let old = tickets(KeySource::Files(vec![short]), 1, &clock);
        let new = tickets(KeySource::Files(vec![long, short]), 1, &clock);
        let ticket = old.encrypt(b"session").unwrap();
        assert_eq!(new.decrypt(&ticket).unwrap(), b"session");
        assert_eq!(old.decrypt(&new.encrypt(b"session").unwrap()), None);
        for wrong in [0, 47, 49, 79, 81] {
            assert_eq!(key_of_file(&vec![1; wrong]), None);
        }
    }

    #[test]
    fn a_ticket_that_was_touched_does_not_open() {
        let ring = TicketRing::create(1000).unwrap();
        let tickets = tickets(KeySource::Ring(ring.reader()), 1, &Clock::at(1000));
        let ticket = tickets.encrypt(b"session").unwrap();
        for at in 0..ticket.len() {
            let mut touched = ticket.clone();
            touched[at] ^= 1;
            assert_eq!(tickets.decrypt(&touched), None, "at {at}");
            assert_eq!(tickets.decrypt(&ticket[..at]), None, "cut at {at}");
        }
    }
}
