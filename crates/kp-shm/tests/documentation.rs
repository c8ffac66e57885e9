//! `docs/metrics.md` is written from the table of counters: `UPDATE=1 cargo test -p kp-shm --test documentation`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use kp_shm::{Counter, Kind};
use std::fmt::Write;
use std::path::Path;

const INTRODUCTION: &str = "\
# Metrics

This page is written from the table of counters in `crates/kp-shm/src/counters.rs`; a test keeps it current.

Every process has a block of counters of its own in shared memory, so that counting is a load and a store. A sum over all
blocks is the total of the whole process group; it survives reloads and dead workers. kp does not publish the numbers
yet: the status page and the metrics endpoint are not there.

- A **counter** only grows.
- A **gauge** is what is held now.
- A **peak** is the largest value seen.

| name | kind | unit | meaning |
|---|---|---|---|
";

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for counter in Counter::ALL {
        let kind = match counter.kind() {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Peak => "peak",
        };
        let (name, unit, help) = (counter.name(), counter.unit(), counter.help());
        writeln!(page, "| `{name}` | {kind} | {unit} | {help} |").unwrap();
    }
    page
}

#[test]
fn the_page_of_metrics_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written, page(), "run with UPDATE=1 to write it anew");
}
