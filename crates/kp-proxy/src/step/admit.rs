//! Admission: what a request must pass between routing and its handler.
//!
//! The order is nginx's: the rates of `limit_req`, after the wait they may ask for the places of `limit_conn`, then
//! `allow` and `deny`. Rates and places are charged once per request, however often it is redirected inside; access is
//! asked at every location. Several rates are charged together or not at all, over all processes; what one of them
//! refuses was charged nowhere.

use crate::failure::{self, Cause};
use crate::io::{Action, WaitFor};
use crate::limits::Limits;
use crate::machine::Limited;
use crate::vars;
use crate::{Context, Exchange, Failure, Program};
use kp_config::model::{Admission, Handler, Level, LimitRules, Location, RateLimit};
use kp_config::template::Template;
use kp_shm::{Exceeded, Hashed, Taken};

/// Longest key of `limit_req` and of `limit_conn`, as nginx.
const RATE_KEY_MAX: usize = 65_535;
const PLACE_KEY_MAX: usize = 255;
/// Most seconds that `Retry-After` says.
const RETRY_AFTER_MAX_S: u64 = 86_400;

/// What the rates say.
enum Rates {
    Pass,
    Delay(u64),
    Refuse(Cause),
}

impl Exchange {
    /// Passes the location's limits, then its handler.
    pub(super) fn admit(&mut self, program: &Program, context: &Context<'_>) -> Action {
        let location = &context.config.http.locations[self.location.index()];
        let Some(admission) = &location.admission else {
            if self.is_stranger(location) {
                return self.refuse(Cause::AccessDenied, program, context);
            }
            return self.dispatch(program, context);
        };
        if let Some(limits) = context.limits {
            if self.machine.rate.is_none() && !admission.rates.is_empty() {
                match self.rates(admission, limits, program, context) {
                    Rates::Pass => {}
                    Rates::Delay(until_ms) => return self.wait(WaitFor::Rate, until_ms),
                    Rates::Refuse(cause) => return self.refuse(cause, program, context),
                }
            }
            if self.machine.place.is_none()
                && !admission.places.is_empty()
                && let Some(cause) = self.places(admission, limits, program, context)
            {
                return self.refuse(cause, program, context);
            }
        }
        if self.is_denied(location, admission) {
            return self.refuse(Cause::AccessDenied, program, context);
        }
        self.dispatch(program, context)
    }

    /// `max_active_requests`: whether one more may be worked on; it is counted then.
    pub(super) fn is_one_too_many(&mut self, context: &Context<'_>) -> bool {
        match context.limits.and_then(Limits::active) {
            Some(Taken::Place(place)) => self.held.push(place),
            Some(Taken::Full) => {
                self.response.retry_after_s = Some(1);
                return true;
            }
            Some(Taken::Uncounted) | None => {}
        }
        false
    }

    fn refuse(&mut self, cause: Cause, program: &Program, context: &Context<'_>) -> Action {
        let failure = Failure::new(failure::Phase::Route, cause);
        self.fail(failure, program, context)
    }

    fn is_denied(&self, location: &Location, admission: &Admission) -> bool {
        let client = self.connection.remote.map(|remote| remote.ip());
        let exception = admission.exception(self.request.method_text());
        let rules = exception.map_or(&admission.access, |except| &except.access);
        if rules.is_empty() {
            return self.is_stranger(location);
        }
        rules
            .iter()
            .find(|rule| rule.who.is_none_or(|network| network.contains(client)))
            .is_some_and(|rule| !rule.allow)
    }

    /// Whether the page is for this machine only, while no rule says otherwise, and the client is somewhere else. It is
    /// the client that counts, wherever `set_real_ip_from` found it.
    fn is_stranger(&self, location: &Location) -> bool {
        let Handler::Page(page) = &location.handler else {
            return false;
        };
        let client = self.connection.remote.map(|remote| remote.ip());
        // A client without an address came by a unix socket.
        page.is_private() && !client.is_none_or(|client| client.to_canonical().is_loopback())
    }

