//! What kp says on stderr before (or without) an error log, and nginx's wording for failed system calls.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

/// Writes `kp: TEXT`. Nobody can be told if stderr is closed.
pub(crate) fn say(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "kp: {text}");
}

/// Writes lines that already say who speaks.
pub(crate) fn print(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes());
    if !text.is_empty() && !text.ends_with('\n') {
        let _ = stderr.write_all(b"\n");
    }
}

/// `open() "/path" failed (2: No such file or directory)`.
pub(crate) fn failed(call: &str, path: &Path, error: &io::Error) -> String {
    format!("{call} \"{}\" failed ({})", path.display(), numbered(error))
}

/// `98: Address already in use`.
pub(crate) fn numbered(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => format!(
            "{number}: {}",
            text.strip_suffix(&format!(" (os error {number})"))
                .unwrap_or(&text)
        ),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_read_as_nginx_writes_them() {
        let error = io::Error::from_raw_os_error(2);
        assert_eq!(
            failed("open()", Path::new("/x"), &error),
            "open() \"/x\" failed (2: No such file or directory)"
        );
        assert_eq!(numbered(&io::Error::other("odd")), "odd");
    }
}
