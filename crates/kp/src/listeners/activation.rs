//! Sockets from a service manager (LISTEN_FDS, sd_listen_fds(3)): known by the address they are bound to. One that a `listen`
//! names exactly is used in place of an own one, and its path is never unlinked; the others are closed.

use super::{Held, Listeners, Shown, settings_of};
use crate::report;
use kp_config::Diagnostic;
use kp_config::model::{ListenAddress, Listener};
use kp_sys::socket::{self, ListenSettings};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

impl Listeners {
    /// Takes what was passed. What kp cannot listen on is closed with a warning, which is returned.
    pub(crate) fn activate(&mut self, passed: Vec<OwnedFd>) -> Vec<String> {
        let mut warnings = Vec::new();
        for (socket, number) in passed.into_iter().zip(3..) {
            match address_of(&socket) {
                Ok(address) => self.activate_one(address, socket),
                Err(what) => warnings.push(format!(
                    "descriptor {number}, passed by LISTEN_FDS, is {what}: closed"
                )),
            }
        }
        warnings
    }

    fn activate_one(&mut self, address: ListenAddress, socket: OwnedFd) {
        match self.held.iter_mut().find(|held| held.address == address) {
            Some(held) => {
                held.sockets.push(socket);
                held.listening += 1;
                held.kept += 1;
            }
            None => self.held.push(Held {
                fresh: true,
                listening: 1,
                kept: 1,
                // By a kp that ran before.
                steered: true,
                ..Held::new(address, vec![socket])
            }),
        }
    }

    /// What was passed and no `listen` wants, as texts; it is closed at the commit.
    pub(crate) fn unwanted(&self, wanted: &[Listener]) -> Vec<String> {
        self.held
            .iter()
            .filter(|held| held.fresh && !wanted.iter().any(|one| one.address == held.address))
            .map(|held| {
                let shown = Shown(&held.address);
                format!("{shown}, passed by LISTEN_FDS, is in no \"listen\" directive: closed")
            })
            .collect()
    }

    /// Why a passed socket stands in the way of a `listen`: one for both families of addresses where the configuration asks
    /// for one, or the other way round.
    pub(super) fn mismatch(&self, listener: &Listener) -> Option<Diagnostic> {
        let ListenAddress::Inet(wanted) = listener.address else {
            return None;
        };
        let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), wanted.port());
        let looked_at = if wanted.is_ipv4() { any } else { wanted };
        let held = self.held.iter().find(|held| {
            held.fresh
                && matches!(held.address, ListenAddress::Inet(address) if address == looked_at)
        })?;
        let only_v6 = held.sockets.first().map(socket::is_only_v6)?.ok()?;
        let settings = settings_of(&listener.options);
        let advice = match (wanted.is_ipv4(), only_v6, settings.v6only) {
            (true, true, _) | (false, true, true) | (false, false, false) => return None,
            // A passed IPv4 socket of that address is used, whatever else was passed.
            (true, false, _)
                if self
                    .held
                    .iter()
                    .any(|held| held.address == listener.address) =>
            {
                return None;
            }
            (true, false, _) => format!(
                "it takes IPv4, too: write \"listen [::]:{} ipv6only=off;\" in place of this, or BindIPv6Only=ipv6-only in the socket unit",
                wanted.port()
            ),
            (false, false, true) => String::from(
                "it takes IPv4, too: write ipv6only=off here, or BindIPv6Only=ipv6-only in the socket unit",
            ),
            (false, true, false) => String::from(
                "it takes IPv6 only: take ipv6only=off away here, or write BindIPv6Only=both in the socket unit",
            ),
        };
        let text = format!(
            "{} cannot be had: {} was passed by LISTEN_FDS",
            Shown(&listener.address),
            Shown(&held.address)
        );
        Some(Diagnostic::error(listener.span, text).hint(advice))
    }
}

impl Held {
    /// Makes passed sockets like our own.
    pub(super) fn adopt(&self, settings: &ListenSettings) -> io::Result<()> {
        self.sockets
            .iter()
            .try_for_each(|socket| socket::adopt(socket, settings))
    }
}

/// Where a passed descriptor listens, or what it is instead.
fn address_of(socket: &OwnedFd) -> Result<ListenAddress, String> {
    let failed = |error: io::Error| format!("no socket ({})", report::numbered(&error));
    if !socket::is_stream(socket).map_err(failed)?
        || !socket::is_listening(socket).map_err(failed)?
    {
        return Err(String::from("no socket that listens for connections"));
    }
    if let Some(address) = socket::local_address(socket).map_err(failed)? {
        return Ok(ListenAddress::Inet(address));
    }
    match socket::local_path(socket).map_err(failed)? {
        Some(path) => Ok(ListenAddress::Unix(path)),
        None => Err(String::from("bound to neither an IP address nor a path")),
    }
}
