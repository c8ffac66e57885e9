//! The control socket between a test that plays the master and clients that do what they like.

use super::*;
use crate::control::client::{self, NoAnswer};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const RELOAD: &[u8] = b"reload\n";

struct House {
    folder: tempfile::TempDir,
    socket: ControlSocket,
}

impl House {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut socket = ControlSocket::default();
        socket.follow(&folder.path().join("kp.pid"), 0).unwrap();
        Self { folder, socket }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("kp.ctl")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    fn client(&self, says: &[u8]) -> UnixStream {
        let mut client = UnixStream::connect(self.path()).unwrap();
        client.write_all(says).unwrap();
        client
    }

    fn hear(&mut self, now_ms: u64) -> Vec<AskerId> {
        let heard = self.socket.hear(now_ms).into_iter();
        heard.map(|(asker, _)| asker).collect()
    }
}

fn said(mut client: UnixStream) -> String {
    client
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let mut text = String::new();
    let _ = client.read_to_string(&mut text);
    text
}

#[test]
fn a_question_is_answered_when_the_master_likes() {
    let mut house = House::new();
    assert_eq!(house.names(), ["kp.ctl"]);
    let mode = fs::metadata(house.path()).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut client = house.client(b"rel");
    assert_eq!(house.hear(0), []);
    client.write_all(b"oad\nand more").unwrap();
    let asker = house.hear(1)[0];
    assert_eq!(house.hear(100_000), [], "a question may take its time");
    let answer = Answer::Done("it works\n".into());
    house.socket.answer(asker, &answer, 100_001);
    assert_eq!(said(client), "ok\nit works\n");
    assert!(house.socket.askers.is_empty() && house.socket.deadline_ms().is_none());
    house.socket.answer(asker, &answer, 100_002);
    house.socket.close();
    assert_eq!(house.names(), [""; 0]);
}

/// The command that was asked first.
fn command(house: &mut House, now_ms: u64) -> Option<(AskerId, Vec<u8>)> {
    match house.socket.hear(now_ms).into_iter().next()? {
        (asker, Request::Ctl(command)) => Some((asker, command)),
        (_, other) => panic!("{other:?}"),
    }
}

#[test]
fn a_command_comes_as_a_whole_however_it_is_cut() {
    let large = vec![b'x'; super::super::COMMAND_MAX_BYTES];
    let mut sent = format!("ctl {}\n", large.len()).into_bytes();
    sent.extend_from_slice(&large);
    for pieces in [vec![3], vec![5, 9, 70_000], vec![12], vec![1 << 20]] {
        let mut house = House::new();
        let client = house.client(b"");
        client.set_nonblocking(true).unwrap();
        let (mut rest, mut next) = (&sent[..], pieces.iter().copied());
        let heard = loop {
            let piece = &rest[..next.next().unwrap_or(rest.len()).min(rest.len())];
            // The kernel takes some of it, or nothing until the master has read.
            let taken = (&client).write(piece).unwrap_or(0);
            rest = &rest[taken..];
            if let Some(heard) = command(&mut house, 0) {
                break heard;
            }
        };
        assert_eq!(heard.1, large);
        client.set_nonblocking(false).unwrap();
        house
            .socket
            .answer(heard.0, &Answer::Done("{}\n".into()), 0);
        assert_eq!(said(client), "ok\n{}\n");
    }
    // What follows it is nobody's.
    let mut house = House::new();
    let client = house.client(b"ctl 2\n{}and more");
    let (asker, heard) = command(&mut house, 0).unwrap();
    assert_eq!(heard, b"{}");
    house.socket.answer(asker, &Answer::Done("1".into()), 0);
    assert_eq!(said(client), "ok\n1");
}

#[test]
fn a_command_that_is_never_whole_is_refused() {
    let mut house = House::new();
    let half = house.client(b"ctl 10\n{}");
    half.shutdown(std::net::Shutdown::Write).unwrap();
    let slow = house.client(b"ctl 10\n{}");
    let huge = house.client(b"ctl 1048577\n{}");
    let garbage = house.client(b"ctl ten\n{}");
    assert_eq!(house.hear(0), []);
    assert_eq!(said(half), "failed\nthe command is not whole\n");
    assert_eq!(said(huge), "failed\na command has at most 1048576 bytes\n");
    assert!(said(garbage).contains("is followed by the length"));
    house.hear(PATIENCE_MS);
    assert_eq!(said(slow), "failed\nno request came in 5 s\n");
    assert!(house.socket.askers.is_empty());
}

