//! A row of the table of keys: what a key takes, and all that is made of that.

use fairlift::config::Backing;
use fairlift_core::Duration;
use fairlift_core::ceiling::{Ceiling, Rate, Rates};
use serde_json::{Value, json};

use super::given::{Amiss, Given};
use crate::syntax::backing;
use crate::syntax::mistake::SettingPlace;

/// The kinds of objects that can be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Group,
    Export,
    Disk,
    Listener,
    Client,
}

impl Kind {
    /// As people write it.
    pub(crate) fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Add,
    Set,
    Remove,
}

pub(crate) const KINDS: [(&str, Kind); 5] = [
    ("group", Kind::Group),
    ("export", Kind::Export),
    ("disk", Kind::Disk),
    ("listener", Kind::Listener),
    ("client", Kind::Client),
];

/// The type of a key, and the place of its value.
pub(crate) enum Put<T> {
    Number(u64, u64, fn(&mut T, u64)),
    /// A number, or `auto`.
    Auto(u64, u64, fn(&mut T, Option<u64>)),
    Switch(fn(&mut T, bool)),
    /// Whole sectors.
    Size(fn(&mut T, u64)),
    /// Whole sectors, or `auto`.
    AutoSize(fn(&mut T, Option<u64>)),
    /// Above zero.
    Time(fn(&mut T, Duration)),
    /// A time, or `none`.
    Latency(fn(&mut T, Option<Duration>)),
    Rates(fn(&mut T) -> &mut Rates),
    Burst(fn(&mut T) -> &mut Ceiling),
    Text(fn(&mut T, &str) -> Result<(), String>),
    Backing(fn(&mut T, Backing)),
    Choice(fn() -> Vec<&'static str>, fn(&mut T, &str) -> Result<(), String>),
    Other(fn(&mut T, &Given) -> Result<(), String>),
    /// A text, or a list of texts, each with its place in the file; and the error for an empty list.
    List(Option<&'static str>, PutOne<T>),
    /// Read where more is at hand than the value.
    Elsewhere,
}

pub(crate) type PutOne<T> = fn(&mut T, &str, SettingPlace) -> Result<(), String>;

/// A key, with its effect on a `T`.
pub(crate) struct Row<T: 'static> {
    pub(crate) name: &'static str,
    takes: &'static str,
    default: &'static str,
    says: &'static str,
    /// A phrase that a mistake ends with: what its numbers mean.
    means: &'static str,
    put: Put<T>,
    /// It is in the config file; what is added can have it.
    places: [bool; 2],
    /// It can be changed while the server runs.
    is_live: bool,
}

pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) takes: String,
    pub(crate) default: &'static str,
    pub(crate) says: &'static str,
    means: &'static str,
    /// The type of its values, for OpenAPI.
    pub(crate) schema: Value,
    pub(crate) choices: Vec<&'static str>,
    in_file: bool,
    /// It can be given with `add`, and with `set`.
    pub(super) acts: [bool; 2],
}

impl Key {
    /// Whether it takes no text, but a number, true or false.
    pub(super) fn is_plain(&self) -> bool {
        ["integer", "boolean"].iter().any(|kind| self.schema["type"] == *kind)
    }

    /// The key's values and their meaning, as a mistake tells them.
    pub(super) fn wants(&self) -> String {
        explained(format!("{} takes {}", self.name, self.takes), self.means)
    }
}

impl<T> Row<T> {
    pub(crate) const fn new(name: &'static str, put: Put<T>) -> Self {
        Self { name, takes: "", default: "", says: "", means: "", put, places: [true, true], is_live: false }
    }

    /// Its possible values, where its type does not list all.
    pub(crate) const fn takes(mut self, takes: &'static str) -> Self {
        self.takes = takes;
        self
    }

    /// Its default, and its effect in a phrase; it cannot be changed while the server runs.
    pub(crate) const fn fixed(mut self, default: &'static str, says: &'static str) -> Self {
        (self.default, self.says) = (default, says);
        self
    }

    /// The same of a key that can.
    pub(crate) const fn live(mut self, default: &'static str, says: &'static str) -> Self {
        self.is_live = true;
        self.fixed(default, says)
    }

    /// A mistake in its number ends with this phrase.
    pub(crate) const fn means(mut self, means: &'static str) -> Self {
        self.means = means;
        self
    }

    /// Where it can be given: in the config file, with `add`.
    pub(crate) const fn only(mut self, in_file: bool, adds: bool) -> Self {
        self.places = [in_file, adds];
        self
    }

