//! Programs that others wrote, as judges of what kp says: curl, openssl. `scripts/test-packages` installs them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a program printed.
#[derive(Debug)]
pub struct Told {
    /// Exit code, -1 when it was killed.
    pub code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
}

impl Told {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Both streams as text.
    pub fn all(&self) -> String {
        format!("{}\n{}", self.text(), self.stderr)
    }

    /// The rest of the first line of either stream that begins with `lead`, apart from blanks.
    pub fn line(&self, lead: &str) -> Option<String> {
        self.all()
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(lead))
            .map(|rest| rest.trim().to_owned())
    }
}

/// Runs a program in a directory, with this standard input, half a minute at most.
pub fn run(directory: &Path, program: &str, arguments: &[&str], input: &[u8]) -> Told {
    let mut child = Command::new("timeout")
        .args(["30", program])
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("starting {program}: {error}"));
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let writing = std::thread::spawn(move || {
        // A program that has ended before it read everything has its reasons.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("waiting for a program");
    writing.join().expect("writing does not panic");
    Told {
        code: output.status.code().unwrap_or(-1),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The same with openssl; fails the test where it fails.
pub fn openssl(directory: &Path, arguments: &[&str]) -> Told {
    let told = run(directory, "openssl", arguments, b"");
    assert_eq!(told.code, 0, "openssl {arguments:?}: {}", told.stderr);
    told
}
