//! Mistakes in a config file or in flags, and their places.

use std::fmt::Write as _;
use std::ops::Range;

use fairlift_lab::report::printable;
use fairlift_lab::suggestion;

#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The file's name as the user gave it.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A key of the file, or a flag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SettingPlace {
    /// Where in the file; `None`: in a flag.
    pub(crate) at: Option<Range<usize>>,
    /// How messages call it: `disk.ssd0.depth`, `--listen`.
    pub(crate) key: String,
}

impl SettingPlace {
    pub(crate) fn in_flag(flag: impl Into<String>) -> Self {
        Self { at: None, key: flag.into() }
    }

    pub(crate) fn says(&self, says: impl Into<String>) -> Mistake {
        Mistake { at: self.at.clone(), key: self.key.clone(), says: says.into() }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mistake {
    /// Where in the source, in bytes; `None`: not in the file but in a flag.
    pub(crate) at: Option<Range<usize>>,
    /// The key (`disk.ssd0.depth`) or flag (`--listen`).
    pub(crate) key: String,
    /// The mistake, and the possible values.
    pub(crate) says: String,
}

impl Mistake {
    pub(crate) fn in_flag(flag: &str, says: impl Into<String>) -> Self {
        Self { at: None, key: flag.into(), says: says.into() }
    }

    /// The mistake and its place, in one line: for a log.
    pub(crate) fn line(&self, source: Option<&Source>) -> String {
        self.line_as("", source)
    }

    /// The same with a word before the mistake.
    fn line_as(&self, word: &str, source: Option<&Source>) -> String {
        let colon = if self.key.is_empty() { "" } else { ": " };
        let message = printable(&format!("{}{colon}{}", self.key, self.says));
        let Some((source, at)) = source.zip(self.at.as_ref()) else { return format!("{word}{message}") };
        let place = Position::of(&source.text, at);
        format!("{}:{}:{}: {word}{message}", source.name, place.line, place.column)
    }

    /// The line of the file, and a mark below what is meant; empty: it is not in the file.
    fn excerpt(&self, source: Option<&Source>) -> String {
        let Some((source, at)) = source.zip(self.at.as_ref()) else { return String::new() };
        let place = Position::of(&source.text, at);
        let margin = " ".repeat(place.line.to_string().len());
        format!("  {} | {}\n  {margin} | {}\n", place.line, place.shown, place.marks)
    }
}

/// The mistakes in flags and file.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) source: Option<Source>,
    pub(crate) mistakes: Vec<Mistake>,
}

impl Wrong {
    /// For a person, with `so` behind the count if there are several.
    pub(crate) fn shown(&self, so: &str) -> String {
        let mut shown = render("error: ", self.source.as_ref(), &self.mistakes);
        if self.mistakes.len() > 1 {
            let _ = writeln!(shown, "{} mistakes; {so}", self.mistakes.len());
        }
        shown
    }

    /// For a log, a line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.mistakes.iter().map(|mistake| mistake.line(self.source.as_ref())).collect()
    }

    /// For a person far away, who is told that it is an error.
    pub(crate) fn answer(&self) -> String {
        render("", self.source.as_ref(), &self.mistakes).trim_end().to_owned()
    }
}

/// Shows mistakes in the order of the file, those in flags first, each with its line and a word before it, `error: ` or `warning: `:
///
/// ```text
/// fairlift.toml:3:9: error: disk.ssd0.depth: takes a number from 1 to 4096, not "many"
///   3 | depth = "many"
///     |         ^^^^^^
/// ```
pub(crate) fn render(word: &str, source: Option<&Source>, mistakes: &[Mistake]) -> String {
    let mut sorted: Vec<_> = mistakes.iter().collect();
    sorted.sort_by_key(|mistake| mistake.at.as_ref().map(|at| (at.start, at.end)));
    sorted.into_iter().map(|mistake| mistake.line_as(word, source) + "\n" + &mistake.excerpt(source)).collect()
}

