//! Lookups against servers that are a closure.

use super::*;
use crate::message::framed;
use crate::question::Transport;
use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Name, Rtype};
use domain::rdata::{A, Aaaa, Cname, Srv};
use std::net::Ipv4Addr;

const BOTH: Wanted = Wanted {
    ipv4: true,
    ipv6: true,
    service: false,
};
const FOUR: Wanted = Wanted {
    ipv6: false,
    ..BOTH
};

struct Run {
    lookup: Lookup,
    now_ms: u64,
    serial: u32,
    orders: Vec<Order>,
    id: u16,
    open: Vec<u32>,
}

/// One query as a server sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Query {
    attempt: u32,
    server: u16,
    transport: Transport,
    name: String,
    rtype: Rtype,
    bytes: Vec<u8>,
}

impl Run {
    fn new(name: &str, wanted: Wanted, servers: u16) -> Self {
        let servers = (1..=servers).map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let name = HostName::new(name).unwrap();
        let lookup = Lookup::new(
            name,
            wanted,
            servers.collect(),
            0,
            Duration::from_secs(30),
            1000,
        );
        let mut run = Self {
            lookup,
            now_ms: 1000,
            serial: 0,
            orders: Vec::new(),
            id: 0,
            open: Vec::new(),
        };
        run.pass();
        run
    }

    fn pass(&mut self) {
        let id = &mut self.id;
        self.lookup.pass(
            self.now_ms,
            &mut self.serial,
            &mut || {
                *id = id.wrapping_mul(77).wrapping_add(13);
                *id
            },
            &mut self.orders,
        );
    }

    fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
        self.pass();
    }

    fn hear(&mut self, attempt: u32, bytes: &[u8]) {
        let id = &mut self.id;
        self.lookup.heard(
            attempt,
            bytes,
            self.now_ms,
            &mut self.serial,
            &mut || {
                *id = id.wrapping_mul(77).wrapping_add(13);
                *id
            },
            &mut self.orders,
        );
    }

    fn fail(&mut self, attempt: u32) {
        self.lookup.failed(
            attempt,
            self.now_ms,
            &mut self.serial,
            &mut || 9,
            &mut self.orders,
        );
    }

    /// What was sent since the last time.
    fn sent(&mut self) -> Vec<Query> {
        let mut sent = Vec::new();
        for order in std::mem::take(&mut self.orders) {
            match order {
                Order::Send {
                    attempt,
                    server,
                    transport,
                    message,
                } => {
                    self.open.push(attempt);
                    let parsed = Message::from_octets(message.clone()).unwrap();
                    let question = parsed.sole_question().unwrap();
                    sent.push(Query {
                        attempt,
                        server: server.port(),
                        transport,
                        name: question.qname().to_string(),
                        rtype: question.qtype(),
                        bytes: message,
                    });
                }
                Order::Close { attempt } => {
                    let before = self.open.len();
                    self.open.retain(|open| *open != attempt);
                    assert_eq!(before, self.open.len() + 1, "closed once");
                }
            }
        }
        sent
    }

    fn addresses(&mut self) -> Option<Vec<String>> {
        self.sent();
        let outcome = self.lookup.outcome()?;
        assert!(self.open.is_empty(), "sockets left open");
        assert_eq!(self.lookup.due_ms(), u64::MAX);
        Some(
            outcome
                .found
                .iter()
                .map(|found| found.address.to_string())
                .collect(),
        )
    }

    fn reason(&mut self) -> Option<Reason> {
        self.sent();
        self.lookup.outcome()?.reason
    }
}

