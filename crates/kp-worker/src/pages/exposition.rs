//! Prometheus' text format, version 0.0.4: how families and samples are written.
//!
//! Decides escaping and how numbers look. Does not decide what there is to tell: that is `metrics`'.

/// What a family is, for Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    /// Only grows, but for a restart of kp.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How many events there were up to certain sizes.
    Histogram,
}

impl FamilyKind {
    /// Its word in a TYPE line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A number, in parts of the unit that is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    Whole(u64),
    Thousandths(u64),
    Millionths(u64),
}

/// A page that grows.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    out: Vec<u8>,
}

impl Exposition {
    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }

    /// Begins a family: all of its samples follow.
    pub(super) fn family(&mut self, name: &str, kind: FamilyKind, help: &str) {
        self.put(&["# HELP ", name, " "]);
        for byte in help.bytes() {
            match byte {
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                byte => self.out.push(byte),
            }
        }
        self.put(&["\n# TYPE ", name, " ", kind.word(), "\n"]);
    }

    /// One number of the family `name`; `labels` as [`labels`] makes them.
    pub(super) fn sample(&mut self, name: &str, labels: &str, value: Value) {
        self.put(&[name]);
        if !labels.is_empty() {
            self.put(&["{", labels, "}"]);
        }
        self.value(value);
    }

    /// The same with one more label, whose value needs no escaping.
    pub(super) fn sample_with(
        &mut self,
        name: &str,
        labels: &str,
        (label, text): (&str, &str),
        value: Value,
    ) {
        let comma = if labels.is_empty() { "" } else { "," };
        self.put(&[name, "{", labels, comma, label, "=\"", text, "\"}"]);
        self.value(value);
    }

    /// A histogram: how many there were in each bucket and not in those before, with the upper ends of all but the last,
    /// and what all of them are together.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        labels: &str,
        buckets: impl Iterator<Item = (Option<Value>, u64)>,
        sum: Value,
    ) {
        let mut count = 0u64;
        let names = [name, "_bucket"].concat();
        for (end, more) in buckets {
            count = count.saturating_add(more);
            let end = end.map_or_else(|| "+Inf".to_owned(), decimal);
            self.sample_with(&names, labels, ("le", &end), Value::Whole(count));
        }
        self.sample(&[name, "_sum"].concat(), labels, sum);
        self.sample(&[name, "_count"].concat(), labels, Value::Whole(count));
    }

    fn value(&mut self, value: Value) {
        self.out.push(b' ');
        match value {
            Value::Whole(number) => {
                let mut digits = itoa::Buffer::new();
                self.out.extend_from_slice(digits.format(number).as_bytes());
            }
            parts => self.put(&[&decimal(parts)]),
        }
        self.out.push(b'\n');
    }

    fn put(&mut self, parts: &[&str]) {
        for part in parts {
            self.out.extend_from_slice(part.as_bytes());
        }
    }
}

/// Labels with their values, as they stand between the braces.
pub(super) fn labels<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        for letter in value.chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                letter => text.push(letter),
            }
        }
        text.push('"');
    }
    text
}

/// The number in digits, exact and without zeros that say nothing.
fn decimal(value: Value) -> String {
    let (number, digits) = match value {
        Value::Whole(number) => return number.to_string(),
        Value::Thousandths(number) => (number, 3),
        Value::Millionths(number) => (number, 6),
    };
    let scale = 10u64.pow(digits);
    let (whole, part) = (number / scale, number % scale);
    if part == 0 {
        return whole.to_string();
    }
    let text = format!("{whole}.{part:0width$}", width = digits as usize);
    text.trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(page: Exposition) -> String {
        String::from_utf8(page.finish()).unwrap()
    }

    #[test]
    fn numbers_are_exact() {
        let cases = [
            (Value::Whole(0), "0"),
            (Value::Whole(u64::MAX), "18446744073709551615"),
            (Value::Thousandths(0), "0"),
            (Value::Thousandths(5), "0.005"),
            (Value::Thousandths(1500), "1.5"),
            (Value::Thousandths(30_000), "30"),
            (Value::Millionths(1), "0.000001"),
            (Value::Millionths(2_500_000), "2.5"),
        ];
        for (value, expected) in cases {
            assert_eq!(decimal(value), expected);
        }
    }

    #[test]
    fn labels_and_help_are_escaped() {
        let mut page = Exposition::default();
        page.family("kp_a", FamilyKind::Gauge, "A \\ and\nmore.");
        let pairs = labels([("file", "a\\b\"c\nd"), ("é", "ü")]);
        page.sample("kp_a", &pairs, Value::Whole(1));
        page.sample("kp_a", "", Value::Whole(2));
        assert_eq!(
            text(page),
            "# HELP kp_a A \\\\ and\\nmore.\n# TYPE kp_a gauge\n\
             kp_a{file=\"a\\\\b\\\"c\\nd\",é=\"ü\"} 1\nkp_a 2\n"
        );
    }

    #[test]
    fn histograms_are_cumulative() {
        let mut page = Exposition::default();
        let ends = [
            Some(Value::Thousandths(1)),
            Some(Value::Thousandths(2000)),
            None,
        ];
        let buckets = ends.into_iter().zip([3, 0, 2]);
        page.histogram("kp_t", "a=\"b\"", buckets, Value::Thousandths(4321));
        assert_eq!(
            text(page),
            "kp_t_bucket{a=\"b\",le=\"0.001\"} 3\nkp_t_bucket{a=\"b\",le=\"2\"} 3\n\
             kp_t_bucket{a=\"b\",le=\"+Inf\"} 5\nkp_t_sum{a=\"b\"} 4.321\nkp_t_count{a=\"b\"} 5\n"
        );
    }
}
