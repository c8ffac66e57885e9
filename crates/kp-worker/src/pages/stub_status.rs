//! `stub_status`: nginx's page of numbers, byte for byte, and the numbers of `$connections_*`.

use super::PLAIN;
use kp_proxy::Rendered;
use kp_proxy::context::Connections;
use kp_shm::{Counter, Counters};

/// What client connections are doing, over all processes. As with nginx, who lingers after its last answer counts as
/// written to, and who has not finished its handshake as none of the three.
pub(crate) fn connections(counters: &Counters) -> Connections {
    let total = |counter| counters.total(counter);
    let active = total(Counter::ConnectionsActive);
    let reading = total(Counter::ConnectionsReading);
    let writing = total(Counter::RequestsActive) + total(Counter::ConnectionsClosing);
    let busy = reading + writing + total(Counter::ConnectionsHandshaking);
    Connections {
        active,
        reading,
        writing,
        // Other processes go on while this one reads.
        waiting: active.saturating_sub(busy),
    }
}

pub(super) fn render(counters: &Counters) -> Rendered {
    let now = connections(counters);
    let accepted = counters.total(Counter::ConnectionsAccepted);
    let handled = accepted.saturating_sub(counters.total(Counter::ConnectionsRefused));
    let requests = counters.total(Counter::Requests);
    let body = format!(
        "Active connections: {} \nserver accepts handled requests\n {accepted} {handled} {requests} \n\
         Reading: {} Writing: {} Waiting: {} \n",
        now.active, now.reading, now.writing, now.waiting
    );
    Rendered {
        status: 200,
        media_type: PLAIN,
        fields: &[],
        body: body.into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kp_shm::Shm;

    #[test]
    fn the_page_is_nginx_s() {
        let shm = Shm::private().unwrap();
        let (first, second) = (shm.scoreboard().claim(1, 0), shm.scoreboard().claim(1, 1));
        let (first, second) = (shm.counters().block(first), shm.counters().block(second));
        first.add(Counter::ConnectionsAccepted, 30);
        second.add(Counter::ConnectionsAccepted, 7);
        second.add(Counter::ConnectionsRefused, 3);
        second.add(Counter::Requests, 41);
        first.set(Counter::ConnectionsActive, 9);
        first.set(Counter::ConnectionsReading, 1);
        second.set(Counter::RequestsActive, 2);
        second.set(Counter::ConnectionsClosing, 1);
        first.set(Counter::ConnectionsHandshaking, 1);
        let page = String::from_utf8(render(&shm.counters()).body).unwrap();
        assert_eq!(
            page,
            "Active connections: 9 \nserver accepts handled requests\n 37 34 41 \n\
             Reading: 1 Writing: 3 Waiting: 4 \n"
        );
    }
}