#[test]
fn a_client_sends_a_large_command_and_reads_why_it_is_refused() {
    let mut house = House::new();
    let path = house.path();
    for bytes in [1 << 20, 2 << 20] {
        let request = Request::Ctl(vec![b'x'; bytes]);
        let answer = std::thread::scope(|scope| {
            let asked = scope.spawn(|| client::ask(&path, &request, Duration::from_secs(5)));
            while !asked.is_finished() {
                poll::wait(house.socket.sources(), Some(Duration::from_millis(20))).unwrap();
                for (asker, heard) in house.socket.hear(0) {
                    assert_eq!(heard, request);
                    house.socket.answer(asker, &Answer::Done("taken".into()), 0);
                }
            }
            asked.join().unwrap()
        });
        let expected = match bytes {
            0..=0x10_0000 => Answer::Done("taken".into()),
            _ => Answer::Failed("a command has at most 1048576 bytes\n".into()),
        };
        assert_eq!(answer.unwrap(), expected);
    }
}

#[test]
fn what_is_no_question_is_refused_by_name() {
    let mut house = House::new();
    let asked: Vec<_> = [
        (
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            "unknown request \"GET / HTTP/1.1\"",
        ),
        (b"\n", "unknown request \"\""),
        (b"\xff\xfe\n", "unknown request"),
        (&[b'x'; 5000], "at most 4096 bytes"),
    ]
    .into_iter()
    .map(|(says, part)| (house.client(says), part))
    .collect();
    let half = house.client(b"reload");
    half.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(house.hear(0), []);
    for (client, part) in asked.into_iter().chain([(half, "no end of line")]) {
        let answer = said(client);
        assert!(
            answer.starts_with("failed\n") && answer.contains(part),
            "{answer}"
        );
    }
    assert!(house.socket.askers.is_empty());
}

#[test]
fn who_says_nothing_is_dropped_and_who_went_away_forgotten() {
    let mut house = House::new();
    let silent = house.client(b"");
    let halves = house.client(RELOAD);
    halves.shutdown(std::net::Shutdown::Write).unwrap();
    drop(house.client(RELOAD));
    drop(house.client(b"relo"));
    assert_eq!(house.hear(1_000).len(), 2, "the dead one has asked, too");
    assert_eq!(house.hear(1_001), []);
    assert_eq!(house.socket.askers.len(), 2);
    assert_eq!(house.socket.deadline_ms(), Some(1_000 + PATIENCE_MS));
    house.hear(1_000 + PATIENCE_MS);
    assert_eq!(said(silent), "failed\nno request came in 5 s\n");
    let left = house.socket.askers[0].id;
    let done = Answer::Done("late\n".into());
    house.socket.answer(left, &done, 50_000);
    assert_eq!(said(halves), "ok\nlate\n", "half a close is not the end");
}

#[test]
fn an_answer_larger_than_the_kernel_takes_arrives_and_one_nobody_reads_is_dropped() {
    let mut house = House::new();
    let (reads, stalls) = (house.client(RELOAD), house.client(RELOAD));
    let answer = Answer::Done("x".repeat(5_000_000));
    for asker in house.hear(0) {
        house.socket.answer(asker, &answer, 0);
    }
    assert_eq!(house.socket.deadline_ms(), Some(PATIENCE_MS));
    let reader = std::thread::scope(|scope| {
        let reader = scope.spawn(move || said(reads).len());
        while !reader.is_finished() {
            poll::wait(house.socket.sources(), Some(Duration::from_millis(50))).unwrap();
            house.hear(1);
        }
        reader.join().unwrap()
    });
    assert_eq!(reader, 5_000_003);
    assert_eq!(house.socket.askers.len(), 1);
    house.hear(PATIENCE_MS);
    assert!(house.socket.askers.is_empty());
    assert!(said(stalls).len() < 5_000_000);
}

#[test]
fn only_so_many_are_served_at_once() {
    let mut house = House::new();
    let mut clients: Vec<_> = (0..ASKERS_MAX).map(|_| house.client(b"")).collect();
    house.hear(0);
    let last = house.client(RELOAD);
    assert_eq!(house.hear(1), [], "it waits in the queue");
    assert_eq!(house.socket.sources().count(), ASKERS_MAX);
    drop(clients.pop());
    assert_eq!(house.hear(2), []);
    let asker = house.hear(3)[0];
    house.socket.answer(asker, &Answer::Done(String::new()), 3);
    assert_eq!(said(last), "ok\n");
}

