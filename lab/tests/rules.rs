//! Rules have names that are unique in the workspace, such as `flush.3`, and what is cited is written.
//!
//! A rule is written in the header of the file that keeps it (`//! flush.3  A lone flush goes straight down.`) and cited where it
//! acts, where it is tested, and in the pages of `docs/`. Those of BFQ and of what learns are each cited by a test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Sources and pages below a folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs" || end == "md") {
            found.push(path);
        }
    }
}

/// Whether a word is the name of a family of rules.
fn is_family(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
}

/// `flush.3`, as a family and a number; what follows the number does not matter.
fn parse(word: &str) -> Option<(&str, u32)> {
    let (family, rest) = word.split_once('.')?;
    let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    (is_family(family) && digits <= 2).then(|| Some((family, rest[..digits].parse().ok()?)))?
}

/// The rules that a text cites, ranges such as `flush.1–9` by both ends.
fn cited<'a>(text: &'a str, families: &BTreeMap<&str, Vec<u32>>) -> Vec<(&'a str, u32)> {
    let mut all = Vec::new();
    for word in text.split(|letter: char| !(letter.is_alphanumeric() || "._–".contains(letter))) {
        let Some((family, first)) = parse(word).filter(|(family, _)| families.contains_key(family)) else { continue };
        all.push((family, first));
        if let Some(last) = word.split_once('–').and_then(|(_, last)| last.trim_end_matches('.').parse().ok()) {
            all.push((family, last));
        }
    }
    all
}

/// What a line of a source says beside its code; all of a line of a page.
fn prose<'a>(path: &Path, line: &'a str) -> &'a str {
    let is_source = path.extension().is_some_and(|end| end == "rs");
    // `nbd://` is no comment.
    let comment = line.match_indices("//").map(|(at, _)| at).find(|at| !line[..*at].ends_with(':'));
    if is_source { comment.map_or("", |at| &line[at..]) } else { line }
}

/// What a header says on this line, if the line is one of a header. In `host` rules stand above functions too, where they act in
/// one alone.
fn written(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("//! ").or_else(|| line.strip_prefix("/// "))
}

/// Files and their texts.
type Texts = Vec<(PathBuf, String)>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn texts(paths: &[PathBuf]) -> Texts {
    paths.iter().map(|path| (path.clone(), fs::read_to_string(path).expect("it is text"))).collect()
}

/// All of the workspace's.
fn sources() -> Texts {
    let mut paths = Vec::new();
    for name in ["core", "threads", "host", "lab", "cli", "proving"] {
        ["src", "tests", "benches"]
            .map(|part| root().join(name).join(part))
            .iter()
            .filter(|folder| folder.exists())
            .for_each(|folder| files(folder, &mut paths));
    }
    texts(&paths)
}

/// The rules that are written in a file.
fn rules(text: &str) -> impl Iterator<Item = (&str, u32)> {
    text.lines().filter_map(|line| {
        // A rule has two spaces after its name; a sentence that begins with one has something else.
        let (name, _) = written(line).and_then(|rule| rule.split_once("  "))?;
        parse(name).filter(|(family, number)| name == format!("{family}.{number}"))
    })
}

/// What of a file is tests.
fn tests<'a>(path: &Path, text: &'a str) -> &'a str {
    let is_test = path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
    let start = ["#[cfg(test", "#[cfg(all(test"].iter().filter_map(|mark| text.find(mark)).min();
    if is_test { text } else { start.map_or("", |at| &text[at..]) }
}

#[test]
fn each_rule_of_bfq_and_of_what_learns_is_cited_by_a_test() {
    let sources = sources();
    let folders = ["core/src/sched/bfq", "core/src/sched/notes.rs", "core/src/learn"].map(|folder| root().join(folder));
    let mut families: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (_, text) in sources.iter().filter(|(path, _)| folders.iter().any(|folder| path.starts_with(folder))) {
        rules(text).for_each(|(family, number)| families.entry(family).or_default().push(number));
    }
    let mut untested: BTreeSet<_> =
        families.iter().flat_map(|(family, numbers)| numbers.iter().map(|number| (*family, *number))).collect();
    assert!(untested.len() > 80, "few rules were found: {untested:?}");
    for (path, text) in &sources {
        for line in tests(path, text).lines() {
            cited(prose(path, line), &families).iter().for_each(|rule| _ = untested.remove(rule));
        }
    }
    assert!(untested.is_empty(), "no test cites {untested:?}");
}

#[test]
fn each_rule_is_written_once_and_each_that_is_cited_is_written() {
    let sources = sources();
    let mut pages = vec![root().join("ARCHITECTURE.md")];
    files(&root().join("docs"), &mut pages);
    let pages = texts(&pages);

    let mut families: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (path, text) in sources.iter().filter(|(path, _)| path.components().any(|part| part.as_os_str() == "src")) {
        for (family, number) in rules(text) {
            let numbers = families.entry(family).or_default();
            if numbers.contains(&number) {
                wrong.push(format!("{}: {family}.{number} is written twice", path.display()));
            }
            numbers.push(number);
        }
    }
    assert!(families.len() > 100, "only {} families of rules were found", families.len());
    for (path, text) in sources.iter().chain(&pages) {
        for (at, line) in text.lines().enumerate() {
            for (family, number) in cited(prose(path, line), &families) {
                if !families[family].contains(&number) {
                    wrong.push(format!("{}:{}: {family}.{number} is written nowhere", path.display(), at + 1));
                }
            }
        }
    }
    // Letters were the names of rules once: `F3`. `M5` is a disk.
    for (path, text) in &sources {
        for (at, line) in text.lines().enumerate() {
            for word in prose(path, line).split(|letter: char| !(letter.is_alphanumeric() || "._`".contains(letter))) {
                let mut letters = word.chars();
                let is_letter = letters.next().is_some_and(|letter| letter.is_ascii_uppercase());
                let digits = letters.as_str();
                if word != "M5"
                    && is_letter
                    && (1..=2).contains(&digits.len())
                    && digits.bytes().all(|digit| digit.is_ascii_digit())
                {
                    wrong.push(format!("{}:{}: {word} is the name of no rule", path.display(), at + 1));
                }
            }
        }
    }
    // The map says which rules there are: `flush.1–10`.
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it is text");
    let rows =
        map.split_once("## The map").expect("there is a map").1.lines().take_while(|line| !line.starts_with("## "));
    let listed: BTreeSet<_> = rows.flat_map(|row| cited(row, &families)).collect();
    for (family, numbers) in &families {
        let last = *numbers.iter().max().expect("a family has rules");
        let range = if last == 1 { format!("{family}.1") } else { format!("{family}.1–{last}") };
        let ends = listed.iter().filter(|(of, _)| of == family).map(|(_, number)| *number).collect::<BTreeSet<_>>();
        if ends != BTreeSet::from([1, last]) {
            wrong.push(format!("ARCHITECTURE.md: the map has not {range}, but {ends:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} citations:\n{}", wrong.len(), wrong.join("\n"));
}
