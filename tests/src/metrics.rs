//! A page of metrics, taken apart as Prometheus does.

use std::collections::BTreeMap;

use crate::client;
use crate::message::Response;
use crate::tool;

/// Samples by name and labels, as they stand on the page.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    text: String,
    samples: BTreeMap<String, f64>,
    types: BTreeMap<String, String>,
}

impl Metrics {
    /// Fetches a page.
    pub fn of(address: &str, path: &str) -> Self {
        Self::new(&client::get(address, path))
    }

    /// Takes a page apart; it fails the test where the page says something twice or in another form.
    pub fn new(page: &Response) -> Self {
        assert_eq!(page.status(), 200, "{:?}", page.head);
        assert_eq!(
            page.field("content-type"),
            Some("text/plain; version=0.0.4; charset=utf-8")
        );
        let text = page.text();
        let (mut samples, mut types) = (BTreeMap::new(), BTreeMap::new());
        for line in text.lines() {
            if let Some(typed) = line.strip_prefix("# TYPE ") {
                let (name, kind) = typed.split_once(' ').expect("a name and a type");
                let before = types.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "{name} has two types");
            } else if !line.starts_with("# HELP ") {
                let (name, value) = line.rsplit_once(' ').expect("a name and a number");
                let number: f64 = value.parse().expect("a number");
                let before = samples.insert(name.to_owned(), number);
                assert_eq!(before, None, "{name} has two values");
            }
        }
        Self {
            text,
            samples,
            types,
        }
    }

    /// The page.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A sample, named as on the page: `kp_peer_up{upstream="u",peer="127.0.0.1:1"}`.
    #[track_caller]
    pub fn value(&self, sample: &str) -> f64 {
        let found = self.samples.get(sample);
        *found.unwrap_or_else(|| panic!("no {sample} in\n{}", self.text))
    }

    /// The sample that counts a reason: what the configuration asks for is no failure.
    pub fn of_reason(reason: &str, side: &str) -> String {
        match side {
            "config" => format!("kp_configured_answers_total{{reason=\"{reason}\"}}"),
            side => format!("kp_failures_total{{reason=\"{reason}\",side=\"{side}\"}}"),
        }
    }

    /// Whether there is such a sample.
    pub fn has(&self, sample: &str) -> bool {
        self.samples.contains_key(sample)
    }

    /// The sum of a family's samples that have all of these labels, written as on the page.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let fits = |sample: &str| {
            let (found, rest) = sample.split_once('{').unwrap_or((sample, ""));
            found == name && labels.iter().all(|label| rest.contains(label))
        };
        let samples = self.samples.iter().filter(|(sample, _)| fits(sample));
        samples.map(|(_, value)| value).sum()
    }

    /// What only grows: counters, and the parts of histograms.
    pub fn growing(&self) -> impl Iterator<Item = (&str, f64)> {
        self.samples.iter().filter_map(|(sample, value)| {
            let name = sample.split('{').next().unwrap_or_default();
            let parts = ["_bucket", "_sum", "_count"];
            let family = parts.iter().find_map(|part| name.strip_suffix(part));
            let is = |name: &str, kind: &str| self.types.get(name).is_some_and(|one| one == kind);
            let grows = is(name, "counter") || family.is_some_and(|family| is(family, "histogram"));
            grows.then_some((sample.as_str(), *value))
        })
    }

    /// What has become less since an earlier page although it only grows, and what is gone.
    pub fn gone_back_since(&self, earlier: &Self) -> Vec<String> {
        let less = earlier.growing().filter_map(|(sample, before)| {
            let now = self.samples.get(sample).copied();
            (now.is_none_or(|now| now < before)).then(|| format!("{sample}: {before}, now {now:?}"))
        });
        less.collect()
    }

    /// Fails the test where promtool has anything to say, or a histogram is none.
    #[track_caller]
    pub fn assert_well_formed(&self) {
        let here = std::env::temp_dir();
        let told = tool::run(
            &here,
            "promtool",
            &["check", "metrics"],
            self.text.as_bytes(),
        );
        assert_eq!(told.all().trim(), "", "promtool complains");
        let ends = |(sample, value): (&String, &f64)| {
            let (name, rest) = sample.split_once("_bucket{")?;
            let labels = rest.strip_suffix("le=\"+Inf\"}")?.trim_end_matches(',');
            let braces = |labels: &str| match labels {
                "" => String::new(),
                labels => format!("{{{labels}}}"),
            };
            Some((format!("{name}_count{}", braces(labels)), *value))
        };
        for (count, all) in self.samples.iter().filter_map(ends) {
            assert_eq!(self.value(&count), all, "{count}");
        }
    }
}
