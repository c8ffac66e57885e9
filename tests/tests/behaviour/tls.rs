//! TLS on both sides.

use std::time::Duration;

use kp_tests::tls::{Acceptor, Authority, Connector, Kind};
use kp_tests::{Client, End, Origin};

/// The harness itself: without it saying the truth, nothing below means anything.
#[test]
fn the_client_and_the_origin_of_the_harness_speak_tls() {
    let authority = Authority::default();
    let pair = authority.issue_as(Kind::Rsa, &["a.test", "*.b.test"], |_| {});
    let origin = Origin::secure(&Acceptor::new(&pair), |conversation| {
        conversation.request()?;
        conversation.send("HTTP/1.1 200 OK\r\n\r\nuntil the end")?;
        if conversation.index == 0 {
            conversation.half_close()?;
        }
        Ok(())
    });
    let connector = Connector::new(&authority, "a.test");
    let request = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let mut client = Client::secure(&origin.address(), &connector);
    let answer = client.ask(request);
    assert_eq!(
        (answer.text().as_str(), answer.end),
        ("until the end", End::Closed)
    );
    let seen = client.seen();
    assert_eq!((seen.protocol, seen.resumed), ("TLSv1.3", false));
    let mut client = Client::secure(&origin.address(), &connector);
    assert!(client.seen().resumed);
    assert_eq!(client.ask(request).end, End::Cut);
    let names: Vec<_> = origin
        .seen()
        .into_iter()
        .map(|seen| seen.server_name)
        .collect();
    assert_eq!(
        names,
        [Some("a.test".to_owned()), Some("a.test".to_owned())]
    );
    let stranger = connector.named("c.test");
    assert!(Client::try_secure(&origin.address(), &stranger).is_err());
    kp_tests::wait::until(Duration::from_secs(5), "the failure", || {
        origin.failed_handshakes() == 1
    });
}