    pub(crate) fn put(&self, to: &mut T, given: &Given) -> Result<(), Amiss> {
        match self.put {
            Put::Number(least, most, put) => {
                put(to, given.number(least..=most).map_err(|says| explained(says, self.means))?);
            }
            Put::Auto(least, most, put) => put(to, given.auto(|given| given.number(least..=most))?),
            Put::Switch(put) => put(to, given.switch()?),
            Put::Size(put) => put(to, given.sectors()?),
            Put::AutoSize(put) => put(
                to,
                given.auto(|given| match given.sectors()? {
                    0 => Err("the size must be larger than 0".into()),
                    bytes => Ok(bytes),
                })?,
            ),
            Put::Time(put) => put(to, given.some_time()?),
            Put::Latency(put) => put(to, given.latency()?),
            Put::Rates(of) => *of(to) = given.rates()?,
            Put::Burst(of) => (of(to).burst, of(to).length) = given.burst()?,
            Put::Text(put) | Put::Choice(_, put) => put(to, given.text()?)?,
            Put::Backing(put) => put(to, backing::parse(given.text()?)?),
            Put::Other(put) => put(to, given)?,
            Put::List(none, put) => {
                let all = given.texts()?;
                none.filter(|_| all.is_empty()).map_or(Ok(()), |none| Err(none.to_owned()))?;
                all.into_iter().try_for_each(|text| put(to, text, SettingPlace::in_flag(self.name)))?;
            }
            Put::Elsewhere => {}
        }
        Ok(())
    }

    /// The target of a list, and the message for an empty one.
    pub(super) fn list(&self) -> Option<(Option<&'static str>, PutOne<T>)> {
        if let Put::List(none, put) = self.put { Some((none, put)) } else { None }
    }

    pub(crate) fn is_text(&self) -> bool {
        matches!(self.put, Put::Text(_) | Put::Backing(_))
    }

    /// Whether it is put by itself, where this is done.
    pub(crate) fn is_put(&self, act: Act) -> bool {
        !matches!(self.put, Put::Elsewhere) && self.acts()[usize::from(act == Act::Set)]
    }

    /// Whether it is put by itself as the config file has it.
    pub(crate) fn is_read(&self) -> bool {
        self.places[0] && !matches!(self.put, Put::Elsewhere)
    }

    const fn acts(&self) -> [bool; 2] {
        [self.places[1], self.is_live]
    }

    fn key(&self) -> Key {
        let (takes, schema, choices) = self.kind();
        let takes = if self.takes.is_empty() { takes } else { self.takes.into() };
        let &Self { name, default, says, means, places: [in_file, _], .. } = self;
        Key { name, takes, default, says, means, schema, choices, in_file, acts: self.acts() }
    }

    /// The possible values by its type: in words, as a schema, and a list to choose from.
    fn kind(&self) -> (String, Value, Vec<&'static str>) {
        let number = |least, most| json!({"type": "integer", "minimum": least, "maximum": most});
        let text = || json!({"type": "string"});
        let or = |one: Value, other: Value| json!({"oneOf": [one, other]});
        let rates = |more: &'static [&'static str]| {
            let names = Rate::ALL.into_iter().map(Rate::name).chain(more.iter().copied());
            let each = or(json!({"type": "integer", "minimum": 1}), text());
            let all: serde_json::Map<_, _> = names.map(|name| (name.to_owned(), each.clone())).collect();
            or(json!({"type": "object", "properties": all}), text())
        };
        let size = || or(json!({"type": "integer", "minimum": 0}), text());
        let auto = || json!({"const": "auto"});
        match self.put {
            Put::Number(least, most, _) => (format!("{least} to {most}"), number(least, most), vec![]),
            Put::Auto(least, most, _) => {
                (format!("`auto`, or {least} to {most}"), or(number(least, most), auto()), vec!["auto"])
            }
            Put::Switch(_) => ("true or false".into(), json!({"type": "boolean"}), vec!["true", "false"]),
            Put::Size(_) => ("a size, a multiple of 512".into(), size(), vec![]),
            Put::AutoSize(_) => ("a size, a multiple of 512".into(), size(), vec!["auto"]),
            Put::Time(_) => ("a time, above zero".into(), text(), vec![]),
            Put::Latency(_) => ("a time, above zero, or `none`".into(), text(), vec![]),
            Put::Rates(_) => ("rates".into(), rates(&[]), vec![]),
            Put::Burst(_) => ("rates".into(), rates(&["seconds"]), vec![]),
            Put::Text(_) => ("text".into(), text(), vec![]),
            Put::Backing(_) => (Backing::takes(), text(), vec![]),
            Put::Choice(choices, _) => (choices().join(", "), json!({"enum": choices()}), choices()),
            Put::Other(_) => ("text".into(), json!({"type": ["boolean", "string", "object"]}), vec![]),
            Put::List(..) => ("a list".into(), or(json!({"type": "array", "items": text()}), text()), vec![]),
            Put::Elsewhere => ("text".into(), json!({"type": "object"}), vec![]),
        }
    }
}

/// A mistake in a value, and the phrase of its row.
fn explained(says: String, means: &str) -> String {
    if means.is_empty() { says } else { format!("{says}; {means}") }
}

pub(super) fn all<T>(rows: &[Row<T>]) -> Vec<Key> {
    rows.iter().map(Row::key).collect()
}

#[derive(Clone, Copy)]
pub(crate) struct Sort {
    /// Its first word.
    pub(crate) name: &'static str,
    pub(crate) header: &'static str,
    /// Its object.
    pub(crate) says: &'static str,
    pub(super) rows: fn() -> Vec<Key>,
}

impl Sort {
    pub(crate) fn keys(&self) -> Vec<Key> {
        (self.rows)().into_iter().filter(|key| key.in_file).collect()
    }
}
