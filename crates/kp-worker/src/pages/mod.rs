//! The pages about kp itself: who renders which, and how they are answered with.
//!
//! Decides nothing about who may read them: that is the exchange machine's. What is quickly made is made at once; what is
//! long, or read from files, is made on a thread, so that no page holds up the loop.

mod exposition;
mod families;
mod health;
mod metrics;
mod status;
mod stub_status;

pub use exposition::FamilyKind;
pub use families::{Family, families, metric_names};
pub(crate) use stub_status::connections;

use crate::active::{Active, ResponseStage};
use crate::drive::Turn;
use crate::jobs::{Job, Purpose};
use crate::reactor::Worker;
use kp_config::Config;
use kp_config::model::Page;
use kp_http::Framing;
use kp_proxy::Rendered;
use kp_shm::Shm;
use kp_tls::Tls;

/// What plain pages are.
const PLAIN: &str = "text/plain";

/// All that a page on a thread is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    pub(crate) shm: Shm,
    pub(crate) config: &'static Config,
    pub(crate) tls: &'static Tls,
    /// The master's process; `None`: there is none.
    pub(crate) master: Option<u32>,
    /// The monotonic clock when it was asked for, and the other one.
    pub(crate) now_ms: u64,
    pub(crate) now_unix_ms: u64,
}

/// Pages that are made on a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Long {
    Metrics,
    Status(status::Wish),
}

impl Long {
    pub(crate) fn render(self, view: &View) -> Rendered {
        match self {
            Self::Metrics => metrics::render(view),
            Self::Status(wish) => status::render(wish, view),
        }
    }
}

impl Worker {
    /// Answers with a page, at once or when it is made.
    pub(crate) fn begin_page(&mut self, active: &mut Active, page: Page) {
        let rendered = match page {
            Page::Metrics => return self.make_page(active, Long::Metrics),
            Page::StubStatus => stub_status::render(&self.shm.counters()),
            Page::Status => {
                let request = &active.exchange.request;
                let wish = status::Wish::of(&request.uri, &request.args);
                return self.make_page(active, Long::Status(wish));
            }
            Page::Health { upstream } => {
                let health = self.health(upstream);
                active.exchange.response.retry_after_s = health.retry_after_s();
                health.render(self.config)
            }
        };
        self.end_page(active, rendered);
    }

    fn make_page(&mut self, active: &mut Active, page: Long) {
        active.response.stage = ResponseStage::Opening;
        let view = View {
            shm: self.shm,
            config: self.config,
            tls: self.tls,
            master: self
                .own
                .has_master()
                .then(std::os::unix::process::parent_id),
            now_ms: self.clock.mono_ms,
            now_unix_ms: self.clock.unix_ms,
        };
        let job = Job::Page {
            page,
            view: Box::new(view),
        };
        self.jobs.submit(active.key, Purpose::Answer, job);
    }

    /// A page is there: its head goes out, then the page as the client takes it.
    pub(crate) fn end_page(&mut self, active: &mut Active, rendered: Rendered) {
        let keep = self.may_persist(active);
        let (reply, _) = self.write_client(active, |out, exchange, program, context| {
            kp_proxy::page(out, rendered, exchange, program, context, keep)
        });
        self.answered(active, reply.sent);
        if let Some((text, framing)) = reply.body {
            active.response.out = framing;
            active.response.stage = ResponseStage::Page(Sending { text, sent: 0 });
        }
    }

    /// Puts the next piece of a page behind what the client took.
    pub(crate) fn send_page(&mut self, active: &mut Active) -> Turn {
        let ResponseStage::Page(sending) = &mut active.response.stage else {
            return Turn::Nothing;
        };
        if active.to_client.len() > PIECE_BYTES / 2 {
            return Turn::Nothing;
        }
        let chunked = active.response.out == Framing::Chunked;
        let mut sending = std::mem::take(sending);
        let piece = sending.next();
        if piece.is_empty() {
            active.response.stage = ResponseStage::Complete;
            self.end_response(active);
            return Turn::Moved;
        }
        if chunked {
            let head = kp_http::encode::chunk_head(piece.len() as u64);
            self.push_client(active, &[head.as_bytes(), piece, b"\r\n"]);
        } else {
            self.push_client(active, &[piece]);
        }
        active.response.stage = ResponseStage::Page(sending);
        Turn::Moved
    }
}

/// Bytes of a page that are sent at once: a client that keeps up gets sixteen of them in a turn of the loop.
const PIECE_BYTES: usize = 64 * 1024;

/// A page on its way.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    text: Vec<u8>,
    sent: usize,
}

impl Sending {
    /// Memory it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.text.capacity()
    }

    /// The next piece; empty behind the last one.
    fn next(&mut self) -> &[u8] {
        let rest = self.text.get(self.sent..).unwrap_or_default();
        let piece = rest.get(..PIECE_BYTES).unwrap_or(rest);
        self.sent += piece.len();
        piece
    }
}