#[test]
fn the_socket_follows_the_pid_file_and_takes_everybody_along() {
    let mut house = House::new();
    let waits = house.client(RELOAD);
    let asker = house.hear(0)[0];
    let queued = house.client(RELOAD);
    let elsewhere = house.folder.path().join("other");
    house.socket.follow(&elsewhere, 0).unwrap();
    assert_eq!(house.names(), ["other.ctl"]);
    let done = Answer::Done(String::new());
    house.socket.answer(asker, &done, 0);
    let second = house.hear(0)[0];
    house.socket.answer(second, &done, 0);
    assert_eq!((said(waits), said(queued)), ("ok\n".into(), "ok\n".into()));

    // Where it cannot go it stays.
    fs::write(house.folder.path().join("taken.ctl"), "precious").unwrap();
    let complaint = house
        .socket
        .follow(&house.folder.path().join("taken.pid"), 0);
    assert!(complaint.unwrap_err().contains("no socket is in the way"));
    assert!(
        house
            .socket
            .follow("/no/such/folder/kp.pid".as_ref(), 0)
            .is_err()
    );
    let mut names = house.names();
    names.sort();
    assert_eq!(names, ["other.ctl", "taken.ctl"]);
    assert!(UnixStream::connect(house.folder.path().join("other.ctl")).is_ok());
}

#[test]
fn a_leftover_is_replaced_and_only_the_own_path_is_removed() {
    let mut first = House::new();
    let mut second = ControlSocket::default();
    second
        .follow(&first.folder.path().join("kp.pid"), 0)
        .unwrap();
    first.socket.close();
    assert_eq!(first.names(), ["kp.ctl"], "it belongs to somebody else now");
    let client = first.client(RELOAD);
    let asker = second.hear(0)[0].0;
    second.answer(asker, &Answer::Done(String::new()), 0);
    assert_eq!(said(client), "ok\n");
}

#[test]
fn a_path_that_is_too_long_for_the_kernel_works_from_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("d".repeat(100)).join("e".repeat(100));
    fs::create_dir_all(&deep).unwrap();
    let mut socket = ControlSocket::default();
    socket.follow(&deep.join("kp.pid"), 0).unwrap();
    let path = deep.join("kp.ctl");
    let answer = std::thread::scope(|scope| {
        let asked = scope.spawn(|| client::ask(&path, &Request::Reload, Duration::from_secs(5)));
        let mut heard = Vec::new();
        while heard.is_empty() {
            poll::wait(socket.sources(), Some(Duration::from_secs(5))).unwrap();
            heard = socket.hear(0);
        }
        socket.answer(heard[0].0, &Answer::Failed("no\n".into()), 0);
        asked.join().unwrap()
    });
    assert_eq!(answer.unwrap(), Answer::Failed("no\n".into()));
    let name = folder.path().join(format!("{}.pid", "n".repeat(120)));
    assert!(socket.follow(&name, 0).is_err(), "not even the name fits");
}

#[test]
fn a_client_tells_why_there_is_no_answer() {
    let mut house = House::new();
    let path = house.path();
    let brief = Duration::from_millis(50);
    let late = client::ask(&path, &Request::Reload, brief);
    assert!(matches!(late, Err(NoAnswer::Late)), "{late:?}");
    assert_eq!(house.hear(0).len(), 1);
    let ended = std::thread::scope(|scope| {
        let asked = scope.spawn(|| client::ask(&path, &Request::Reload, Duration::from_secs(5)));
        while house.hear(0).is_empty() {
            poll::wait(house.socket.sources(), Some(Duration::from_secs(5))).unwrap();
        }
        house.socket = ControlSocket::default();
        asked.join().unwrap()
    });
    assert!(matches!(ended, Err(NoAnswer::Ended)), "{ended:?}");
    for gone in [path, house.folder.path().join("none")] {
        let nobody = client::ask(&gone, &Request::Reload, brief);
        assert!(
            matches!(nobody, Err(NoAnswer::Unreachable(_))),
            "{nobody:?}"
        );
    }
}