    /// `limit_req`.
    fn rates(
        &mut self,
        admission: &Admission,
        limits: &Limits,
        program: &Program,
        context: &Context<'_>,
    ) -> Rates {
        let now_ms = context.now.mono_ms;
        let rules = &admission.rate_rules;
        let mut keys = std::mem::take(&mut self.machine.keys);
        keys.clear();
        for limit in &admission.rates {
            let zone = limits.rate(limit.zone);
            let template = context
                .config
                .http
                .rate_zones
                .get(limit.zone.index())
                .map(|zone| &zone.key);
            let hashed = template.zip(zone).and_then(|(template, zone)| {
                let key = self.key(template, RATE_KEY_MAX, program, context)?;
                let hashed = zone.hash(&key);
                self.machine.key_text = key;
                Some(hashed)
            });
            keys.push(hashed);
        }
        let judged = judge(&admission.rates, &keys, limits, now_ms);
        self.machine.keys = keys;
        match judged {
            Judged::Nobody => Rates::Pass,
            Judged::Charged(worst) => match worst {
                None => {
                    self.machine.rate = Limited::Passed;
                    Rates::Pass
                }
                Some((at, excess, delay_ms)) => {
                    self.note(&admission.rates, at, excess, rules, context);
                    if rules.dry_run {
                        self.machine.rate = Limited::DelayedDryRun;
                        return Rates::Pass;
                    }
                    self.machine.rate = Limited::Delayed;
                    Rates::Delay(now_ms + delay_ms)
                }
            },
            Judged::Refused(at, excess) => {
                let said = excess_text(&admission.rates, at, excess, " by", context);
                if rules.dry_run {
                    self.machine.rate = Limited::RejectedDryRun;
                    self.note_level(rules.log_level, context, |text| {
                        text.push_str("limiting requests, dry run");
                        text.push_str(&said);
                    });
                    return Rates::Pass;
                }
                self.machine.rate = Limited::Rejected;
                self.record.detail = Some(said);
                if admission.retry_after {
                    self.response.retry_after_s = wait_s(&admission.rates, at, excess, limits);
                }
                Rates::Refuse(Cause::RateLimited {
                    status: rules.status,
                    level: rules.log_level,
                })
            }
        }
    }

    /// Says in the error log that a request waits, one level less loud than a refusal.
    fn note(
        &mut self,
        rates: &[RateLimit],
        at: usize,
        excess: u64,
        rules: &LimitRules,
        context: &Context<'_>,
    ) {
        let level = match rules.log_level {
            Level::Error => Level::Warn,
            Level::Warn => Level::Notice,
            _ => Level::Info,
        };
        let said = excess_text(rates, at, excess, ", by", context);
        self.note_level(level, context, |text| {
            text.push_str("delaying request");
            if rules.dry_run {
                text.push_str(", dry run");
            }
            text.push_str(&said);
        });
    }

    fn note_level(&mut self, level: Level, context: &Context<'_>, write: impl FnOnce(&mut String)) {
        let location = &context.config.http.locations[self.location.index()];
        if location.error_log.iter().any(|log| level >= log.level) {
            let mut text = String::new();
            write(&mut text);
            self.record.notes.push((level, text));
        }
    }

    /// `limit_conn`: why the request is refused, if it is.
    fn places(
        &mut self,
        admission: &Admission,
        limits: &Limits,
        program: &Program,
        context: &Context<'_>,
    ) -> Option<Cause> {
        let rules = &admission.place_rules;
        let before = self.held.len();
        for limit in &admission.places {
            let Some(described) = context.config.http.place_zones.get(limit.zone.index()) else {
                continue;
            };
            let (Some(zone), Some(key)) = (
                limits.places(limit.zone),
                self.key(&described.key, PLACE_KEY_MAX, program, context),
            ) else {
                continue;
            };
            let taken = zone.take(zone.hash(&key), limit.max);
            self.machine.key_text = key;
            self.machine.place = Limited::Passed;
            match taken {
                Taken::Place(place) => self.held.push(place),
                Taken::Uncounted => {}
                Taken::Full => {
                    self.held.truncate(before);
                    let by = format!(" by zone \"{}\"", described.name);
                    if rules.dry_run {
                        self.machine.place = Limited::RejectedDryRun;
                        self.note_level(rules.log_level, context, |text| {
                            text.push_str("limiting connections, dry run");
                            text.push_str(&by);
                        });
                        return None;
                    }
                    self.machine.place = Limited::Rejected;
                    self.record.detail = Some(by);
                    return Some(Cause::PlacesTaken {
                        status: rules.status,
                        level: rules.log_level,
                    });
                }
            }
        }
        None
    }

