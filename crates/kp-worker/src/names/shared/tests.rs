//! What becomes of answers: merged with what was known, and made members of a group.

use super::*;
use kp_dns::{Found, Missing};

fn found(last: u8, port: u16, host: u16) -> Found {
    Found {
        address: IpAddr::from([10, 0, 0, last]),
        port,
        weight: 1,
        priority: 1,
        host,
    }
}

fn outcome(found: &[Found], missing: &[Missing]) -> Outcome {
    let mut outcome = Outcome::of_files(Vec::new(), 1);
    outcome.found = found.to_vec();
    outcome.missing = missing.to_vec();
    outcome
}

fn lasts(addresses: &[NameAddress]) -> Vec<String> {
    let text = |known: &NameAddress| format!("{}:{}", known.address, known.port);
    addresses.iter().map(text).collect()
}

#[test]
fn a_host_that_fails_keeps_its_own_addresses_and_no_others() {
    let old = merged(
        &outcome(&[found(1, 80, 7), found(2, 80, 7), found(3, 80, 8)], &[]),
        &[],
    );
    assert_eq!(old.len(), 3);
    let missing = Missing {
        host: 8,
        ipv4: true,
    };
    let now = merged(&outcome(&[found(2, 80, 7)], &[missing]), &old);
    assert_eq!(lasts(&now), ["10.0.0.2:80", "10.0.0.3:80"]);
    let gone = merged(&outcome(&[found(2, 80, 7)], &[]), &old);
    assert_eq!(lasts(&gone), ["10.0.0.2:80"]);
}

#[test]
fn a_family_that_fails_keeps_its_addresses() {
    let six = Found {
        address: IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]),
        ..found(1, 0, 0)
    };
    let old = merged(&outcome(&[found(1, 0, 0), six], &[]), &[]);
    let missing = Missing {
        host: 0,
        ipv4: false,
    };
    let now = merged(&outcome(&[found(2, 0, 0)], &[missing]), &old);
    assert_eq!(lasts(&now), ["10.0.0.2:0", "fd00::1:0"]);
}

#[test]
fn one_answer_is_one_text_in_whatever_order_it_came() {
    let (a, b) = (found(1, 80, 7), found(2, 81, 8));
    assert_eq!(
        merged(&outcome(&[a, b, a], &[]), &[]),
        merged(&outcome(&[b, a], &[]), &[])
    );
}

fn group(method: &str, server: &str) -> Vec<Member> {
    let text = format!(
        "http {{ resolver 127.0.0.1; upstream u {{ zone u 64k; {method} server {server}; }} \
         server {{ location / {{ proxy_pass http://u; }} }} }} events {{}}"
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kp.conf");
    std::fs::write(&path, text).unwrap();
    let loaded = kp_config::load(&kp_config::LoadOptions {
        path,
        prefix: directory.path().to_owned(),
        ..kp_config::LoadOptions::default()
    });
    let config = loaded.config.unwrap();
    let addresses: Vec<NameAddress> = [(1, 5), (1, 0), (2, 9)]
        .iter()
        .zip(1..)
        .map(|((priority, weight), last)| NameAddress {
            address: IpAddr::from([10, 0, 0, last]),
            port: 8000 + u16::from(last),
            weight: *weight,
            priority: *priority,
            host: 1,
        })
        .collect();
    let user = User {
        upstream: UpstreamId(0),
        line: 0,
        port: 80,
    };
    members(&config.http.upstreams[0], user, &addresses)
}

#[test]
fn the_lowest_priority_comes_first_and_the_others_are_backups() {
    let seen = |members: &[Member]| -> Vec<(String, u32, bool)> {
        let one = |member: &Member| match &member.address {
            PeerAddress::Inet(address) => (address.to_string(), member.weight, member.backup),
            other => panic!("{other:?}"),
        };
        members.iter().map(one).collect()
    };
    let all = [
        ("10.0.0.1:8001".to_owned(), 5, false),
        ("10.0.0.2:8002".to_owned(), 0, false),
        ("10.0.0.3:8003".to_owned(), 9, true),
    ];
    let service = "app.test service=http resolve";
    assert_eq!(seen(&group("", service)), all);
    assert_eq!(seen(&group("least_conn;", service)), all);
    assert_eq!(
        seen(&group("hash $uri;", service)),
        all[..2],
        "no backups there"
    );
    let plain = seen(&group("", "app.test resolve"));
    let ports: Vec<&str> = plain.iter().map(|one| one.0.as_str()).collect();
    assert_eq!(ports, ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"]);
    assert!(plain.iter().all(|one| !one.2), "priorities are a service's");
}
