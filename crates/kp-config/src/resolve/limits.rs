//! Limits of a location: the zones they name, and the rules that hold for them.

use super::location::Builder;
use super::or;
use crate::diagnostic::Diagnostic;
use crate::draft::{ExceptDraft, LevelDraft};
use crate::model::{
    Admission, Except, Level, LimitRules, PlaceLimit, PlaceZoneId, RateLimit, RateZoneId,
};
use crate::span::Spanned;
use crate::suggest::nearest;

impl Builder<'_, '_> {
    /// What a request must pass at this level; `None` where it need not.
    pub(super) fn admission(
        &mut self,
        level: &LevelDraft,
        except: Option<ExceptDraft>,
    ) -> Option<Box<Admission>> {
        let rates = self.rates(level);
        let places = self.places(level);
        let access = or(level.access.clone(), Vec::new());
        if rates.is_empty() && places.is_empty() && access.is_empty() && except.is_none() {
            return None;
        }
        let except = except.map(|except| Except {
            methods: except.methods,
            access: except.access.unwrap_or_else(|| access.clone()),
        });
        let rules = |status: &Option<Spanned<u16>>,
                     log_level: &Option<Spanned<Level>>,
                     dry_run: &Option<Spanned<bool>>| LimitRules {
            status: or(status.clone(), 503),
            log_level: or(log_level.clone(), Level::Error),
            dry_run: or(dry_run.clone(), false),
        };
        Some(Box::new(Admission {
            rate_rules: rules(
                &level.rates_status,
                &level.rates_log_level,
                &level.rates_dry_run,
            ),
            rates,
            retry_after: or(level.rates_retry_after.clone(), false),
            place_rules: rules(
                &level.places_status,
                &level.places_log_level,
                &level.places_dry_run,
            ),
            places,
            access,
            except,
        }))
    }

    fn rates(&mut self, level: &LevelDraft) -> Vec<RateLimit> {
        let mut limits = Vec::new();
        for draft in level.rates.iter().flat_map(|limits| &limits.value) {
            // The zones of `limit_accept` count addresses, not requests.
            let found = self
                .reader
                .rate_zones
                .iter()
                .position(|zone| zone.name == draft.zone.value && !zone.key.parts.is_empty());
            let Some(index) = found else {
                let names = self.reader.rate_zones.iter().map(|zone| zone.name.as_str());
                let near = nearest(&draft.zone.value, names).map(str::to_owned);
                self.no_zone(&draft.zone, near, "limit_req_zone");
                continue;
            };
            if let Some(zone) = self.reader.rate_zones.get_mut(index) {
                zone.reach = zone.reach.max(draft.burst);
            }
            limits.push(RateLimit {
                zone: RateZoneId(u32::try_from(index).unwrap_or(u32::MAX)),
                burst: draft.burst,
                delay: draft.delay.unwrap_or(u64::MAX),
            });
        }
        limits
    }

    fn places(&mut self, level: &LevelDraft) -> Vec<PlaceLimit> {
        let mut limits = Vec::new();
        for draft in level.places.iter().flat_map(|limits| &limits.value) {
            let zones = &self.reader.place_zones;
            let Some(index) = zones.iter().position(|zone| zone.name == draft.zone.value) else {
                let names = zones.iter().map(|zone| zone.name.as_str());
                let near = nearest(&draft.zone.value, names).map(str::to_owned);
                self.no_zone(&draft.zone, near, "limit_conn_zone");
                continue;
            };
            limits.push(PlaceLimit {
                zone: PlaceZoneId(u32::try_from(index).unwrap_or(u32::MAX)),
                max: draft.max,
            });
        }
        limits
    }

    fn no_zone(&mut self, name: &Spanned<String>, near: Option<String>, directive: &str) {
        let marks = &self.reader.zone_marks;
        let message = if marks.iter().any(|mark| mark.name == name.value) {
            format!(
                "the shared memory zone \"{}\" is already declared for a different use",
                name.value
            )
        } else {
            format!("zero size shared memory zone \"{}\"", name.value)
        };
        let hint = match near.filter(|near| *near != name.value) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("a zone is defined with \"{directive}\" in http"),
        };
        self.reader
            .report(Diagnostic::error(name.span, message).hint(hint));
    }
}