    /// The key of a zone; `None`: it is empty or too long, and the request is not counted. Lend it back to
    /// `machine.key_text` for its memory.
    fn key(
        &mut self,
        template: &Template,
        max: usize,
        program: &Program,
        context: &Context<'_>,
    ) -> Option<Vec<u8>> {
        let mut key = std::mem::take(&mut self.machine.key_text);
        key.clear();
        vars::evaluate(template, self, program, context, &mut key);
        if key.is_empty() || key.len() > max {
            if !key.is_empty() {
                self.note_level(Level::Error, context, |text| {
                    text.push_str("the value of the key of a zone is more than ");
                    text.push_str(itoa::Buffer::new().format(max));
                    text.push_str(" bytes");
                });
            }
            self.machine.key_text = key;
            return None;
        }
        Some(key)
    }
}

/// What all rates say together.
enum Judged {
    /// No limit has a key for this request.
    Nobody,
    /// All were charged; the one that makes it wait longest, its excess, and for how many milliseconds.
    Charged(Option<(usize, u64, u64)>),
    /// One refused, with this excess, and none was charged.
    Refused(usize, u64),
}

fn judge(rates: &[RateLimit], keys: &[Option<Hashed>], limits: &Limits, now_ms: u64) -> Judged {
    let asked = || {
        let pairs = rates.iter().zip(keys).enumerate();
        pairs.filter_map(|(at, (limit, key))| Some((at, limit, limits.rate(limit.zone)?, (*key)?)))
    };
    let count = asked().count();
    if count == 0 {
        return Judged::Nobody;
    }
    if count > 1 {
        for (at, limit, zone, key) in asked() {
            let excess = zone.excess(key, now_ms);
            if excess > limit.burst {
                return Judged::Refused(at, excess);
            }
        }
    }
    let mut worst: Option<(usize, u64, u64)> = None;
    for (done, (at, limit, zone, key)) in asked().enumerate() {
        match zone.charge(key, now_ms, limit.burst) {
            Ok(excess) => {
                let over = excess.saturating_sub(limit.delay);
                let delay_ms = over.saturating_mul(1000) / zone.rate();
                if delay_ms > 0 && worst.is_none_or(|(_, _, longest)| delay_ms > longest) {
                    worst = Some((at, excess, delay_ms));
                }
            }
            Err(Exceeded { excess }) => {
                // Another process was faster: what was charged is given back.
                for (_, _, zone, key) in asked().take(done) {
                    zone.refund(key, now_ms);
                }
                return Judged::Refused(at, excess);
            }
        }
    }
    Judged::Charged(worst)
}

/// `, excess: 1.000 by zone "a"`.
fn excess_text(
    rates: &[RateLimit],
    at: usize,
    excess: u64,
    by: &str,
    context: &Context<'_>,
) -> String {
    let zones = &context.config.http.rate_zones;
    let name = rates
        .get(at)
        .and_then(|limit| zones.get(limit.zone.index()))
        .map_or("", |zone| zone.name.as_str());
    format!(
        ", excess: {}.{:03}{by} zone \"{name}\"",
        excess / 1000,
        excess % 1000
    )
}

/// Whole seconds until a request would pass.
fn wait_s(rates: &[RateLimit], at: usize, excess: u64, limits: &Limits) -> Option<u32> {
    let limit = rates.get(at)?;
    let rate = limits.rate(limit.zone)?.rate();
    let seconds = excess.saturating_sub(limit.burst).div_ceil(rate);
    u32::try_from(seconds.clamp(1, RETRY_AFTER_MAX_S)).ok()
}
