//! How answers look on a terminal: aligned columns, times and sizes as people say them, and nothing that a terminal obeys.

use std::fmt::Write;

/// Text that somebody else wrote, so that no control character of it reaches a terminal. Lines stay lines.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for piece in text.chars() {
        if is_harmless(piece) || piece == '\n' {
            shown.push(piece);
        } else {
            shown.extend(piece.escape_unicode());
        }
    }
    shown
}

/// Control characters move the cursor or worse; marks of direction turn what stands behind them around.
fn is_harmless(piece: char) -> bool {
    let turns = matches!(piece, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !piece.is_control() && !turns && !matches!(piece, '\u{2028}' | '\u{2029}')
}

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    /// Words begin at its left edge.
    Words(&'static str),
    /// Numbers end at its right edge.
    Numbers(&'static str),
}

impl Column {
    fn title(self) -> &'static str {
        match self {
            Self::Words(title) | Self::Numbers(title) => title,
        }
    }
}

/// Columns and rows of cells.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Without rows yet.
    pub(crate) fn new(columns: &[Column]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, whose cells may come from anywhere.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        let cells = cells
            .iter()
            .map(|cell| printable(cell).replace('\n', "\\n"));
        self.rows.push(cells.collect());
    }

    /// Whether there is nothing to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text, every line behind `indent`.
    pub(crate) fn text(&self, indent: &str) -> String {
        let width = |index: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            let title = self.columns.get(index).map_or("", |column| column.title());
            widest.max(title.chars().count())
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let titles = self.columns.iter().map(|column| column.title().to_owned());
        let mut text = String::new();
        for row in std::iter::once(&titles.collect::<Vec<_>>()).chain(&self.rows) {
            let mut line = String::from(indent);
            for ((cell, column), width) in row.iter().zip(&self.columns).zip(&widths) {
                // Writing to a String cannot fail.
                let _ = match column {
                    Column::Words(_) => write!(line, "{cell:<width$}  "),
                    Column::Numbers(_) => write!(line, "{cell:>width$}  "),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A time: `40 ms`, `1.2 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`.
pub(crate) fn time(ms: u64) -> String {
    let (s, min, h) = (ms / 1_000, ms / 60_000, ms / 3_600_000);
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{s}.{} s", ms % 1_000 / 100),
        60_000..3_600_000 => format!("{min} min {} s", s % 60),
        3_600_000..86_400_000 => format!("{h} h {} min", min % 60),
        _ => format!("{} d {} h", h / 24, h % 24),
    }
}

/// A size: `17 B`, `3.4 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut tenths = u128::from(bytes) * 10 / 1024;
    let mut unit = UNITS[0];
    for larger in &UNITS[1..] {
        if tenths < 10_240 {
            break;
        }
        (tenths, unit) = (tenths / 1024, larger);
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_gets_through() {
        for (text, shown) in [
            ("plain ä 漢", "plain ä 漢"),
            ("\u{1b}]0;x\u{7}", "\\u{1b}]0;x\\u{7}"),
            ("a\rb\tc\u{9b}", "a\\u{d}b\\u{9}c\\u{9b}"),
            ("\u{202e}txt", "\\u{202e}txt"),
            ("two\nlines", "two\nlines"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&[Column::Words("PEER"), Column::Numbers("WEIGHT")]);
        assert!(table.is_empty());
        table.row(["10.0.0.1:80".into(), "5".into()]);
        table.row(["b\n".into(), "100".into()]);
        assert_eq!(
            table.text("  "),
            "  PEER         WEIGHT\n  10.0.0.1:80       5\n  b\\n             100\n"
        );
    }

    #[test]
    fn times_and_sizes_are_as_people_say_them() {
        for (ms, shown) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_250, "1.2 s"),
            (59_999, "59.9 s"),
            (200_000, "3 min 20 s"),
            (7_500_000, "2 h 5 min"),
            (273_600_000, "3 d 4 h"),
        ] {
            assert_eq!(time(ms), shown);
        }
        for (bytes, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (3_565_158, "3.3 MiB"),
            (3_565_159, "3.4 MiB"),
            (1 << 40, "1.0 TiB"),
            (u64::MAX, "16383.9 PiB"),
        ] {
            assert_eq!(size(bytes), shown, "{bytes}");
        }
    }
}
