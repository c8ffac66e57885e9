//! What the operator of a running kp asks: `kp ctl` on the command line, the control socket, the status page's JSON.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::client;
use crate::kp::Kp;
use crate::wait::SOON;

/// What `kp ctl --json` prints; fails the test where it was refused.
#[track_caller]
pub fn ctl(kp: &Kp, arguments: &[&str]) -> Value {
    let text = ctl_text(kp, &[&["--json"], arguments].concat());
    serde_json::from_str(&text).expect("JSON")
}

/// What `kp ctl` prints for people; fails the test where it was refused.
#[track_caller]
pub fn ctl_text(kp: &Kp, arguments: &[&str]) -> String {
    let said = kp.command(&[&["ctl"], arguments].concat());
    assert_eq!((said.code, &*said.stderr), (0, ""), "{arguments:?}");
    said.stdout
}

/// What the master answers on its control socket, without another process; the flag: it was done.
#[track_caller]
pub fn question(kp: &Kp, command: &Value) -> (bool, Value) {
    let command = command.to_string();
    let mut asker = UnixStream::connect(kp.path("kp.ctl")).expect("connecting");
    asker.set_read_timeout(Some(SOON)).expect("a time limit");
    asker
        .write_all(format!("ctl {}\n{command}", command.len()).as_bytes())
        .expect("asking");
    let mut text = String::new();
    asker.read_to_string(&mut text).expect("an answer");
    let (word, rest) = text.split_once('\n').expect("an answer of two parts");
    (word == "ok", serde_json::from_str(rest).expect("JSON"))
}

/// The same; fails the test where it is refused.
#[track_caller]
pub fn master(kp: &Kp, command: &Value) -> Value {
    let (done, answer) = question(kp, command);
    assert!(done, "{command}: {answer}");
    answer
}

/// Changes upstreams in one step, a change in words each; fails the test where it is refused or not everybody has it.
#[track_caller]
pub fn change(kp: &Kp, changes: &[&str]) -> Value {
    let words = changes.iter().map(|text| text.split(' ').collect());
    let words: Vec<Vec<&str>> = words.collect();
    let answer = master(
        kp,
        &json!({"command": "change", "changes": words, "force": false}),
    );
    assert_eq!(answer["silent"], json!([]), "{answer}");
    answer
}

/// The JSON of a `status` location.
#[track_caller]
pub fn status(address: &str, path: &str) -> Value {
    let answer = client::get(address, path);
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert_eq!(answer.field("content-type"), Some("application/json"));
    serde_json::from_str(&answer.text()).expect("JSON")
}

/// The entry of a list whose field has that text; `null` where there is none.
pub fn entry<'a>(list: &'a Value, field: &str, text: &str) -> &'a Value {
    let entries = list.as_array().into_iter().flatten();
    let mut found = entries.filter(|entry| entry[field] == text);
    found.next().unwrap_or(&Value::Null)
}

/// A peer of the JSON of the status page or of `kp ctl upstream`.
pub fn peer<'a>(picture: &'a Value, upstream: &str, address: &str) -> &'a Value {
    let upstream = entry(&picture["upstreams"], "upstream", upstream);
    entry(&upstream["peers"], "peer", address)
}
