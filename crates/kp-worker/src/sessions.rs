//! `sticky`: finds the peer that a session is at, tells the client, remembers what was learned.
//!
//! Decides when a session is learned: with the end of a whole response, with its head where `header` says so, and with the
//! head where the connection becomes a tunnel. Does not decide whether the peer can be used.

use crate::active::Active;
use crate::reactor::Worker;
use kp_config::Config;
use kp_config::model::{Sticky, StickyLearn, UpstreamId};
use kp_proxy::sticky;
use kp_shm::{Key, SessionZone, Shm, ZoneKind, ZonePlan};
use kp_upstream::PeerId;

/// The memory of all zones of `sticky learn`.
pub(crate) fn plans(config: &Config) -> impl Iterator<Item = ZonePlan> {
    let groups = config.http.upstreams.iter();
    groups.filter_map(|group| match &group.sticky {
        Some(Sticky::Learn(learn)) => Some(plan(learn)),
        _ => None,
    })
}

/// The zones, one for each group that has one.
pub(crate) fn zones(config: &Config, shm: &Shm) -> Vec<Option<SessionZone>> {
    let groups = config.http.upstreams.iter();
    let zone = groups.map(|group| match &group.sticky {
        Some(Sticky::Learn(learn)) => Some(SessionZone::new(&shm.zones(), &plan(learn))),
        _ => None,
    });
    zone.collect()
}

/// Sessions that were last used then, or before, are over now.
pub(crate) fn over_since_ms(learn: &StickyLearn, now_ms: u64) -> u64 {
    let timeout_ms = u64::try_from(learn.timeout.as_millis()).unwrap_or(u64::MAX);
    now_ms.saturating_sub(timeout_ms)
}

/// A zone of the same name and size is the same one after a reload.
pub(crate) fn plan(learn: &StickyLearn) -> ZonePlan {
    let size = learn.zone_bytes.to_le_bytes();
    ZonePlan {
        key: Key::of(&[b"sticky learn", learn.zone.as_bytes(), &size]),
        kind: ZoneKind::Sessions,
        bytes: learn.zone_bytes,
    }
}

impl Worker {
    /// Appends what names the peer that the exchange's session is at; nothing where it has none.
    pub(crate) fn find_session(
        &mut self,
        active: &mut Active,
        group: UpstreamId,
        sticky: &Sticky,
        out: &mut Vec<u8>,
    ) {
        self.consult(active, |exchange, program, context| {
            sticky::session(sticky, exchange, program, context, out);
        });
        if let Sticky::Learn(learn) = sticky {
            let peer = self.peer_of(group, learn, out);
            let sid = peer.and_then(|peer| self.groups.sid_numbered(group, peer));
            out.clear();
            out.extend_from_slice(sid.unwrap_or_default().as_bytes());
        }
    }

    fn peer_of(&self, group: UpstreamId, learn: &StickyLearn, session: &[u8]) -> Option<u64> {
        let since_ms = over_since_ms(learn, self.clock.mono_ms);
        self.session_zone(group)
            .filter(|_| !session.is_empty())?
            .peer(session, since_ms)
    }

    fn session_zone(&self, group: UpstreamId) -> Option<&SessionZone> {
        self.session_zones.get(group.index())?.as_ref()
    }

    /// `sticky cookie`: the response will say which peer was asked.
    pub(crate) fn offer_cookie(&mut self, active: &mut Active, peer: PeerId) {
        match &self.config.http.upstreams[peer.upstream.index()].sticky {
            Some(Sticky::Cookie(cookie)) => {
                let sid = self.groups.sid(peer);
                self.consult(active, |exchange, program, context| {
                    sticky::set_cookie(cookie, sid, exchange, program, context);
                });
            }
            Some(Sticky::Route(_) | Sticky::Learn(_)) | None => {
                active.exchange.response.sticky.clear();
            }
        }
    }

    /// The head of a response came: with `header` the session is at this peer from now on.
    pub(crate) fn learn_from_head(&mut self, active: &mut Active, tunnel: bool) {
        if let Some((learn, peer)) = self.learns(active)
            && (learn.header || tunnel)
        {
            self.learn(active, learn, peer);
        }
    }

    /// The response is whole: the session is at this peer, or is still in use.
    pub(crate) fn learn_from_response(&mut self, active: &mut Active) {
        if let Some((learn, peer)) = self.learns(active) {
            self.learn(active, learn, peer);
        }
    }

    fn learns(&self, active: &Active) -> Option<(&'static StickyLearn, PeerId)> {
        let peer = self.upstreams.peek(active.upstream?)?.peer?;
        match &self.config.http.upstreams[peer.upstream.index()].sticky {
            Some(Sticky::Learn(learn)) => Some((learn, peer)),
            _ => None,
        }
    }

    fn learn(&mut self, active: &mut Active, learn: &StickyLearn, peer: PeerId) {
        let number = SessionZone::number(self.groups.sid(peer).as_bytes());
        let mut session = std::mem::take(&mut self.session_text);
        session.clear();
        self.consult(active, |exchange, program, context| {
            sticky::first_value(&learn.create, exchange, program, context, &mut session);
        });
        let mut known = !session.is_empty();
        if !known {
            // A response that begins no session goes on with the one that its request belongs to.
            self.consult(active, |exchange, program, context| {
                sticky::first_value(&learn.lookup, exchange, program, context, &mut session);
            });
            known = self.peer_of(peer.upstream, learn, &session) == Some(number);
        }
        if known && let Some(zone) = self.session_zone(peer.upstream) {
            let now_ms = self.clock.mono_ms;
            zone.learn(&session, number, now_ms, over_since_ms(learn, now_ms));
        }
        self.session_text = session;
    }
}
