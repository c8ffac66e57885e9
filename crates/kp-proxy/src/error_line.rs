//! What the error log says about the request that a message is about.

use crate::log_escape::{json_string, visible};
use crate::target::write_target;
use crate::{Context, Exchange, Reason};
use kp_config::model::ListenAddress;
use std::net::SocketAddr;

/// Longest text of one fact in a JSON line; what is longer is cut, as nginx cuts its lines.
const JSON_TEXT_MAX: usize = 2048;

/// What is known, by nginx's names and in its order.
#[derive(Debug, Default)]
pub struct ErrorFacts {
    known: Vec<(&'static str, Vec<u8>)>,
}

impl ErrorFacts {
    /// About a connection without a request: whose it is (`None`: it came over a unix socket), and the server it belongs to.
    pub fn of_client(remote: Option<SocketAddr>, server: &str) -> Self {
        let client = remote.map_or_else(|| "unix:".to_owned(), |remote| remote.ip().to_string());
        let known = vec![
            ("client", client.into_bytes()),
            ("server", server.as_bytes().to_vec()),
        ];
        Self { known }
    }

    /// Names the reason of the end that this is about.
    pub fn because(mut self, reason: Reason) -> Self {
        self.known
            .push(("reason", reason.token().as_bytes().to_vec()));
        self
    }

    /// About a request.
    pub fn of_exchange(exchange: &Exchange, context: &Context<'_>) -> Self {
        let http = &context.config.http;
        let remote = exchange.connection.remote;
        let head = &exchange.request.head;
        if head.is_empty() {
            let listener = http.listeners.get(exchange.connection.listener.index());
            let address = match listener.map(|listener| &listener.address) {
                Some(ListenAddress::Inet(address)) => address.to_string(),
                Some(ListenAddress::Unix(path)) => format!("unix:{}", path.display()),
                None => String::new(),
            };
            return Self::of_client(remote, &address);
        }
        let server = http.servers.get(exchange.server.index());
        let mut facts = Self::of_client(remote, server.map_or("", |one| &one.primary_name));
        let known = &mut facts.known;
        known.push(("request", head.request_line().to_vec()));
        if let Some(attempt) = exchange.attempts.last() {
            let mut upstream: Vec<u8> = match exchange.request.upstream_tls.identity {
                Some(_) => b"https://".to_vec(),
                None => b"http://".to_vec(),
            };
            upstream.extend_from_slice(attempt.address.as_bytes());
            if attempt.address.starts_with("unix:") {
                upstream.push(b':');
            }
            write_target(&mut upstream, exchange, context);
            known.push(("upstream", upstream));
        }
        if let Some(host) = head.find(kp_http::Known::Host) {
            known.push(("host", host.to_vec()));
        }
        if let Some(referrer) = head.find(kp_http::Known::Referer) {
            known.push(("referrer", referrer.to_vec()));
        }
        facts
    }

    /// Appends them as nginx does behind a message: `, client: …, server: …, request: "…", upstream: "…", host: "…"`.
    pub fn write_text(&self, out: &mut String) {
        for (name, value) in &self.known {
            let quote = match *name {
                "client" | "server" | "reason" => "",
                _ => "\"",
            };
            out.push_str(", ");
            out.push_str(name);
            out.push_str(": ");
            out.push_str(quote);
            visible(out, value);
            out.push_str(quote);
        }
    }

    /// Appends them as fields of a JSON object, each with a comma in front.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        for (name, value) in &self.known {
            out.push(b',');
            json_string(out, name.as_bytes());
            out.push(b':');
            json_string(out, value.get(..JSON_TEXT_MAX).unwrap_or(value));
        }
    }
}
