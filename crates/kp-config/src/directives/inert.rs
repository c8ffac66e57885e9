//! Words of nginx that have nothing to do in kp: their form is checked, and they set nothing.
//!
//! Which of them are taken, and how, follows one rule, which docs/configuration-help.md tells users:
//! - silently, what only says how nginx does its work inside, or what holds anyway;
//! - with a warning, what is not done although somebody could notice, as long as every client gets an answer of the same
//!   meaning and no upstream gets more than without kp;
//! - everything else is refused: `foreign.rs` says what to do instead.

use super::{
    Arity, BlockKind, Contexts, E, Entry, H, HS, HSL, HSLI, HSLX, M, MANY, ONCE, REWRITE, SL,
};

table! {
    "server_names_hash_max_size" "size", H, (1), ONCE, "512", {}, [ignored number], "Accepted, no effect: kp sizes its tables itself.";
    "server_names_hash_bucket_size" "size", H, (1), ONCE, "64", {}, [ignored size], "Accepted, no effect: kp sizes its tables itself.";
    "variables_hash_max_size" "size", H, (1), ONCE, "1024", {}, [ignored number], "Accepted, no effect: kp sizes its tables itself.";
    "variables_hash_bucket_size" "size", H, (1), ONCE, "64", {}, [ignored number], "Accepted, no effect: kp sizes its tables itself.";
    "map_hash_max_size" "size", H, (1), ONCE, "2048", {}, [ignored number], "Accepted, no effect: kp sizes its tables itself.";
    "map_hash_bucket_size" "size", H, (1), ONCE, "64", {}, [ignored number], "Accepted, no effect: kp sizes its tables itself.";
    "types_hash_max_size" "size", HSL, (1), ONCE, "1024", {}, [ignored number], "Accepted, no effect: kp sizes its tables itself.";
    "types_hash_bucket_size" "size", HSL, (1), ONCE, "64", {}, [ignored number], "Accepted, no effect: kp sizes its tables itself.";
    "proxy_headers_hash_max_size" "size", HSL, (1), ONCE, "512", {}, [ignored number], "Accepted, no effect: kp sizes its tables itself.";
    "proxy_headers_hash_bucket_size" "size", HSL, (1), ONCE, "64", {}, [ignored number], "Accepted, no effect: kp sizes its tables itself.";

    "accept_mutex" "on | off", E, (1), ONCE, "off", {}, [ignored flag], "Accepted, no effect: every worker has its own listening sockets, so there is nothing to take turns for.";
    "accept_mutex_delay" "time", E, (1), ONCE, "500ms", {}, [ignored time], "Accepted, no effect: there is nothing to take turns for.";
    "worker_aio_requests" "number", E, (1), ONCE, "32", {}, [ignored number], "Accepted, no effect: files are read by threads.";
    "lock_file" "file", M, (1), ONCE, none, {}, [ignored anything], "Accepted, no effect: kp's processes share state without locks.";
    "pcre_jit" "on | off", M, (1), ONCE, "off", {}, [ignored flag], "Accepted, no effect: regular expressions are compiled in any case.";
    "timer_resolution" "time", M, (1), ONCE, none, {}, [ignored time], "Accepted, no effect: kp reads the clock once a turn of its loop.";
    "thread_pool" "name threads=number [max_queue=number]", M, (2 to 3), MANY, "default threads=32 max_queue=65536", {}, [ignored anything], "Accepted, no effect: each worker has its own few threads for files.";
    "load_module" "file", M, (1), MANY, none, {}, [ignored module], "Accepted, no effect, with a warning: kp loads no modules, and refuses the directives of those it does not have built in.";
    "env" "variable", M, (1), MANY, none, {}, [ignored environment], "Accepted, no effect: workers keep the whole environment of kp. A value is set where kp is started.";

    "client_body_in_single_buffer" "on | off", HSL, (1), ONCE, "off", {}, [ignored flag], "Accepted, no effect: a body in memory is always in one piece.";
    "tcp_nopush" "on | off", HSL, (1), ONCE, "off", {}, [ignored flag], "Accepted, no effect: head and body leave together anyway.";
    "sendfile" "on | off", HSLI, (1), ONCE, "off", {}, [ignored flag], "Accepted, no effect: kp decides by itself how files are sent.";
    "output_buffers" "number size", HSL, (2), ONCE, "2 32k", {}, [ignored buffers], "Accepted, no effect: kp decides by itself how files are read.";
    "postpone_output" "size", HSL, (1), ONCE, "1460", {}, [ignored size], "Accepted, no effect: kp joins small pieces by itself.";
    "aio" "on | off | threads[=pool]", HSL, (1), ONCE, "off", {}, [ignored anything], "Accepted, no effect: a worker never waits for a file.";
    "aio_write" "on | off", HSL, (1), ONCE, "off", {}, [ignored flag], "Accepted, no effect: a worker never waits for a file.";
    "directio" "size | off", HSL, (1), ONCE, "off", {}, [ignored size_or_off], "Accepted, no effect: files are read through the system's cache.";
    "directio_alignment" "size", HSL, (1), ONCE, "512", {}, [ignored size], "Accepted, no effect: files are read through the system's cache.";
    "read_ahead" "size", HSL, (1), ONCE, "0", {}, [ignored size], "Accepted, no effect: the system reads ahead by itself.";
    "sendfile_max_chunk" "size", HSL, (1), ONCE, "2m", {}, [ignored size], "Accepted, no effect: connections take turns in any case.";
    "open_file_cache" "off | max=number [inactive=time]", HSL, (1 to 2), ONCE, "off", {}, [ignored anything], "Accepted, no effect: files are looked at each time they are asked for.";
    "open_file_cache_errors" "on | off", HSL, (1), ONCE, "off", {}, [ignored flag], "Accepted, no effect: files are looked at each time they are asked for.";
    "open_file_cache_min_uses" "number", HSL, (1), ONCE, "1", {}, [ignored number], "Accepted, no effect: files are looked at each time they are asked for.";
    "open_file_cache_valid" "time", HSL, (1), ONCE, "60s", {}, [ignored time], "Accepted, no effect: files are looked at each time they are asked for.";
    "open_file_cache_events" "on | off", HSL, (1), ONCE, "off", {}, [ignored flag], "Accepted, no effect: files are looked at each time they are asked for.";
    "connection_pool_size" "size", HS, (1), ONCE, "512", {}, [ignored size], "Accepted, no effect: kp bounds its memory as a whole, see `worker_memory`.";
    "request_pool_size" "size", HS, (1), ONCE, "4k", {}, [ignored size], "Accepted, no effect: kp bounds its memory as a whole, see `worker_memory`.";
    "send_lowat" "size", HSL, (1), ONCE, "0", {}, [ignored size], "Accepted, no effect: nginx has it for other systems than Linux.";
    "proxy_send_lowat" "size", HSL, (1), ONCE, "0", {}, [ignored size], "Accepted, no effect: nginx has it for other systems than Linux.";
    "msie_padding" "on | off", HSL, (1), ONCE, "on", {}, [ignored flag], "Accepted, no effect: browsers that need it are gone.";
    "msie_refresh" "on | off", HSL, (1), ONCE, "off", {}, [ignored flag], "Accepted, no effect: browsers that need it are gone.";
    "subrequest_output_buffer_size" "size", HSL, (1), ONCE, "4k", {}, [ignored size], "Accepted, no effect: kp collects no answers of subrequests.";
    "referer_hash_max_size" "size", SL, (1), ONCE, "2048", {}, [ignored number], "Accepted, no effect: kp sizes its tables itself.";
    "referer_hash_bucket_size" "size", SL, (1), ONCE, "64", {}, [ignored number], "Accepted, no effect: kp sizes its tables itself.";
    "uninitialized_variable_warn" "on | off", HSLI, (1), ONCE, "on", {}, [ignored flag], "Accepted, no effect: variables that nothing sets are empty.";
    "rewrite_log" "on | off", REWRITE_LOG, (1), ONCE, "off", {}, [ignored rewrite_log], "Accepted, no effect, with a warning if it is on.";

    "ssl_session_cache" "off | none | [builtin[:size]] [shared:name:size]", HS, (1 to 2), ONCE, "none", {}, [ignored session_cache], "Accepted, no effect: sessions are resumed by tickets, from any worker to any other.";
    "ssl_stapling_verify" "on | off", HS, (1), ONCE, "off", {}, [ignored stapling_verify], "Accepted, no effect: the response is stapled as the file has it.";
    "ssl_early_data" "on | off", HS, (1), ONCE, "off", {}, [ignored early_data], "Accepted, no effect: early data is not taken; clients send it again after the handshake.";
    "ssl_dhparam" "file", HS, (1), ONCE, none, {}, [ignored dhparam], "Accepted, no effect: keys are agreed on with elliptic curves.";
    "http2" "on | off", HS, (1), ONCE, "off", {}, [ignored http2], "Accepted, no effect: clients get HTTP/1.1.";
    "http2_max_concurrent_streams" "number", HS, (1), ONCE, "128", {}, [ignored number], "Accepted, no effect: clients get HTTP/1.1.";

    "gzip" "on | off", HSLI, (1), ONCE, "off", {}, [ignored gzip], "Accepted, no effect, with a warning if it is on: answers are passed on as they are. An upstream learns from `Accept-Encoding`, which reaches it unchanged, that it may compress.";
    "gzip_buffers" "number size", HSL, (2), ONCE, "32 4k", {}, [ignored buffers], "Accepted, no effect: see `gzip`.";
    "gzip_comp_level" "level", HSL, (1), ONCE, "1", {}, [ignored number], "Accepted, no effect: see `gzip`.";
    "gzip_disable" "regex ...", HSL, (1+), MANY, none, {}, [ignored anything], "Accepted, no effect: see `gzip`.";
    "gzip_http_version" "1.0 | 1.1", HSL, (1), ONCE, "1.1", {}, [ignored anything], "Accepted, no effect: see `gzip`.";
    "gzip_min_length" "length", HSL, (1), ONCE, "20", {}, [ignored size], "Accepted, no effect: see `gzip`.";
    "gzip_proxied" "off | expired | no-cache | no-store | private | no_last_modified | no_etag | auth | any ...", HSL, (1+), MANY, "off", {}, [ignored anything], "Accepted, no effect: see `gzip`.";
    "gzip_types" "type ...", HSL, (1+), MANY, "text/html", {}, [ignored anything], "Accepted, no effect: see `gzip`.";
    "gzip_vary" "on | off", HSL, (1), ONCE, "off", {}, [ignored flag], "Accepted, no effect: see `gzip`.";
    "gzip_static" "on | off", HSL, (1), ONCE, "off", {}, [ignored gzip_static], "Accepted, no effect, with a warning if it is on: files are served as they are. `always` is refused, since the plain files may not be there.";
    "proxy_cache_bypass" "string ...", HSL, (1+), MANY, none, {}, [ignored texts], "Accepted, no effect: no answer is taken from a cache.";
    "proxy_no_cache" "string ...", HSL, (1+), MANY, none, {}, [ignored texts], "Accepted, no effect: no answer is kept.";

    "auth_basic" "off", HSLX, (1), ONCE, "off", {}, [only "off"], "Accepted as off only: kp does not ask for passwords. Let the upstream do it, or admit addresses with `allow` and `deny`, or certificates with `ssl_verify_client`.";
    "auth_request" "off", HSL, (1), ONCE, "off", {}, [only "off"], "Accepted as off only: kp does not ask another server about a request. Let the upstream do it.";
    "autoindex" "off", HSL, (1), ONCE, "off", {}, [only "off"], "Accepted as off only: kp does not list directories. Let an upstream do it, or put an index.html there.";
    "charset" "off", HSLI, (1), ONCE, "off", {}, [only "off"], "Accepted as off only: kp adds nothing to the type. Write it there: `default_type \"text/html; charset=utf-8\"`, or in `types`.";
    "disable_symlinks" "off", HSL, (1 to 2), ONCE, "off", {}, [only "off"], "Accepted as off only: kp follows symbolic links. Keep what must not be served outside of `root`.";
    "etag" "on", HSL, (1), ONCE, "on", {}, [only "on"], "Accepted as on only: files are served with ETag and Last-Modified; what an upstream sends is passed on, see `proxy_hide_header`.";
    "expires" "off", HSLI, (1 to 2), ONCE, "off", {}, [only "off"], "Accepted as off only: kp does not count times. Write the field: `add_header Cache-Control max-age=3600`.";
    "gunzip" "off", HSL, (1), ONCE, "off", {}, [only "off"], "Accepted as off only: kp passes bodies on as they are. The upstream sees `Accept-Encoding` and can do it.";
    "mirror" "off", HSL, (1), MANY, "off", {}, [only "off"], "Accepted as off only: kp does not send requests twice.";
    "proxy_cache" "off", HSL, (1), ONCE, "off", {}, [only "off"], "Accepted as off only: kp does not keep answers in this version. Keep a cache behind it, or leave this out: every request then reaches the upstream.";
    "proxy_store" "off", HSL, (1), ONCE, "off", {}, [only "off"], "Accepted as off only: kp does not keep answers in this version.";
    "satisfy" "all", HSL, (1), ONCE, "all", {}, [only "all"], "Accepted as `all` only: `allow` and `deny` are the one kind of access rule.";
    "if_modified_since" "exact", HSL, (1), ONCE, "exact", {}, [only "exact"], "Accepted as `exact` only: files answer conditional requests as RFC 9110 says.";
    "try_files" "$uri $uri/ =404", SL, (2+), ONCE, none, {}, [try_files], "Accepted as these three words, where files are served, since that is what is done anyway: for one page in place of every missing file use `error_page 403 404 =200 /index.html`; for an upstream in their place `error_page 403 404 405 = @name`, with `proxy_pass` in that named location.";
    "ssi" "off", HSLI, (1), ONCE, "off", {}, [only "off"], "Accepted as off only: kp passes bodies on as they are. Let the upstream do it.";
}

const REWRITE_LOG: Contexts = H.or(REWRITE);