/// The known word that is meant, or where no word is near, these.
pub(crate) fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>, other: impl FnOnce() -> String) -> String {
    Some(suggestion(word, known)).filter(|hint| !hint.is_empty()).unwrap_or_else(other)
}

/// How many characters of a line are shown, around what is meant. Chosen: a few lines of a terminal, whatever the file is.
const SHOWN: usize = 200;

/// A place as people see it.
struct Position {
    /// From 1.
    line: usize,
    /// In characters, from 1.
    column: usize,
    /// The line, or the text around the place, without control characters that could move the cursor.
    shown: String,
    /// Blanks, then one `^` for each character meant.
    marks: String,
}

impl Position {
    fn of(text: &str, at: &Range<usize>) -> Self {
        let start = text.floor_char_boundary(at.start);
        let end = text.floor_char_boundary(at.end).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |newline| start + newline);
        let before = &text[line_start..start];
        let column = before.chars().count();
        let marked = text[start..end.min(line_end)].chars().take(SHOWN).count().max(1);
        let line = text[line_start..line_end].trim_end_matches('\r');
        let from = if line.chars().nth(SHOWN).is_some() { column.saturating_sub(SHOWN / 2) } else { 0 };
        let mut shown = String::from(if from > 0 { "…" } else { "" });
        let mut rest = line.chars().skip(from);
        shown.extend(rest.by_ref().take(SHOWN).map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }));
        shown += if rest.next().is_some() { "…" } else { "" };
        let tab_or_blank = |c| if c == '\t' { '\t' } else { ' ' };
        let indent: String = shown.chars().take(column - from + usize::from(from > 0)).map(tab_or_blank).collect();
        let marked = marked.min(SHOWN - (column - from).min(SHOWN - 1));
        Self {
            line: text[..start].matches('\n').count() + 1,
            column: column + 1,
            shown,
            marks: indent + &"^".repeat(marked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_shown_in_the_order_of_the_file_after_those_in_flags() {
        let source = Source { name: "f.toml".into(), text: "a = 1\n\tbé = \"x\"\n".into() };
        let in_file = |at: Range<usize>, says: &str| Mistake { at: Some(at), key: "k".into(), says: says.into() };
        let shown = render(
            "error: ",
            Some(&source),
            &[in_file(13..16, "second"), in_file(0..1, "first"), Mistake::in_flag("--listen", "no such place")],
        );
        let expected = "\
error: --listen: no such place
f.toml:1:1: error: k: first
  1 | a = 1
    | ^
f.toml:2:7: error: k: second
  2 | \tbé = \"x\"
    | \t     ^^^
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn of_a_long_line_what_is_around_the_place_is_shown() {
        let text = "a".repeat(1000) + "é\u{1b}b" + &"c".repeat(1_000_000);
        let source = Source { name: "f".into(), text };
        let excerpt = |at: Range<usize>| {
            let mistake = Mistake { at: Some(at), key: String::new(), says: "s".into() };
            mistake.excerpt(Some(&source))
        };
        let around = format!("  1 | …{}é\u{fffd}b{}…\n    |  {}^^\n", "a".repeat(100), "c".repeat(97), " ".repeat(100));
        assert_eq!(excerpt(1000..1003), around);
        assert_eq!(excerpt(0..1), format!("  1 | {}…\n    | ^\n", "a".repeat(200)));
        let all = excerpt(0..1_000_000);
        assert_eq!(all, format!("  1 | {}…\n    | {}\n", "a".repeat(200), "^".repeat(200)));
        let end = source.text.len();
        assert_eq!(excerpt(end..end), format!("  1 | …{}\n    |  {}^\n", "c".repeat(100), " ".repeat(100)));
    }

    #[test]
    fn a_place_beyond_the_end_or_inside_a_character_is_no_panic() {
        let source = Source { name: "f".into(), text: "é\u{1b}[2J".into() };
        let shown =
            render("warning: ", Some(&source), &[Mistake { at: Some(1..99), key: String::new(), says: "s".into() }]);
        assert_eq!(shown, "f:1:1: warning: s\n  1 | é\u{fffd}[2J\n    | ^^^^^\n");
    }
}
