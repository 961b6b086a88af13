//! The file of a backing with faults: which requests fail, how, and how often.
//!
//! ```toml
//! seed = 7
//!
//! [[fault]]
//! op = "read"
//! from = "1m"
//! to = "2m"
//! error = "EIO"
//! ```

use std::ops::Range;
use std::path::Path;

use fairlift::config::{Backing, Faults, Faulty, Rule, Then};
use fairlift_core::{Duration, Errno, Op};
use fairlift_lab::suggestion;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::given::Given;
use super::row::{Put, Row, Sort, all};
use super::section::{Section, show};
use crate::syntax::mistake::{Mistake, SettingPlace, Source, hint};
use crate::syntax::units::show_size;

const SEED: u64 = 1;

/// One rule. (What its keys mean is in docs/do/failing-disk.md.)
const FAULT: Sort = Sort {
    name: "fault",
    header: "[[fault]]",
    says: "",
    rows: || {
        let names = ["op", "from", "to", "after", "times", "chance", "delay", "error", "short", "hang"];
        all(&names.map(|name| Row::<()>::new(name, Put::Elsewhere)))
    },
};

const OPS: [(&str, Op); 5] = [
    ("read", Op::Read),
    ("write", Op::Write),
    ("flush", Op::Flush),
    ("discard", Op::Discard),
    ("zeroes", Op::WriteZeroes),
];

/// Errors that disks and file systems have. The numbers are Linux's.
const ERRORS: [(&str, i32); 14] = [
    ("EIO", 5),
    ("ENOSPC", 28),
    ("EPERM", 1),
    ("ENXIO", 6),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("ENODEV", 19),
    ("EINVAL", 22),
    ("EFBIG", 27),
    ("EROFS", 30),
    ("EOPNOTSUPP", 95),
    ("ETIMEDOUT", 110),
    ("EREMOTEIO", 121),
    ("EDQUOT", 122),
];

/// A backing as it can be opened: the rules of its faults are read, anew each time. Whether its files are there, opening them shows:
/// a volume that is mounted late is no mistake.
pub(crate) fn settle(backing: &Backing) -> Result<Backing, String> {
    let Backing::Fault(faulty) = backing else { return Ok(backing.clone()) };
    let (faults, inner) = (read_file(&faulty.path)?, settle(&faulty.inner)?);
    Ok(Faulty { faults, inner, ..(**faulty).clone() }.into())
}

pub(crate) fn read_file(path: &Path) -> Result<Faults, String> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let source = Source { name, text };
    let (faults, mut mistakes) = read(&source.text);
    mistakes.sort_by_key(|mistake| mistake.at.as_ref().map(|at| at.start));
    let lines: Vec<_> = mistakes.iter().take(3).map(|mistake| mistake.line(Some(&source))).collect();
    if lines.is_empty() { Ok(faults) } else { Err(lines.join("; ")) }
}

