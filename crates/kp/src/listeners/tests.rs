//! Sockets of a test's own, on addresses nobody else has.

use super::*;
use crate::inherit::Passed;
use kp_config::Span;
use kp_config::model::ServerId;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

fn listener(address: ListenAddress) -> Listener {
    Listener {
        address,
        options: ListenOptions::default(),
        tls: false,
        proxy_protocol: false,
        servers: Vec::new(),
        default_server: ServerId(0),
        span: Span {
            line: 7,
            ..Span::default()
        },
    }
}

fn inet(address: SocketAddr) -> Listener {
    listener(ListenAddress::Inet(address))
}

/// An address that nobody else has: held by the group itself, which is bound to port 0 first.
fn free_address() -> SocketAddr {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    taken.local_addr().unwrap()
}

fn numbers(listeners: &Listeners, wanted: &[Listener], slot: u32, slots: u32) -> Vec<(u32, i32)> {
    listeners
        .of_slot(wanted, slot, slots)
        .map(|(id, fd)| (id.0, fd.as_raw_fd()))
        .collect()
}

#[test]
fn one_socket_for_each_slot_adopted_by_address_over_a_reload() {
    let (first, second) = (free_address(), free_address());
    let wanted = [inet(first), inet(second)];
    let mut listeners = Listeners::default();
    listeners.stage(&wanted, 2).unwrap();
    assert!(
        TcpStream::connect(first).is_err(),
        "bound sockets must not listen"
    );
    listeners.commit(&wanted, 0).unwrap();
    let (zero, one) = (
        numbers(&listeners, &wanted, 0, 2),
        numbers(&listeners, &wanted, 1, 2),
    );
    assert_eq!((zero.len(), one.len()), (2, 2));
    let swapped = [inet(second), inet(first)];
    listeners.stage(&swapped, 2).unwrap();
    listeners.commit(&swapped, 0).unwrap();
    assert_eq!(
        numbers(&listeners, &swapped, 0, 2),
        [(0, zero[1].1), (1, zero[0].1)]
    );
    assert_eq!(
        numbers(&listeners, &swapped, 1, 2),
        [(0, one[1].1), (1, one[0].1)]
    );
}

/// Somebody else may begin to listen between our bind and our listen.
#[test]
fn where_one_address_cannot_listen_none_of_the_new_sockets_does() {
    let (kept, lost) = (free_address(), free_address());
    let before = [inet(kept)];
    let mut listeners = Listeners::default();
    listeners.stage(&before, 1).unwrap();
    listeners.commit(&before, 0).unwrap();
    let wanted = [inet(kept), inet(lost)];
    listeners.stage(&wanted, 3).unwrap();
    let _rival = TcpListener::bind(lost).unwrap();
    let complaints = listeners.commit(&wanted, 0).unwrap_err();
    assert!(complaints[0].message.starts_with("listen() to "));
    assert_eq!(numbers(&listeners, &wanted, 0, 1).len(), 1);
    assert_eq!(listeners.addresses(), [kept.to_string()]);
    let served: Vec<_> = listeners
        .held
        .iter()
        .flat_map(|held| &held.sockets)
        .collect();
    // Whoever comes is in the one queue that somebody looks at.
    for _ in 0..16 {
        let _client = TcpStream::connect(kept).unwrap();
        assert!(socket::accept(served[0]).is_ok());
    }
}

#[test]
fn a_bound_socket_keeps_its_families() {
    let Ok(taken) = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)) else {
        return;
    };
    let address = taken.local_addr().unwrap();
    drop(taken);
    let mut wanted = [inet(address)];
    let mut listeners = Listeners::default();
    listeners.stage(&wanted, 1).unwrap();
    listeners.commit(&wanted, 0).unwrap();
    wanted[0].options.ipv6only = Some(false);
    let complaints = listeners.stage(&wanted, 1).unwrap_err();
    let text = format!("ipv6only of {address} cannot be changed while kp listens there");
    assert_eq!(complaints[0].message, text);
    wanted[0].options.ipv6only = Some(true);
    listeners.stage(&wanted, 1).unwrap();
}

