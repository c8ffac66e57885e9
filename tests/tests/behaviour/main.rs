//! Behaviour of the real binary, one file per area. Each test starts its own kp and its own origins.
//!
//! The line `/// Shows: directive, …` above a test names the directives whose effect it shows; `directives.rs` beside
//! this folder reads those lines.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests panic to fail, and read the clock to check that something came in time"
)]

mod activation;
mod balancing;
mod budget;
mod chaos;
mod config_cases;
mod containers;
mod control;
mod crashing;
mod ctl;
mod deadlines;
mod draining;
mod early_ends;
mod ejection;
mod emptying;
mod failing;
mod framing;
mod from_nginx;
mod headers;
mod health;
mod helping;
mod incident;
mod integrity;
mod lifecycle;
mod limiting;
mod limits;
mod log_json;
mod log_noise;
mod log_readers;
mod log_targets;
mod logs;
mod measuring;
mod memory;
mod metric_sums;
mod metric_truth;
mod metrics;
mod mishaps;
mod name_attacks;
mod names;
mod notify;
mod other_ends;
mod pages;
mod parsing;
mod proxy_protocol;
mod proxying;
mod queueing;
mod realip;
mod reasons;
mod recovery;
mod reloading;
mod retrying;
mod rotating;
mod routing;
mod slow_clients;
mod static_files;
mod status;
mod status_page;
mod steered_load;
mod steering;
mod steering_mishaps;
mod sticky;
mod streaming;
mod tls;
mod tls_certificates;
mod tls_client_certificates;
mod tls_handshakes;
mod tls_resumption;
mod tls_site;
mod tls_streaming;
mod tls_upstreams;
mod upgrading;
mod zone_use;
