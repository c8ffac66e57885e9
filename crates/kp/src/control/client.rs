//! The command line's side of the control socket.

use super::{Answer, Request};
use kp_sys::poll::{self, Interest};
use kp_sys::socket::{self, ShortPath, Target};
use kp_sys::{clock, io as bytes};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Between two attempts to connect to a socket whose queue is full.
const LOOK: Duration = Duration::from_millis(20);
/// Longest answer that is taken.
const ANSWER_MAX_BYTES: usize = 16 << 20;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// Nobody can be asked.
    Unreachable(io::Error),
    /// The connection ended: the master has ended.
    Ended,
    /// It took too long.
    Late,
}

/// Asks, and waits at most `limit` for the answer.
pub(crate) fn ask(path: &Path, request: &Request, limit: Duration) -> Result<Answer, NoAnswer> {
    let deadline_ms = clock::monotonic_ms() + limit.as_millis() as u64;
    let connection = connect(path, deadline_ms)?;
    say(&connection, &request.encode(), deadline_ms)?;
    let mut answer = Vec::new();
    loop {
        match bytes::recv_into(&connection, &mut answer, 64 * 1024) {
            Ok(0) => break,
            Ok(_) if answer.len() > ANSWER_MAX_BYTES => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(&connection, Interest::Read, deadline_ms)?;
            }
            Err(_) => break,
        }
    }
    Answer::decode(&answer).ok_or(NoAnswer::Ended)
}

/// Sends a request. Who is refused has an answer before the question is out, and cannot send.
fn say(connection: &OwnedFd, request: &[u8], deadline_ms: u64) -> Result<(), NoAnswer> {
    let mut rest = request;
    while !rest.is_empty() {
        match bytes::send(connection, rest) {
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(connection, Interest::Write, deadline_ms)?;
            }
            Err(_) => break,
        }
    }
    Ok(())
}

fn wait(connection: &OwnedFd, interest: Interest, deadline_ms: u64) -> Result<(), NoAnswer> {
    let left = remaining(deadline_ms).ok_or(NoAnswer::Late)?;
    poll::wait([(connection.as_fd(), interest)], Some(left)).map_err(NoAnswer::Unreachable)?;
    Ok(())
}

fn connect(path: &Path, deadline_ms: u64) -> Result<OwnedFd, NoAnswer> {
    let short = ShortPath::of(path).map_err(NoAnswer::Unreachable)?;
    loop {
        match socket::connect(Target::Unix(short.path()), None) {
            Ok(connection) => return Ok(connection),
            // The queue is full: others ask.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = remaining(deadline_ms).ok_or(NoAnswer::Late)?;
                poll::readable(&[], Some(left.min(LOOK))).map_err(NoAnswer::Unreachable)?;
            }
            Err(error) => return Err(NoAnswer::Unreachable(error)),
        }
    }
}

fn remaining(deadline_ms: u64) -> Option<Duration> {
    deadline_ms
        .checked_sub(clock::monotonic_ms())
        .filter(|left| *left > 0)
        .map(Duration::from_millis)
}