#[test]
fn with_fewer_workers_the_first_polls_what_is_left_over() {
    let wanted = [inet(free_address())];
    let mut listeners = Listeners::default();
    listeners.stage(&wanted, 3).unwrap();
    listeners.commit(&wanted, 0).unwrap();
    let all: Vec<i32> = (0..3)
        .map(|slot| numbers(&listeners, &wanted, slot, 3)[0].1)
        .collect();
    listeners.stage(&wanted, 1).unwrap();
    listeners.commit(&wanted, 0).unwrap();
    listeners.steer(&[0], 1).unwrap();
    let polled: Vec<i32> = numbers(&listeners, &wanted, 0, 1)
        .into_iter()
        .map(|(_, fd)| fd)
        .collect();
    assert_eq!(polled, all);
    listeners.stage(&wanted, 4).unwrap();
    listeners.commit(&wanted, 0).unwrap();
    assert_eq!(numbers(&listeners, &wanted, 2, 4), [(0, all[2])]);
    assert!(!all.contains(&numbers(&listeners, &wanted, 3, 4)[0].1));
}

#[test]
fn addresses_that_are_gone_refuse_and_new_ones_answer() {
    let (old, new) = (free_address(), free_address());
    let mut listeners = Listeners::default();
    listeners.stage(&[inet(old)], 1).unwrap();
    listeners.commit(&[inet(old)], 0).unwrap();
    listeners.stage(&[inet(new)], 1).unwrap();
    assert!(TcpStream::connect(old).is_ok());
    let before = numbers(&listeners, &[inet(old)], 0, 1);
    listeners.commit(&[inet(new)], 5).unwrap();
    let patience = Duration::from_millis(50);
    let ignored = TcpStream::connect_timeout(&old, patience).unwrap_err();
    assert_eq!(ignored.kind(), io::ErrorKind::TimedOut);
    assert!(TcpStream::connect(new).is_ok());
    // Back again in time: the same sockets as before.
    listeners.sweep(4 + REFUSING_MS);
    listeners.stage(&[inet(old), inet(new)], 1).unwrap();
    listeners.commit(&[inet(old), inet(new)], 6).unwrap();
    assert_eq!(numbers(&listeners, &[inet(old)], 0, 1), before);
    assert!(TcpStream::connect(old).is_ok());
    assert_eq!(listeners.due_ms(), None);
    listeners.commit(&[inet(new)], 7).unwrap();
    assert_eq!(listeners.due_ms(), Some(7 + REFUSING_MS));
    listeners.sweep(7 + REFUSING_MS);
    let refused = TcpStream::connect(old).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn an_address_that_a_wildcard_takes_over_ignores_nobody() {
    let narrow = free_address();
    let wide = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), narrow.port());
    let mut listeners = Listeners::default();
    listeners.stage(&[inet(narrow)], 2).unwrap();
    listeners.commit(&[inet(narrow)], 0).unwrap();
    listeners.stage(&[inet(wide)], 2).unwrap();
    listeners.commit(&[inet(wide)], 0).unwrap();
    assert!(TcpStream::connect(narrow).is_ok());
    assert_eq!((listeners.held.len(), listeners.due_ms()), (1, None));
}

#[test]
fn a_low_port_is_told_with_every_way_out() {
    let advice = how_to_be_allowed(80, 1024);
    for part in [
        "port 80 is below 1024",
        "from 1024 up",
        "as root",
        "setcap cap_net_bind_service=+ep /",
    ] {
        assert!(advice.contains(part), "{part} in {advice}");
    }
    assert!(how_to_be_allowed(8080, 1024).contains("security module"));
}

#[test]
fn an_address_in_use_is_told_at_its_listen_and_leaves_no_trace() {
    let foreign = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (kept, fresh) = (inet(free_address()), inet(free_address()));
    let mut listeners = Listeners::default();
    listeners.stage(std::slice::from_ref(&kept), 1).unwrap();
    listeners.commit(std::slice::from_ref(&kept), 0).unwrap();
    let address = foreign.local_addr().unwrap();
    let complaints = listeners
        .stage(&[kept.clone(), fresh, inet(address)], 2)
        .unwrap_err();
    assert_eq!(complaints.len(), 1);
    assert_eq!(
        complaints[0].message,
        format!("bind() to {address} failed (98: Address already in use)")
    );
    assert_eq!(complaints[0].span.map(|span| span.line), Some(7));
    assert!(complaints[0].hint.is_some());
    assert_eq!(listeners.held.len(), 1);
    assert_eq!(numbers(&listeners, &[kept], 1, 2), []);
}

