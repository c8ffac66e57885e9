//! What tests of TLS begin with: a site with one server or several, and ways to ask it.

use kp_tests::tls::{Authority, Connector, Pair};
use kp_tests::tool::{self, Told};
use kp_tests::{Client, Kp, Response, Setup};
use rustls::AlertDescription;

/// One server for a.test; what it answers is a line of variables.
pub(crate) const ONE: &str = "%MAIN%
http {
    %HTTP%
    server {
        listen %LISTEN% ssl;
        server_name a.test;
        ssl_certificate a.test.crt;
        ssl_certificate_key a.test.key;
        %SERVER%
        location / { return 200 \"%SAYS%\"; }
    }
}
";

/// The one server, and who issued its certificate (`ca.pem` beside the configuration).
pub(crate) fn one(says: &str) -> (Setup, Authority) {
    let authority = Authority::default();
    let setup = with_pair(
        Setup::new(ONE),
        "a.test",
        &authority.issue(&["a.test", "*.a.test"]),
    );
    let setup = setup.with("SAYS", says).file("ca.pem", authority.pem());
    (setup, authority)
}

/// Puts NAME.crt and NAME.key beside the configuration.
pub(crate) fn with_pair(setup: Setup, name: &str, pair: &Pair) -> Setup {
    setup
        .file(&format!("{name}.crt"), pair.certificate.clone())
        .file(&format!("{name}.key"), pair.key.clone())
}

/// A GET for a host, connection kept.
pub(crate) fn get(host: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

/// One request on a connection of its own, for the host the connector names.
pub(crate) fn ask(kp: &Kp, connector: &Connector, host: &str) -> Response {
    Client::secure(&kp.address(), connector).ask(get(host))
}

/// The alert that a handshake is refused with; `None`: not by an alert.
pub(crate) fn refusal(kp: &Kp, connector: &Connector) -> Option<AlertDescription> {
    let error = Client::try_secure(&kp.address(), connector).expect_err("a refusal");
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::AlertReceived(alert) => Some(*alert),
        _ => None,
    }
}

/// openssl's client: one request for the host, more arguments before it.
pub(crate) fn s_client(kp: &Kp, arguments: &[&str], host: &str) -> Told {
    let address = kp.address();
    let mut all = vec![
        "s_client",
        "-connect",
        address.as_str(),
        "-CAfile",
        "ca.pem",
    ];
    all.extend_from_slice(arguments);
    if !arguments.contains(&"-noservername") && !arguments.contains(&"-servername") {
        all.extend_from_slice(&["-servername", host]);
    }
    // It reads on until the server closes.
    all.push("-ign_eof");
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    tool::run(&kp.path(""), "openssl", &all, request.as_bytes())
}

/// What the server has answered to openssl's client, which prints words of its own around it.
pub(crate) fn body(told: &Told) -> String {
    let text = told.text();
    let head_and_rest = text.split_once("\r\n\r\n");
    let length = head_and_rest.and_then(|(head, _)| {
        let (_, rest) = head.split_once("Content-Length: ")?;
        rest.lines().next()?.parse::<usize>().ok()
    });
    let rest = head_and_rest.map_or("", |(_, rest)| rest);
    rest.get(..length.unwrap_or(0)).unwrap_or(rest).to_owned()
}