fn read(text: &str) -> (Faults, Vec<Mistake>) {
    let document = match DeTable::parse(text) {
        Ok(document) => document,
        Err(error) => {
            let says = error.message().trim().replace('\n', ", ");
            let mistake = Mistake { at: Some(error.span().unwrap_or(0..0)), key: String::new(), says };
            return (Faults::default(), vec![mistake]);
        }
    };
    let mut faults = Faults { seed: SEED, rules: Vec::new() };
    let mut mistakes = Vec::new();
    let mut note = |at: Range<usize>, key: &str, says: String| {
        mistakes.push(Mistake { at: Some(at), key: key.into(), says });
    };
    let mut rules: &[Spanned<DeValue<'_>>] = &[];
    for (key, value) in document.get_ref() {
        match key.get_ref().as_ref() {
            "seed" => match count(&value.get_ref().into()) {
                Ok(seed) => faults.seed = seed,
                Err(says) => note(value.span(), "seed", says),
            },
            "fault" => match value.get_ref().as_array() {
                Some(list) => rules = list,
                None => note(key.span(), "fault", "is written [[fault]], once for each rule".into()),
            },
            other => {
                let hint = hint(other, ["seed", "fault"], || "; there are seed, and [[fault]] for each rule".into());
                note(key.span(), other, format!("unknown key{hint}"));
            }
        }
    }
    for (at, rule) in rules.iter().enumerate() {
        let path = format!("fault {}", at + 1);
        match rule.get_ref().as_table() {
            Some(table) => {
                let section = Section::new(path, "", rule.span(), FAULT, table, &mut mistakes);
                faults.rules.extend(rule_of(&section, &mut mistakes));
            }
            None => {
                let says = format!("must be written [[fault]], not as {}", show(rule.get_ref()));
                mistakes.push(Mistake { at: Some(rule.span()), key: path, says });
            }
        }
    }
    (faults, mistakes)
}

/// A rule; its mistakes are noted, and then the result is of no use.
fn rule_of(section: &Section<'_>, mistakes: &mut Vec<Mistake>) -> Option<Rule> {
    let mut ops = section.take(mistakes, "op", ops).unwrap_or_default();
    let [from, to] = ["from", "to"].map(|key| section.take(mistakes, key, Given::sectors));
    let range = (from.is_some() || to.is_some()).then(|| from.unwrap_or(0)..to.unwrap_or(u64::MAX));
    if let Some(range) = &range {
        if range.is_empty() {
            let says =
                format!("ends at {}, and must end after {} (from)", show_size(range.end), show_size(range.start));
            mistakes.push(section.place("to").says(says));
        }
        if ops == [Op::Flush] {
            mistakes.push(section.place("from").says("a flush is of the whole backing: leave from and to out"));
        }
    }
    let [after, times] = ["after", "times"].map(|key| section.take(mistakes, key, count));
    let after = after.unwrap_or(0);
    let chance = section.take(mistakes, "chance", chance).unwrap_or(Rule::SURE);
    let delay = section.take(mistakes, "delay", Given::some_time);
    let error =
        section.take(mistakes, "error", |given| one_of(&ERRORS, "", given)).map(|error| Then::Fail(Errno(error)));
    let short = section.take(mistakes, "short", Given::sectors).map(Then::Short);
    let hang = section.take(mistakes, "hang", Given::switch).filter(|is| *is).map(|_| Then::Hang);
    if section.raw("short").is_some() {
        if ops.is_empty() {
            ops = vec![Op::Read, Op::Write];
        }
        if !ops.iter().all(|op| op.has_payload()) {
            let says = "only reads and writes move bytes: op = [\"read\", \"write\"], or one of them";
            mistakes.push(section.place("short").says(says));
        }
    }
    let thens: Vec<_> = [error, short, hang].into_iter().flatten().collect();
    let mut faults = ["error", "short", "hang"].map(|key| section.raw(key)).into_iter().flatten().map(Spanned::span);
    match (&thens[..], delay, faults.clone().count()) {
        ([], None, 0) => {
            let says = "names requests and no fault for them: add delay, error, short or hang";
            mistakes.push(section.header().says(says));
        }
        ([_, _, ..], ..) => {
            let says = "has more than one of error, short and hang: make a rule of each";
            mistakes.push(SettingPlace { at: faults.next_back(), ..section.header() }.says(says));
        }
        ([Then::Hang], Some(_), _) => {
            mistakes.push(section.place("delay").says("a request that hangs never ends: leave out delay or hang"));
        }
        _ => {}
    }
    let then = thens.first().copied().unwrap_or(Then::Go);
    Some(Rule { ops, range, after, times, chance, delay: delay.unwrap_or(Duration::ZERO), then })
}

fn count(given: &Given) -> Result<u64, String> {
    given.number(0..=i64::MAX as u64)
}

fn ops(given: &Given) -> Result<Vec<Op>, String> {
    let one = |given: &Given| one_of(&OPS, ", or a list of them", given);
    match given {
        Given::List(list) => list.iter().map(one).collect(),
        _ => Ok(vec![one(given)?]),
    }
}

/// The value of a name; `or`: what else the key takes.
fn one_of<T: Copy>(all: &[(&str, T)], or: &str, given: &Given) -> Result<T, String> {
    let names = || all.iter().map(|(name, _)| *name);
    let name = given.text().unwrap_or_default();
    all.iter().find(|(known, _)| *known == name).map(|(_, value)| *value).ok_or_else(|| {
        let known = names().collect::<Vec<_>>().join(", ");
        format!("takes {known}{or}, not {}{}", given.show(), suggestion(name, names()))
    })
}

/// A part of one, as a part of [`Rule::SURE`].
fn chance(given: &Given) -> Result<u64, String> {
    let number: Option<f64> = match given {
        Given::Other(number) => number.replace('_', "").parse().ok(),
        Given::Number(number, _) => number.parse().ok(),
        _ => None,
    };
    let part = number.filter(|part| (0.0..=1.0).contains(part));
    part.map(|part| (part * Rule::SURE as f64) as u64)
        .ok_or_else(|| format!("takes a number from 0 to 1 such as 0.01 (one of a hundred), not {}", given.show()))
}

#[cfg(test)]
mod tests {
    use fairlift_core::time::ms;

    use super::*;

    /// The mistake, and the marked part of the text.
    fn wrong(text: &str) -> Vec<(String, &str)> {
        let shown = |mistake: Mistake| {
            let at = mistake.at.clone().unwrap_or(0..0);
            (format!("{}: {}", mistake.key, mistake.says), &text[at])
        };
        read(text).1.into_iter().map(shown).collect()
    }

    #[test]
    fn a_rule_says_which_requests_and_what_happens_to_them() {
        let text = "seed = 7\n\
                    [[fault]]\nop = \"read\"\nfrom = \"1m\"\nto = \"2m\"\nerror = \"EIO\"\n\
                    [[fault]]\nop = [\"write\", \"flush\"]\nafter = 100\ntimes = 3\nchance = 0.5\ndelay = \"5ms\"\n\
                    [[fault]]\nshort = 4096\nfrom = 512\n\
                    [[fault]]\nhang = true\n";
        assert_eq!(wrong(text), []);
        let any = Rule::each(Then::Hang);
        let read = read(text).0;
        assert_eq!(read.seed, 7);
        assert_eq!(
            read.rules,
            [
                Rule {
                    ops: vec![Op::Read],
                    range: Some(1 << 20..2 << 20),
                    then: Then::Fail(Errno::EIO),
                    ..any.clone()
                },
                Rule {
                    ops: vec![Op::Write, Op::Flush],
                    after: 100,
                    times: Some(3),
                    chance: Rule::SURE / 2,
                    delay: ms(5),
                    then: Then::Go,
                    ..any.clone()
                },
                Rule {
                    ops: vec![Op::Read, Op::Write],
                    range: Some(512..u64::MAX),
                    then: Then::Short(4096),
                    ..any.clone()
                },
                any,
            ]
        );
        assert_eq!(super::read("").0.rules, [], "no rule, no fault");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place_and_what_is_possible() {
        for (text, says, marked) in [
            (
                "[[fault]]\nop = \"raed\"\nhang = true",
                "fault 1.op: takes read, write, flush, discard, zeroes, or a list of them, not \"raed\"; did you mean \"read\"?",
                "\"raed\"",
            ),
            (
                "[[fault]]\nerror = \"EOI\"",
                "fault 1.error: takes EIO, ENOSPC, EPERM, ENXIO, ENOMEM, EACCES, ENODEV, EINVAL, EFBIG, EROFS, EOPNOTSUPP, ETIMEDOUT, EREMOTEIO, EDQUOT, not \"EOI\"; did you mean \"EIO\"?",
                "\"EOI\"",
            ),
            (
                "[[fault]]\nop = \"read\"",
                "fault 1: names requests and no fault for them: add delay, error, short or hang",
                "[[fault]]",
            ),
            (
                "[[fault]]\nerror = \"EIO\"\nhang = true",
                "fault 1: has more than one of error, short and hang: make a rule of each",
                "true",
            ),
            (
                "[[fault]]\ndelay = \"1s\"\nhang = true",
                "fault 1.delay: a request that hangs never ends: leave out delay or hang",
                "\"1s\"",
            ),
            (
                "[[fault]]\nhang = true\nfrom = \"2m\"\nto = \"1m\"",
                "fault 1.to: ends at 1 MiB, and must end after 2 MiB (from)",
                "\"1m\"",
            ),
            (
                "[[fault]]\nop = \"flush\"\nhang = true\nfrom = \"2m\"",
                "fault 1.from: a flush is of the whole backing: leave from and to out",
                "\"2m\"",
            ),
            (
                "[[fault]]\nop = \"flush\"\nshort = 512",
                "fault 1.short: only reads and writes move bytes: op = [\"read\", \"write\"], or one of them",
                "512",
            ),
            (
                "[[fault]]\nhang = true\nchance = 2",
                "fault 1.chance: takes a number from 0 to 1 such as 0.01 (one of a hundred), not 2",
                "2",
            ),
            (
                "[[fault]]\nhang = true\nfrom = 100",
                "fault 1.from: 100 bytes is not a multiple of 512 (one sector)",
                "100",
            ),
            ("[[fault]]\nhang = true\ntime = 3", "fault 1.time: unknown key; did you mean \"times\"?", "time"),
            ("[fault]\nhang = true", "fault: is written [[fault]], once for each rule", "fault"),
            ("[[rule]]\nhang = true", "rule: unknown key; there are seed, and [[fault]] for each rule", "rule"),
        ] {
            assert_eq!(wrong(text), [(says.to_owned(), marked)], "{text}");
        }
        assert!(wrong("[[fault]\n")[0].0.contains("expected"), "{:?}", wrong("[[fault]\n"));
    }
}
