//! One line about each variable with a fixed name, and about each family of names.

/// What a variable with a fixed name holds; the name without the `$`.
pub(super) fn meaning(name: &str) -> Option<&'static str> {
    let found = MEANINGS.iter().find(|(known, _)| *known == name);
    found.map(|(_, meaning)| *meaning)
}

/// What the variables hold whose names begin like this one, and how the family is written.
pub(super) fn family(name: &str) -> Option<(&'static str, &'static str)> {
    let found = FAMILIES
        .iter()
        .find(|(start, ..)| name.len() > start.len() && name.starts_with(start));
    found.map(|(_, family, meaning)| (*family, *meaning))
}

const FAMILIES: [(&str, &str, &str); 9] = [
    (
        "sent_http_",
        "$sent_http_NAME",
        "A field of the answer as it is sent to the client.",
    ),
    (
        "sent_trailer_",
        "$sent_trailer_NAME",
        "A trailer of the answer as it is sent to the client.",
    ),
    (
        "http_",
        "$http_NAME",
        "A field of the request, in lower case with \"_\" for \"-\"; what the client sends.",
    ),
    (
        "upstream_http_",
        "$upstream_http_NAME",
        "A field of the upstream's last answer.",
    ),
    (
        "upstream_trailer_",
        "$upstream_trailer_NAME",
        "A trailer of the upstream's last answer.",
    ),
    (
        "upstream_cookie_",
        "$upstream_cookie_NAME",
        "A cookie that the upstream's last answer sets.",
    ),
    (
        "cookie_",
        "$cookie_NAME",
        "A cookie of the request; what the client sends.",
    ),
    (
        "arg_",
        "$arg_NAME",
        "An argument of the request's query, as it was sent; what the client sends.",
    ),
    (
        "proxy_protocol_tlv_",
        "$proxy_protocol_tlv_NAME",
        "A value that the PROXY header of the connection carries besides the addresses.",
    ),
];

