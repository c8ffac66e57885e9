//! `-v`, `-V` and `-h`. `-V` is read by programs: nginx's test suite takes a module for present unless it reads
//! `--without-…`, so every default module of nginx that kp lacks is named; one that nginx builds on demand it takes for absent
//! unless it reads `--with-…`.

use crate::settings;

/// The version of nginx whose configuration language kp follows.
const NGINX: &str = "1.31.5";

/// http modules that nginx builds by default and kp does not have.
const LACKS: [&str; 17] = [
    "auth_basic",
    "autoindex",
    "browser",
    "charset",
    "empty_gif",
    "fastcgi",
    "geo",
    "grpc",
    "gzip",
    "memcached",
    "mirror",
    "referer",
    "scgi",
    "ssi",
    "tunnel",
    "userid",
    "uwsgi",
];

/// `-v`.
pub(crate) fn short() -> String {
    format!("kp version: kp/{}\n", env!("CARGO_PKG_VERSION"))
}

/// `-V`.
pub(crate) fn build() -> String {
    let (first, second) = settings::default_configurations(settings::PREFIX.as_ref());
    let lacks: String = LACKS
        .iter()
        .map(|module| format!(" --without-http_{module}_module"))
        .collect();
    format!(
        "{}nginx version: nginx/{NGINX} (whose configuration language kp follows)\n\
         built by {}\n\
         TLS SNI support enabled (rustls with AWS-LC, comparable with OpenSSL 3.0)\n\
         default configuration: {}, then {}\n\
         configure arguments: --prefix={} --conf-path={} --error-log-path={} --http-log-path={} --pid-path={} \
         --http-client-body-temp-path={state}/client_body_temp --http-proxy-temp-path={state}/proxy_temp --user=nobody --with-http_realip_module --with-http_ssl_module --with-http_stub_status_module --without-http-cache{lacks}\n",
        short(),
        env!("KP_RUSTC_VERSION"),
        first.display(),
        second.display(),
        settings::PREFIX,
        first.display(),
        kp_config::ERROR_LOG,
        kp_config::ACCESS_LOG,
        kp_config::PID,
        state = kp_config::STATE,
    )
}

/// `-h`.
pub(crate) fn help() -> String {
    let (first, second) = settings::default_configurations(settings::PREFIX.as_ref());
    format!(
        "{}\
Usage: kp [-?hvVtTq] [-s signal] [-p prefix]
          [-e filename] [-c filename] [-g directives]
       kp status [-p prefix] [-e filename] [-c filename] [-g directives]
       kp ctl [-p prefix] [-e filename] [-c filename] [-g directives]
              [--json] [--force] COMMAND ...
       kp explain [-p prefix] [-c filename] [directive | $variable | reason | status]
       kp convert [--inline] [-o filename] nginx.conf
       kp schema [context]
       kp demo-upstream PORT NAME

Options:
  -?,-h,--help  : this help
  -v,--version  : the version
  -V            : the version, the built-in defaults and what is left out
  -t            : check the configuration: every error, each with its place
  -T            : check the configuration and print it
  -q            : with -t: say nothing unless something is wrong
  -s signal     : tell the running master: stop, quit, reopen, reload, upgrade
                  (reload checks first, and waits until the new workers serve;
                  reopen waits until nothing is written to the old log files;
                  upgrade waits until the binary that is installed now serves)
  -p prefix     : what relative paths are relative to (default: {})
  -e filename   : error log until the configuration names one (default: {})
  -c filename   : configuration (default: {}, then {})
  -g directives : main directives in front of the configuration

status shows what the running master does, its generations of workers and what each worker is busy with.
Its exit code: 0 kp runs, 1 it is dead and has left its pid file, 3 it does not run, 4 unknown.
ctl looks into the running master and steers it; kp ctl -h lists its commands.
explain tells what a directive or a variable is, and what it does in the configuration; of a reason (the word of
$kp_reason) or a status such as 502, what it means and where to look; alone it lists every directive, variable and reason.
convert prints a configuration in nginx's syntax as YAML, and tells what of it kp does not support.
Its exit code: 0 all of it is there, 1 something is missing, 2 it cannot be read.
schema prints a JSON Schema of the YAML form, with which editors complete and check.
demo-upstream answers every request on 127.0.0.1:PORT with NAME and the request's head.
",
        short(),
        settings::PREFIX,
        kp_config::ERROR_LOG,
        first.display(),
        second.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_text_is_what_test_suites_probe_for() {
        let text = build();
        assert!(text.contains("nginx version: nginx/1.31.5"));
        for module in ["gzip", "ssi", "userid"] {
            assert!(
                text.contains(&format!("--without-http_{module}_module")),
                "{module}"
            );
        }
        for module in [
            "proxy",
            "rewrite",
            "map",
            "upstream_hash",
            "upstream_ip_hash",
            "upstream_zone",
            "upstream_keepalive",
        ] {
            assert!(
                !text.contains(&format!("--without-http_{module}_m")),
                "{module}"
            );
        }
        for word in [
            "--with-http_realip_module",
            "--with-http_ssl_module",
            "--with-http_stub_status_module",
            "TLS SNI support enabled",
            "with OpenSSL 3.0",
        ] {
            assert!(text.contains(word), "{word}");
        }
        // Substrings that would claim a module (or, for `=dynamic` and `--build=`, change what the suite does).
        for word in [
            "http_v2", "http_v3", "slice", "dav", "mp4", "=dynamic", "--build=", "LibreSSL",
        ] {
            assert!(!text.contains(word), "{word}");
        }
        assert!(!text.contains("--without-http "));
    }
}
