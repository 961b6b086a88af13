//! A table of the config file, read key by key, with every mistake noted and none fatal.

use std::ops::{Range, RangeInclusive};

use fairlift::config::Ublk;
use fairlift_core::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::Sort;
use crate::words::mistake::Mistake;
use crate::words::{self, units};
use fairlift_lab::suggestion;

/// A value and where it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Placed<T> {
    /// The value.
    pub(crate) value: T,
    /// Where, in bytes.
    pub(crate) at: Range<usize>,
}

/// A table with its place.
pub(crate) struct Section<'d> {
    /// How its keys are called in messages: `disk.ssd0`.
    pub(crate) path: String,
    /// Where it is named.
    pub(crate) at: Range<usize>,
    /// The last part of the path, as it is.
    pub(crate) name: String,
    sort: Sort,
    table: &'d DeTable<'d>,
}

impl<'d> Section<'d> {
    /// A table of one of the known sorts; notes keys that this sort does not have.
    pub(crate) fn new(
        path: String,
        name: &str,
        at: Range<usize>,
        sort: Sort,
        table: &'d DeTable<'d>,
        mistakes: &mut Vec<Mistake>,
    ) -> Self {
        let known = || sort.keys.iter().map(|key| key.name);
        for (key, _) in table.iter().filter(|(key, _)| !known().any(|name| name == key.get_ref())) {
            let hint = match suggestion(key.get_ref(), known()) {
                hint if hint.is_empty() => format!("; {} has {}", sort.header, known().collect::<Vec<_>>().join(", ")),
                hint => hint,
            };
            mistakes.push(Mistake {
                at: Some(key.span()),
                key: join(&path, key.get_ref()),
                says: format!("unknown key{hint}"),
            });
        }
        Self { path, at, name: name.into(), sort, table }
    }

    /// The value of `key` in the file, unread.
    pub(crate) fn raw(&self, key: &str) -> Option<&'d Spanned<DeValue<'d>>> {
        debug_assert!(self.sort.keys.iter().any(|row| row.name == key), "{key} has no row in keys.rs");
        self.table.get(key)
    }

    /// The value of `key` as `read` understands it; `None` if it is not there or a mistake.
    pub(crate) fn take<T>(
        &self,
        mistakes: &mut Vec<Mistake>,
        key: &str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<Placed<T>> {
        let value = self.raw(key)?;
        match read(value.get_ref()) {
            Ok(read) => Some(Placed { value: read, at: value.span() }),
            Err(says) => {
                mistakes.push(self.mistake(key, value.span(), says));
                None
            }
        }
    }

    /// A mistake at `at` in the value of `key`.
    pub(crate) fn mistake(&self, key: &str, at: Range<usize>, says: impl Into<String>) -> Mistake {
        Mistake { at: Some(at), key: join(&self.path, key), says: says.into() }
    }
}

/// `path.key`, the key quoted where TOML needs it.
pub(crate) fn join(path: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    let dot = if path.is_empty() { "" } else { "." };
    if bare { format!("{path}{dot}{key}") } else { format!("{path}{dot}{key:?}") }
}

/// Says what a value is, for "…, not this".
pub(crate) fn show(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.chars().count() > 40 => {
            format!("{:?}…", text.chars().take(40).collect::<String>())
        }
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.as_str().to_string(),
        DeValue::Boolean(yes) => yes.to_string(),
        DeValue::Datetime(_) => "a date".into(),
        DeValue::Array(_) => "a list".into(),
        DeValue::Table(_) => "a table".into(),
    }
}

/// Reads text.
pub(crate) fn text(value: &DeValue<'_>) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("takes text in quotes, not {}", show(value)))
}

/// Reads text that `parse` understands.
pub(crate) fn parsed<T>(
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> impl FnOnce(&DeValue<'_>) -> Result<T, String> {
    move |value| parse(&text(value)?)
}

/// Reads true or false.
pub(crate) fn switch(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("takes true or false, not {}", show(value)))
}

/// Reads a number within `range`.
pub(crate) fn number<N: TryFrom<i128>>(range: RangeInclusive<i128>) -> impl FnOnce(&DeValue<'_>) -> Result<N, String> {
    move |value| {
        integer(value)
            .filter(|number| range.contains(number))
            .and_then(|number| N::try_from(number).ok())
            .ok_or_else(|| format!("takes a number from {} to {}, not {}", range.start(), range.end(), show(value)))
    }
}

/// Reads a size: a number of bytes, or text with a unit.
pub(crate) fn size(value: &DeValue<'_>) -> Result<u64, String> {
    match value {
        DeValue::Integer(_) => {
            let bytes = integer(value).and_then(|number| i64::try_from(number).ok()).filter(|bytes| *bytes >= 0);
            bytes.map(i64::unsigned_abs).ok_or_else(|| format!("takes a size, not {}", show(value)))
        }
        DeValue::String(text) => units::parse_size(text),
        _ => Err(format!("takes a size such as 65536 or \"64k\", not {}", show(value))),
    }
}

/// Reads a length of time with its unit.
pub(crate) fn time(value: &DeValue<'_>) -> Result<Duration, String> {
    match value {
        DeValue::Integer(number) => units::parse_time(&number.to_string()),
        DeValue::String(text) => units::parse_time(text),
        _ => Err(format!("takes a time such as \"10s\", not {}", show(value))),
    }
}

/// Reads a length of time above zero.
pub(crate) fn some_time(value: &DeValue<'_>) -> Result<Duration, String> {
    time(value).and_then(units::some_time)
}

/// Reads whether an export is a block device, and what that is like.
pub(crate) fn ublk(value: &DeValue<'_>) -> Result<Option<Ublk>, String> {
    match value {
        DeValue::Boolean(is) => Ok(is.then(Ublk::default)),
        DeValue::String(text) => words::ublk::parse(text),
        DeValue::Table(table) => {
            let words = table.iter().map(|(word, value)| {
                let value = value.get_ref();
                let value = value
                    .as_bool()
                    .map(|is| is.to_string())
                    .or_else(|| integer(value).map(|number| number.to_string()));
                (word.get_ref().as_ref(), value.unwrap_or_else(|| "something else".into()))
            });
            words::ublk::read(words.collect::<Vec<_>>()).map(Some)
        }
        _ => Err(format!("takes true, false or a table such as {{ queues = 2 }}, not {}", show(value))),
    }
}

fn integer(value: &DeValue<'_>) -> Option<i128> {
    let number = value.as_integer()?;
    i128::from_str_radix(number.as_str(), number.radix()).ok()
}
