//! Names and their meanings, in columns.

use std::fmt::Write as _;

use fairlift_core::tunable::TunableInfo;

/// A setting in words: a tunable, or a parameter of a model.
pub(crate) struct SettingRow {
    pub(crate) name: String,
    pub(crate) default: String,
    /// Its values.
    pub(crate) takes: String,
    /// Its effect.
    pub(crate) says: String,
}

impl SettingRow {
    pub(crate) fn new(info: &TunableInfo, default: Option<String>) -> Self {
        let (name, takes, says) = (info.name.into(), info.range.to_string(), info.says.into());
        Self { name, default: default.unwrap_or_default(), takes, says }
    }
}

/// Two lines for each row: its effect, and its values.
pub(crate) fn write_rows(out: &mut String, rows: &[SettingRow]) {
    let width = |cell: fn(&SettingRow) -> &str| rows.iter().map(|row| cell(row).chars().count()).max().unwrap_or(0);
    let (name, default) = (width(|row| &row.name), width(|row| &row.default));
    for row in rows {
        let _ = writeln!(out, "  {:name$}  {:>default$}  {}", row.name, row.default, row.says);
        let _ = writeln!(out, "  {:name$}  {:default$}  {}", "", "", row.takes);
    }
}

/// Two columns, indented; the second is broken between words to fit in a terminal of 80.
pub(crate) fn pairs(out: &mut String, rows: &[(&str, &str)]) {
    const LINE: usize = 80;
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, says) in rows {
        let _ = write!(out, "  {name:width$} ");
        let mut column = width + 3;
        for word in says.split(' ') {
            let letters = word.chars().count();
            if column + 1 + letters > LINE && column > width + 3 {
                let _ = write!(out, "\n  {:width$} ", "");
                column = width + 3;
            }
            let _ = write!(out, " {word}");
            column += 1 + letters;
        }
        out.push('\n');
    }
}

/// A column: its head, whether its cells are to the left (`<`), as names are, or to the right (`>`), as numbers, and the cell of a row.
pub(crate) type Column<T> = (&'static str, char, fn(&T) -> String);

/// Rows below the heads of their columns.
pub(crate) fn table<T>(out: &mut String, columns: &[Column<T>], rows: &[T]) {
    let heads = columns.iter().map(|(head, ..)| (*head).to_owned()).collect();
    let cells = rows.iter().map(|row| columns.iter().map(|(.., cell)| cell(row)).collect());
    let lines: Vec<Vec<String>> = std::iter::once(heads).chain(cells).collect();
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns.len()).map(width).collect();
    for line in &lines {
        let mut text = String::new();
        for ((cell, width), (_, side, _)) in line.iter().zip(&widths).zip(columns) {
            let _ = match side {
                '<' => write!(text, "{cell:<width$}  "),
                _ => write!(text, "{cell:>width$}  "),
            };
        }
        let _ = writeln!(out, "{}", text.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_phrase_goes_on_in_its_own_column() {
        let mut out = String::new();
        pairs(&mut out, &[("a", "one"), ("long", "word ".repeat(20).trim_end())]);
        let lines: Vec<_> = out.lines().collect();
        assert_eq!(lines[0], "  a     one");
        assert_eq!(lines[2], format!("{}word word word word word word", " ".repeat(8)));
        assert!(lines.iter().all(|line| line.len() <= 80), "{out}");
    }
}
