//! The project's own files, for the tests that read them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ has a parent")
        .to_owned()
}

/// The tracked and the not yet tracked, not ignored files, relative to the root.
pub fn files() -> Vec<PathBuf> {
    let output = Command::new("git")
        .args([
            "-c",
            "safe.directory=*",
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root())
        .output()
        .expect("running git ls-files");
    assert!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .map(PathBuf::from)
        .filter(|path| root().join(path).is_file())
        .collect()
}

/// The files with one of these endings.
pub fn with_ending(endings: &[&str]) -> Vec<PathBuf> {
    let fits = |path: &PathBuf| {
        path.extension()
            .and_then(|e| e.to_str())
            .is_some_and(|e| endings.contains(&e))
    };
    files().into_iter().filter(fits).collect()
}

/// The text of a file relative to the root.
pub fn read(path: &Path) -> String {
    let bytes = std::fs::read(root().join(path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    String::from_utf8_lossy(&bytes).into_owned()
}
