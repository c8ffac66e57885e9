//! The groups of `ssl_ecdh_curve`.

use super::Selection;
use crate::model::NamedGroup;

/// The names OpenSSL knows them by, in lower case.
const NAMES: [(&str, NamedGroup); 12] = [
    ("x25519mlkem768", NamedGroup::X25519MlKem768),
    ("secp256r1mlkem768", NamedGroup::Secp256r1MlKem768),
    ("mlkem768", NamedGroup::MlKem768),
    ("ml-kem-768", NamedGroup::MlKem768),
    ("mlkem1024", NamedGroup::MlKem1024),
    ("ml-kem-1024", NamedGroup::MlKem1024),
    ("x25519", NamedGroup::X25519),
    ("prime256v1", NamedGroup::Secp256r1),
    ("secp256r1", NamedGroup::Secp256r1),
    ("p-256", NamedGroup::Secp256r1),
    ("secp384r1", NamedGroup::Secp384r1),
    ("p-384", NamedGroup::Secp384r1),
];

/// Reads a list of groups: names with `:` between them, or `auto`.
pub(crate) fn groups(text: &str) -> Selection<NamedGroup> {
    let mut selection = Selection::default();
    // OpenSSL 3.5 writes `*` for "send a key share", `?` for "may be unknown" and `/` between levels of preference.
    for word in text.split([':', '/']) {
        let name = word.trim_start_matches(['*', '?']);
        let mut add = |group| {
            if !selection.chosen.contains(&group) {
                selection.chosen.push(group);
            }
        };
        let lower = name.to_ascii_lowercase();
        if matches!(lower.as_str(), "auto" | "default") {
            NamedGroup::DEFAULT.into_iter().for_each(add);
        } else if let Some((_, group)) = NAMES.iter().find(|(known, _)| *known == lower) {
            add(*group);
        } else if !name.is_empty() && !word.contains('?') {
            selection.left_out.push(name.to_owned());
        }
    }
    selection
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_groups() {
        let names = |text: &str| {
            let selection = groups(text);
            let names: Vec<&str> = selection.chosen.iter().map(|group| group.name()).collect();
            (names.join(" "), selection.left_out.join(" "))
        };
        let both = |chosen: &str, left_out: &str| (chosen.to_owned(), left_out.to_owned());
        assert_eq!(
            names("auto"),
            both("X25519MLKEM768 X25519 prime256v1 secp384r1", "")
        );
        assert_eq!(
            names("X25519:prime256v1:secp384r1"),
            both("X25519 prime256v1 secp384r1", "")
        );
        assert_eq!(
            names("x25519:P-256:secp521r1:secp256r1:X448"),
            both("X25519 prime256v1", "secp521r1 X448")
        );
        assert_eq!(
            names("?*X25519MLKEM768/?X448:X25519"),
            both("X25519MLKEM768 X25519", "")
        );
        assert_eq!(names("secp521r1"), both("", "secp521r1"));
    }
}
