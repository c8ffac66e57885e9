//! Lookup of a host name among exact names and wildcards, as `server_name` and `map … hostnames` mean it.
//!
//! nginx's order: the exact name, then the longest `*.suffix`, then the longest `prefix.*`. Names are compared as bytes;
//! who asks has lower-cased them. Sorted slices and binary search: no hashing, no allocation, nothing to seed.

/// Names of one table, each with the number it stands for.
#[derive(Debug, Default)]
pub(crate) struct NameTable {
    exact: Vec<(Box<[u8]>, u32)>,
    suffixes: Vec<(Box<[u8]>, u32)>,
    prefixes: Vec<(Box<[u8]>, u32)>,
}

impl NameTable {
    /// Adds a name without wildcard. The first of two equal names stays.
    pub(crate) fn exact(&mut self, name: &str, value: u32) {
        self.exact.push((name.as_bytes().into(), value));
    }

    /// Adds `*.name`.
    pub(crate) fn suffix(&mut self, name: &str, value: u32) {
        self.suffixes.push((name.as_bytes().into(), value));
    }

    /// Adds `name.*`.
    pub(crate) fn prefix(&mut self, name: &str, value: u32) {
        self.prefixes.push((name.as_bytes().into(), value));
    }

    /// To be called once, after the last name was added and before the first search.
    pub(crate) fn finish(&mut self) {
        for table in [&mut self.exact, &mut self.suffixes, &mut self.prefixes] {
            // A stable sort: of equal names the first added stays first, and `dedup_by` keeps it.
            table.sort_by(|left, right| left.0.cmp(&right.0));
            table.dedup_by(|later, earlier| later.0 == earlier.0);
        }
    }

    /// The number of the best name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<u32> {
        if let Some(value) = search(&self.exact, name) {
            return Some(value);
        }
        if name.is_empty() {
            return None;
        }
        if !self.suffixes.is_empty() {
            // Left to right: the longest suffix first. A suffix needs at least one byte before its dot.
            for dot in memchr::memchr_iter(b'.', name).filter(|&dot| dot > 0) {
                if let Some(value) = search(&self.suffixes, name.get(dot + 1..).unwrap_or_default())
                {
                    return Some(value);
                }
            }
        }
        if !self.prefixes.is_empty() {
            for dot in memchr::memrchr_iter(b'.', name).filter(|&dot| dot + 1 < name.len()) {
                if let Some(value) = search(&self.prefixes, name.get(..dot).unwrap_or_default()) {
                    return Some(value);
                }
            }
        }
        None
    }
}

fn search(table: &[(Box<[u8]>, u32)], name: &[u8]) -> Option<u32> {
    let at = table
        .binary_search_by(|(text, _)| text.as_ref().cmp(name))
        .ok()?;
    table.get(at).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> NameTable {
        let mut names = NameTable::default();
        names.exact("example.com", 0);
        names.exact("example.com", 9);
        names.exact("", 1);
        names.suffix("example.com", 2);
        names.suffix("sub.example.com", 3);
        names.suffix("com", 4);
        names.prefix("www.example", 5);
        names.prefix("www", 6);
        names.exact("www.example.com", 7);
        names.finish();
        names
    }

    #[test]
    fn exact_then_longest_suffix_then_longest_prefix() {
        let names = table();
        let cases: &[(&str, Option<u32>)] = &[
            ("example.com", Some(0)),
            ("", Some(1)),
            ("a.example.com", Some(2)),
            ("a.b.example.com", Some(2)),
            ("sub.example.com", Some(2)),
            ("x.sub.example.com", Some(3)),
            ("other.com", Some(4)),
            ("com", None),
            (".com", None),
            ("www.example.org", Some(5)),
            ("www.example.co.uk", Some(5)),
            ("www.other.org", Some(6)),
            ("www.", None),
            ("www", None),
            ("www.example.com", Some(7)),
            ("xexample.org", None),
        ];
        for (name, expected) in cases {
            assert_eq!(names.find(name.as_bytes()), *expected, "{name}");
        }
    }
}
