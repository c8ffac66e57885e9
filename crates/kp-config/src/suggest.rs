//! The nearest known name to an unknown one.

/// The candidate with the fewest edits (insert, delete, replace, swap of neighbours), if that is few enough for a slip: one
/// in three characters, three at most. Among equals the first.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name: Vec<char> = name.chars().take(NAME_CHARS_MAX + 1).collect();
    if name.len() > NAME_CHARS_MAX {
        return None;
    }
    let edits_max = (name.len() / 3).clamp(1, 3);
    let near = candidates.into_iter().filter_map(|candidate| {
        let other: Vec<char> = candidate.chars().collect();
        let edits =
            (name.len().abs_diff(other.len()) <= edits_max).then(|| distance(&name, &other))?;
        (edits <= edits_max && edits < name.len()).then_some((edits, candidate))
    });
    near.min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// No directive or variable comes near this length.
const NAME_CHARS_MAX: usize = 64;

/// Optimal string alignment distance.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (row, from) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, to) in right.iter().enumerate() {
            let at =
                |line: &[usize], column: usize| line.get(column).copied().unwrap_or(usize::MAX - 1);
            let replace = at(&above, column) + usize::from(from != to);
            let mut best = replace
                .min(at(&above, column + 1) + 1)
                .min(at(&current, column) + 1);
            let swapped = row > 0
                && column > 0
                && left.get(row - 1) == Some(to)
                && right.get(column - 1) == Some(from);
            if swapped {
                best = best.min(at(&before, column - 1) + 1);
            }
            current.push(best);
        }
        before = std::mem::replace(&mut above, current);
    }
    above.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    const NAMES: [&str; 5] = [
        "proxy_pass",
        "proxy_set_header",
        "listen",
        "location",
        "server",
    ];

    #[test]
    fn a_slip_finds_its_name() {
        let cases = [
            ("proxy_pas", "proxy_pass"),
            ("porxy_pass", "proxy_pass"),
            ("lsiten", "listen"),
            ("locaton", "location"),
            ("sever", "server"),
            ("prxy_set_heade", "proxy_set_header"),
        ];
        for (slip, meant) in cases {
            assert_eq!(nearest(slip, NAMES), Some(meant), "{slip}");
        }
    }

    #[test]
    fn something_else_finds_nothing() {
        for name in [
            "",
            "x",
            "gzip",
            "upstream",
            "proxy_bind_address_of_mine",
            &"listen".repeat(40),
        ] {
            assert_eq!(nearest(name, NAMES), None, "{name}");
        }
    }

    #[test]
    fn a_swap_is_one_edit() {
        assert_eq!(nearest("esrver", ["servers", "server"]), Some("server"));
    }
}