enum Data<'a> {
    A(u8),
    Aaaa(u16),
    Alias(&'a str),
    Srv(u16, u16, u16, &'a str),
}

fn reply(query: &Query, code: Rcode, records: &[Data<'_>]) -> Vec<u8> {
    let parsed = Message::from_octets(query.bytes.clone()).unwrap();
    let owner: Name<Vec<u8>> = Name::vec_from_str(&query.name).unwrap();
    let mut answers = MessageBuilder::new_vec()
        .start_answer(&parsed, code)
        .unwrap();
    let name = |text: &str| -> Name<Vec<u8>> { Name::vec_from_str(text).unwrap() };
    for record in records {
        match record {
            Data::A(last) => answers.push((&owner, 5, A::new(Ipv4Addr::new(10, 0, 0, *last)))),
            Data::Aaaa(last) => answers.push((
                &owner,
                5,
                Aaaa::new([0xfd00, 0, 0, 0, 0, 0, 0, *last].into()),
            )),
            Data::Alias(to) => answers.push((&owner, 5, Cname::new(name(to)))),
            Data::Srv(priority, weight, port, to) => {
                answers.push((&owner, 5, Srv::new(*priority, *weight, *port, name(to))))
            }
        }
        .unwrap();
    }
    answers.finish()
}

#[test]
fn both_families_are_asked_for_at_once() {
    let mut run = Run::new("app.test", BOTH, 2);
    let sent = run.sent();
    assert_eq!([sent[0].rtype, sent[1].rtype], [Rtype::A, Rtype::AAAA]);
    assert_ne!(sent[0].bytes[..2], sent[1].bytes[..2], "ids differ");
    run.hear(
        sent[0].attempt,
        &reply(&sent[0], Rcode::NOERROR, &[Data::A(1)]),
    );
    assert_eq!(run.addresses(), None);
    run.hear(
        sent[1].attempt,
        &reply(&sent[1], Rcode::NOERROR, &[Data::Aaaa(1)]),
    );
    assert_eq!(run.addresses().unwrap(), ["10.0.0.1", "fd00::1"]);
    assert_eq!(run.lookup.outcome().unwrap().ttl_s, 5);
}

#[test]
fn a_family_that_answers_is_not_held_up() {
    let mut run = Run::new("app.test", BOTH, 1);
    let sent = run.sent();
    run.hear(
        sent[0].attempt,
        &reply(&sent[0], Rcode::NOERROR, &[Data::A(1)]),
    );
    assert!(run.lookup.due_ms() <= run.now_ms + 500);
    run.wait(500);
    assert_eq!(run.addresses().unwrap(), ["10.0.0.1"]);
    let outcome = run.lookup.outcome().unwrap();
    assert_eq!(
        (outcome.missing, outcome.reason),
        (missing(0, &[false]), None)
    );
}

#[test]
fn servers_are_asked_in_turn_until_the_time_is_up() {
    let mut run = Run::new("app.test", FOUR, 2);
    let mut servers = vec![run.sent()[0].server];
    let mut attempts = 1;
    for _ in 0..30 {
        run.wait(1000);
        let sent = run.sent();
        attempts += sent.len();
        servers.extend(sent.iter().map(|query| query.server));
        assert!(run.open.len() <= 3);
    }
    assert_eq!(servers[..4], [1, 2, 1, 2]);
    assert!((14..=18).contains(&attempts), "{attempts}");
    assert_eq!(run.reason(), Some(Reason::TimedOut));
}

#[test]
fn a_late_answer_to_an_earlier_attempt_counts() {
    let mut run = Run::new("app.test", FOUR, 1);
    let first = run.sent().remove(0);
    run.wait(500);
    assert_eq!(run.sent().len(), 1);
    run.hear(first.attempt, &reply(&first, Rcode::NOERROR, &[Data::A(1)]));
    assert_eq!(run.addresses().unwrap(), ["10.0.0.1"]);
}

#[test]
fn what_is_no_answer_changes_nothing() {
    let mut run = Run::new("app.test", FOUR, 1);
    let sent = run.sent().remove(0);
    let mut forged = reply(&sent, Rcode::NOERROR, &[Data::A(66)]);
    forged[1] ^= 1;
    run.hear(sent.attempt, &forged);
    run.hear(sent.attempt, b"garbage");
    run.hear(
        sent.attempt + 7,
        &reply(&sent, Rcode::NOERROR, &[Data::A(66)]),
    );
    assert_eq!(run.addresses(), None);
    run.hear(sent.attempt, &reply(&sent, Rcode::NOERROR, &[Data::A(1)]));
    assert_eq!(run.addresses().unwrap(), ["10.0.0.1"]);
}

#[test]
fn what_did_not_fit_comes_by_tcp() {
    let mut run = Run::new("app.test", FOUR, 1);
    let sent = run.sent().remove(0);
    let mut cut = reply(&sent, Rcode::NOERROR, &[]);
    cut[2] |= 2;
    run.hear(sent.attempt, &cut);
    let again = run.sent().remove(0);
    assert_eq!((again.transport, again.server), (Transport::Tcp, 1));
    assert_eq!(framed(&again.bytes).len(), again.bytes.len() + 2);
    run.hear(
        again.attempt,
        &reply(&again, Rcode::NOERROR, &[Data::A(1), Data::A(2)]),
    );
    assert_eq!(run.addresses().unwrap(), ["10.0.0.1", "10.0.0.2"]);
}

#[test]
fn a_server_that_cannot_is_followed_by_one_that_can() {
    let mut run = Run::new("app.test", FOUR, 2);
    let sent = run.sent().remove(0);
    run.hear(sent.attempt, &reply(&sent, Rcode::SERVFAIL, &[]));
    let again = run.sent().remove(0);
    assert_eq!(again.server, 2);
    run.hear(again.attempt, &reply(&again, Rcode::REFUSED, &[]));
    assert_eq!(run.reason(), Some(Reason::Refused));
    let outcome = run.lookup.outcome().unwrap();
    assert_eq!(outcome.missing, missing(0, &[true]));
}

#[test]
fn a_refused_datagram_goes_to_the_next_server_once_round() {
    let mut run = Run::new("app.test", FOUR, 2);
    let first = run.sent().remove(0);
    run.fail(first.attempt);
    let second = run.sent().remove(0);
    assert_eq!(second.server, 2);
    run.fail(second.attempt);
    assert_eq!(run.sent(), []);
    assert_eq!(run.reason(), None);
    run.wait(1000);
    assert_eq!(run.sent().len(), 1, "it may be back");
}

#[test]
fn denied_and_empty() {
    let mut run = Run::new("app.test", BOTH, 3);
    let sent = run.sent();
    run.hear(sent[0].attempt, &reply(&sent[0], Rcode::NXDOMAIN, &[]));
    run.hear(sent[1].attempt, &reply(&sent[1], Rcode::NOERROR, &[]));
    assert_eq!(run.reason(), Some(Reason::NotFound));
    let outcome = run.lookup.outcome().unwrap();
    assert_eq!(outcome.missing, []);
}

#[test]
fn an_alias_that_leads_out_is_asked_for() {
    let mut run = Run::new("a.test", FOUR, 1);
    let sent = run.sent().remove(0);
    run.hear(
        sent.attempt,
        &reply(&sent, Rcode::NOERROR, &[Data::Alias("b.test")]),
    );
    let again = run.sent().remove(0);
    assert_eq!(again.name, "b.test");
    run.hear(again.attempt, &reply(&again, Rcode::NOERROR, &[Data::A(1)]));
    assert_eq!(run.addresses().unwrap(), ["10.0.0.1"]);
}

#[test]
fn aliases_end() {
    let mut run = Run::new("a0.test", FOUR, 1);
    for step in 0..20 {
        let Some(sent) = run.sent().pop() else {
            assert_eq!(run.reason(), Some(Reason::ServerFailure));
            return;
        };
        let next = format!("a{}.test", step + 1);
        run.hear(
            sent.attempt,
            &reply(&sent, Rcode::NOERROR, &[Data::Alias(&next)]),
        );
    }
    panic!("aliases without an end were followed");
}

#[test]
fn a_service_is_its_hosts() {
    let wanted = Wanted {
        service: true,
        ..FOUR
    };
    let mut run = Run::new("_http._tcp.app.test", wanted, 1);
    let sent = run.sent().remove(0);
    assert_eq!(sent.rtype, Rtype::SRV);
    let hosts = [
        Data::Srv(10, 3, 8080, "a.test"),
        Data::Srv(20, 0, 8081, "b.test"),
    ];
    run.hear(sent.attempt, &reply(&sent, Rcode::NOERROR, &hosts));
    let sent = run.sent();
    assert_eq!([&*sent[0].name, &*sent[1].name], ["a.test", "b.test"]);
    run.hear(
        sent[0].attempt,
        &reply(&sent[0], Rcode::NOERROR, &[Data::A(1)]),
    );
    run.hear(
        sent[1].attempt,
        &reply(&sent[1], Rcode::NOERROR, &[Data::A(2)]),
    );
    run.addresses().unwrap();
    let found = run.lookup.outcome().unwrap().found;
    let seen: Vec<_> = found
        .iter()
        .map(|one| (one.port, one.weight, one.priority))
        .collect();
    assert_eq!(seen, [(8080, 3, 10), (8081, 0, 20)]);
}

fn missing(host: u16, families: &[bool]) -> Vec<Missing> {
    let one = |ipv4: &bool| Missing { host, ipv4: *ipv4 };
    families.iter().map(one).collect()
}

fn service(hosts: &[Data<'_>]) -> (Run, Vec<Query>) {
    let wanted = Wanted {
        service: true,
        ..FOUR
    };
    let mut run = Run::new("_http._tcp.app.test", wanted, 1);
    let sent = run.sent().remove(0);
    run.hear(sent.attempt, &reply(&sent, Rcode::NOERROR, hosts));
    let sent = run.sent();
    (run, sent)
}

#[test]
fn a_host_that_says_nothing_does_not_hold_its_service_up() {
    for silent in [true, false] {
        let hosts = [Data::Srv(1, 1, 80, "a.test"), Data::Srv(1, 1, 80, "b.test")];
        let (mut run, sent) = service(&hosts);
        run.hear(
            sent[0].attempt,
            &reply(&sent[0], Rcode::NOERROR, &[Data::A(1)]),
        );
        if silent {
            run.wait(500);
            assert_eq!(run.addresses(), None);
            run.wait(1000);
        } else {
            run.hear(sent[1].attempt, &reply(&sent[1], Rcode::NXDOMAIN, &[]));
        }
        assert_eq!(run.addresses().unwrap(), ["10.0.0.1"]);
        let outcome = run.lookup.outcome().unwrap();
        let known = outcome.found[0].host;
        let other = outcome.missing[0].host;
        assert_ne!(known, other);
        let address = outcome.found[0].address;
        assert!(outcome.hides(other, address), "silent: {silent}");
        assert!(!outcome.hides(known, address), "silent: {silent}");
    }
}

#[test]
fn too_many_hosts_are_cut_and_those_that_matter_stay() {
    let names: Vec<String> = (0..40).map(|host| format!("h{host}.test")).collect();
    let hosts: Vec<Data<'_>> = (0..40u16)
        .map(|host| Data::Srv(40 - host, host, 80, &names[usize::from(host)]))
        .collect();
    let (mut run, sent) = service(&hosts);
    assert_eq!(sent.len(), HOSTS_MAX);
    assert_eq!(sent[0].name, "h39.test", "the lowest priority");
    for query in &sent {
        run.hear(query.attempt, &reply(query, Rcode::NOERROR, &[Data::A(1)]));
    }
    assert_eq!(run.addresses().unwrap().len(), HOSTS_MAX);
    assert!(run.lookup.outcome().unwrap().cut);
}

#[test]
fn too_many_addresses_are_cut_alike_in_whatever_order_they_come() {
    let found = |order: &[u8]| {
        let mut run = Run::new("app.test", FOUR, 1);
        let sent = run.sent().remove(0);
        let records: Vec<Data<'_>> = order.iter().map(|last| Data::A(*last)).collect();
        run.hear(sent.attempt, &reply(&sent, Rcode::NOERROR, &records));
        assert!(run.lookup.outcome().unwrap().cut);
        run.addresses().unwrap()
    };
    let order: Vec<u8> = (0..100).collect();
    let turned: Vec<u8> = order[50..].iter().chain(&order[..50]).copied().collect();
    assert_eq!(found(&order).len(), ADDRESSES_MAX);
    assert_eq!(found(&order), found(&turned));
}

#[test]
fn a_server_without_edns_is_asked_without_it() {
    let mut run = Run::new("app.test", FOUR, 1);
    let first = run.sent().remove(0);
    assert_eq!(first.bytes[11], 1);
    run.hear(first.attempt, &reply(&first, Rcode::FORMERR, &[]));
    let again = run.sent().remove(0);
    assert_eq!((again.server, again.bytes[11]), (1, 0));
    run.hear(again.attempt, &reply(&again, Rcode::FORMERR, &[]));
    assert_eq!(run.reason(), Some(Reason::FormatError), "and no more");
}

#[test]
fn who_is_silent_is_asked_without_edns_in_the_end() {
    let mut run = Run::new("app.test", FOUR, 1);
    let mut seen = vec![run.sent()[0].bytes[11]];
    for _ in 0..4 {
        run.wait(2000);
        seen.extend(run.sent().iter().map(|query| query.bytes[11]));
    }
    assert_eq!(seen, [1, 1, 0, 0, 0]);
}

#[test]
fn a_lookup_that_is_cancelled_leaves_nothing_open() {
    let mut run = Run::new("app.test", BOTH, 1);
    run.sent();
    run.lookup.cancel(&mut run.orders);
    assert_eq!(run.addresses().unwrap(), [""; 0]);
}
