//! The pages about kp itself: who renders which, and how they are answered with.
//!
//! Decides nothing about who may read them: that is the exchange machine's. A page that is quickly made is made at once;
//! none may hold up the loop.

mod health;
mod stub_status;

pub(crate) use stub_status::connections;

use crate::active::Active;
use crate::reactor::Worker;
use kp_config::model::Page;
use kp_proxy::Rendered;

/// What plain pages are.
const PLAIN: &str = "text/plain";

impl Worker {
    /// Answers with a page.
    pub(crate) fn begin_page(&mut self, active: &mut Active, page: Page) {
        let rendered = match page {
            Page::StubStatus => stub_status::render(&self.shm.counters()),
            Page::Health { upstream } => {
                let health = self.health(upstream);
                active.exchange.response.retry_after_s = health.retry_after_s();
                health.render(self.config)
            }
        };
        self.end_page(active, rendered);
    }

    /// A page is there: head and body go out.
    fn end_page(&mut self, active: &mut Active, rendered: Rendered) {
        let keep = self.may_persist(active);
        let (sent, _) = self.write_client(active, |out, exchange, program, context| {
            kp_proxy::page(out, rendered, exchange, program, context, keep)
        });
        self.answered(active, sent);
    }
}