#[test]
fn a_wildcard_and_an_address_of_the_same_port_are_both_ours() {
    let narrow = free_address();
    let wide = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), narrow.port());
    let mut listeners = Listeners::default();
    listeners.stage(&[inet(wide), inet(narrow)], 2).unwrap();
    listeners.commit(&[inet(wide), inet(narrow)], 0).unwrap();
    assert_eq!(listeners.held.len(), 2);
    assert!(
        probe(&[inet(narrow), inet(wide)]).is_empty(),
        "-t does not mind a running kp"
    );
}

#[test]
fn a_trial_tells_what_can_never_be_bound() {
    let elsewhere = SocketAddr::from(([192, 0, 2, 1], free_address().port()));
    let nowhere = listener(ListenAddress::Unix("/no/such/folder/kp.sock".into()));
    let complaints = probe(&[inet(elsewhere), nowhere, inet(free_address())]);
    let said: Vec<_> = complaints.iter().map(|one| one.message.as_str()).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[0].contains("192.0.2.1") && said[0].contains("(99: "),
        "{said:?}"
    );
    assert!(
        said[1].contains("(2: No such file or directory)"),
        "{said:?}"
    );
}

#[test]
fn unix_paths_are_replaced_when_stale_and_unlinked_only_when_ours() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kp.sock");
    drop(UnixListener::bind(&path).unwrap());
    let wanted = [listener(ListenAddress::Unix(path.clone()))];
    assert!(probe(&wanted).is_empty());
    let mut listeners = Listeners::default();
    listeners.stage(&wanted, 2).unwrap();
    listeners.commit(&wanted, 0).unwrap();
    assert_eq!(
        numbers(&listeners, &wanted, 0, 2),
        numbers(&listeners, &wanted, 1, 2)
    );
    assert!(UnixStream::connect(&path).is_ok());
    let mut second = Listeners::default();
    let complaint = second.stage(&wanted, 1).unwrap_err().remove(0);
    assert_eq!(
        complaint.message,
        format!(
            "bind() to unix:{} failed (98: Address already in use)",
            path.display()
        )
    );
    listeners.close();
    assert!(!path.exists());

    listeners.stage(&wanted, 1).unwrap();
    listeners.commit(&wanted, 0).unwrap();
    fs::remove_file(&path).unwrap();
    let successor = UnixListener::bind(&path).unwrap();
    listeners.close();
    assert!(path.exists());
    drop(successor);
}

#[test]
fn a_staged_unix_path_goes_when_the_reload_fails() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kp.sock");
    let mut listeners = Listeners::default();
    listeners
        .stage(&[listener(ListenAddress::Unix(path.clone()))], 1)
        .unwrap();
    assert!(path.exists());
    listeners.unstage();
    assert!(!path.exists() && listeners.held.is_empty());
}

