//! Tells the binary which compiler built it, for `kp -V`.

use std::io::Write;
use std::process::Command;

fn main() {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(compiler).arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let version = version.unwrap_or_else(|_| String::from("rustc"));
    let _ = writeln!(
        std::io::stdout(),
        "cargo::rustc-env=KP_RUSTC_VERSION={version}\ncargo::rerun-if-changed=build.rs"
    );
}
