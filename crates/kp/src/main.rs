//! The kp binary.
fn main() {}