#[test]
fn a_file_that_is_no_socket_is_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    fs::write(&path, "precious").unwrap();
    let wanted = [listener(ListenAddress::Unix(path.clone()))];
    assert!(Listeners::default().stage(&wanted, 1).is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

/// What one master passes arrives in the other, here in the same process.
fn handed_over(old: &Listeners) -> Listeners {
    let passed = old.passed().into_iter().map(|one| Passed {
        address: one.address,
        inode: one.inode,
        kept: one.kept,
        single: one.single,
        sockets: one
            .sockets
            .iter()
            .map(|socket| socket.try_clone_to_owned().unwrap())
            .collect(),
    });
    let mut new = Listeners::default();
    new.adopt(passed.collect());
    new
}

fn accepted(listeners: &Listeners, wanted: &[Listener], slots: u32) -> Vec<usize> {
    let of = |slot| {
        let sockets = listeners.of_slot(wanted, slot, slots);
        sockets
            .map(|(_, fd)| std::iter::from_fn(|| socket::accept(&fd).ok()).count())
            .sum()
    };
    (0..slots).map(of).collect()
}

fn serving(wanted: &[Listener], workers: u32) -> Listeners {
    let mut listeners = Listeners::default();
    listeners.stage(wanted, workers).unwrap();
    listeners.commit(wanted, 0).unwrap();
    listeners
}

#[test]
fn a_new_master_serves_on_the_sockets_of_the_old_one_and_on_its_own() {
    let (kept, dropped, added) = (free_address(), free_address(), free_address());
    let mut old = serving(&[inet(kept), inet(dropped)], 2);
    old.share();
    let mut new = handed_over(&old);
    let wanted = [inet(kept), inet(added)];
    new.stage(&wanted, 3).unwrap();
    assert!(TcpStream::connect(added).is_err(), "before the commit");
    new.commit(&wanted, 0).unwrap();
    new.steer(&[0, 1, 2], 3).unwrap();
    assert!(TcpStream::connect(added).is_ok() && TcpStream::connect(dropped).is_ok());
    let clients: Vec<_> = (0..60).map(|_| TcpStream::connect(kept).unwrap()).collect();
    let shares = accepted(&new, &wanted[..1], 3);
    assert_eq!(shares.iter().sum::<usize>(), clients.len());
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}");

    // The new one leaves: its own socket gets nothing from then on.
    new.close();
    let _more: Vec<_> = (0..60).map(|_| TcpStream::connect(kept).unwrap()).collect();
    old.part();
    assert_eq!(accepted(&old, &wanted[..1], 2).iter().sum::<usize>(), 60);
    assert!(TcpStream::connect(added).is_err());
    old.steer(&[0, 1], 2).unwrap();
    let _last = TcpStream::connect(kept).unwrap();
    assert_eq!(accepted(&old, &wanted[..1], 2).iter().sum::<usize>(), 1);
    old.close();
    assert!(TcpStream::connect(dropped).is_err());
}

#[test]
fn an_address_that_overlaps_an_inherited_one_is_ours_to_bind() {
    let narrow = free_address();
    let wide = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), narrow.port());
    let old = serving(&[inet(narrow)], 1);
    let mut new = handed_over(&old);
    new.stage(&[inet(wide)], 1).unwrap();
    new.commit(&[inet(wide)], 0).unwrap();
    assert_eq!(new.held.len(), 1);
}

#[test]
fn paths_that_both_may_serve_are_unlinked_by_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let unix = |name: &str| listener(ListenAddress::Unix(path(name)));
    let there = || {
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names.join(" ")
    };

    // The new one stays: the old one's paths stay, the one that is no longer wanted until the old one is gone.
    let mut old = serving(&[unix("both"), unix("old")], 1);
    old.share();
    let mut new = handed_over(&old);
    let wanted = [unix("both"), unix("new")];
    new.stage(&wanted, 1).unwrap();
    new.commit(&wanted, 0).unwrap();
    old.close();
    assert_eq!(there(), "both new old");
    new.part();
    assert_eq!(there(), "both new");
    new.close();
    assert_eq!(there(), "");

    // The old one stays.
    let mut old = serving(&[unix("both")], 1);
    old.share();
    let mut new = handed_over(&old);
    new.stage(&wanted, 1).unwrap();
    new.commit(&wanted, 0).unwrap();
    new.close();
    assert_eq!(there(), "both");
    old.part();
    assert_eq!(there(), "both");
    assert!(UnixStream::connect(path("both")).is_ok());
    old.close();
    assert_eq!(there(), "");

    // Both are stopped, the old one first.
    let mut old = serving(&[unix("both")], 1);
    old.share();
    let mut new = handed_over(&old);
    new.commit(&wanted[..1], 0).unwrap();
    old.close();
    new.close();
    assert_eq!(there(), "both");
    old.part();
    assert_eq!(there(), "");
}

/// As from a service manager: bound and listening, blocking, without SO_REUSEPORT.
fn foreign(address: SocketAddr) -> OwnedFd {
    TcpListener::bind(address).unwrap().into()
}