const MEANINGS: &[(&str, &str)] = &[
    (
        "args",
        "The query of the request, what follows \"?\", as it was sent.",
    ),
    (
        "binary_remote_addr",
        "The client's address in 4 or 16 bytes: a short key for limits.",
    ),
    (
        "binary_remote_addr_64",
        "The same, of IPv6 the first 64 bits only: one network counts as one client (kp's own).",
    ),
    (
        "body_bytes_sent",
        "How many bytes of the answer's body were sent to the client.",
    ),
    (
        "bytes_sent",
        "How many bytes were sent to the client, the head included.",
    ),
    (
        "connection",
        "The serial number of the client's connection.",
    ),
    (
        "connection_requests",
        "How many requests came on the client's connection so far, this one included.",
    ),
    (
        "connection_time",
        "How old the client's connection is, in seconds with milliseconds.",
    ),
    ("content_length", "The field Content-Length of the request."),
    ("content_type", "The field Content-Type of the request."),
    (
        "document_root",
        "The directory that root or alias names for this request.",
    ),
    (
        "document_uri",
        "The same as $uri: the path, decoded and normalised.",
    ),
    (
        "gzip_ratio",
        "No value: kp does not compress; there for formats of nginx.",
    ),
    (
        "host",
        "The request's host in lower case without a port: from the request line, else from Host, else the server's first name.",
    ),
    ("hostname", "The name of this machine."),
    (
        "http2",
        "Empty: kp does not speak HTTP/2; there for formats of nginx.",
    ),
    (
        "http3",
        "Empty: kp does not speak HTTP/3; there for formats of nginx.",
    ),
    (
        "https",
        "\"on\" if the client's connection is TLS, else empty.",
    ),
    ("is_args", "\"?\" if the request has a query, else empty."),
    (
        "is_request_port",
        "\":\" if the request names a port, else empty.",
    ),
    (
        "kp_reason",
        "The documented word for what kept a request from an answer of its upstream or file; \"-\" without one (kp's own).",
    ),
    ("kp_version", "kp's version (kp's own)."),
    (
        "limit_conn_status",
        "What limit_conn decided: PASSED, REJECTED or REJECTED_DRY_RUN.",
    ),
    (
        "limit_rate",
        "The rate at which the answer is sent; may be set.",
    ),
    (
        "limit_req_status",
        "What limit_req decided: PASSED, DELAYED, REJECTED, or one of the last two with _DRY_RUN.",
    ),
    (
        "msec",
        "The time now, in seconds since 1970 with milliseconds.",
    ),
    (
        "nginx_version",
        "The version of nginx whose language kp follows.",
    ),
    ("pid", "The process number of the worker."),
    ("pipe", "\"p\" if the request was pipelined, else \".\"."),
    (
        "proxy_add_x_forwarded_for",
        "The request's X-Forwarded-For with the client's address behind it.",
    ),
    (
        "proxy_host",
        "Host and port of the upstream as proxy_pass names them.",
    ),
    (
        "proxy_port",
        "The port of the upstream as proxy_pass names it, or the scheme's.",
    ),
    (
        "proxy_protocol_addr",
        "The client's address in the PROXY header of the connection.",
    ),
    (
        "proxy_protocol_port",
        "The client's port in the PROXY header.",
    ),
    (
        "proxy_protocol_server_addr",
        "The server's address in the PROXY header.",
    ),
    (
        "proxy_protocol_server_port",
        "The server's port in the PROXY header.",
    ),
    ("query_string", "The same as $args."),
    (
        "realip_remote_addr",
        "The address of the connection itself, before set_real_ip_from changed $remote_addr.",
    ),
    (
        "realip_remote_port",
        "The port of the connection itself, likewise.",
    ),
    (
        "realpath_root",
        "The directory of $document_root with links resolved.",
    ),
    (
        "remote_addr",
        "The client's address; behind a trusted proxy (set_real_ip_from) the one that it tells.",
    ),
    ("remote_port", "The client's port."),
    (
        "remote_user",
        "The user name of basic authentication, which the client sends and kp does not check.",
    ),
    ("request", "The request line as it was sent."),
    (
        "request_body",
        "The request's body, where it was taken whole into memory.",
    ),
    (
        "request_body_file",
        "The file that the request's body was written to.",
    ),
    (
        "request_completion",
        "\"OK\" if the request was answered completely, else empty.",
    ),
    (
        "request_filename",
        "The file that the request's path stands for, by root or alias.",
    ),
    (
        "request_id",
        "A number for the request: 32 hexadecimal digits.",
    ),
    (
        "request_length",
        "How long the request was, head and body, in bytes.",
    ),
    ("request_method", "The method: GET, POST and so on."),
    (
        "request_port",
        "The port that the request names, if it names one.",
    ),
    (
        "request_time",
        "How long the request has taken so far, in seconds with milliseconds.",
    ),
    (
        "request_uri",
        "Path and query as the client sent them, nothing decoded: the right thing in redirects.",
    ),
    ("scheme", "\"http\" or \"https\"."),
    ("server_addr", "The address that the client connected to."),
    ("server_name", "The first name of the server that answers."),
    ("server_port", "The port that the client connected to."),
    (
        "server_protocol",
        "The protocol of the request: HTTP/1.1 or HTTP/1.0.",
    ),
    (
        "ssl_alpn_protocol",
        "The protocol that was agreed on in the handshake (ALPN).",
    ),
    ("ssl_cipher", "The cipher suite of the client's connection."),
    ("ssl_ciphers", "The suites that the client offered."),
    (
        "ssl_client_cert",
        "The client's certificate, PEM, each line but the first with a tab in front.",
    ),
    (
        "ssl_client_escaped_cert",
        "The client's certificate, PEM, escaped for a URL.",
    ),
    (
        "ssl_client_fingerprint",
        "The SHA-1 fingerprint of the client's certificate.",
    ),
    (
        "ssl_client_i_dn",
        "Who issued the client's certificate (RFC 2253).",
    ),
    (
        "ssl_client_i_dn_legacy",
        "The same in the older notation with slashes.",
    ),
    ("ssl_client_raw_cert", "The client's certificate, PEM."),
    (
        "ssl_client_s_dn",
        "Whose certificate the client has (RFC 2253).",
    ),
    (
        "ssl_client_s_dn_legacy",
        "The same in the older notation with slashes.",
    ),
    (
        "ssl_client_serial",
        "The serial number of the client's certificate.",
    ),
    (
        "ssl_client_sigalg",
        "The algorithm with which the client signed the handshake.",
    ),
    (
        "ssl_client_v_end",
        "Until when the client's certificate is valid.",
    ),
    ("ssl_client_v_remain", "How many days that is from now."),
    (
        "ssl_client_v_start",
        "From when on the client's certificate is valid.",
    ),
    (
        "ssl_client_verify",
        "What became of the client's certificate: SUCCESS, FAILED:reason or NONE.",
    ),
    (
        "ssl_curve",
        "The group that the handshake's keys were agreed on with.",
    ),
    ("ssl_curves", "The groups that the client offered."),
    (
        "ssl_early_data",
        "\"1\" while a request is early data; kp takes none.",
    ),
    ("ssl_protocol", "The version of TLS."),
    (
        "ssl_server_name",
        "The name that the client asked for in the handshake (SNI).",
    ),
    ("ssl_session_id", "The identifier of the TLS session."),
    (
        "ssl_session_reused",
        "\"r\" if the session was resumed, else \".\".",
    ),
    (
        "ssl_sigalg",
        "The algorithm with which kp signed the handshake.",
    ),
    (
        "ssl_sigalgs",
        "The signature algorithms that the client offered.",
    ),
    ("status", "The status of the answer."),
    (
        "tcpinfo_rtt",
        "The round trip time to the client as the kernel knows it, in microseconds.",
    ),
    ("tcpinfo_rttvar", "How much it varies, in microseconds."),
    (
        "tcpinfo_snd_cwnd",
        "The congestion window to the client, in segments.",
    ),
    (
        "tcpinfo_rcv_space",
        "The kernel's space for receiving from the client, in bytes.",
    ),
    (
        "time_iso8601",
        "The time now, as 2026-01-31T12:00:00+00:00.",
    ),
    ("time_local", "The time now, as 31/Jan/2026:12:00:00 +0000."),
    (
        "upstream_addr",
        "The address of the upstream server, one for each attempt.",
    ),
    (
        "upstream_bytes_received",
        "How many bytes came from the upstream, for each attempt.",
    ),
    (
        "upstream_bytes_sent",
        "How many bytes were sent to the upstream, for each attempt.",
    ),
    (
        "upstream_cache_status",
        "No value: kp does not keep answers; there for formats of nginx.",
    ),
    (
        "upstream_connect_time",
        "How long connecting took, in seconds with milliseconds, for each attempt.",
    ),
    (
        "upstream_header_time",
        "How long it took until the answer's head was there, for each attempt.",
    ),
    (
        "upstream_response_length",
        "How long the upstream's body was, in bytes, for each attempt.",
    ),
    (
        "upstream_response_time",
        "How long the whole answer took, for each attempt.",
    ),
    (
        "upstream_status",
        "The status of the upstream's answer, for each attempt.",
    ),
    (
        "connections_active",
        "How many client connections there are, those that wait included, of all workers.",
    ),
    (
        "connections_reading",
        "On how many of them a request head is being read.",
    ),
    (
        "connections_waiting",
        "How many of them wait for a request.",
    ),
    (
        "connections_writing",
        "On how many of them a request is worked on or answered.",
    ),
    (
        "parent_id",
        "The span of the client that sent the request, by its traceparent field; empty without one (kp's own).",
    ),
    (
        "span_id",
        "The span of this request: 16 hexadecimal digits (kp's own).",
    ),
    (
        "trace_flags",
        "The flags of the trace, two hexadecimal digits: \"01\" is sampled (kp's own).",
    ),
    (
        "trace_id",
        "The trace that the request belongs to: 32 hexadecimal digits (kp's own).",
    ),
    (
        "kp_reason_detail",
        "The circumstances of $kp_reason: phase, side, directive, attempt and who closed (kp's own).",
    ),
    (
        "uri",
        "The request's path, decoded and normalised, after rewriting; a decoded line feed or \"?\" in it makes a redirect wrong: use $request_uri there.",
    ),
];

#[cfg(test)]
mod tests {
    use super::{MEANINGS, family, meaning};
    use crate::template::Builtin;

    #[test]
    fn every_variable_is_explained() {
        for (name, _) in Builtin::ALL {
            assert!(
                meaning(name).is_some(),
                "write a line about ${name} in explain/variables.rs"
            );
        }
        for (name, line) in MEANINGS {
            assert!(
                Builtin::ALL.iter().any(|(known, _)| known == name),
                "there is no ${name}"
            );
            assert!(line.ends_with('.'), "${name}");
        }
    }

    #[test]
    fn families_are_told_apart() {
        for (name, expected) in [
            ("http_host", Some("$http_NAME")),
            ("sent_http_etag", Some("$sent_http_NAME")),
            ("upstream_http_etag", Some("$upstream_http_NAME")),
            ("arg_x", Some("$arg_NAME")),
            ("http_", None),
            ("other", None),
        ] {
            assert_eq!(family(name).map(|(name, _)| name), expected, "{name}");
        }
    }
}