#[test]
fn sockets_of_a_service_manager_head_the_group_of_their_address() {
    let (passed, unwanted) = (free_address(), free_address());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kp.sock");
    let mut listeners = Listeners::default();
    let warnings = listeners.activate(vec![
        foreign(passed),
        foreign(unwanted),
        UnixListener::bind(&path).unwrap().into(),
        fs::File::open("/dev/null").unwrap().into(),
    ]);
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("descriptor 6") && warnings[0].contains("no socket"));
    let wanted = [
        inet(passed),
        listener(ListenAddress::Unix(path.clone())),
        inet(free_address()),
    ];
    assert_eq!(
        listeners.unwanted(&wanted),
        [format!(
            "{unwanted}, passed by LISTEN_FDS, is in no \"listen\" directive: closed"
        )]
    );
    listeners.stage(&wanted, 2).unwrap();
    listeners.commit(&wanted, 0).unwrap();
    assert!(TcpStream::connect(unwanted).is_err());
    listeners.steer(&[0, 1], 2).unwrap();
    let clients: Vec<_> = (0..40)
        .map(|_| TcpStream::connect(passed).unwrap())
        .collect();
    let shares = accepted(&listeners, &wanted[..1], 2);
    assert_eq!(shares.iter().sum::<usize>(), clients.len());
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
    assert!(UnixStream::connect(&path).is_ok());
    listeners.close();
    assert!(path.exists(), "the service manager's");
}

#[test]
fn a_passed_socket_that_cannot_head_a_group_is_polled_by_all() {
    let passed = free_address();
    let mut listeners = Listeners::default();
    listeners.activate(vec![foreign(passed)]);
    // As the kernel has it where another user has bound the socket.
    listeners.held[0].single = true;
    let wanted = [inet(passed)];
    for workers in [3, 2] {
        listeners.stage(&wanted, workers).unwrap();
        listeners.commit(&wanted, 0).unwrap();
        listeners.steer(&[0], workers).unwrap();
        let first = numbers(&listeners, &wanted, 0, workers);
        assert_eq!(first.len(), 1);
        assert_eq!(numbers(&listeners, &wanted, 1, workers), first);
    }
    let new = handed_over(&listeners);
    assert!(new.held[0].single && new.held[0].kept == 1);
    listeners.close();
    assert!(TcpStream::connect(passed).is_ok(), "the new one's");
}

#[test]
fn a_passed_socket_for_both_families_is_told_apart() {
    if !Path::new("/proc/net/if_inet6").exists() {
        // A machine without IPv6 has no such sockets.
        return;
    }
    let both = |only_v6: bool| {
        let settings = ListenSettings {
            v6only: only_v6,
            ..ListenSettings::default()
        };
        let any = "[::]:0".parse().unwrap();
        let socket = socket::bind(any, Group::First, &settings).unwrap();
        socket::listen(&socket, 8).unwrap();
        let port = socket::local_address(&socket).unwrap().unwrap().port();
        let mut listeners = Listeners::default();
        assert!(listeners.activate(vec![socket]).is_empty());
        (listeners, port)
    };
    let v4 = |port| inet(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    let v6 = |port, only_v6| {
        let mut one = inet(SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, port)));
        one.options.ipv6only = Some(only_v6);
        one
    };
    let hint = |listeners: &mut Listeners, wanted: Listener| {
        let complaints = listeners.stage(&[wanted], 1).err()?;
        assert_eq!(complaints.len(), 1);
        complaints[0].hint.clone()
    };
    let (mut listeners, port) = both(false);
    let said = hint(&mut listeners, v4(port)).unwrap();
    assert!(
        said.contains(&format!("listen [::]:{port} ipv6only=off;")),
        "{said}"
    );
    assert!(
        hint(&mut listeners, v6(port, true))
            .unwrap()
            .contains("ipv6only=off")
    );
    assert_eq!(hint(&mut listeners, v6(port, false)), None);
    let (mut listeners, port) = both(true);
    assert!(
        hint(&mut listeners, v6(port, false))
            .unwrap()
            .contains("IPv6 only")
    );
    assert_eq!(hint(&mut listeners, v6(port, true)), None);
    assert_eq!(hint(&mut listeners, v4(port)), None);
}
